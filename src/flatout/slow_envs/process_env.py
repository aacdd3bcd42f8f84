"""A plain environment in a process of its own, awaited in the event loop of whoever steps it.

For environments that compute rather than wait, or that may hang or crash. A step that is cancelled
costs the process its life; the next `reset` starts another. How process and parent talk:
`process_parent.py`.
"""

import pickle
import sys
from collections.abc import Callable
from typing import Any

import cloudpickle
import gymnasium as gym
from gymnasium import Space

from flatout.errors import SettingsError
from flatout.slow_envs.choice import Choice
from flatout.slow_envs.process_parent import EnvFailedError as EnvFailedError
from flatout.slow_envs.process_parent import Worker
from flatout.slow_envs.process_parent import WorkerDied as WorkerDied
from flatout.slow_envs.process_wire import APPLY, RESET, STEP, Hello, read, write

Maker = Callable[[], Any]


class InProcess:
    """A plain environment in its own process, with the signatures of an AsyncEnv.

    The process starts at once, and makes the environment while others start; the first look at a
    space waits for it.
    """

    def __init__(self, maker: Maker) -> None:
        self.packed = pickle.dumps((sys.path, cloudpickle.dumps(maker)))
        self.worker = Worker(self.packed)
        self.begun = self.busy = self.closed = False
        self.greeting: Hello | None = None
        self.choice: Choice | None = None

    @property
    def hello(self) -> Hello:
        """What the process said of the environment; it is asked but once."""
        if self.greeting is None:
            if self.busy and self.worker.hello is None:
                raise SettingsError(
                    "the spaces are not known before reset() has returned: look at them "
                    "before, or after"
                )
            self.greeting = self.worker.meet()
        return self.greeting

    @property
    def observation_space(self) -> Space[Any]:
        """What is seen."""
        return self.hello.observation_space

    @property
    def action_space(self) -> Space[Any]:
        """What can be done."""
        return self.hello.action_space

    @property
    def metadata(self) -> dict[str, Any]:
        """What the environment says of itself."""
        return self.hello.metadata

    @property
    def render_mode(self) -> str | None:
        """How it draws."""
        return self.hello.render_mode

    @property
    def pid(self) -> int:
        """The process that is or was."""
        return self.worker.process.pid

    async def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode, in a new process if the last one is gone."""
        self.require_free("reset")
        if self.worker.hello is not None and self.worker.process.poll() is not None:
            self.worker.end()
        if not self.worker.lives:
            self.worker = Worker(self.packed)
        payload = await self.ask(RESET, cloudpickle.dumps((seed, options)))
        self.begun = True
        return self.seen(payload)

    async def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """One step."""
        self.require_free("step")
        if not self.begun or not self.worker.lives or self.worker.slots is None:
            raise SettingsError(
                "step() was called on an environment whose episode has not begun: call reset() "
                "first"
            )
        slots, payload = self.worker.slots, b""
        if slots.action is None:
            payload = cloudpickle.dumps(action)
        else:
            write_action(slots.action, action)
        observation, info = self.seen(await self.ask(STEP, payload))
        terminated, truncated = slots.ended.tolist()
        return observation, float(slots.reward), terminated, truncated, info

    async def apply(self, function: Callable[[gym.Env[Any, Any]], Any]) -> Any:
        """What this function of the environment returns; it is called in the process."""
        self.require_free("apply")
        return pickle.loads(await self.ask(APPLY, cloudpickle.dumps(function)))

    async def close(self) -> None:
        """Close the environment and end its process; twice is fine."""
        if self.closed:
            return
        self.closed = True
        if self.worker.lives and not self.busy and self.worker.hello is not None:
            await self.worker.retire()
        self.worker.end()

    async def ask(self, kind: bytes, payload: bytes) -> bytes:
        """One request at a time."""
        self.busy = True
        try:
            await self.worker.meet_soon()
            return await self.worker.ask(kind, payload)
        finally:
            self.busy = False
            self.begun &= self.worker.lives

    def seen(self, payload: bytes) -> tuple[Any, dict[str, Any]]:
        """Observation and info of an answer."""
        observation, info = pickle.loads(payload) if payload else (None, {})
        slots = self.worker.slots
        assert slots is not None
        return (observation if slots.observation is None else read(slots.observation)), info

    def require_free(self, what: str) -> None:
        """Refuse what comes after the end or amid another call."""
        if self.closed:
            raise SettingsError(f"{what}() was called on a closed environment: make a new one")
        if self.busy:
            raise SettingsError(
                f"{what}() was called while another call is awaited: await one at a time"
            )


def write_action(slot: Any, action: Any) -> None:
    """Put the action into its slot, or say why it does not fit."""
    try:
        write(slot, action)
    except (ValueError, TypeError, KeyError) as error:
        raise SettingsError(f"the action {action!r} is not in the action space: {error}") from error
