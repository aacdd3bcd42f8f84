"""An environment that waits: Gymnasium's signatures with `async` before them, and nothing else to
learn.
"""

import inspect
from typing import Protocol, TypeGuard, runtime_checkable

from gymnasium import Space

from flatout.slow_envs.gymnasium_types import EnvOptions, ResetTuple, SpaceValue, StepTuple

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

    observation_space: Space[SpaceValue]
    action_space: Space[SpaceValue]

    async def reset(self, *, seed: int | None = None, options: EnvOptions = None) -> ResetTuple:
        """Begin an episode: observation and info."""
        ...

    async def step(self, action: SpaceValue) -> StepTuple:
        """Observation, reward, terminated, truncated, info."""
        ...

    async def close(self) -> None:
        """Give back what it holds."""
        ...


def waits(env: object) -> TypeGuard[AsyncEnv]:
    """Whether this is an environment whose steps are coroutines; a class of such makes them, but is
    none.
    """
    return not isinstance(env, type) and inspect.iscoroutinefunction(getattr(env, "step", None))
