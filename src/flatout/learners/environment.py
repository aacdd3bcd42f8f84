"""What the learner asks of an environment: pure functions over a batch, data and rates as
arguments.

`data` is shared by all lanes (a market's tape), `rates` belong to a lane (its fees, its fold); a
state is a pytree whose leaves are of the environment's own making. What the agent sees is made in
two steps: `view`, small and private to a state, and `observe`, which joins a view with the data. A
trajectory may then keep views and observe again later.
"""

from typing import NamedTuple, Protocol, TypeGuard, TypeVar

import numpy as np
from gymnasium import spaces

from flatout.arrays import Array, ArrayTree
from flatout.errors import SettingsError

__all__ = ["Actions", "Box", "Discrete", "MultiDiscrete"]

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

    @property
    def drawn_shape(self) -> tuple[int, ...]:
        """The shape of one drawn action."""
        return (self.size,)


class Discrete(NamedTuple):
    """Actions that are one of `size` choices.

    >>> Discrete(3).size
    3
    """

    size: int

    @property
    def drawn_shape(self) -> tuple[int, ...]:
        """The shape of one drawn action: it is a single index."""
        return ()


class MultiDiscrete(NamedTuple):
    """Actions that are several choices, each among as many.

    >>> MultiDiscrete(components=2, choices=3).size
    6
    """

    components: int
    choices: int

    @property
    def size(self) -> int:
        """How many numbers describe the probabilities of all choices."""
        return self.components * self.choices

    @property
    def drawn_shape(self) -> tuple[int, ...]:
        """The shape of one drawn action: an index for each component."""
        return (self.components,)


Actions = Box | Discrete | MultiDiscrete


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
    def actions(self) -> Actions: ...

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


def actions_of(space: spaces.Space[ActionT]) -> Actions:
    """Gymnasium's action space as learners know it."""
    if isinstance(space, spaces.Discrete) and space.start == 0:
        return Discrete(int(space.n))
    if is_alike(space):
        return MultiDiscrete(int(space.nvec.size), int(space.nvec[0]))
    if isinstance(space, spaces.Box) and np.isfinite([space.low, space.high]).all():
        low, high = (
            tuple(bound.astype(float).reshape(-1).tolist()) for bound in (space.low, space.high)
        )
        return Box(low, high)
    raise SettingsError(
        f"the action space is {space}; give a Discrete that starts at 0, a MultiDiscrete of as "
        "many choices for each action, or a Box with finite bounds"
    )


def is_alike(space: spaces.Space[ActionT]) -> TypeGuard[spaces.MultiDiscrete]:
    """Whether these are several choices in a row, each among as many, counted from 0."""
    return (
        isinstance(space, spaces.MultiDiscrete)
        and space.nvec.ndim == 1
        and len(set(space.nvec.tolist())) == 1
        and not np.any(space.start)
    )
