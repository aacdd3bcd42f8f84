"""An environment that waits: Gymnasium's signatures with `async` before them, and nothing else to
learn.
"""

import inspect
from typing import Any, Protocol, runtime_checkable

from gymnasium import Space

__all__ = ["AsyncEnv"]


@runtime_checkable
class AsyncEnv(Protocol):
    """What the pool steps. A step may be cancelled while it waits: the pool then closes or resets
    the environment.

    >>> from gymnasium.spaces import Box, Discrete
    >>> class Shop:
    ...     observation_space, action_space = Box(0, 1, (3,)), Discrete(2)
    ...     async def reset(self, *, seed=None, options=None): ...
    ...     async def step(self, action): ...
    ...     async def close(self): ...
    >>> isinstance(Shop(), AsyncEnv)
    True
    """

    observation_space: Space[Any]
    action_space: Space[Any]

    async def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode: observation and info."""
        ...

    async def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Observation, reward, terminated, truncated, info."""
        ...

    async def close(self) -> None:
        """Give back what it holds."""
        ...


def waits(env: Any) -> bool:
    """Whether this is an environment whose steps are coroutines; a class of such makes them, but is
    none.
    """
    return not isinstance(env, type) and inspect.iscoroutinefunction(getattr(env, "step", None))
