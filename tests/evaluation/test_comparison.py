"""A policy beside the baselines and beside copies of itself that decide at other times."""

from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from flatout.bars.synthetic import RandomWalk
from flatout.evaluation.backtest import backtest
from flatout.evaluation.baselines import BASELINES, Cash, EqualWeight, Moment, Momentum, Policy
from flatout.evaluation.comparison import Comparison, compare
from flatout.market.market import Market, build_market
from flatout.settings.tables import Settings
from rounding import assert_close

CHAIN: dict[str, Any] = {"roundings": 400 * 100, "size": 1.0}  # bars, and operations of each


@cache
def walk(n_bars: int) -> Market:
    panel = RandomWalk(n_bars=n_bars, seed=1, symbols=("AAA", "BBB", "CCC")).panel()
    return build_market(
        panel, Settings.model_validate({"features": {"indicators": ["return_1"], "lookback": 1}})
    )


def change_weights(moment: Moment) -> NDArray[np.float64]:
    """Other weights every ten bars, from the bar alone."""
    if moment.age % 10:
        return np.zeros_like(moment.weights)
    rng = np.random.default_rng(moment.age)
    return rng.uniform(0, 0.3, moment.weights.shape) - moment.weights


@cache
def comparison() -> Comparison:
    others = {name: BASELINES[name] for name in ("cash", "buy_and_hold")}
    return compare(walk(400), change_weights, others, lucky=20, seed=4)


def test_everybody_in_a_comparison_does_what_they_do_alone() -> None:
    alone = backtest(walk(400), change_weights, record_fills=True)
    assert_close(comparison().chosen.equity, alone.equity, **CHAIN)
    assert len(comparison().chosen.fills) == len(alone.fills) > 0
    assert list(comparison().baselines) == ["cash", "buy_and_hold"]
    for name, history in comparison().baselines.items():
        assert_close(history.equity, backtest(walk(400), BASELINES[name]).equity, **CHAIN)


def test_a_baseline_has_no_fills_of_another_account() -> None:
    assert comparison().baselines["cash"].fills == ()


def test_luck_has_its_own_accounts() -> None:
    luck = comparison().luck
    assert luck.equity.shape == (len(comparison().chosen.equity), 20)
    assert len(set(luck.equity[-1])) == 20


def test_luck_follows_from_the_seed() -> None:
    again = compare(walk(400), change_weights, {}, lucky=20, seed=4)
    other = compare(walk(400), change_weights, {}, lucky=20, seed=5)
    assert_close(again.luck.equity, comparison().luck.equity, **CHAIN)
    assert not np.allclose(other.luck.equity, again.luck.equity)


@pytest.mark.long
@pytest.mark.parametrize("policy", [Momentum(), change_weights])
def test_luck_trades_and_holds_as_much_as_the_policy(policy: Policy) -> None:
    result = compare(walk(800), policy, {}, lucky=30)
    for name in ("turnover", "exposure", "cost"):
        copies, path = getattr(result.luck, name), getattr(result.chosen, name)
        assert copies.mean() == pytest.approx(path.mean(), rel=0.1)


@pytest.mark.parametrize("policy", [Cash(), BASELINES["buy_and_hold"], EqualWeight(3600)])
def test_a_policy_that_never_changes_its_weights_is_no_better_than_luck(policy: Policy) -> None:
    result = compare(walk(300), policy, {}, lucky=9)
    assert result.p_value() == 1


def test_p_value_is_never_zero_nor_above_one() -> None:
    assert 1 / 21 <= comparison().p_value() <= 1
