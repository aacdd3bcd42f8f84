"""Environments that wait as a vector environment of Gymnasium: the same answers as its own, and
waits that overlap.
"""

import asyncio
import threading
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.vector import RecordEpisodeStatistics
from plain_and_async_envs import Awaited, Composite, Counting, same

from flatout.errors import RunError, SettingsError
from flatout.slow_envs.clock import VirtualLoop
from flatout.slow_envs.plain import InThread
from flatout.slow_envs.vector_env import AsyncioVectorEnv

MODES = [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED]
MAKERS: dict[str, Callable[[], Any]] = {
    "CartPole": partial(gymnasium.make, "CartPole-v1"),
    "Pendulum": partial(gymnasium.make, "Pendulum-v1", max_episode_steps=30),
    "Composite": Composite,
}


def history(env: Any, steps: int, seed: int = 5) -> list[Any]:
    """What resets and steps with random actions lead to; episodes restart by hand where the mode
    says so.
    """
    env.action_space.seed(3)
    results = [env.reset(seed=seed)]
    for _ in range(steps):
        results.append(env.step(env.action_space.sample()))
        ended = results[-1][2] | results[-1][3]
        if env.metadata["autoreset_mode"] == AutoresetMode.DISABLED and ended.any():
            results.append(env.reset(options={"reset_mask": ended}))
    results.append(env.reset(seed=[None, 7, None], options={}))
    results.append(env.step(env.action_space.sample()))
    env.close()
    return results


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("kind", ["async", "inline"])
def test_answers_equal_those_of_gymnasium(name: str, mode: AutoresetMode, kind: str) -> None:
    maker = MAKERS[name]
    makers = [(lambda: Awaited(maker())) if kind == "async" else maker] * 3
    theirs = history(SyncVectorEnv([maker] * 3, autoreset_mode=mode), 80)
    ours = history(
        AsyncioVectorEnv(makers, autoreset_mode=mode, kind="auto" if kind == "async" else kind), 80
    )
    assert sum((step[2] | step[3]).sum() for step in theirs[1:-2] if len(step) == 5) > 5
    assert len(ours) == len(theirs)
    for left, right in zip(ours, theirs, strict=True):
        assert same(left, right), (left, right)


@pytest.mark.parametrize(("kind", "mode"), [("thread", MODES[1]), ("process", MODES[0])])
def test_threads_and_processes_answer_the_same(kind: str, mode: AutoresetMode) -> None:
    theirs = history(SyncVectorEnv([Composite] * 3, autoreset_mode=mode), 40)
    ours = history(AsyncioVectorEnv([Composite] * 3, autoreset_mode=mode, kind=kind), 40)
    assert all(same(left, right) for left, right in zip(ours, theirs, strict=True))


class Meeting:
    """Opens when as many wait as were expected."""

    def __init__(self, expected: int) -> None:
        self.expected, self.waiting, self.opened = expected, 0, 0
        self.open = asyncio.Event()

    async def wait(self) -> None:
        self.waiting += 1
        if self.waiting == self.expected:
            self.open.set()
            self.open, self.waiting, self.opened = asyncio.Event(), 0, self.opened + 1
        else:
            await self.open.wait()


class Meets(Awaited):
    """Nobody's step ends before all have begun theirs."""

    def __init__(self, meeting: Meeting) -> None:
        super().__init__(Counting())
        self.meeting = meeting

    async def step(self, action: Any) -> Any:
        await self.meeting.wait()
        return await super().step(action)


def test_all_wait_at_the_same_time() -> None:
    """One at a time, or with one missing, this would never end."""
    meeting = Meeting(20)
    env = AsyncioVectorEnv([lambda: Meets(meeting)] * 20)
    env.reset(seed=0)
    for k in range(3):
        observation, *_ = env.step(np.zeros(20, int))
        assert (observation == k + 1).all()
    assert meeting.opened == 3
    env.close()


class Sticky(Awaited):
    """Waits for ever when asked to; counts how often that was cancelled."""

    def __init__(self) -> None:
        super().__init__(Counting())
        self.cancelled = 0

    async def step(self, action: Any) -> Any:
        if action == Counting.HANG:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
        if action == Counting.ODD:
            raise TimeoutError("its own")
        return await super().step(action)


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Vector environments live on simulated time: deadlines pass only where nothing else can
    happen.
    """
    monkeypatch.setattr(asyncio, "new_event_loop", VirtualLoop)


@pytest.mark.usefixtures("simulated")
@pytest.mark.parametrize("mode", MODES)
def test_a_step_over_its_deadline_is_cut_off(mode: AutoresetMode) -> None:
    env = AsyncioVectorEnv([Sticky] * 3, autoreset_mode=mode, step_deadline_s=0.2)
    env.reset()
    env.step(np.array([0, 0, 0]))
    observation, reward, terminated, truncated, info = env.step(np.array([0, Counting.HANG, 0]))
    assert (
        reward.tolist() == [1, 0, 1]
        and not terminated.any()
        and truncated.tolist() == [False, True, False]
    )
    assert env.get_attr("cancelled") == (0, 1, 0)
    if mode == AutoresetMode.SAME_STEP:
        assert observation[:, 0].tolist() == [2, 0, 2] and info["final_obs"][1].tolist() == [1]
        assert info["final_info"]["timed_out"].tolist() == [False, True, False]
    else:
        assert observation[:, 0].tolist() == [2, 1, 2] and info["timed_out"].tolist() == [
            False,
            True,
            False,
        ]
    if mode == AutoresetMode.DISABLED:
        with pytest.raises(
            SettingsError, match=r"environments \[1\] have ended, and autoreset is disabled"
        ):
            env.step(np.zeros(3, int))
        env.reset(options={"reset_mask": truncated})
    observation, *_ = env.step(np.zeros(3, int))
    assert observation[:, 0].tolist() == [3, 0 if mode == AutoresetMode.NEXT_STEP else 1, 3]
    env.close()


def test_a_thread_that_hangs_is_replaced() -> None:
    inside, gate = threading.Event(), threading.Event()

    class Gated(Counting):
        def step(self, action: Any) -> Any:
            if action == Counting.HANG:
                inside.set()
                gate.wait()
            return super().step(Counting.PLAIN)

    env = AsyncioVectorEnv([Gated] * 2, kind="thread", step_deadline_s=3600)
    env.reset()
    before: Any = list(env.envs)

    async def deadline() -> None:
        """Let it pass when one hangs and the other is done: then two tasks are left besides this
        one.
        """
        while not inside.is_set() or len(asyncio.all_tasks()) > 3:
            await asyncio.sleep(0.001)
        loop: Any = asyncio.get_running_loop()
        now = loop.time
        loop.time = lambda: now() + 3600

    env.loop.loop.create_task(deadline())
    _, _, _, truncated, info = env.step(np.array([Counting.HANG, 0]))
    gate.set()
    assert truncated.tolist() == [True, False] and info["final_info"]["timed_out"][0]
    assert (
        env.envs[0] is not before[0]
        and env.envs[1] is before[1]
        and isinstance(env.envs[0], InThread)
    )
    assert env.step(np.zeros(2, int))[0][:, 0].tolist() == [1, 2]
    env.close()


@pytest.mark.usefixtures("simulated")
def test_a_reset_over_its_deadline_is_an_error() -> None:
    class NeverBegins(Awaited):
        async def reset(self, **named: Any) -> Any:
            await asyncio.Event().wait()

    env = AsyncioVectorEnv([lambda: NeverBegins(Counting())], reset_deadline_s=0.05)
    with pytest.raises(RunError, match=r"environment 0 was not reset within 0\.05 s"):
        env.reset()
    assert env.closed


def test_an_exception_closes_everything_and_is_the_original() -> None:
    env = AsyncioVectorEnv([Sticky] * 3)
    env.reset()
    envs: Any = list(env.envs)
    with pytest.raises(LookupError, match="no page 1"):
        env.step(np.array([Counting.HANG, Counting.RAISE, Counting.HANG]))
    assert [one.closed for one in envs] == [1, 1, 1] and [one.cancelled for one in envs] == [
        1,
        0,
        1,
    ]
    env.close()
    for late in (env.reset, lambda: env.step(np.zeros(3, int)), lambda: env.call("cancelled")):
        with pytest.raises(SettingsError, match="closed: make a new one"):
            late()


def test_a_timeout_of_the_environments_own_is_its_exception() -> None:
    env = AsyncioVectorEnv([Sticky] * 2, step_deadline_s=60)
    env.reset()
    with pytest.raises(TimeoutError, match="its own"):
        env.step(np.array([0, Counting.ODD]))


def test_closing_goes_on_after_a_failure() -> None:
    class FailsToClose(Awaited):
        async def close(self) -> None:
            await super().close()
            raise OSError("stuck")

    env = AsyncioVectorEnv([lambda: FailsToClose(Counting()), Sticky])
    envs: Any = list(env.envs)
    with pytest.raises(OSError, match="stuck"):
        env.close()
    assert [one.closed for one in envs] == [1, 1]
    env.close()
    env = AsyncioVectorEnv([lambda: FailsToClose(Counting())])
    env.reset()
    with pytest.raises(LookupError) as caught:
        env.step(np.array([Counting.RAISE]))
    assert caught.value.__notes__ == ["Closing the environments failed too: OSError: stuck"]


def test_makers_that_fail_or_differ_leave_nothing_open() -> None:
    made: list[Sticky] = []

    def keep() -> Sticky:
        made.append(Sticky())
        return made[-1]

    with pytest.raises(ZeroDivisionError):
        AsyncioVectorEnv([keep, lambda: 1 / 0])
    with pytest.raises(
        SettingsError, match=r"environment 1 has the spaces Dict.*they must be equal"
    ):
        AsyncioVectorEnv([keep, Composite], kind="inline")
    assert [env.closed for env in made] == [1, 1]
    with pytest.raises(SettingsError, match="no makers"):
        AsyncioVectorEnv([])


def test_inside_a_running_loop() -> None:
    """As in a notebook: the loop moves into a thread."""

    async def cell() -> list[Any]:
        env = AsyncioVectorEnv([lambda: Awaited(Composite())] * 3)
        return history(env, 10)

    outside = history(AsyncioVectorEnv([lambda: Awaited(Composite())] * 3), 10)
    assert all(same(left, right) for left, right in zip(asyncio.run(cell()), outside, strict=True))
    env = AsyncioVectorEnv([Sticky])  # made outside, used and closed inside
    env.reset()

    async def later() -> Any:
        seen = env.step(np.zeros(1, int))[0]
        env.close()
        return seen

    assert asyncio.run(later()).tolist() == [[1]]


def test_attributes_and_methods() -> None:
    for kind in ("inline", "thread", "process"):
        env = AsyncioVectorEnv([Composite] * 3, kind=kind)
        env.reset(seed=1)
        env.set_attr("t", [1, 2, 3])
        assert env.get_attr("t") == (1, 2, 3) and env.call("twice", 10) == (21, 22, 23)
        env.set_attr("t", 4)
        assert env.get_attr("t") == (4, 4, 4)
        with pytest.raises(SettingsError, match="2 values for 3 environments"):
            env.set_attr("t", [1, 2])
        with pytest.raises(AttributeError):
            env.get_attr("nothing")
        assert env.step(env.action_space.sample())[1].shape == (3,)  # that was no reason to close
        env.close()
    env = AsyncioVectorEnv([Sticky] * 2)
    assert env.call("name", "a") == ("a 0", "a 0")  # coroutines are awaited
    env.close()


def test_arguments_that_do_not_fit() -> None:
    env = AsyncioVectorEnv([Counting] * 2, kind="inline")
    for mask in ([True], np.array([1, 0]), np.array([False, False])):
        with pytest.raises(SettingsError, match="it must be 2 booleans"):
            env.reset(options={"reset_mask": mask})
    with pytest.raises(SettingsError, match="3 seeds for 2 environments"):
        env.reset(seed=[1, 2, 3])
    with pytest.raises(SettingsError, match="3 actions for 2 environments"):
        env.step(np.zeros(3, int))
    assert not env.closed
    env.close()


def test_wrappers_of_gymnasium_take_it() -> None:
    for mode in MODES[:2]:
        env = RecordEpisodeStatistics(
            AsyncioVectorEnv([MAKERS["CartPole"]] * 2, autoreset_mode=mode, kind="inline")
        )
        assert env.metadata["autoreset_mode"] == mode
        env.reset(seed=0)
        lengths = []
        for _ in range(60):
            *_, info = env.step(np.array([0, 1]))
            episode = info.get("episode") or info.get("final_info", {}).get("episode")
            lengths += [] if episode is None else episode["l"][episode["l"] > 0].tolist()
        assert len(lengths) > 4 and all(5 < length < 15 for length in lengths)
        env.close()


def test_final_observations_survive_an_environment_that_writes_into_its_own() -> None:
    class Reuses(Counting):
        def reset(self, **named: Any) -> Any:
            self.seen = getattr(self, "seen", np.zeros(1, np.float32))
            self.seen[:], self.count = 0, 0
            return self.seen, {}

        def step(self, action: Any) -> Any:
            self.count += 1
            self.seen[:] = self.count
            return self.seen, 0.0, self.count == 2, False, {}

    env = AsyncioVectorEnv([Reuses], kind="inline")
    first, _ = env.reset()
    env.step(np.zeros(1, int))
    observation, *_, info = env.step(np.zeros(1, int))
    assert (
        first.tolist() == [[0]]
        and observation.tolist() == [[0]]
        and info["final_obs"][0].tolist() == [2]
    )
    env.close()


def test_nothing_is_left_to_warn_about() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        env = AsyncioVectorEnv([Counting] * 2, kind="process")
        env.reset()
        env.close()
        del env
    assert not caught
