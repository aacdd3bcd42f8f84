"""What the overlapping learner asks of a policy: weights as nested tuples, a distribution and a
value, all through xp.

The environments' process runs it in NumPy, the learner's in PyTorch. Observations are flat vectors.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from flatout.arrays import Array, Namespace, leaves_of, map_leaves
from flatout.errors import SettingsError
from flatout.learners.agent import choices_of
from flatout.learners.environment import Actions, Box
from flatout.policies.actions import Distribution, Gaussian
from flatout.policies.network import Network, Sizes, actor, critic, new_network
from flatout.settings.train import Activation

__all__ = ["PerceptronModel", "PolicyModel", "flatten_weights", "unflatten_weights"]

Weights = Any  # nested tuples of arrays: each model has a type of its own for them
W = TypeVar("W", bound=tuple[object, ...])


class PolicyModel(Protocol):
    """A policy and its critic without their weights. It travels to the learner's process: keep it
    plain data.

    >>> from flatout.learners.environment import Discrete
    >>> model: PolicyModel = PerceptronModel(observation_size=3, actions=Discrete(2))
    >>> weights = model.new_weights(seed=0)
    >>> model.policy(weights, np.zeros((5, 3), np.float32), np).mode(np).shape
    (5,)
    """

    @property
    def observation_size(self) -> int: ...
    @property
    def actions(self) -> Actions: ...

    def new_weights(self, seed: int) -> Weights:
        """Fresh weights: nested tuples of float32 arrays."""
        ...

    def policy(self, weights: Weights, observation: Array, xp: Namespace) -> Distribution:
        """What it would do: over (..., observation)."""
        ...

    def value(self, weights: Weights, observation: Array, xp: Namespace) -> Array:
        """What it expects to earn: (...)."""
        ...


@dataclass(frozen=True)
class PerceptronModel:
    """Two perceptrons, as everywhere else in flatout.

    >>> from flatout.learners.environment import Discrete
    >>> model = PerceptronModel(observation_size=3, actions=Discrete(2), hidden=(16,))
    >>> model.value(model.new_weights(seed=0), np.zeros((5, 3), np.float32), np).shape
    (5,)
    """

    observation_size: int
    actions: Actions
    hidden: tuple[int, ...] = (64, 64)
    activation: Activation = "tanh"
    log_std: float = 0.0

    def new_weights(self, seed: int) -> Network:
        deviations = self.actions.size if isinstance(self.actions, Box) else 0
        return new_network(
            Sizes(self.observation_size, self.hidden, self.actions.size, deviations),
            seed,
            self.log_std,
        )

    def policy(self, weights: Network, observation: Array, xp: Namespace) -> Distribution:
        head = actor(weights, observation, self.activation, xp)
        if isinstance(self.actions, Box):
            return Gaussian(head, weights.log_std)
        return choices_of(self.actions, head)

    def value(self, weights: Network, observation: Array, xp: Namespace) -> Array:
        return critic(weights, observation, self.activation, xp)


def flatten_weights(weights: Weights) -> NDArray[np.float32]:
    """All weights in one vector.

    >>> flatten_weights((np.ones((2, 2)), np.zeros(1)))
    array([1., 1., 1., 1., 0.], dtype=float32)
    """
    return np.concatenate([np.asarray(leaf, np.float32).reshape(-1) for leaf in leaves_of(weights)])


def unflatten_weights(vector: NDArray[np.float32], like: W) -> W:
    """Views of a vector in the shapes of these weights.

    >>> weight, bias = unflatten_weights(np.arange(5.0), like=(np.ones((2, 2)), np.zeros(1)))
    >>> weight.tolist(), bias.tolist()
    ([[0.0, 1.0], [2.0, 3.0]], [4.0])
    """
    places = np.cumsum([0, *(leaf.size for leaf in leaves_of(like))])
    if places[-1] != vector.size:
        raise SettingsError(f"{vector.size} weights were given; this model has {places[-1]}")
    parts = iter(vector[a:b] for a, b in pairwise(places))
    return map_leaves(lambda leaf: next(parts).reshape(leaf.shape), like)
