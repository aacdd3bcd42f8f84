"""A plain environment in a process of its own, awaited in the event loop of whoever steps it.

For environments that compute rather than wait, or that may hang or crash. A step that is cancelled
costs the process its life; the next `reset` starts another. How process and parent talk:
`process_parent.py`.
"""

import pickle
import sys
from collections.abc import Callable

import cloudpickle
from gymnasium import Space

from flatout.errors import SettingsError
from flatout.slow_envs.choice import SteppingChoice
from flatout.slow_envs.gymnasium_types import (
    EnvAnswer,
    EnvInfo,
    EnvOptions,
    PlainEnv,
    ResetTuple,
    SpaceValue,
    StepTuple,
)
from flatout.slow_envs.gymnasium_types import Maker as Maker
from flatout.slow_envs.process_parent import EnvFailedError as EnvFailedError
from flatout.slow_envs.process_parent import EnvProcess
from flatout.slow_envs.process_parent import WorkerDied as WorkerDied
from flatout.slow_envs.process_wire import APPLY, RESET, STEP, Hello, Views, read_value, write_value


class InProcess:
    """A plain environment in its own process, with the signatures of an AsyncEnv.

    The process starts at once, and makes the environment while others start; the first look at a
    space waits for it.
    """

    def __init__(self, maker: Maker) -> None:
        self.packed = pickle.dumps((sys.path, cloudpickle.dumps(maker)))
        self.process = EnvProcess(self.packed)
        self.begun = self.busy = self.closed = False
        self.greeting: Hello | None = None
        self.choice: SteppingChoice | None = None

    @property
    def hello(self) -> Hello:
        """What the process reported of the environment; it is asked only once."""
        if self.greeting is None:
            if self.busy and self.process.hello is None:
                raise SettingsError(
                    "the spaces are not known before reset() has returned: look at them "
                    "before, or after"
                )
            self.greeting = self.process.wait_for_hello()
        return self.greeting

    @property
    def observation_space(self) -> Space[SpaceValue]:
        """The space of observations; waits for the process if need be."""
        return self.hello.observation_space

    @property
    def action_space(self) -> Space[SpaceValue]:
        """The space of actions; waits for the process if need be."""
        return self.hello.action_space

    @property
    def metadata(self) -> EnvInfo:
        """The environment's own `metadata`."""
        return self.hello.metadata

    @property
    def render_mode(self) -> str | None:
        """The environment's own `render_mode`."""
        return self.hello.render_mode

    @property
    def pid(self) -> int:
        """The number of the process, also after it has ended."""
        return self.process.process.pid

    async def reset(self, *, seed: int | None = None, options: EnvOptions = None) -> ResetTuple:
        """Begin an episode, in a new process if the last one is gone."""
        self.require_free("reset")
        if self.process.hello is not None and self.process.process.poll() is not None:
            self.process.kill()
        if not self.process.is_alive:
            self.process = EnvProcess(self.packed)
        payload = await self.ask(RESET, cloudpickle.dumps((seed, options)))
        self.begun = True
        return self.read_observation(payload)

    async def step(self, action: SpaceValue) -> StepTuple:
        """Make one step in the process."""
        self.require_free("step")
        if not self.begun or not self.process.is_alive or self.process.slots is None:
            raise SettingsError(
                "step() was called on an environment whose episode has not begun: call reset() "
                "first"
            )
        slots, payload = self.process.slots, b""
        if slots.action is None:
            payload = cloudpickle.dumps(action)
        else:
            write_action(slots.action, action)
        observation, info = self.read_observation(await self.ask(STEP, payload))
        terminated, truncated = slots.ended.tolist()
        return observation, float(slots.reward), terminated, truncated, info

    async def apply(self, function: Callable[[PlainEnv], EnvAnswer]) -> EnvAnswer:
        """What this function of the environment returns; it is called in the process."""
        self.require_free("apply")
        return pickle.loads(await self.ask(APPLY, cloudpickle.dumps(function)))

    async def close(self) -> None:
        """Close the environment and end its process; twice is fine."""
        if self.closed:
            return
        self.closed = True
        if self.process.is_alive and not self.busy and self.process.hello is not None:
            await self.process.close()
        self.process.kill()

    async def ask(self, kind: bytes, payload: bytes) -> bytes:
        """Send a request to the process and await its answer."""
        self.busy = True
        try:
            await self.process.await_hello()
            return await self.process.ask(kind, payload)
        finally:
            self.busy = False
            self.begun &= self.process.is_alive

    def read_observation(self, payload: bytes) -> ResetTuple:
        """The observation and the info in an answer."""
        observation, info = pickle.loads(payload) if payload else (None, {})
        slots = self.process.slots
        assert slots is not None
        return (observation if slots.observation is None else read_value(slots.observation)), info

    def require_free(self, what: str) -> None:
        """Refuse what comes after the end or amid another call."""
        if self.closed:
            raise SettingsError(f"{what}() was called on a closed environment: make a new one")
        if self.busy:
            raise SettingsError(
                f"{what}() was called while another call is awaited: await one at a time"
            )


def write_action(slot: Views, action: SpaceValue) -> None:
    """Put the action into its slot, or say why it does not fit."""
    try:
        write_value(slot, action)
    except (ValueError, TypeError, KeyError) as error:
        raise SettingsError(f"the action {action!r} is not in the action space: {error}") from error
