"""The opposite door: an environment that waits, as a plain `gymnasium.Env` for libraries that know
no others.

`Blocking` runs the environment's event loop for as long as each call takes. Nothing overlaps then;
Gymnasium's AsyncVectorEnv and Stable-Baselines3's SubprocVecEnv can put several of them in
processes.
"""

import asyncio
import threading
from collections.abc import Callable
from typing import TypeGuard, TypeVar

import gymnasium as gym

from flatout.errors import SettingsError
from flatout.slow_envs.async_env import AsyncEnv, waits
from flatout.slow_envs.coroutines import Work
from flatout.slow_envs.gymnasium_types import EnvOptions, Maker, ResetTuple, SpaceValue, StepTuple

__all__ = ["Blocking"]

T = TypeVar("T")


class OwnLoop:
    """An event loop for callers that have none: it runs only while they wait for it.

    A caller that is itself inside a running event loop (a notebook) cannot run another in its
    thread: from its first call on, this loop lives in a thread.
    """

    def __init__(self) -> None:
        self.runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        # made here: two threads that ask for it at once would make two
        self.loop = self.runner.get_loop()
        self.thread: threading.Thread | None = None
        self.closed = False

    def run(self, work: Work[T]) -> T:
        """Run a coroutine to its end and return its result."""
        if self.thread is None and inside_a_loop():
            self.thread = threading.Thread(target=self.run_until_stopped, daemon=True)
            self.thread.start()
        if self.thread is None:
            return self.run_here(work)
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # has an effect only where the wait was interrupted
            raise

    def run_here(self, work: Work[T]) -> T:
        """Run the loop until the coroutine has ended; Ctrl-C cancels it.

        `Runner.run` would do, but for what it costs: it sets a signal handler at every call, for
        which Python makes a text of the task and its result.
        """
        task = self.loop.create_task(work)
        try:
            return self.loop.run_until_complete(task)
        except BaseException:
            if not task.done():
                task.cancel()
                self.loop.run_until_complete(asyncio.wait([task]))
            raise

    def run_until_stopped(self) -> None:
        """Run the loop until it is stopped, and close it in the thread where it ran."""
        self.loop.run_forever()
        self.runner.close()

    def close(self) -> None:
        """Cancel what is left and close the loop; twice is fine."""
        if self.closed:
            return
        self.closed = True
        if self.thread is None and not inside_a_loop():
            self.runner.close()
            return
        if self.thread is None:
            self.thread = threading.Thread(target=self.run_until_stopped, daemon=True)
            self.thread.start()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()


def inside_a_loop() -> bool:
    """Whether an event loop is running in this thread."""
    return asyncio._get_running_loop() is not None


class Blocking(gym.Env[SpaceValue, SpaceValue]):
    """An AsyncEnv, or what a maker makes of one, with Gymnasium's face.

    >>> from gymnasium.spaces import Box, Discrete
    >>> class Shop:
    ...     observation_space, action_space = Box(0, 1, (3,)), Discrete(2)
    ...     async def reset(self, *, seed=None, options=None): ...
    ...     async def step(self, action):
    ...         await asyncio.sleep(0.001)
    ...         return self.observation_space.low, 1.0, True, False, {}
    ...     async def close(self): ...
    >>> env = Blocking(Shop())
    >>> env.step(0)[1]
    1.0
    >>> env.close()
    """

    def __init__(self, env_or_maker: AsyncEnv | Callable[[], AsyncEnv]) -> None:
        self.loop = OwnLoop()
        try:
            self.env = self.loop.run(make_env(env_or_maker))
        except BaseException:
            self.loop.close()
            raise
        self.observation_space, self.action_space = (
            self.env.observation_space,
            self.env.action_space,
        )
        self.metadata = getattr(self.env, "metadata", {"render_modes": []})
        self.render_mode = getattr(self.env, "render_mode", None)

    def reset(self, *, seed: int | None = None, options: EnvOptions = None) -> ResetTuple:
        """Begin an episode; blocks until it has begun."""
        super().reset(seed=seed)
        return self.loop.run(self.env.reset(seed=seed, options=options))

    def step(self, action: SpaceValue) -> StepTuple:
        """Make one step; blocks until the environment has answered."""
        return self.loop.run(self.env.step(action))

    def close(self) -> None:
        """Close the environment and its loop; twice is fine."""
        if self.loop.closed:
            return
        try:
            self.loop.run(self.env.close())
        finally:
            self.loop.close()


async def make_env(env_or_maker: AsyncEnv | Maker) -> AsyncEnv:
    """The environment; makers are called inside the loop, which some environments need from the
    start.
    """
    env: object = env_or_maker() if is_maker(env_or_maker) else env_or_maker
    if not waits(env):
        raise SettingsError(
            f"Blocking was given {type(env).__name__!r}, whose step is no coroutine: it takes an "
            "environment with `async def step`, or a function that makes one; plain environments "
            "need no such face"
        )
    return env


def is_maker(given: AsyncEnv | Maker) -> TypeGuard[Maker]:
    """Whether this makes environments, rather than being one."""
    return isinstance(given, type) or not hasattr(given, "step")
