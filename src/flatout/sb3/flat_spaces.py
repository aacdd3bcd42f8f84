"""Gymnasium's spaces as a policy of vectors knows them: what goes in as numbers, what comes out as
actions.

As Stable-Baselines3 has it: boxes are flattened, choices become ones among zeros. This file knows
nothing of learning.
"""

import math
from typing import Protocol

import numpy as np
from gymnasium import spaces
from numpy.typing import ArrayLike, NDArray

from flatout.arrays import Array
from flatout.errors import SettingsError
from flatout.learners.agent import choices_of
from flatout.learners.environment import Box, actions_of, is_alike
from flatout.policies.actions import Distribution, Gaussian
from flatout.policies.network import Network, Sizes
from flatout.sb3.environments import AnySpace, SpaceArray
from flatout.sb3.model_file import (
    Arrays,
    BoxFacts,
    ChoiceCounts,
    DiscreteFacts,
    MultiBinaryFacts,
    SpaceFacts,
)

MOST_CHOICES = 2**31


def check_spaces(observation: AnySpace, action: AnySpace) -> None:
    """Refuse spaces that this policy has no numbers for, by name."""
    known = (spaces.Box, spaces.Discrete, spaces.MultiBinary, spaces.MultiDiscrete)
    if not isinstance(observation, known):
        raise SettingsError(
            f"the observation space {observation} is not one that MlpPolicy reads: Box, Discrete, "
            "MultiBinary or MultiDiscrete; flatten it with gymnasium.wrappers.FlattenObservation"
        )
    if (
        isinstance(observation, spaces.Box)
        and observation.dtype == np.uint8
        and len(observation.shape) == 3
    ):
        raise SettingsError(
            f"the observation space {observation} holds images, for which flatout.PPO has no "
            "CnnPolicy: turn them into features, or use stable_baselines3.PPO"
        )
    if np.any(np.asarray(getattr(observation, "start", 0)) != 0):
        raise SettingsError(
            f"the observation space {observation} does not start at 0: shift it so that it does"
        )
    check_actions(action)


def check_actions(action: AnySpace) -> None:
    """Refuse actions that are neither a finite box nor choices among as many."""
    if not (isinstance(action, spaces.Box | spaces.Discrete) or is_alike(action)):
        raise SettingsError(
            f"the action space {action} is neither Box nor Discrete, nor a MultiDiscrete row of "
            "as many choices for each action, which are what flatout.PPO acts in: turn it into one "
            "of them with a wrapper, or use stable_baselines3.PPO"
        )
    if isinstance(action, spaces.Discrete) and action.start != 0:
        raise SettingsError(
            f"the action space {action} does not start at 0: shift it so that it does"
        )
    if isinstance(action, spaces.Box) and not np.isfinite([action.low, action.high]).all():
        raise SettingsError(
            f"the action space {action} has no finite bounds: wrap the environment in "
            "gymnasium.wrappers.RescaleAction or give the space bounds"
        )
    if isinstance(action, spaces.Box) and not np.issubdtype(action.dtype or float, np.floating):
        raise SettingsError(
            f"the action space {action} holds {action.dtype}, not floats: give it dtype=np.float32"
        )


def observation_size(space: AnySpace) -> int:
    """How many numbers an observation becomes."""
    if isinstance(space, spaces.Discrete):
        return int(space.n)
    if isinstance(space, spaces.MultiDiscrete):
        return int(space.nvec.sum())
    return math.prod(space.shape or ())


def sizes_of(observation: AnySpace, action: AnySpace, hidden: tuple[int, ...]) -> Sizes:
    """What fixes the arrays of a network for these spaces."""
    size = actions_of(action).size
    deviations = size if isinstance(action, spaces.Box) else 0
    return Sizes(observation_size(observation), hidden, size, deviations)


def flatten_observations(space: AnySpace, observation: ArrayLike) -> NDArray[np.float32]:
    """A batch of observations as numbers: (env, feature)."""
    if isinstance(space, spaces.Discrete):
        return one_hot(np.asarray(observation, np.int64).reshape(-1), int(space.n))
    if isinstance(space, spaces.MultiDiscrete):
        chosen = np.asarray(observation, np.int64).reshape(-1, space.nvec.size)
        parts = [one_hot(chosen[:, k], int(n)) for k, n in enumerate(space.nvec.reshape(-1))]
        return np.concatenate(parts, axis=1)
    array = np.array(observation, np.float32)  # a copy: environments may write into theirs
    return array.reshape(-1, math.prod(space.shape or ()))


def one_hot(chosen: NDArray[np.int64], choices: int) -> NDArray[np.float32]:
    """(row, choice): a one where it was chosen, zeros elsewhere."""
    rows = np.zeros((len(chosen), choices), np.float32)
    rows[np.arange(len(chosen)), chosen] = 1
    return rows


def clip_actions(space: AnySpace, raw: SpaceArray) -> SpaceArray:
    """The actions that environments get for the policy's raw ones: (env, ...) within bounds."""
    if isinstance(space, spaces.Box):
        return np.clip(raw.reshape(-1, *space.shape), space.low, space.high)
    return raw


def action_distribution(space: AnySpace, network: Network, head: Array) -> Distribution:
    """The distribution of actions that the actor's output describes."""
    actions = actions_of(space)
    if isinstance(actions, Box):
        return Gaussian(head, network.log_std)
    return choices_of(actions, head)


def is_batch(space: AnySpace, observation: NDArray[np.generic]) -> bool:
    """Whether this is several observations, or one; an error for anything else."""
    shape = tuple(space.shape or ())
    if observation.shape == shape:
        return False
    if observation.shape[1:] == shape and observation.ndim == len(shape) + 1:
        return True
    raise SettingsError(
        f"the observation has shape {observation.shape}, this policy reads {shape}, or (n, "
        f"*{shape}) for several"
    )


class HasSpaces(Protocol):
    """Environments, or a model of them, with the space of observations and that of actions."""

    @property
    def observation_space(self) -> AnySpace: ...

    @property
    def action_space(self) -> AnySpace: ...


def check_same_spaces(given: HasSpaces, own: HasSpaces) -> None:
    """Refuse environments whose spaces are not the model's own."""
    for name in ("observation_space", "action_space"):
        theirs, ours = getattr(given, name), getattr(own, name)
        if theirs != ours:
            raise SettingsError(f"the {name.replace('_', ' ')} is {theirs}, this model's is {ours}")


# --- on disk


def space_facts(space: AnySpace) -> dict[str, object]:
    """A space as JSON; bounds are arrays, and apart."""
    kind = type(space).__name__
    if isinstance(space, spaces.Box):
        return {"kind": "Box", "dtype": str(space.dtype)}
    if isinstance(space, spaces.Discrete):
        return {"kind": kind, "n": int(space.n)}
    if isinstance(space, spaces.MultiBinary):
        return {"kind": kind, "n": list(space.shape)}
    assert isinstance(space, spaces.MultiDiscrete)  # by `check_spaces`
    return {"kind": kind, "nvec": space.nvec.tolist()}


def space_arrays(space: AnySpace) -> Arrays:
    """The arrays of a space, by name: a box has bounds, others have none."""
    return {"low": space.low, "high": space.high} if isinstance(space, spaces.Box) else {}


def space_of(facts: SpaceFacts, arrays: Arrays) -> AnySpace:
    """The space that was saved as these facts and arrays."""
    if set(arrays) != ({"low", "high"} if isinstance(facts, BoxFacts) else set()):
        raise SettingsError(f"a {facts.kind} has bounds if it is a Box, and no other arrays")
    if isinstance(facts, BoxFacts):
        low, high = arrays["low"], arrays["high"]
        if (
            low.shape != high.shape
            or not low.dtype == high.dtype == facts.dtype
            or not (low <= high).all()
        ):
            raise SettingsError(
                f"its bounds are no two arrays of {facts.dtype}, of which one lies below the other"
            )
        return spaces.Box(low, high, dtype=low.dtype.type)
    if isinstance(facts, DiscreteFacts):
        return spaces.Discrete(facts.n)
    if isinstance(facts, MultiBinaryFacts):
        return spaces.MultiBinary(facts.n)
    return spaces.MultiDiscrete(counts_of(facts.nvec))


def counts_of(nvec: ChoiceCounts) -> NDArray[np.int64]:
    """How many choices there are at each place of a MultiDiscrete."""
    try:
        choices = np.array(nvec)
    except ValueError:  # rows of unequal length
        choices = np.zeros(1)
    if (
        choices.dtype != np.int64
        or not choices.size
        or choices.min() < 1
        or choices.max() > MOST_CHOICES
    ):
        raise SettingsError(f"its choices are no array of whole numbers from 1 to {MOST_CHOICES:,}")
    return choices
