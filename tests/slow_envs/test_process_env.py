"""Environments in processes: real ones, which are killed, hang, raise, and lose their parent."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from plain_and_async_envs import Awaited, Composite, Counting, Unpicklable, same

from flatout.errors import SettingsError
from flatout.slow_envs import process_parent
from flatout.slow_envs.process_env import EnvFailedError, InProcess, WorkerDied
from worker_processes import lives

PATIENCE_S = 600.0  # for things that take milliseconds on a machine that is not busy


def until(condition: Callable[[], Any]) -> Any:
    """Wait for this to become true."""
    end = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)
    return found


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No process is killed because a machine is slow to close it."""
    monkeypatch.setattr(process_parent, "CLOSE_S", PATIENCE_S)


async def soon(condition: Callable[[], Any]) -> Any:
    """The same in an event loop."""
    return await asyncio.to_thread(until, condition)


def test_it_answers_as_the_environment_does() -> None:
    async def both() -> None:
        far, near = InProcess(Composite), Composite()
        assert (
            far.observation_space == near.observation_space
            and far.action_space == near.action_space
        )
        assert far.metadata["render_modes"] == [] and far.render_mode is None
        assert same(await far.reset(seed=4), near.reset(seed=4))
        for k in range(30):
            action = np.array([k % 3, k % 4])
            ours, theirs = await far.step(action), near.step(action)
            assert same(ours, theirs)
            if ours[2] or ours[3]:
                assert same(await far.reset(), near.reset())
        assert await far.apply(lambda env: env.twice(3)) == near.twice(3)
        assert await far.apply(os_pid) == far.pid != os.getpid()
        await far.close()
        await far.close()
        assert not lives(far.pid)

    asyncio.run(both())


def os_pid(env: Any) -> int:
    return os.getpid()


def test_neither_torch_nor_jax_is_loaded() -> None:
    async def modules() -> set[str]:
        env = InProcess(partial(gymnasium.make, "CartPole-v1"))
        await env.reset()
        await env.step(0)
        found = await env.apply(lambda env: sorted(sys.modules))
        await env.close()
        return set(found)

    found = asyncio.run(modules())
    assert "gymnasium" in found and found.isdisjoint(
        {"torch", "jax", "jaxlib", "aiohttp", "optuna"}
    )


def test_spaces_without_a_fixed_size_go_through_the_socket() -> None:
    class Talks(gymnasium.Env):
        observation_space = spaces.Text(200_000)
        action_space = spaces.Sequence(spaces.Discrete(9))

        def reset(self, **named: Any) -> Any:
            return "", {"big": np.zeros(300_000)}

        def step(self, action: Any) -> Any:
            return "x" * 100_000 + str(action), 0.5, True, False, {}

    async def talk() -> None:
        env = InProcess(Talks)
        seen, info = await env.reset()
        assert seen == "" and info["big"].shape == (300_000,)
        assert await env.step((1, 2)) == ("x" * 100_000 + "(1, 2)", 0.5, True, False, {})
        # more than the socket holds
        assert len((await env.step(tuple(range(9)) * 40_000))[0]) > 900_000
        await env.close()

    asyncio.run(talk())


def test_kill_9_amid_a_step(tmp_path: Path) -> None:
    async def killed() -> None:
        env = InProcess(partial(Counting, str(tmp_path)))
        await env.reset()
        task, first = asyncio.create_task(env.step(Counting.HANG)), env.pid
        await soon(lambda: list(tmp_path.glob("hangs-*")))
        os.kill(first, signal.SIGKILL)
        with pytest.raises(WorkerDied, match=rf"\(pid {first}\) was ended by signal 9 \(SIGKILL\)"):
            await task
        with pytest.raises(SettingsError, match="call reset"):
            await env.step(Counting.PLAIN)
        await env.reset()
        assert env.pid != first and (await env.step(Counting.PLAIN))[0].tolist() == [1]
        second = env.pid
        os.kill(second, signal.SIGKILL)  # while nobody waits for it: the next reset finds out
        await soon(lambda: env.process.process.poll() is not None)
        await env.reset()
        assert (await env.step(Counting.PLAIN))[0].tolist() == [1] and env.pid != second
        os.kill(env.pid, signal.SIGKILL)
        with pytest.raises(WorkerDied, match="SIGKILL"):
            await env.step(Counting.PLAIN)
        await env.close()

    asyncio.run(killed())


def test_a_step_that_hangs_is_cancelled_with_its_process(tmp_path: Path) -> None:
    async def hung() -> None:
        env = InProcess(partial(Counting, str(tmp_path)))
        await env.reset()
        task, first = asyncio.create_task(env.step(Counting.HANG)), env.pid
        await soon(lambda: list(tmp_path.glob("hangs-*")))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await task
        assert not lives(first)
        await env.reset()
        assert (await env.step(Counting.PLAIN))[0].tolist() == [1] and env.pid != first
        await env.close()
        assert not lives(env.pid) and len(list(tmp_path.glob("closed-*"))) == 1

    asyncio.run(hung())


def test_an_exception_arrives_as_it_was_with_its_traceback() -> None:
    async def failing() -> None:
        env = InProcess(Counting)
        await env.reset()
        pid = env.pid
        with pytest.raises(LookupError, match="no page 1") as caught:
            await env.step(Counting.RAISE)
        assert (
            "plain_and_async_envs.py" in caught.value.__notes__[0]
            and "in step" in caught.value.__notes__[0]
        )
        with pytest.raises(EnvFailedError, match="raised Unpicklable: odd 2") as odd:
            await env.step(Counting.ODD)
        assert Unpicklable.__name__ in odd.value.__notes__[0]
        await env.step(Counting.PLAIN)
        assert env.pid == pid  # an exception is no reason to end the process
        with pytest.raises(WorkerDied, match="ended with exit code 7") as died:
            await env.step(Counting.EXIT)
        assert "SystemExit: 7" in died.value.__notes__[0]
        await env.close()

    asyncio.run(failing())


def broken_maker() -> Any:
    raise ConnectionRefusedError("no server")


def test_a_maker_that_fails() -> None:
    async def failing() -> None:
        with pytest.raises(ConnectionRefusedError, match="no server") as caught:
            await InProcess(broken_maker).reset()
        assert "in broken_maker" in caught.value.__notes__[0]
        env = InProcess(broken_maker)
        with pytest.raises(ConnectionRefusedError):
            _ = env.observation_space
        await env.close()
        env = InProcess(partial(sys.exit, 3))
        with pytest.raises(WorkerDied, match="exit code 3"):
            _ = env.observation_space
        await env.close()

    asyncio.run(failing())


def test_calls_that_must_not_be() -> None:
    async def wrong() -> None:
        env = InProcess(Composite)
        first = asyncio.create_task(env.reset())
        await asyncio.sleep(0)
        with pytest.raises(SettingsError, match="not known before reset"):
            _ = env.action_space
        with pytest.raises(SettingsError, match="await one at a time"):
            await env.reset()
        await first
        for action in (np.array([1]), np.array([0.5, 0.5]), "a"):
            with pytest.raises(SettingsError, match="is not in the action space"):
                await env.step(action)
        await env.close()
        with pytest.raises(SettingsError, match="closed environment"):
            await env.reset()

    asyncio.run(wrong())


def test_an_async_environment_may_live_in_a_process() -> None:
    async def run() -> Any:
        env = InProcess(lambda: Awaited(Counting()))
        await env.reset()
        seen = (await env.step(Counting.PLAIN))[0]
        await env.close()
        return seen

    assert asyncio.run(run()).tolist() == [1]


def test_the_end_of_the_thread_that_started_it_is_not_its_own() -> None:
    started: list[InProcess] = []
    thread = threading.Thread(target=lambda: started.append(InProcess(Counting)))
    thread.start()
    thread.join()

    async def use() -> Any:
        (env,) = started
        assert env.observation_space.shape == (1,)
        await env.reset()
        seen = (await env.step(Counting.PLAIN))[0]
        await env.close()
        return seen

    assert asyncio.run(use()).tolist() == [1]


DRIVER = """
import asyncio, sys, threading
from functools import partial
from plain_and_async_envs import Counting
from flatout.slow_envs.process_env import InProcess

async def main(folder):
    idle, stuck = [InProcess(partial(Counting, folder)) for _ in range(2)]
    for env in (idle, stuck):
        await env.reset()
    print(idle.pid, stuck.pid, flush=True)
    await stuck.step(Counting.HANG)

def begin():
    asyncio.run(main(sys.argv[1]))

if sys.argv[2] == "main":
    begin()
else:
    thread = threading.Thread(target=begin)
    thread.start()
    thread.join()
"""


@pytest.mark.parametrize("place", ["main", "thread"])
def test_a_driver_that_is_killed_leaves_no_process(tmp_path: Path, place: str) -> None:
    """From the main thread Linux ends them; from another one, they watch."""
    paths = os.pathsep.join(path for path in sys.path if path)
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(tmp_path), place],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": paths},
    )
    assert driver.stdout is not None
    with driver.stdout:
        pids = [int(word) for word in driver.stdout.readline().split()]
        assert len(pids) == 2
        until(lambda: list(tmp_path.glob("hangs-*")))
        assert all(lives(pid) for pid in pids)
        driver.kill()
        driver.wait()
        until(lambda: not any(lives(pid) for pid in pids))
