"""A population is its lanes: each trains as it would alone, in chunks of any length, in a program of any width."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_learners import (
    LANES,
    RULES,
    Population,
    Trained,
    biting_settings,
    difference,
    lane,
    population,
    runner,
    train,
)

from flatout.policies.network import Layer, Network, Perceptron, pad

MEANS = ("policy_loss", "value_loss", "approx_kl", "grad_norm", "learning_rate", "epochs", "reward", "terms/miss")


@pytest.fixture(scope="module")
def lanes() -> Population:
    """Three with different seeds, settings and rules."""
    return population(LANES, RULES)


@pytest.fixture(scope="module")
def trained(lanes: Population) -> Trained:
    return train(lanes)


def test_lanes_are_trained_and_differ(lanes: Population, trained: Trained) -> None:
    """So that the equalities below say something."""
    assert all(difference(lane(trained.state.network, k), lane(lanes.state.network, k)) > 1e-3 for k in range(3))
    assert np.unique(np.asarray(trained.state.network.log_std)[:, 0]).size == 3
    assert np.unique(trained.metrics["reward"]).size == 3


def test_a_lane_is_the_same_in_any_company(lanes: Population, trained: Trained) -> None:
    """Bit for bit where lanes run one after another."""
    for k in range(3):
        alone = train(lanes._replace(rates=lane(lanes.rates, k), state=lane(lanes.state, k)))
        assert difference(alone.state, lane(trained.state, k)) == 0
        assert difference(alone.metrics, lane(trained.metrics, k)) == 0


def test_vmapped_lanes_are_the_same(lanes: Population, trained: Trained) -> None:
    """They stop after different numbers of epochs and at different times; only the order of sums differs."""
    until = jnp.asarray([3, 1, 2], jnp.int32)
    some = lanes._replace(rates=lanes.rates._replace(until=until))
    one_by_one, side_by_side = train(some), train(some, one_by_one=False)
    assert np.asarray(side_by_side.state.updates).tolist() == until.tolist()
    assert difference(one_by_one.state, side_by_side.state) < 1e-5
    assert difference(lane(trained.state, 0), lane(side_by_side.state, 0)) < 1e-5


def test_equal_seeds_are_equal_lanes_and_others_are_not() -> None:
    networks = train(population([biting_settings()] * 3, [RULES[0]] * 3, (4, 4, 5))).state.network
    assert difference(lane(networks, 0), lane(networks, 1)) == 0
    assert difference(lane(networks, 0), lane(networks, 2)) > 1e-3


def test_noise_depends_on_the_seed_alone_not_on_the_network() -> None:
    """Equal networks, other seeds: other trajectories."""
    lanes = population([biting_settings()] * 3, [RULES[0]] * 3, (4, 5, 5))
    same = jax.tree.map(lambda x: jnp.stack([x[0]] * 3), lanes.state.network)
    reward = train(lanes._replace(state=lanes.state._replace(network=same)), until=1).metrics["reward"]
    assert reward[0] != reward[1] == reward[2]


def test_four_updates_in_one_chunk_are_four_chunks(lanes: Population) -> None:
    """Bit for bit, and the metrics of the long chunk are the means of the short ones."""
    whole, parts, part = train(lanes, until=4), [], lanes
    for k in range(1, 5):
        parts.append(train(part, until=k))
        part = part._replace(state=parts[-1].state)
    assert difference(part.state, whole.state) == 0
    assert len({x.metrics["reward"][0] for x in parts}) == 4
    for name in MEANS:
        mean = np.mean([x.metrics[name] for x in parts], axis=0)
        np.testing.assert_allclose(whole.metrics[name], mean, rtol=1e-4, atol=1e-7, err_msg=name)
    counts = [x.metrics["episodes"] for x in parts]
    np.testing.assert_array_equal(whole.metrics["episodes"], np.sum(counts, axis=0))
    for name in ("episode_return", "episode_length"):
        total = np.sum([count * x.metrics[name] for count, x in zip(counts, parts, strict=True)], axis=0)
        np.testing.assert_allclose(whole.metrics[name], total / np.sum(counts, axis=0), rtol=1e-5)


@pytest.mark.parametrize("until", [3, 2, 0])
def test_a_lane_that_is_done_does_not_change(lanes: Population, trained: Trained, until: int) -> None:
    again = train(lanes._replace(state=trained.state), until=until)
    assert difference(again.state, trained.state) == 0
    assert not any(values.any() for values in again.metrics.values())


def test_each_lane_advances_to_its_own_end(lanes: Population, trained: Trained) -> None:
    own = train(lanes._replace(rates=lanes.rates._replace(until=jnp.asarray([1, 3, 0], jnp.int32)))).state
    assert np.asarray(own.updates).tolist() == [1, 3, 0]
    assert difference(lane(own, 1), lane(trained.state, 1)) == difference(lane(own, 2), lane(lanes.state, 2)) == 0


def test_the_optimiser_remembers(lanes: Population) -> None:
    """One step per minibatch and epoch of all updates."""
    state = train(lanes, target_kl=1e9, epochs=2).state
    assert np.asarray(state.optimiser.count).tolist() == [3 * 2 * lanes.program.minibatches] * 3


def test_neither_other_rates_nor_the_next_chunk_compile_anything(lanes: Population, trained: Trained) -> None:
    run = runner(lanes.program)
    before = run._cache_size()
    train(lanes._replace(state=trained.state), until=4)
    for name, values in lanes.rates._asdict().items():
        train(lanes._replace(rates=lanes.rates._replace(**{name: jax.tree.map(lambda x: x[::-1], values)})))
    assert run._cache_size() == before <= 2  # three lanes, and one alone


def padded(small: Network, large: Network) -> Network:
    """A network in the arrays of a larger one, one lane each; zeros elsewhere."""

    def layer(one: Any, like: Any) -> Layer:
        weight = np.zeros((0, 0)) if one is None else np.asarray(one.weight)
        bias = np.zeros(0) if one is None else np.asarray(one.bias)
        return Layer(pad(weight, like.weight.shape), np.pad(bias, (0, like.bias.size - bias.size)))

    def perceptron(one: Perceptron, like: Perceptron) -> Perceptron:
        hidden = [*one.hidden, *[None] * (len(like.hidden) - len(one.hidden))]
        return Perceptron(
            tuple(layer(*pair) for pair in zip(hidden, like.hidden, strict=True)), layer(one.head, like.head)
        )

    return Network(perceptron(small.actor, large.actor), perceptron(small.critic, large.critic), small.log_std)


@pytest.mark.parametrize(
    ("hidden", "gated"), [((8, 12), False), ((16, 16), True), ((8, 12), True), ((8,), True)], ids=str
)
def test_smaller_networks_train_as_in_a_program_of_their_own(hidden: tuple[int, ...], gated: bool) -> None:
    """Narrower ones in any program, shallower ones in a gated one; what is padded stays exactly zero."""
    wide, own = biting_settings(), biting_settings(hidden=hidden)
    rules = [RULES[0]] * 3
    inside = train(population([wide, own, own], rules, gated=gated), until=2).state
    apart = train(population([own] * 3, rules), until=2).state
    for k in (1, 2):
        large, small = (jax.tree.map(lambda x, k=k: x[k], state.network) for state in (inside, apart))
        assert difference(large, padded(small, large)) < 1e-5
        exists = padded(jax.tree.map(np.ones_like, small), large)
        assert all(
            not np.asarray(x)[mask == 0].any()
            for x, mask in zip(jax.tree.leaves(large), jax.tree.leaves(exists), strict=True)
        )
        fresh = jax.tree.map(lambda x, k=k: x[k], population([own] * 3, rules).state.network)
        assert difference(small, fresh) > 1e-3
