"""A population is its lanes: each trains as it would alone, in chunks of any length, in a program
of any width.

All of it in float64: what differs from program to program is rounding, which learning in float32
would enlarge.
"""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flatout.policies.network import Layer, Network, Perceptron
from rounding import assert_close
from small_learners import (
    LANES,
    RULES,
    Population,
    Trained,
    assert_learned_alike,
    biting_settings,
    difference,
    lane,
    population,
    runner,
)
from small_learners import train as train_in

pytestmark = pytest.mark.long

MEANS = (
    "policy_loss",
    "value_loss",
    "approx_kl",
    "grad_norm",
    "learning_rate",
    "epochs",
    "reward",
    "terms/miss",
)
RATE, STEPS = 3e-3, 3 * 4  # the largest learning rate of all lanes; most minibatches of an update


def train(lanes: Population, one_by_one: bool = True, **rates: Any) -> Trained:
    return train_in(lanes, one_by_one, quick=True, **rates)


@pytest.fixture(scope="module", autouse=True)
def doubles() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="module")
def lanes() -> Population:
    """Three with different seeds, settings and rules."""
    return population(LANES, RULES)


@pytest.fixture(scope="module")
def trained(lanes: Population) -> Trained:
    return train(lanes)


def test_lanes_are_trained_and_differ(lanes: Population, trained: Trained) -> None:
    """So that the equalities below say something."""
    assert all(
        difference(lane(trained.state.network, k), lane(lanes.state.network, k)) > 1e-3
        for k in range(3)
    )
    assert np.unique(np.asarray(trained.state.network.log_std)[:, 0]).size == 3
    assert np.unique(trained.metrics["reward"]).size == 3


def test_a_lane_is_the_same_in_any_company(lanes: Population, trained: Trained) -> None:
    """To the bit in one program where lanes run one after another, whoever the others are and how
    far they go.
    """
    for k, places in enumerate(([0, 2, 1], [2, 1, 0], [1, 0, 2])):
        rates, state = jax.tree.map(
            lambda x, places=places: x[jnp.asarray(places)], (lanes.rates, lanes.state)
        )
        until = rates.until.at[(k + 1) % 3].set(1)
        mixed = train(lanes._replace(rates=rates._replace(until=until), state=state))
        assert difference(lane(mixed.state, k), lane(trained.state, k)) == 0
        assert difference(lane(mixed.metrics, k), lane(trained.metrics, k)) == 0
        assert difference(lane(mixed.state, (k + 1) % 3), lane(trained.state, (k + 1) % 3)) > 0


def test_a_lane_is_the_same_alone(lanes: Population, trained: Trained) -> None:
    for k in range(3):
        alone = train(lanes._replace(rates=lane(lanes.rates, k), state=lane(lanes.state, k)))
        assert_learned_alike(alone.state, lane(trained.state, k), 3 * STEPS, RATE)
        assert_learned_alike(alone.metrics, lane(trained.metrics, k), 3 * STEPS, RATE)


def test_vmapped_lanes_are_the_same(lanes: Population, trained: Trained) -> None:
    """They stop after different numbers of epochs and at different times; only the order of sums
    differs.
    """
    until = jnp.asarray([3, 1, 2], jnp.int32)
    some = lanes._replace(rates=lanes.rates._replace(until=until))
    one_by_one, side_by_side = train(some), train(some, one_by_one=False)
    assert np.asarray(side_by_side.state.updates).tolist() == until.tolist()
    assert_learned_alike(side_by_side.state, one_by_one.state, 3 * STEPS, RATE)
    assert_learned_alike(lane(side_by_side.state, 0), lane(trained.state, 0), 3 * STEPS, RATE)


def test_equal_seeds_are_equal_lanes_and_others_are_not() -> None:
    networks = train(population([biting_settings()] * 3, [RULES[0]] * 3, (4, 4, 5))).state.network
    assert difference(lane(networks, 0), lane(networks, 1)) == 0
    assert difference(lane(networks, 0), lane(networks, 2)) > 1e-3


def test_noise_depends_on_the_seed_alone_not_on_the_network() -> None:
    """Equal networks, other seeds: other trajectories."""
    lanes = population([biting_settings()] * 3, [RULES[0]] * 3, (4, 5, 5))
    same = jax.tree.map(lambda x: jnp.stack([x[0]] * 3), lanes.state.network)
    reward = train(lanes._replace(state=lanes.state._replace(network=same)), until=1).metrics[
        "reward"
    ]
    assert reward[0] != reward[1] == reward[2]


def test_four_updates_in_one_chunk_are_four_chunks(lanes: Population) -> None:
    """To the bit in one program, and the metrics of the long chunk are the means of the short
    ones.
    """
    whole, parts, part = train(lanes, until=4), [], lanes
    for k in range(1, 5):
        parts.append(train(part, until=k))
        part = part._replace(state=parts[-1].state)
    assert difference(part.state, whole.state) == 0
    assert len({x.metrics["reward"][0] for x in parts}) == 4
    for name in MEANS:
        mean = np.mean([x.metrics[name] for x in parts], axis=0)
        assert_close(
            whole.metrics[name], mean, roundings=32, name=name
        )  # four are added and divided
    counts = [x.metrics["episodes"] for x in parts]
    np.testing.assert_array_equal(whole.metrics["episodes"], np.sum(counts, axis=0))
    for name in ("episode_return", "episode_length"):
        total = np.sum(
            [count * x.metrics[name] for count, x in zip(counts, parts, strict=True)], axis=0
        )
        assert_close(whole.metrics[name], total / np.sum(counts, axis=0), roundings=64, name=name)


@pytest.mark.parametrize("until", [3, 2, 0])
def test_a_lane_that_is_done_does_not_change(
    lanes: Population, trained: Trained, until: int
) -> None:
    again = train(lanes._replace(state=trained.state), until=until)
    assert difference(again.state, trained.state) == 0
    assert not any(values.any() for values in again.metrics.values())


def test_each_lane_advances_to_its_own_end(lanes: Population, trained: Trained) -> None:
    own = train(
        lanes._replace(rates=lanes.rates._replace(until=jnp.asarray([1, 3, 0], jnp.int32)))
    ).state
    assert np.asarray(own.updates).tolist() == [1, 3, 0]
    assert (
        difference(lane(own, 1), lane(trained.state, 1))
        == difference(lane(own, 2), lane(lanes.state, 2))
        == 0
    )


def test_the_optimiser_remembers(lanes: Population) -> None:
    """One step per minibatch and epoch of all updates."""
    state = train(lanes, target_kl=1e9, epochs=2).state
    assert np.asarray(state.optimiser.count).tolist() == [3 * 2 * lanes.program.minibatches] * 3


def test_neither_other_rates_nor_the_next_chunk_compile_anything(
    lanes: Population, trained: Trained
) -> None:
    run = runner(lanes.program, quick=True)
    before = run._cache_size()
    train(lanes._replace(state=trained.state), until=4)
    for name, values in lanes.rates._asdict().items():
        train(
            lanes._replace(
                rates=lanes.rates._replace(**{name: jax.tree.map(lambda x: x[::-1], values)})
            )
        )
    assert run._cache_size() == before <= 2  # three lanes, and one alone


def padded(small: Network, large: Network) -> Network:
    """A network in the arrays of a larger one, one lane each; zeros elsewhere."""

    def fill(array: Any, like: Any) -> Any:
        return np.pad(
            array,
            [(0, there - here) for here, there in zip(np.shape(array), like.shape, strict=True)],
        )

    def layer(one: Any, like: Any) -> Layer:
        return jax.tree.map(np.zeros_like, like) if one is None else Layer(*map(fill, one, like))

    def perceptron(one: Perceptron, like: Perceptron) -> Perceptron:
        hidden = [*one.hidden, *[None] * (len(like.hidden) - len(one.hidden))]
        return Perceptron(
            tuple(layer(*pair) for pair in zip(hidden, like.hidden, strict=True)),
            layer(one.head, like.head),
        )

    return Network(
        perceptron(small.actor, large.actor), perceptron(small.critic, large.critic), small.log_std
    )


@pytest.fixture(scope="module")
def gated() -> Population:
    """Two of these have networks that fill less than their arrays."""
    hidden = ((16, 16), (8, 12), (8,))
    return population(
        [biting_settings(hidden=sizes) for sizes in hidden], [RULES[0]] * 3, gated=True
    )


@pytest.fixture(scope="module")
def gated_trained(gated: Population) -> Trained:
    return train(gated, until=2)


def check_inside(large: Network, small: Network) -> None:
    """One network lies in the arrays of another; what is padded stays exactly zero."""
    assert_learned_alike(large, padded(small, large), 2 * STEPS, RATE)
    exists = padded(jax.tree.map(np.ones_like, small), large)
    for x, mask in zip(jax.tree.leaves(large), jax.tree.leaves(exists), strict=True):
        assert not np.asarray(x)[mask == 0].any()


@pytest.mark.parametrize("hidden", [(8, 12), (8,), (16, 16)], ids=str)
def test_smaller_networks_train_as_in_a_program_of_their_own(
    gated: Population, gated_trained: Trained, hidden: tuple[int, ...]
) -> None:
    """Narrower ones in any program, shallower ones in a gated one. The largest has all gates
    open.
    """
    k = [(16, 16), (8, 12), (8,)].index(hidden)
    own = population([biting_settings(hidden=hidden)], RULES[:1], (k,), gated=False)
    apart, fresh = (
        jax.tree.map(lambda x: x[0], x.network) for x in (train(own, until=2).state, own.state)
    )
    check_inside(jax.tree.map(lambda x: x[k], gated_trained.state.network), apart)
    assert difference(apart, fresh) > 1e-3
    if hidden == (8, 12):
        plain = population(
            [biting_settings(), *[biting_settings(hidden=hidden)] * 2], RULES[:1] * 3
        )
        check_inside(jax.tree.map(lambda x: x[1], train(plain, until=2).state.network), apart)


def test_a_closed_gate_takes_its_layer_out_of_the_training(
    gated: Population, gated_trained: Trained
) -> None:
    closed = train(
        gated._replace(rates=gated.rates._replace(gates=jnp.asarray([[1.0, 0.0]] * 3))), until=2
    ).state
    for perceptron in ("actor", "critic"):
        before, after = (
            getattr(lane(x.network, 0), perceptron).hidden for x in (gated.state, closed)
        )
        assert difference(before[1], after[1]) == 0 and difference(before[0], after[0]) > 1e-3
    for k, is_other in enumerate((True, True, False)):  # the last one's was closed before
        gap = difference(lane(closed.network, k), lane(gated_trained.state.network, k))
        assert gap > 1e-5 if is_other else gap == 0
