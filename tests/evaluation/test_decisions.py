"""Decisions behind weights: what prices did to a position is none."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from flatout.bars.synthetic import RandomWalk
from flatout.evaluation.backtest import backtest
from flatout.evaluation.baselines import BASELINES, Moment, Policy
from flatout.evaluation.decisions import (
    Decisions,
    count_decisions,
    find_decisions,
    measure_activity,
    measure_change,
)
from flatout.evaluation.skill import make_timeline
from flatout.folds.blocks import Block
from flatout.market.market import Market, build_market
from flatout.settings.tables import Settings

FREE = Settings.model_validate(
    {
        "features": {"indicators": ["return_1"]},
        "market": {
            "costs": {
                "tiers": [{"volume": 0, "maker_bps": 0, "taker_bps": 0}],
                "half_spread_bps": 0,
                "impact": 0,
            }
        },
    }
)


@pytest.fixture(scope="module")
def market() -> Market:
    return build_market(RandomWalk(n_bars=400, seed=3, symbols=("A", "B")).panel(), FREE)


def decisions_of(market: Market, policy: Policy) -> Decisions:
    history = backtest(market, policy, record_weights=True)
    assert history.weights is not None
    first = int(history.bars[0])
    timeline = make_timeline(market.panel.close, [Block(first, market.panel.n_bars)])
    starts = np.arange(len(history.bars)) == 0
    return find_decisions(
        history.weights[:, 0], history.returns[:, 0], timeline.asset_returns, starts
    )


def hold(weights: list[float]) -> Policy:
    def policy(moment: Moment) -> NDArray[np.float64]:
        return np.array([weights]) - moment.weights

    return policy


def test_buying_and_holding_is_one_decision(market: Market) -> None:
    found = decisions_of(market, BASELINES["buy_and_hold"])
    assert found.traded[24:].sum() == 0
    assert count_decisions(found) == 1
    assert measure_activity(found).p_value > 0.5


def test_rebalancing_to_the_same_weights_decides_nothing_new(market: Market) -> None:
    found = decisions_of(market, hold([0.3, 0.5]))
    assert found.traded.mean() > 0.9
    np.testing.assert_allclose(
        found.targets[1:], [[0.3, 0.5]] * (len(found.targets) - 1), atol=0.01
    )
    assert count_decisions(found) == 1
    assert measure_activity(found).p_value == pytest.approx(1.0, abs=0.01)


def test_what_was_asked_for_is_found_again(market: Market) -> None:
    """At the prices of the decision, whatever the next open was."""
    asked = np.random.default_rng(0).uniform(0.1, 0.4, (400, 2))

    def policy(moment: Moment) -> NDArray[np.float64]:
        return asked[[moment.age // 5]] - moment.weights

    found = decisions_of(market, policy)
    expected = asked[np.arange(len(found.targets)) // 5]
    np.testing.assert_allclose(found.targets, expected, atol=2e-4)
    changes = 1 + np.sum(np.abs(np.diff(asked[: len(expected) // 5], axis=0)).max(axis=1) > 0.005)
    assert abs(count_decisions(found) - changes) <= 1
    assert measure_activity(found).p_value < 1e-3


@pytest.mark.parametrize("period", [400, 200, 40])
def test_few_changes_of_mind_show_no_activity(market: Market, period: int) -> None:
    """One change in the middle leaves both halves as far from the average: without scatter, a test
    of batches alone would be sure.
    """

    def policy(moment: Moment) -> NDArray[np.float64]:
        side = moment.age // (period // 2) % 2
        return np.array([[0.4 * side, 0.4 * (1 - side)]]) - moment.weights

    found = decisions_of(market, policy)
    assert 0 < count_decisions(found) < 24
    assert measure_activity(found).p_value == 1.0


def test_nothing_is_asked_for_before_the_first_decision(market: Market) -> None:
    def late(moment: Moment) -> NDArray[np.float64]:
        return np.array([[0.4, 0.0]]) - moment.weights if moment.age == 50 else np.zeros((1, 2))

    found = decisions_of(market, late)
    assert (found.targets[:50] == 0).all()
    np.testing.assert_allclose(found.targets[50:, 0], 0.4, atol=1e-3)
    assert found.traded.sum() == 1


def test_small_changes_of_many_assets_are_decisions() -> None:
    """Half a per cent of the equity is no less for being spread over 250 assets."""
    rng, assets = np.random.default_rng(0), 250
    weights = rng.uniform(0.0, 0.004, (60, assets))
    returns = np.zeros((60, assets))
    found = find_decisions(weights, np.zeros(60), returns, np.arange(60) == 0)
    assert found.traded.mean() > 0.99
    assert count_decisions(found) == 60
    assert measure_activity(found).p_value < 0.01


def test_rounding_is_no_decision() -> None:
    """Of 32-bit weights of any size."""
    held = np.tile([0.5, 0.004, 1e-5], (60, 1))
    shaken = held * (1 + 2e-6 * np.random.default_rng(0).normal(size=held.shape))
    found = find_decisions(shaken, np.zeros(60), np.zeros(held.shape), np.arange(60) == 0)
    assert not found.traded[1:].any()
    assert count_decisions(found) == 1


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=6))
def test_a_change_is_what_changes_hands_with_cash_among_it(weights: list[float]) -> None:
    change = np.array(weights)
    bought, sold = change[change > 0].sum(), -change[change < 0].sum()
    assert measure_change(change) == pytest.approx(max(bought, sold))
