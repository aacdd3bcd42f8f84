"""What the learner asks of an environment: pure functions over a batch, data and rates as
arguments.

`data` is shared by all lanes (a market's tape), `rates` belong to a lane (its fees, its fold); a
state is a pytree whose leaves are of the environment's own making. What the agent sees is made in
two steps: `view`, small and private to a state, and `observe`, which joins a view with the data. A
trajectory may then keep views and observe again later.
"""

from typing import NamedTuple, Protocol, TypeVar

import numpy as np
from gymnasium import spaces

from flatout.arrays import Array, ArrayTree
from flatout.errors import SettingsError

__all__ = ["Box", "Discrete"]

ActionT = TypeVar("ActionT")


class Box(NamedTuple):
    """Actions that are numbers in bounds, one pair of bounds for each.

    >>> Box(low=(-1.0, 0.0), high=(1.0, 1.0)).size
    2
    """

    low: tuple[float, ...]
    high: tuple[float, ...]

    @property
    def size(self) -> int:
        """How many numbers an action has."""
        return len(self.low)


class Discrete(NamedTuple):
    """Actions that are one of `size` choices.

    >>> Discrete(3).size
    3
    """

    size: int


class Step(NamedTuple):
    """What a step led to; leaves are (env,)."""

    reward: Array
    terminated: Array
    truncated: Array
    terms: tuple[Array, ...]  # parts of the reward, to be logged
    arrived: ArrayTree  # the state before any restart


class Environment(Protocol):
    """A batch of environments that restart by themselves; hashable, and equal when the programs
    are.
    """

    @property
    def observation_size(self) -> int: ...

    @property
    def view_size(self) -> int:
        """How many numbers a view has."""
        ...

    @property
    def actions(self) -> Box | Discrete: ...

    @property
    def terms(self) -> tuple[str, ...]:
        """Names of the reward's parts."""
        ...

    @property
    def traced(self) -> tuple[str, ...]:
        """Names of what evaluations that keep every bar keep of a state, beside the terms."""
        ...

    def trace(self, state: ArrayTree) -> tuple[Array, ...]:
        """What they keep of states, by these names: (env,) each."""
        ...

    def draw(self, key: Array, n_steps: int, n_envs: int) -> ArrayTree:
        """Noise for this many steps; leaves are (step, env, ...)."""
        ...

    def reset(self, noise: ArrayTree, data: ArrayTree, rates: ArrayTree) -> ArrayTree:
        """Fresh states from the noise of one step."""
        ...

    def view(self, state: ArrayTree, data: ArrayTree, rates: ArrayTree) -> ArrayTree:
        """What must be kept of states to observe them later."""
        ...

    def observe(self, view: ArrayTree, data: ArrayTree) -> Array:
        """(..., feature) observations of views."""
        ...

    def step(
        self, state: ArrayTree, action: Array, noise: ArrayTree, data: ArrayTree, rates: ArrayTree
    ) -> tuple[ArrayTree, Step]:
        """One step of all; those that end restart at once."""
        ...


def actions_of(space: spaces.Space[ActionT]) -> Box | Discrete:
    """Gymnasium's action space as learners know it."""
    if isinstance(space, spaces.Discrete) and space.start == 0:
        return Discrete(int(space.n))
    if isinstance(space, spaces.Box) and np.isfinite([space.low, space.high]).all():
        low, high = (
            tuple(bound.astype(float).reshape(-1).tolist()) for bound in (space.low, space.high)
        )
        return Box(low, high)
    raise SettingsError(
        f"the action space is {space}; give a Discrete that starts at 0, or a Box with finite "
        f"bounds"
    )
