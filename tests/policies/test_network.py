"""The networks against torch.nn, their first weights, and small networks inside the arrays of big
ones.
"""

from itertools import product
from typing import Any, get_args

import jax
import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from array_libraries import DIFFERENTIABLE, LIBRARIES, gradient, run
from flatout.policies.network import (
    Network,
    Perceptron,
    Sizes,
    activate,
    actor,
    critic,
    gates_of,
    multiplications,
    new_network,
    orthogonal,
)
from flatout.settings.train import Activation
from rounding import assert_close

ACTIVATIONS = get_args(Activation)
MODULES = {"tanh": torch.nn.Tanh, "relu": torch.nn.ReLU, "silu": torch.nn.SiLU}
OUTPUT = 512  # roundings: three sums of up to 16 products, two activations
GRADIENT = 1e5  # of a sum over 32 observations, all layers forward and backward
SIZES = Sizes(observation=5, hidden=(16, 12), head=3, deviations=3)
DEEP = Sizes(observation=5, hidden=(16, 16, 16), head=3, deviations=3)
NARROW, SHALLOW, BOTH = (
    (SIZES, (6, 4)),
    (DEEP, (16, 16)),
    (DEEP, (7,)),
)  # (arrays, the network in them)


def learned(sizes: Sizes, dtype: Any = np.float64) -> Network:
    """A network as after training: nothing is zero or near its first value."""
    rng = np.random.default_rng(2)
    return jax.tree.map(
        lambda x: (x + rng.normal(0, 0.3, x.shape)).astype(dtype), new_network(sizes, 1)
    )


def observations(dtype: Any = np.float64, shape: tuple[int, ...] = (32,)) -> np.ndarray:
    return np.random.default_rng(3).normal(0, 1.5, (*shape, SIZES.observation)).astype(dtype)


def both(activation: Activation, gates: np.ndarray | None = None) -> Any:
    """Outputs of actor and critic as a function of network, observation and namespace."""

    def outputs(network: Network, observation: Any, xp: Any) -> Any:
        given = None if gates is None else xp.asarray(gates)
        return tuple(part(network, observation, activation, xp, given) for part in (actor, critic))

    return outputs


def a_loss(activation: Activation, gates: np.ndarray | None = None) -> Any:
    """A scalar to which all outputs contribute, each in its own way."""

    def loss(network: Network, observation: Any, xp: Any) -> Any:
        policy, value = both(activation, gates)(network, observation, xp)
        return xp.sum(xp.sin(policy)) + xp.sum(value * value)

    return loss


def sequential(perceptron: Perceptron, activation: Activation) -> torch.nn.Sequential:
    """The same perceptron, as anyone would write it in PyTorch."""
    modules: list[torch.nn.Module] = []
    weights = [*(layer.weight.T for layer in perceptron.hidden), perceptron.head.weight]
    biases = [*(layer.bias for layer in perceptron.hidden), perceptron.head.bias]
    for weight, bias in zip(weights, biases, strict=True):
        linear = torch.nn.Linear(
            weight.shape[1], weight.shape[0], dtype=torch.asarray(weight).dtype
        )
        linear.load_state_dict({"weight": torch.asarray(weight), "bias": torch.asarray(bias)})
        modules += [linear, MODULES[activation]()]
    return torch.nn.Sequential(*modules[:-1])


def close(found: Any, expected: Any, roundings: float, dtype: Any = None) -> None:
    """All leaves of two trees, as if what was summed had the size of the largest, or 1."""
    for a, b in zip(*map(jax.tree.leaves, (found, expected)), strict=True):
        assert_close(
            a, b, roundings=roundings, size=max(1.0, np.max(np.abs(b), initial=0.0)), dtype=dtype
        )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("library", LIBRARIES)
def test_outputs_equal_those_of_torch_modules(
    library: str, activation: Activation, dtype: Any
) -> None:
    network, observation = learned(SIZES, dtype), observations(dtype)
    found = run(library, both(activation), network, observation)
    assert {x.dtype for x in found} == {np.dtype(dtype)}
    with torch.no_grad():
        policy, value = (
            sequential(part, activation)(torch.asarray(observation)).numpy() for part in network[:2]
        )
    close(found, (policy, value[:, 0]), OUTPUT)


@pytest.mark.long
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("library", DIFFERENTIABLE)
def test_gradients_equal_those_of_torch_modules(library: str, activation: Activation) -> None:
    network, observation = learned(SIZES), observations()
    modules = [sequential(part, activation) for part in network[:2]]
    policy, value = (module(torch.asarray(observation)) for module in modules)
    (torch.sum(torch.sin(policy)) + torch.sum(value * value)).backward()
    found = gradient(library, a_loss(activation), network, observation)
    for part, module in zip(found[:2], modules, strict=True):
        leaves = [*jax.tree.leaves(part.hidden), *part.head]
        for k, (leaf, parameter) in enumerate(zip(leaves, module.parameters(), strict=True)):
            is_hidden_weight = k < len(leaves) - 2 and leaf.ndim == 2
            close(leaf.T if is_hidden_weight else leaf, parameter.grad.numpy(), GRADIENT)
    assert not found.log_std.any()


@pytest.mark.parametrize("library", LIBRARIES)
def test_any_axes_may_come_before_that_of_the_observation(library: str) -> None:
    network, observation = learned(SIZES), observations(shape=(4, 8))
    policy, value = run(library, both("tanh"), network, observation)
    assert (policy.shape, value.shape) == ((4, 8, SIZES.head), (4, 8))
    flat = run(library, both("tanh"), network, observation.reshape(32, -1))
    close((policy.reshape(32, -1), value.reshape(32)), flat, OUTPUT)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("library", LIBRARIES)
def test_every_activation_maps_zero_to_zero(library: str, activation: Activation) -> None:
    assert not run(library, lambda x, xp: activate(activation, x, xp), np.zeros(3)).any()


@pytest.mark.parametrize("shape", [(16, 5), (5, 16), (8, 8), (1, 9)])
def test_first_weights_are_orthogonal_on_the_smaller_side(shape: tuple[int, int]) -> None:
    weight = orthogonal(np.random.default_rng(0), *shape, gain=1.7).astype(np.float64)
    square = weight.T @ weight if shape[0] > shape[1] else weight @ weight.T
    assert weight.shape == shape
    close(square, 1.7**2 * np.eye(min(shape)), 64, np.float32)  # of weights that were rounded


def test_first_weights_are_as_often_positive_as_negative() -> None:
    rng = np.random.default_rng(0)
    draws = np.stack([orthogonal(rng, 3, 4, 1.0) for _ in range(2000)])
    assert np.abs(np.mean(draws > 0, axis=0) - 0.5).max() < 4 * 0.5 / np.sqrt(2000)


def test_layers_and_heads_start_with_their_gains_and_without_bias() -> None:
    network = new_network(SIZES, seed=4)
    for part, gain in ((network.actor, 0.01), (network.critic, 1.0)):
        weights = [layer.weight.astype(np.float64) for layer in (*part.hidden, part.head)]
        norms = [np.linalg.svd(weight, compute_uv=False) for weight in weights]
        for singular, expected in zip(norms, (2**0.5, 2**0.5, gain), strict=True):
            assert_close(
                singular,
                np.full_like(singular, expected),
                roundings=64,
                size=expected,
                dtype=np.float32,
            )
        assert not any(layer.bias.any() for layer in (*part.hidden, part.head))


def test_a_network_has_the_given_sizes_and_deviations() -> None:
    network = new_network(SIZES, seed=4, log_std=-0.7)
    for part, outputs in ((network.actor, 3), (network.critic, 1)):
        assert [layer.weight.shape for layer in part.hidden] == [(5, 16), (16, 12)]
        assert [layer.bias.shape for layer in part.hidden] == [(16,), (12,)]
        assert (part.head.weight.shape, part.head.bias.shape) == ((outputs, 12), (outputs,))
    np.testing.assert_array_equal(network.log_std, np.full(3, -0.7, np.float32))
    assert new_network(SIZES._replace(deviations=0), seed=4).log_std.shape == (0,)
    assert {leaf.dtype for leaf in jax.tree.leaves(network)} == {np.dtype(np.float32)}


def test_the_seed_fixes_the_network_and_no_two_layers_are_alike() -> None:
    one, same, other = (new_network(SIZES, seed) for seed in (4, 4, 5))
    jax.tree.map(np.testing.assert_array_equal, one, same)
    drawn = [
        layer.weight for network in (one, other) for part in network[:2] for layer in part.hidden
    ]
    assert len({weight.tobytes() for weight in drawn}) == len(drawn) == 8


# --- small networks in big arrays -----------------------------------------------------------------


def own(sizes: Sizes, hidden: tuple[int, ...]) -> Sizes:
    return sizes._replace(hidden=hidden)


def spread(small: Any, sizes: Sizes, fill: float = 0.0) -> Network:
    """The small network's values in the corners of a big one's arrays; elsewhere `fill`."""

    def cornered(value: np.ndarray, like: np.ndarray) -> np.ndarray:
        return np.pad(
            value,
            [(0, b - a) for a, b in zip(value.shape, like.shape, strict=True)],
            constant_values=fill,
        )

    def part(small: Perceptron, big: Perceptron) -> Perceptron:
        skipped = jax.tree.map(lambda x: np.full_like(x, fill), big.hidden[len(small.hidden) :])
        return jax.tree.map(cornered, Perceptron((*small.hidden, *skipped), small.head), big)

    big = jax.tree.map(lambda x: x.astype(np.float64), new_network(sizes, 0))
    return Network(part(small.actor, big.actor), part(small.critic, big.critic), small.log_std)


@pytest.mark.parametrize(("sizes", "hidden"), [NARROW, SHALLOW, BOTH])
def test_a_fresh_small_network_lies_in_the_corners_and_zeros_elsewhere(
    sizes: Sizes, hidden: tuple[int, ...]
) -> None:
    found = new_network(sizes, 7, log_std=-1.0, hidden=hidden)
    jax.tree.map(
        np.testing.assert_array_equal,
        found,
        spread(new_network(own(sizes, hidden), 7, -1.0), sizes),
    )


def test_gates_are_one_for_the_layers_there_are() -> None:
    assert [gates_of(DEEP, (9,) * k).tolist() for k in (1, 2, 3)] == [
        [1, 0, 0],
        [1, 1, 0],
        [1, 1, 1],
    ]


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(("sizes", "hidden"), [NARROW, SHALLOW, BOTH])
def test_a_small_network_in_big_arrays_gives_exactly_its_own_outputs(
    library: str, sizes: Sizes, hidden: tuple[int, ...]
) -> None:
    """Weights are eighths: sums are exact in any order."""
    small = jax.tree.map(lambda x: np.round(8 * x) / 8, learned(own(sizes, hidden)))
    gates = gates_of(sizes, hidden) if len(hidden) < len(sizes.hidden) else None
    observation = np.round(8 * observations()) / 8
    found = run(library, both("relu", gates), spread(small, sizes), observation)
    expected = run(library, both("relu"), small, observation)
    jax.tree.map(np.testing.assert_array_equal, found, expected)


@pytest.mark.long
@pytest.mark.parametrize(
    ("library", "activation"), [*product(["torch"], ACTIVATIONS), ("jax", "silu")]
)
@pytest.mark.parametrize(("sizes", "hidden"), [NARROW, SHALLOW, BOTH])
def test_a_small_network_in_big_arrays_learns_as_it_would_alone(
    library: str, activation: Activation, sizes: Sizes, hidden: tuple[int, ...]
) -> None:
    """Three steps: gradients are its own in the corners and exactly 0 elsewhere."""
    small, observation = learned(own(sizes, hidden)), observations()
    gates = gates_of(sizes, hidden) if len(hidden) < len(sizes.hidden) else None
    big, outside = spread(small, sizes), spread(jax.tree.map(np.zeros_like, small), sizes, fill=1.0)
    for _ in range(3):
        expected = gradient(library, a_loss(activation), small, observation)
        found = gradient(library, a_loss(activation, gates), big, observation)
        close(found, spread(expected, sizes), GRADIENT)
        assert not any(
            np.any(g * o) for g, o in zip(*map(jax.tree.leaves, (found, outside)), strict=True)
        )
        small, big = (
            jax.tree.map(lambda x, g: x - 0.01 * g, *pair)
            for pair in ((small, expected), (big, found))
        )


@pytest.mark.parametrize("library", DIFFERENTIABLE)
def test_skipped_layers_have_no_say_and_learn_nothing_whatever_their_weights(library: str) -> None:
    small, observation = learned(own(DEEP, (16, 16))), observations()
    big = spread(small, DEEP, fill=0.7)
    gates = gates_of(DEEP, (16, 16))
    close(
        run(library, both("tanh", gates), big, observation),
        run(library, both("tanh"), small, observation),
        OUTPUT,
    )
    found = gradient(library, a_loss("tanh", gates), big, observation)
    for part in found[:2]:
        assert [any(leaf.any() for leaf in layer) for layer in part.hidden] == [True, True, False]


@pytest.mark.parametrize("sizes", [SIZES, DEEP, Sizes(7, (8,), 2, 0), Sizes(3, (4, 9, 6), 1, 1)])
def test_multiplications_are_those_that_torch_counts(sizes: Sizes) -> None:
    batch = 10
    network = jax.tree.map(lambda x: torch.asarray(x).requires_grad_(), new_network(sizes, 0))
    observation = torch.ones(batch, sizes.observation)
    with FlopCounterMode(display=False) as forward:
        loss = a_loss("tanh")(network, observation, LIBRARIES["torch"])
    with FlopCounterMode(display=False) as backward:
        loss.backward()
    counted = tuple(counter.get_total_flops() / (2 * batch) for counter in (forward, backward))
    assert multiplications(sizes) == counted
