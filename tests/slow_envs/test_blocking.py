"""Environments that wait as plain ones of Gymnasium."""

import asyncio
import signal
import threading
import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from plain_and_async_envs import Awaited, Composite, Counting, same

from flatout.errors import SettingsError
from flatout.slow_envs.blocking import Blocking, OwnLoop


def awaited(name: str) -> Awaited:
    return Awaited(gymnasium.make(name).unwrapped)


@pytest.mark.parametrize(
    "maker", [partial(awaited, "CartPole-v1"), partial(awaited, "Pendulum-v1"), Awaited]
)
def test_gymnasiums_checker_takes_it(maker: Any) -> None:
    env = Blocking(maker if maker is not Awaited else Awaited(Composite()))
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message=".*(Box observation space|not having a spec|symmetric|normalized).*"
        )
        check_env(env, skip_render_check=True)
    env.close()


def test_it_answers_as_the_environment_does() -> None:
    ours, theirs = Blocking(Awaited(Composite())), Composite()
    assert same(ours.reset(seed=8), theirs.reset(seed=8))
    for _ in range(20):
        assert same(ours.step(np.array([1, 1])), theirs.step(np.array([1, 1])))
    inner: Any = ours.env
    ours.close()
    ours.close()
    assert inner.closed == 1


def blocking_cart() -> Blocking:
    return Blocking(partial(awaited, "CartPole-v1"))


def test_gymnasiums_processes_step_it() -> None:
    env = AsyncVectorEnv(
        [blocking_cart] * 2, context="forkserver", autoreset_mode=AutoresetMode.SAME_STEP
    )
    other = SyncVectorEnv(
        [lambda: gymnasium.make("CartPole-v1").unwrapped] * 2,
        autoreset_mode=AutoresetMode.SAME_STEP,
    )
    assert same(env.reset(seed=2)[0], other.reset(seed=2)[0])
    for _ in range(15):
        assert same(env.step(np.array([0, 1]))[:4], other.step(np.array([0, 1]))[:4])
    env.close()
    other.close()


def test_plain_environments_need_no_such_face() -> None:
    with pytest.raises(SettingsError, match="whose step is no coroutine"):
        Blocking(Counting)
    with pytest.raises(ZeroDivisionError):
        Blocking(lambda: 1 / 0)  # type: ignore[return-value]


def test_inside_a_running_loop() -> None:
    env = Blocking(lambda: Awaited(Counting()))
    env.reset()

    async def cell() -> Any:
        seen = env.step(0)[0]
        env.close()
        return seen

    assert asyncio.run(cell()).tolist() == [1]


@pytest.fixture
def heeded() -> Iterator[None]:
    """Ctrl-C as on a terminal: whoever starts tests in the background may have had it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heeded")
def test_ctrl_c_cancels_what_is_awaited() -> None:
    """The signal comes while the loop waits, as it would from a terminal."""
    loop, cancelled = OwnLoop(), threading.Event()

    async def wait() -> None:
        asyncio.get_running_loop().call_soon(signal.raise_signal, signal.SIGINT)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async def one() -> int:
        return 1

    with pytest.raises(KeyboardInterrupt):
        loop.run(wait())
    assert cancelled.is_set() and loop.run(one()) == 1  # and the loop is as good as before
    loop.close()
    loop.close()


def test_a_loop_that_was_never_used_is_closed_from_inside_another() -> None:
    async def cell() -> None:
        OwnLoop().close()

    asyncio.run(cell())
