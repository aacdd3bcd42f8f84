"""Plain Gymnasium environments among those that wait: three ways to give them the signatures of an
AsyncEnv.

`Inline` steps at once, `InThread` in a thread (for blocking I/O), `InProcess` in a process (for
computing, and for what may hang or crash). `adapt_env` makes an environment and chooses by
measuring. This file knows no pool and no learner.
"""

import asyncio
import inspect
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from queue import SimpleQueue
from typing import ParamSpec, TypeGuard, TypeVar, cast

from gymnasium import Space

from flatout.errors import FlatoutError, SettingsError
from flatout.slow_envs.async_env import AsyncEnv, waits
from flatout.slow_envs.choice import SteppingChoice, measure_steps
from flatout.slow_envs.gymnasium_types import (
    AnyEnv,
    EnvAnswer,
    EnvOptions,
    Maker,
    PlainEnv,
    ResetTuple,
    SpaceValue,
    StepTuple,
)
from flatout.slow_envs.process_env import InProcess

T = TypeVar("T")
P = ParamSpec("P")
ThreadCall = tuple[Future[EnvAnswer], Callable[[], EnvAnswer]]  # the answer goes into the future
KINDS = ("auto", "inline", "thread", "process")


class StillBusyError(FlatoutError):
    """A call that was cancelled has not returned yet: close this environment and make a new one."""


class Inline:
    """Steps are done at once, in the event loop's thread."""

    def __init__(self, env: PlainEnv) -> None:
        self.env = env
        self.observation_space, self.action_space = env.observation_space, env.action_space
        self.choice: SteppingChoice | None = None

    async def reset(self, *, seed: int | None = None, options: EnvOptions = None) -> ResetTuple:
        """Begin an episode in the event loop's thread."""
        return self.env.reset(seed=seed, options=options)

    async def step(self, action: SpaceValue) -> StepTuple:
        """Make one step in the event loop's thread."""
        return self.env.step(action)

    async def apply(self, function: Callable[[PlainEnv], T]) -> T:
        """What this function of the environment returns."""
        return function(self.env)

    async def close(self) -> None:
        """Close the environment at once."""
        self.env.close()


class OwnThread(Executor):
    """One thread that makes calls in turn. One that never returns does not keep the program from
    ending.
    """

    def __init__(self) -> None:
        self.calls: SimpleQueue[ThreadCall | None] = SimpleQueue()
        threading.Thread(target=self.work, daemon=True).start()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Have this called after what was submitted before."""
        future: Future[T] = Future()
        self.calls.put((future, partial(fn, *args, **kwargs)))
        return future

    def work(self) -> None:
        """Make the calls until there are no more to come."""
        while order := self.calls.get():
            future, call = order
            if not future.set_running_or_notify_cancel():
                continue
            try:
                result = call()
            except BaseException as error:  # given to whoever awaits it
                future.set_exception(error)
            else:
                future.set_result(result)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End after the calls that were submitted; never waits for them."""
        self.calls.put(None)


class InThread:
    """Steps are done in a thread, one at a time; without an executor, in one of this environment's
    own.

    Nothing can stop a thread: a call that is cancelled goes on behind the scenes. Until it has
    returned, `reset` raises `StillBusyError`; `close` then closes the environment when it has.
    """

    def __init__(self, env: PlainEnv, executor: Executor | None = None) -> None:
        self.env = env
        self.executor, self.own = executor or OwnThread(), executor is None
        self.observation_space, self.action_space = env.observation_space, env.action_space
        self.running: Future[EnvAnswer] | None = None
        self.cut = self.closed = False
        self.choice: SteppingChoice | None = None

    async def reset(self, *, seed: int | None = None, options: EnvOptions = None) -> ResetTuple:
        """Begin an episode in the thread."""
        found = await self.call(partial(self.env.reset, seed=seed, options=options))
        self.cut = False
        return found

    async def step(self, action: SpaceValue) -> StepTuple:
        """Make one step in the thread."""
        if self.cut:
            raise SettingsError(
                "step() was called after a call that was cancelled: reset() or close() comes first"
            )
        return await self.call(partial(self.env.step, action))

    async def apply(self, function: Callable[[PlainEnv], T]) -> T:
        """What this function of the environment returns; it is called in the thread."""
        return await self.call(partial(function, self.env))

    async def call(self, function: Callable[[], T]) -> T:
        """Await a call in the thread, unless an earlier one is still under way there."""
        if self.closed:
            raise SettingsError("this environment is closed: make a new one")
        if self.running is not None and not self.running.done():
            raise StillBusyError(
                "an earlier call to this environment has not returned: close it and make a new one"
            )
        running = self.running = self.executor.submit(function)
        try:
            return await asyncio.wrap_future(running)
        except asyncio.CancelledError:
            self.cut = True
            raise

    async def close(self) -> None:
        """Close the environment: now, or when a call that was cancelled returns. Twice is fine."""
        if self.closed:
            return
        try:
            if self.running is not None and not self.running.done():
                self.running.add_done_callback(lambda _: self.env.close())
            else:
                await self.call(self.env.close)
        finally:
            self.closed = True
            if self.own:
                self.executor.shutdown(wait=False)


def adapt_env(maker: Maker, kind: str = "auto") -> AsyncEnv:
    """An environment that can be awaited: the maker's own if it can, else a plain one stepped in
    the way of `kind`.

    "auto" measures a few random steps of one environment, closes it, and makes another: the choice
    is kept in its attribute `choice`. A maker must make a new environment at each call.
    """
    if kind not in KINDS:
        raise SettingsError(f"kind is {kind!r}; it may be one of {', '.join(KINDS)}")
    if kind == "process":
        return cast(AsyncEnv, InProcess(maker))  # its spaces are read-only
    if kind == "thread":
        return make_threaded(maker)
    env = maker()
    if waits(env):
        return env
    plain = require_plain(env)
    return Inline(plain) if kind == "inline" else make_measured(maker, plain)


def make_threaded(maker: Maker) -> AsyncEnv:
    """An environment that is made and stepped in one thread: some may not be handed from one to
    another.
    """
    thread = OwnThread()
    try:
        env = thread.submit(maker).result()
        if waits(env):
            thread.shutdown(wait=False)
            return env
        plain = require_plain(env)
    except BaseException:
        thread.shutdown(wait=False)
        raise
    made = InThread(plain, thread)
    made.own = True
    return made


def make_measured(maker: Maker, trial: PlainEnv) -> AsyncEnv:
    """An environment in the way that suits this one, which is used up."""
    try:
        choice = measure_steps(trial)
    finally:
        trial.close()
    made: AnyEnv = adapt_env(maker, choice.kind)
    if getattr(made, "env", None) is trial:
        raise SettingsError(
            "the maker gave the same environment twice: it must make a new one at each call"
        )
    made.choice = choice
    return made


def require_plain(env: object) -> PlainEnv:
    """What a maker made; what is no environment at all is refused."""
    if not is_plain(env):
        raise SettingsError(
            f"the maker returned {type(env).__name__!r}, which is no environment: it must have "
            "reset, step and close, plain as gymnasium.Env has them or async, and the spaces "
            "observation_space and action_space"
        )
    return env


def is_plain(env: object) -> TypeGuard[PlainEnv]:
    """Whether this has the methods and the spaces of a `gymnasium.Env`."""
    return all(callable(getattr(env, name, None)) for name in ("reset", "step", "close")) and all(
        isinstance(getattr(env, name, None), Space)
        for name in ("observation_space", "action_space")
    )


async def apply(env: AsyncEnv, function: Callable[[AnyEnv], EnvAnswer]) -> EnvAnswer:
    """What a function of the environment returns, wherever that environment lives."""
    if isinstance(env, Inline | InThread | InProcess):
        return await env.apply(function)
    result = function(env)
    return await result if inspect.isawaitable(result) else result
