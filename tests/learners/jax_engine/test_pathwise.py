"""The learner that follows the gradient through the environment."""

from functools import partial
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from flatout.bars.synthetic import PlantedSignal
from flatout.errors import SettingsError
from flatout.features.recipe import fit
from flatout.learners.engines import Engine, market_environment
from flatout.learners.jax_engine import pathwise
from flatout.learners.metrics import metric_names
from flatout.learners.rates import program_of
from flatout.market import jax_market
from flatout.market.market import Market, build_market, recipe_of
from flatout.settings.tables import Settings
from flatout.settings.train import TrainSettings
from small_learners import CLOCK, Population, clock, difference, lane, population, train

RULES = [clock(7), clock(5, True), clock(9, False, 0.5)]
KNOBS: dict[str, Any] = {
    "learning_rate": 1e-3,
    "final_rate_share": 0.1,
    "gamma": 0.5,
    "gae_lambda": 0.2,
    "value": 0.0,
    "max_grad_norm": 0.01,
    "action_noise": 0.5,
    "feature_noise": 0.5,
    "weight_decay": 5.0,
}


def settings(**changes: Any) -> TrainSettings:
    """Every knob in effect."""
    return TrainSettings(**{
        "algorithm": "pathwise", "n_steps": 8, "hidden": (16, 16), "value": 0.5,
        "final_rate_share": 0.5, "max_grad_norm": 0.3, "feature_noise": 0.1, "weight_decay": 0.1,
    } | changes)  # fmt: skip


def lanes(updates: int = 4, **changes: Any) -> Population:
    return population([settings(**changes)] * 3, RULES, updates=updates)


def small_market(assets: int = 3, **train: Any) -> tuple[Market, Settings]:
    """A planted signal, strong enough to be learned from few bars."""
    symbols = tuple(f"A{k}" for k in range(assets))
    panel = PlantedSignal(n_bars=3000, seed=5, symbols=symbols, strength_bps=60.0).panel()
    given = Settings.model_validate(
        {
            "features": {"indicators": ["return_1", "roc", "extra:signal"]},
            "market": {"episode_bars": 128},
            "train": {"algorithm": "pathwise", "distribution": "softmax", "hidden": [16, 16]}
            | train,
        }
    )
    fitted = fit(recipe_of(given.features), panel, np.arange(2000))
    return build_market(panel, given, fitted), given


def market_lanes(n_envs: int, updates: int, **train: Any) -> Population:
    market, given = small_market(**train)
    tape, rules = jax_market.upload(market.between(100, 2900, 128))
    return population(
        [given.train.model_copy(update={"n_envs": n_envs})],
        [jax.tree.map(np.asarray, rules)],
        seeds=[3],
        updates=updates,
        environment=market_environment(market.shape, "jax"),
        data=tape,
    )


@pytest.mark.parametrize("network", ["flat", "per_asset"])
def test_the_gradient_is_that_of_what_the_window_earned(network: str) -> None:
    """Against differences along random directions of all weights."""
    with jax.enable_x64(True):
        one = market_lanes(4, 1, network=network, n_steps=6, value=0.5, feature_noise=0.1)
        state, rates = (jax.tree.map(lambda x: x[0], tree) for tree in (one.state, one.rates))
        noise = pathwise.draw_noise(one.program, state)
        lose = jax.jit(
            partial(pathwise.lose_in_window, one.program, one.data, rates, state=state, noise=noise)
        )
        gradient = jax.jit(jax.grad(lambda n: lose(n)[0]))(state.network)
        weights, network_of = ravel_pytree(state.network._replace(critic=()))
        found = ravel_pytree(gradient._replace(critic=()))[0]
        critic = state.network.critic
        rng = np.random.default_rng(0)
        for _ in range(5):
            way = jnp.asarray(rng.normal(size=weights.shape))
            after, before = (
                lose(network_of(weights + step * way)._replace(critic=critic))[0]
                for step in (1e-6, -1e-6)
            )
            slope = float(after - before) / 2e-6
            assert slope == pytest.approx(float(found @ way), rel=1e-4, abs=1e-6)


def test_a_chunk_cut_in_two_leaves_the_same_bits() -> None:
    whole = train(lanes(updates=6), until=6)
    first = train(lanes(updates=6), until=2)
    again = lanes(updates=6)._replace(state=first.state)
    for a, b in zip(
        jax.tree.leaves(train(again, until=6).state), jax.tree.leaves(whole.state), strict=True
    ):
        np.testing.assert_array_equal(a, b)


@pytest.mark.long
@pytest.mark.parametrize("name", KNOBS)
def test_every_knob_changes_what_is_learned(name: str) -> None:
    one, other = lanes(), lanes(**{name: KNOBS[name]})
    assert one.program == other.program
    first, second = train(one, until=4).state.network, train(other, until=4).state.network
    for k in range(3):
        assert difference(lane(first, k), lane(second, k)) > 1e-6


def test_it_learns_the_target_of_each_step() -> None:
    """The clock's reward is 1 less what the action misses."""
    before = train(lanes(updates=150), until=5).metrics
    after = train(lanes(updates=150), until=150)
    again = lanes(updates=200)._replace(state=after.state)
    found = train(again, until=200, action_noise=0.0, feature_noise=0.0).metrics
    assert (1 - found["reward"] < 0.35 * (1 - before["reward"])).all()
    assert (found["skipped"] == 0).all()


def test_a_gradient_that_is_not_finite_is_skipped_and_counted() -> None:
    given = lanes()
    broken = train(given, until=4, feature_noise=np.inf)
    assert (broken.metrics["skipped"] == 1).all()
    for a, b in zip(
        jax.tree.leaves(broken.state.network), jax.tree.leaves(given.state.network), strict=True
    ):
        np.testing.assert_array_equal(a, b)
    well = train(lanes()._replace(state=broken.state), until=8)
    assert (well.metrics["skipped"] == 0).all()


@pytest.mark.long
@pytest.mark.parametrize("network", ["flat", "per_asset"])
def test_it_learns_a_planted_signal(network: str) -> None:
    """60 bps a bar, of which trades cost a part: after 40,000 samples it earns."""
    one = market_lanes(16, 80, network=network)
    early = train(one, until=5)
    late = train(one._replace(state=train(one, until=70).state), until=80)
    names = metric_names(one.program)
    assert "terms/log_return" in names and names[:2] == ("policy_loss", "value_loss")
    assert early.metrics["terms/log_return"][0] < 5e-4
    assert late.metrics["terms/log_return"][0] > 15e-4


def test_its_own_defaults_stand_where_nothing_is_given() -> None:
    given = TrainSettings(algorithm="pathwise", n_steps=16)
    assert (given.n_steps, given.minibatches, given.hidden) == (16, 1, (32, 32))
    assert (given.learning_rate, given.value, given.max_grad_norm) == (3e-3, 0.0, None)
    assert TrainSettings() == TrainSettings(algorithm="auto")
    assert TrainSettings().learning_rate == TrainSettings(algorithm="ppo").learning_rate


def test_what_it_cannot_do_is_refused_by_name() -> None:
    market, given = small_market()
    choices = market.shape._replace(action="discrete", levels=(-0.5, 0.0, 0.5))
    for engine in get_args(Engine):
        with pytest.raises(SettingsError, match="follows gradients, and choices have none"):
            program_of(given.train, market_environment(choices, engine), 8)
    with pytest.raises(SettingsError, match="this environment knows no assets"):
        program_of(TrainSettings(network="per_asset"), CLOCK, 8).sizes  # noqa: B018
