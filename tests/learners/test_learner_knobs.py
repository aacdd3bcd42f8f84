"""No dead knobs: every number that can be set changes what is learned; only numbers of a shape are
other programs.
"""

from functools import partial
from typing import Any

import jax
import numpy as np
import pytest

from flatout.learners.jax_engine.population import make_chunk_runner
from flatout.learners.jax_engine.rollout import run_rollout
from flatout.learners.rates import Rates
from flatout.settings.train import TrainSettings
from rounding import assert_close
from small_learners import (
    Clock,
    Population,
    Trained,
    biting_settings,
    clock,
    difference,
    lane,
    population,
    train,
)

pytestmark = pytest.mark.long

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
SWITCHED_OFF = ("value_clip", "max_grad_norm", "target_kl")
SLOW = pytest.mark.slow


def lanes(**changes: Any) -> Population:
    """Three seeds under equal settings."""
    return population([biting_settings(**changes)] * 3, [clock()] * 3)


@pytest.fixture(scope="module")
def base() -> Population:
    return lanes()


@pytest.fixture(scope="module")
def trained(base: Population) -> Trained:
    return train(base)


def assert_other(trained: Trained, other: Trained) -> None:
    """Every lane has learned something else: more than rounding does, less than any knob here (2e-3
    and more).
    """
    for k in range(3):
        assert difference(lane(trained.state.network, k), lane(other.state.network, k)) > 1e-4


def test_every_setting_is_a_knob_of_this_file() -> None:
    """Except the engine, which changes nothing but rounding and noise: see
    test_torch_equals_jax.py; how long and how often to train, which the learner does not know; the
    network's kind, for which this environment has no assets: test_per_asset.py; and pathwise with
    its own knobs: test_pathwise.py. For gates see test_jax_population.py.
    """
    pathwise = {"action_noise", "feature_noise", "weight_decay"}
    others = {"engine", "timesteps", "seeds", "network", "algorithm"} | pathwise
    assert {*DATA_KNOBS, *SHAPE_KNOBS} | others == set(TrainSettings.model_fields)
    assert {*DATA_KNOBS} - {"log_std"} | pathwise | {
        "gates", "updates", "until", "environment"
    } == set(Rates._fields)  # fmt: skip


@pytest.mark.parametrize("name", DATA_KNOBS)
def test_settings_that_are_data_matter_in_the_same_program(
    base: Population, trained: Trained, name: str
) -> None:
    other = lanes(**{name: DATA_KNOBS[name]})
    assert other.program == base.program
    assert_other(trained, train(other))


@pytest.mark.parametrize("name", SWITCHED_OFF)
def test_what_is_switched_off_was_in_effect(trained: Trained, name: str) -> None:
    assert_other(trained, train(lanes(**{name: None})))


@pytest.mark.parametrize(
    "name",
    [
        *("minibatches", "activation", "distribution"),
        *(pytest.param(x, marks=SLOW) for x in ("n_envs", "n_steps")),
    ],
)
def test_settings_of_shape_matter(base: Population, trained: Trained, name: str) -> None:
    other = lanes(**{name: SHAPE_KNOBS[name]})
    assert other.program != base.program
    assert_other(trained, train(other, quick=True))


@pytest.mark.parametrize("name", ["n_envs", "n_steps"])
def test_trajectories_are_as_many_and_as_long_as_set(base: Population, name: str) -> None:
    """Nothing is compiled for it."""
    other = lanes(**{name: SHAPE_KNOBS[name]})
    for one, shape in ((base, (16, 8)), (other, (16, 4) if name == "n_envs" else (8, 8))):
        run = jax.vmap(partial(run_rollout, one.program, one.data))
        assert jax.eval_shape(run, one.rates, one.state)[1].reward.shape == (3, *shape)


def test_hidden_layers_are_as_set() -> None:
    """Nothing is compiled for it."""
    program, data, rates, state = lanes(hidden=(8,))
    assert program.hidden == (8,)
    after, _ = jax.eval_shape(make_chunk_runner(program, True), data, rates, state)
    assert [x.shape for x in jax.tree.leaves(after.network.actor)] == [
        (3, 2, 8),
        (3, 8),
        (3, 2, 8),
        (3, 2),
    ]


def test_the_schedule_ends_at_the_last_update(base: Population, trained: Trained) -> None:
    """From the full rate to the share of it, in a straight line over all updates of the
    training.
    """
    assert_other(trained, train(base, updates=9))
    for updates, shares in ((3, (1.0, 0.75, 0.5)), (5, (1.0, 0.875, 0.75))):
        part = base
        for k, share in enumerate(shares, start=1):
            result = train(part, updates=updates, until=k)
            assert_close(
                result.metrics["learning_rate"], [share * 3e-3] * 3, roundings=16, dtype=np.float32
            )
            part = part._replace(state=result.state)


def test_until_is_the_number_of_updates(base: Population, trained: Trained) -> None:
    fewer = train(base, until=2)
    assert (
        np.asarray(fewer.state.updates).tolist()
        == [2, 2, 2]
        != np.asarray(trained.state.updates).tolist()
    )
    assert_other(trained, fewer)


@pytest.mark.parametrize(
    "rule", [clock(6), clock(terminates=True), clock(cost=0.4)], ids=Clock._fields
)
def test_the_rules_of_the_environment_matter(trained: Trained, rule: Clock) -> None:
    assert_other(trained, train(population([biting_settings()] * 3, [rule] * 3)))
