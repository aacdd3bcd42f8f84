"""No dead knobs: every number that can be set changes what is learned; only numbers of a shape are other programs."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_learners import Clock, Population, Trained, biting_settings, clock, difference, lane, population, train

from flatout.learners.rates import Rates
from flatout.settings import TrainSettings

DATA_KNOBS: dict[str, Any] = {
    "epochs": 1,
    "learning_rate": 2e-3,
    "final_rate_share": 0.1,
    "gamma": 0.9,
    "gae_lambda": 0.8,
    "clip": 0.03,
    "value_clip": 0.02,
    "entropy": 0.05,
    "value": 0.9,
    "max_grad_norm": 1e-4,
    "target_kl": 1e-5,
    "normalise_advantage": False,
    "normalise_reward": False,
    "log_std": -0.5,
}
SHAPE_KNOBS: dict[str, Any] = {
    "n_envs": 4,
    "n_steps": 8,
    "minibatches": 2,
    "hidden": (8,),
    "activation": "silu",
    "distribution": "squashed_gaussian",
}
SWITCHED_OFF = {"value_clip": None, "max_grad_norm": None, "target_kl": None}


def lanes(**changes: Any) -> Population:
    """Three seeds under equal settings."""
    return population([biting_settings(**changes)] * 3, [clock()] * 3)


@pytest.fixture(scope="module")
def base() -> Population:
    return lanes()


@pytest.fixture(scope="module")
def trained(base: Population) -> Trained:
    return train(base)


def assert_other(trained: Trained, other: Trained, least: float = 1e-5) -> None:
    """Every lane has learned something else."""
    for k in range(3):
        assert difference(lane(trained.state.network, k), lane(other.state.network, k)) > least


def test_every_setting_is_a_knob_of_this_file() -> None:
    """Except the engine, which changes nothing but rounding and noise: see test_torch_equals_jax.py."""
    assert {*DATA_KNOBS, *SHAPE_KNOBS, "engine"} == set(TrainSettings.model_fields)
    assert {*DATA_KNOBS} - {"log_std"} | {"gates", "updates", "until", "environment"} == set(Rates._fields)


@pytest.mark.parametrize("name", DATA_KNOBS)
def test_settings_that_are_data_matter_in_the_same_program(base: Population, trained: Trained, name: str) -> None:
    other = lanes(**{name: DATA_KNOBS[name]})
    assert other.program == base.program
    assert_other(trained, train(other))


@pytest.mark.parametrize("name", SWITCHED_OFF)
def test_what_is_switched_off_was_in_effect(trained: Trained, name: str) -> None:
    assert_other(trained, train(lanes(**{name: None})))


@pytest.mark.parametrize("name", [name for name in SHAPE_KNOBS if name != "hidden"])
def test_settings_of_shape_matter(base: Population, trained: Trained, name: str) -> None:
    other = lanes(**{name: SHAPE_KNOBS[name]})
    assert other.program != base.program
    assert_other(trained, train(other))


def test_hidden_layers_are_as_set() -> None:
    program = lanes(hidden=(8,)).program
    result = train(lanes(hidden=(8,)))
    assert program.hidden == (8,)
    assert [x.shape for x in jax.tree.leaves(result.state.network.actor)] == [(3, 2, 8), (3, 8), (3, 2, 8), (3, 2)]


def test_the_schedule_ends_at_the_last_update(base: Population, trained: Trained) -> None:
    """From the full rate to the share of it, in a straight line over all updates of the training."""
    assert_other(trained, train(base, updates=9))
    for updates, shares in ((3, (1.0, 0.75, 0.5)), (5, (1.0, 0.875, 0.75))):
        part = base
        for k, share in enumerate(shares, start=1):
            result = train(part, updates=updates, until=k)
            np.testing.assert_allclose(result.metrics["learning_rate"], share * 3e-3, rtol=1e-5)
            part = part._replace(state=result.state)


def test_until_is_the_number_of_updates(base: Population, trained: Trained) -> None:
    fewer = train(base, until=2)
    assert np.asarray(fewer.state.updates).tolist() == [2, 2, 2] != np.asarray(trained.state.updates).tolist()
    assert_other(trained, fewer)


@pytest.mark.parametrize("rule", [clock(6), clock(terminates=True), clock(cost=0.4)], ids=Clock._fields)
def test_the_rules_of_the_environment_matter(trained: Trained, rule: Clock) -> None:
    assert_other(trained, train(population([biting_settings()] * 3, [rule] * 3)))


def test_gates_matter_where_lanes_are_gated(trained: Trained) -> None:
    """All open is the plain network; a closed one takes its layer out of the training."""
    gated = population([biting_settings()] * 3, [clock()] * 3, gated=True)
    opened = train(gated)
    assert difference(opened.state.network, trained.state.network) < 1e-5
    shut = gated._replace(rates=gated.rates._replace(gates=jnp.asarray([[1.0, 0.0]] * 3)))
    closed = train(shut)
    assert_other(opened, closed)
    for perceptron in ("actor", "critic"):
        before, after = (getattr(x.network, perceptron).hidden for x in (gated.state, closed.state))
        assert difference(before[1], after[1]) == 0 and difference(before[0], after[0]) > 1e-3
