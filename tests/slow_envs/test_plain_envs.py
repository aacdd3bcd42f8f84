"""Plain environments among async ones: the way that is chosen, and what threads may and may
not do.
"""

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from plain_and_async_envs import Awaited, Composite, Counting, same

from flatout.errors import SettingsError
from flatout.slow_envs import choice
from flatout.slow_envs.async_env import AsyncEnv, waits
from flatout.slow_envs.choice import SteppingChoice, choose_stepping, measure_steps
from flatout.slow_envs.plain import Inline, InThread, StillBusyError, adapt_env
from flatout.slow_envs.process_env import InProcess


class Clock:
    """What the measuring reads in place of the system's clocks: steps take what they say, on any
    machine.
    """

    def __init__(self) -> None:
        self.passed = self.computed = self.queued = 0.0

    def perf_counter(self) -> float:
        return self.passed

    def thread_time(self) -> float:
        return self.computed


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(choice, "time", made)
    monkeypatch.setattr(choice, "seconds_queued", lambda: made.queued)
    return made


class Costs(Counting):
    """Each step waits, computes, and stands in the queue for a core, for so many seconds each."""

    def __init__(self, clock: Clock, waits: float, computes: float, queues: float) -> None:
        super().__init__()
        self.clock, self.costs = clock, (waits, computes, queues)

    def step(self, action: Any) -> Any:
        waits, computes, queues = self.costs
        self.clock.passed += waits + computes + queues
        self.clock.computed += computes
        self.clock.queued += queues
        return super().step(Counting.PLAIN)


class Steady(Counting):
    """Whatever the action."""

    def step(self, action: Any) -> Any:
        return super().step(Counting.PLAIN)


@pytest.mark.parametrize(
    ("costs", "kind", "adapter", "steps"),
    [
        ((0.02, 0.001, 0.0), "thread", InThread, 24),  # 0.5 s are enough
        ((0.002, 0.02, 0.0), "process", InProcess, 23),
        ((0.002, 0.02, 1.0), "process", InProcess, 1),  # on a busy machine
        ((0.00005, 0.0001, 0.0), "inline", Inline, 64),
        ((0.00005, 0.0001, 0.01), "inline", Inline, 50),
    ],
)
def test_the_way_is_chosen_by_what_steps_cost(
    clock: Clock, costs: tuple[float, float, float], kind: str, adapter: type, steps: int
) -> None:
    env: Any = adapt_env(partial(Costs, clock, *costs))
    assert isinstance(env, adapter) and isinstance(env, AsyncEnv) and waits(env)
    # sums of many small numbers
    assert env.choice.kind == kind and abs(env.choice.steps - steps) <= 1
    assert str(env.choice).startswith(f"{kind}: ")

    async def use() -> None:
        seen, _ = await env.reset(seed=1)
        assert seen in env.observation_space
        assert len(await env.step(env.action_space.sample())) == 5
        await env.close()

    asyncio.run(use())


def test_the_systems_clocks_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """How long a step takes depends on the machine; that it takes no less than it sleeps does
    not.
    """
    monkeypatch.setattr(choice, "STEPS", 3)
    monkeypatch.setattr(choice, "seconds_queued", lambda: 0.0)

    class Sleeps(Steady):
        def step(self, action: Any) -> Any:
            time.sleep(0.01)
            return super().step(action)

    found = measure_steps(Sleeps())
    assert 1 <= found.steps <= 3 and found.step_s > 0.009 and 0 <= found.cpu_share <= 1


def test_the_borders_of_the_choice() -> None:
    assert choose_stepping(0.0001, 0.01, 9) == SteppingChoice("inline", 0.0001, 0.01, 9)
    assert (
        choose_stepping(0.0003, 0.49, 9).kind == "thread"
        and choose_stepping(0.0003, 0.51, 9).kind == "process"
    )
    assert (
        str(choose_stepping(0.0125, 0.25, 8))
        == "thread: 12.500 ms per step, 25% computing (8 steps)"
    )


@pytest.mark.usefixtures("clock")
def test_measuring_goes_on_after_the_end_of_an_episode() -> None:
    env = Composite()
    assert measure_steps(env).steps > 10 and env.t <= env.last  # its episodes have 2 to 6 steps


@pytest.mark.usefixtures("clock")
def test_what_is_used_has_not_been_measured() -> None:
    made: list[Steady] = []

    def keep() -> Steady:
        made.append(Steady())
        return made[-1]

    env: Any = adapt_env(keep)
    assert len(made) == 2 and env.env is made[1] and made[0].count > 0 and made[1].count == 0
    one = Steady()
    with pytest.raises(SettingsError, match="the same environment twice"):
        adapt_env(lambda: one)


def test_async_environments_are_left_alone() -> None:
    env = Awaited(Counting())
    for kind in ("auto", "inline", "thread"):
        assert adapt_env(lambda: env, kind) is env


def test_what_is_no_environment_is_refused() -> None:
    class NoSpaces:
        def reset(self) -> None: ...
        def step(self) -> None: ...
        def close(self) -> None: ...

    for wrong in (lambda: None, lambda: "CartPole-v1", NoSpaces):
        for kind in ("auto", "inline", "thread"):
            with pytest.raises(
                SettingsError, match="which is no environment: it must have reset, step and close"
            ):
                adapt_env(wrong, kind)
    with pytest.raises(
        SettingsError, match="kind is 'proces'; it may be one of auto, inline, thread, process"
    ):
        adapt_env(Counting, "proces")


@pytest.mark.parametrize("kind", ["inline", "thread"])
def test_they_answer_as_the_environment_does(kind: str) -> None:
    async def both() -> None:
        ours: Any = adapt_env(Composite, kind)
        theirs = Composite()
        assert same(await ours.reset(seed=4), theirs.reset(seed=4))
        for k in range(20):
            assert same(await ours.step(np.array([k % 3, 1])), theirs.step(np.array([k % 3, 1])))
        await ours.close()

    asyncio.run(both())


class Gated(gymnasium.Env):
    """A step waits until somebody opens the gate; knows in which threads it was called."""

    observation_space, action_space = spaces.Discrete(9), spaces.Discrete(2)

    def __init__(self) -> None:
        self.gate, self.inside, self.most = threading.Event(), 0, 0
        self.threads, self.closed = {threading.get_ident()}, threading.Event()

    def reset(self, **named: Any) -> Any:
        self.threads.add(threading.get_ident())
        return 0, {}

    def step(self, action: Any) -> Any:
        self.threads.add(threading.get_ident())
        self.inside += 1
        self.most = max(self.most, self.inside)
        if action == 1:
            self.gate.wait()
        self.inside -= 1
        return 1, 0.0, False, False, {}

    def close(self) -> None:
        assert self.inside == 0
        self.closed.set()


def test_a_cancelled_call_keeps_others_out_until_it_returned() -> None:
    async def run() -> None:
        env: Any = adapt_env(Gated, "thread")
        await env.reset()
        task = asyncio.create_task(env.step(1))
        while not env.env.inside:
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(StillBusyError, match="has not returned"):
            await env.reset()
        env.env.gate.set()
        while not env.running.done():
            await asyncio.sleep(0.001)
        with pytest.raises(SettingsError, match=r"reset\(\) or close\(\) comes first"):
            await env.step(0)
        await env.reset()
        await env.step(0)
        assert env.env.most == 1 and len(env.env.threads) == 1  # made and stepped in one thread
        await env.close()
        await env.close()
        assert env.env.closed.is_set()
        with pytest.raises(SettingsError, match="closed"):
            await env.reset()

    asyncio.run(run())


def test_closing_waits_for_the_call_that_hangs_and_nobody_waits_for_closing() -> None:
    async def run() -> Gated:
        env = InThread(Gated())
        await env.reset()
        task = asyncio.create_task(env.step(1))
        while not env.env.inside:  # type: ignore[attr-defined]
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await env.close()
        return env.env  # type: ignore[return-value]

    env = asyncio.run(run())
    assert not env.closed.is_set()
    env.gate.set()
    assert env.closed.wait(600)


def test_a_shared_pool_of_threads() -> None:
    async def run() -> None:
        with ThreadPoolExecutor(4) as pool:
            envs = [InThread(Gated(), pool) for _ in range(4)]
            await asyncio.gather(*(env.reset() for env in envs))
            steps = asyncio.gather(*(env.step(1) for env in envs))
            while not all(env.env.inside for env in envs):  # type: ignore[attr-defined]
                await asyncio.sleep(0.001)  # all are inside at once: their waits overlap
            for env in envs:
                env.env.gate.set()  # type: ignore[attr-defined]
            assert [step[0] for step in await steps] == [1] * 4
            await asyncio.gather(*(env.close() for env in envs))

    asyncio.run(run())


def test_exceptions_of_a_thread_are_the_environments() -> None:
    async def run() -> None:
        env: Any = adapt_env(Counting, "thread")
        await env.reset()
        with pytest.raises(LookupError, match="no page 1"):
            await env.step(Counting.RAISE)
        assert (await env.step(Counting.PLAIN))[0].tolist() == [2]
        await env.close()

    asyncio.run(run())
