"""The learner in the market: rules are data, observations may be made again, rewards are accounted
for.

All of it in float64: two programs that learn the same are compared.
"""

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest

from flatout.learners.jax_engine.market_environment import JaxMarketEnvironment
from flatout.market import jax_market
from flatout.market.market import Market, build_market
from flatout.market.rewards import RewardTerms
from flatout.settings.tables import Settings
from rounding import assert_close
from scenarios import random_panel
from small_learners import (
    LANES,
    Population,
    Trained,
    assert_learned_alike,
    difference,
    lane,
    population,
    runner,
)
from small_learners import train as train_in

pytestmark = pytest.mark.long

COSTS = {
    "tiers": [{"volume": 0, "maker_bps": 10, "taker_bps": 20}],
    "half_spread_bps": 2.0,
    "impact": 0.5,
}
LIMITS = {
    "max_weight": 0.5,
    "max_short_weight": 0.3,
    "gross_limit": 1.1,
    "trailing_stop": 0.03,
    "ruin": 0.7,
}
REWARD = {
    "log_return": 1.0,
    "excess": 0.5,
    "differential_sharpe": 0.1,
    "drawdown": 0.2,
    "turnover": 0.05,
    "concentration": 0.2,
    "concentration_above": 0.1,
    "scale": 2.0,
}


def market(seed: int = 0, **changes: dict[str, float]) -> Market:
    """Two assets; keywords change costs, limits or rewards."""
    groups = {"costs": COSTS, "limits": LIMITS, "reward": REWARD}
    rules = {name: values | changes.get(name, {}) for name, values in groups.items()}
    features = {"indicators": ["return_1", "roc"], "lookback": 2}
    values = {
        "market": {"capital": 1e6, "action": "trade", "episode_bars": 9, **rules},
        "features": features,
    }
    return build_market(random_panel(seed, 60, 2), Settings.model_validate(values))


def lanes_in(*markets: Market, index_only: bool = False) -> Population:
    """A lane under the rules of each, all on the first one's tape."""
    rules = [jax.tree.map(np.asarray, jax_market.upload(one)[1]) for one in markets]
    environment, tape = JaxMarketEnvironment(markets[0].shape), jax_market.upload(markets[0])[0]
    return population(LANES, rules, environment=environment, data=tape, index_only=index_only)


def train(lanes: Population, **rates: Any) -> Trained:
    return train_in(lanes, quick=True, **rates)


@pytest.fixture(scope="module", autouse=True)
def doubles() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="module")
def lanes() -> Population:
    return lanes_in(*[market()] * 3)


@pytest.fixture(scope="module")
def trained(lanes: Population) -> Trained:
    return train(lanes)


OTHERS = {
    "prices": market(seed=1),
    "costs": market(costs={"half_spread_bps": 9.0}),
    "fees": market(costs={"tiers": [{"volume": 0, "maker_bps": 1, "taker_bps": 2}]}),
    "limits": market(limits={"max_weight": 0.2, "trailing_stop": 0.1}),
    "reward": market(reward={"turnover": 0.5, "scale": 1.0}),
    "segments": market().between(20, 50),
    "length": market().between(10, 60, episode_bars=5),
}


@pytest.mark.parametrize("what", OTHERS)
def test_other_numbers_are_learned_from_and_compile_nothing(
    lanes: Population, trained: Trained, what: str
) -> None:
    """Nor does the next chunk."""
    other = lanes_in(*[OTHERS[what]] * 3)
    assert other.program == lanes.program
    result = train(other)
    for k in range(3):
        assert difference(lane(result.state.network, k), lane(trained.state.network, k)) > 1e-5
    train(other._replace(state=result.state), until=4)
    assert runner(lanes.program, quick=True)._cache_size() == 1


def test_lanes_may_live_under_different_rules(lanes: Population, trained: Trained) -> None:
    mixed = train(lanes_in(market(), OTHERS["fees"], OTHERS["segments"])).state.network
    assert difference(lane(mixed, 0), lane(trained.state.network, 0)) == 0
    for k, name in ((1, "fees"), (2, "segments")):
        pure = train(lanes_in(*[OTHERS[name]] * 3)).state.network
        assert difference(lane(mixed, k), lane(pure, k)) == 0
    assert runner(lanes.program, quick=True)._cache_size() == 1


def test_observing_again_gives_the_same_parameters(lanes: Population, trained: Trained) -> None:
    """Trajectories that keep views are smaller, and nothing else."""
    again = lanes_in(*[market()] * 3, index_only=True)
    assert again.program != lanes.program
    assert again.program.environment.view_size < again.program.environment.observation_size
    assert_learned_alike(train(again).state.network, trained.state.network, 3 * 3 * 4, 3e-3)


def test_reward_terms_add_up_to_the_reward(trained: Trained) -> None:
    terms = np.stack([trained.metrics[f"terms/{name}"] for name in RewardTerms._fields])
    weights = REWARD["scale"] * np.asarray([REWARD[name] for name in RewardTerms._fields])
    assert (np.abs(terms) > 1e-6).all()
    size = np.abs(weights) @ np.abs(terms)
    assert_close(
        weights @ terms, trained.metrics["reward"], roundings=1e6, size=size
    )  # of 384 steps that cancel out


def test_episodes_are_as_long_as_they_may_be(trained: Trained) -> None:
    """48 steps of 8 accounts, in episodes of 9 bars that nobody is ruined in."""
    assert trained.metrics["episode_length"].tolist() == [9, 9, 9]
    assert trained.metrics["episodes"].tolist() == [40, 40, 40]
