"""Actor and critic: two multilayer perceptrons, run by NumPy, PyTorch and JAX alike.

Networks of several sizes share one shape. A narrower network is the wider one with zeros: a unit
without weights on either side outputs 0 (every activation here maps 0 to 0) and gets no gradient,
so it is exactly the small network through any number of updates, and costs no mask. A shallower one
skips its last hidden layers through `gates`. This file knows nothing about actions; the actor's
last layer gives the distribution's parameters.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flatout.arrays import Array, Namespace
from flatout.errors import SettingsError
from flatout.settings.train import Activation

__all__ = ["ACTOR_GAIN", "CRITIC_GAIN", "HIDDEN_GAIN", "Layer", "orthogonal", "relu"]

HIDDEN_GAIN = float(np.sqrt(2))
ACTOR_GAIN = 0.01  # the first policy hardly depends on the observation
CRITIC_GAIN = 1.0


class Layer(NamedTuple):
    """An affine map: weights and a bias.

    >>> layer = Layer(weight=np.ones((3, 2)), bias=np.zeros(2))
    >>> np.ones(3) @ layer.weight + layer.bias
    array([3., 3.])
    """

    weight: Array  # (input, output) of a hidden layer, (output, input) of a head
    bias: Array  # (output,)


class Perceptron(NamedTuple):
    """Hidden layers, and a linear head. The head lies the other way round: it is narrow, and so its
    gradient becomes a product of long rows (twice as fast on a CPU).
    """

    hidden: tuple[Layer, ...]
    head: Layer


class Network(NamedTuple):
    """All weights that are learned: of actor and critic, and the deviations of actions."""

    actor: Perceptron
    critic: Perceptron
    log_std: Array  # (action,) of a Gaussian policy; (0,) for others


class Sizes(NamedTuple):
    """What fixes the arrays of a network."""

    observation: int
    hidden: tuple[int, ...]
    head: int  # outputs of the actor
    deviations: int  # how many standard deviations are learned: as many as actions, or none

    @property
    def layers(self) -> list[tuple[int, int]]:
        """(input, output) of each hidden layer."""
        return list(pairwise((self.observation, *self.hidden)))


def orthogonal(
    rng: np.random.Generator, inputs: int, outputs: int, gain: float
) -> NDArray[np.float32]:
    """A random (inputs, outputs) matrix with orthonormal rows or columns, whichever are fewer,
    times the gain.

    >>> weight = orthogonal(np.random.default_rng(0), inputs=4, outputs=2, gain=1.0)
    >>> np.allclose(weight.T @ weight, np.eye(2), atol=1e-6)
    True
    """
    tall = rng.standard_normal((max(inputs, outputs), min(inputs, outputs)))
    q, r = np.linalg.qr(tall)
    q = q * np.where(np.diag(r) < 0, -1.0, 1.0)  # uniform over all such matrices
    return (gain * (q if inputs >= outputs else q.T)).astype(np.float32)


def new_network(
    sizes: Sizes, seed: int, log_std: float = 0.0, hidden: Sequence[int] | None = None
) -> Network:
    """A fresh network; with `hidden` narrower or shallower than the sizes it is that smaller one,
    padded with zeros.
    """
    rng = np.random.default_rng(seed)
    own = sizes if hidden is None else sizes._replace(hidden=tuple(hidden))

    def perceptron(outputs: int, gain: float) -> Perceptron:
        drawn = [orthogonal(rng, *size, HIDDEN_GAIN) for size in own.layers]
        skipped = [np.zeros((0, 0), np.float32)] * (len(sizes.hidden) - len(own.hidden))
        padded = [pad(*pair) for pair in zip([*drawn, *skipped], sizes.layers, strict=True)]
        head = orthogonal(rng, outputs, own.hidden[-1], gain)
        return Perceptron(
            tuple(Layer(weight, np.zeros(weight.shape[1], np.float32)) for weight in padded),
            Layer(pad(head, (outputs, sizes.hidden[-1])), np.zeros(outputs, np.float32)),
        )

    deviations = np.full(sizes.deviations, log_std, np.float32)
    return Network(perceptron(sizes.head, ACTOR_GAIN), perceptron(1, CRITIC_GAIN), deviations)


def pad(weight: NDArray[np.float32], size: tuple[int, int]) -> NDArray[np.float32]:
    """A matrix of this size whose corner is the weight; zero elsewhere."""
    padded = np.zeros(size, np.float32)
    padded[: weight.shape[0], : weight.shape[1]] = weight
    return padded


def gates_of(sizes: Sizes, hidden: Sequence[int]) -> NDArray[np.float32]:
    """1 for the hidden layers that a network of these widths has, 0 for those it skips."""
    if len(set(sizes.hidden)) > 1:
        raise SettingsError(
            f"layers can be skipped only where all are equally wide; these are {sizes.hidden}"
        )
    return (np.arange(len(sizes.hidden)) < len(hidden)).astype(np.float32)


def actor(
    network: Network, observation: Array, activation: Activation, xp: Namespace, gates: Array = None
) -> Array:
    """The distribution's parameters: (..., head)."""
    return _run(network.actor, observation, activation=activation, xp=xp, gates=gates)


def critic(
    network: Network, observation: Array, activation: Activation, xp: Namespace, gates: Array = None
) -> Array:
    """What the rewards to come are worth: (...)."""
    return _run(network.critic, observation, activation=activation, xp=xp, gates=gates)[..., 0]


def _run(
    perceptron: Perceptron, x: Array, activation: Activation, xp: Namespace, gates: Array
) -> Array:
    for k, layer in enumerate(perceptron.hidden):
        new = activate(activation, x @ layer.weight + layer.bias, xp)
        x = new if gates is None or k == 0 else gates[k] * new + (1 - gates[k]) * x
    return x @ perceptron.head.weight.T + perceptron.head.bias


def activate(activation: Activation, x: Array, xp: Namespace) -> Array:
    """One of the activations; all map 0 to 0."""
    if activation == "tanh":
        return xp.tanh(x)
    if activation == "relu":
        return relu(x, xp)
    return x * (0.5 * xp.tanh(0.5 * x) + 0.5)  # silu: x times the logistic function


def relu(x: Array, xp: Namespace) -> Array:
    """Each library's quickest way whose slope at 0 is 0; that of clip is not.

    >>> relu(np.array([-1.0, 2.0]), np)
    array([0., 2.])
    """
    if xp is np:
        return np.maximum(x, 0)
    return xp.relu(x) if hasattr(xp, "relu") else xp.where(x > 0, x, xp.zeros_like(x))


def multiplications(sizes: Sizes) -> tuple[int, int]:
    """Multiply-adds per observation of one forward pass, and of one backward pass (which stops at
    the inputs).
    """
    hidden = sum(a * b for a, b in sizes.layers)
    forward = 2 * hidden + sizes.hidden[-1] * (sizes.head + 1)
    return forward, 2 * forward - 2 * sizes.observation * sizes.hidden[0]
