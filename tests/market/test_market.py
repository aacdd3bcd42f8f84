"""From settings to the kernel's numbers."""

from typing import Any

import numpy as np
import pytest
from small_markets import INDICATORS, WARMUP, biting_market, settings

from flatout.bars.calendars import follow_calendar
from flatout.bars.synthetic import RandomWalk
from flatout.errors import RulesError
from flatout.features.recipe import Recipe, fit
from flatout.market.market import build_market, make_rules
from flatout.market.rules import OFF, Rules
from flatout.settings.tables import MarketSettings
from scenarios import random_panel
from session_panels import panel_at, session_times

near = pytest.approx
PANEL = random_panel(0, n_bars=60, assets=2)  # hourly bars of S00 and S01


def rules(**market: Any) -> Rules:
    return make_rules(MarketSettings.model_validate(market), PANEL)


def test_costs_become_fractions_and_shares_of_the_capital() -> None:
    tiers = [
        {"volume": 0, "maker_bps": 15, "taker_bps": 25},
        {"volume": 50_000, "maker_bps": 5, "taker_bps": 10},
    ]
    given = {
        "tiers": tiers,
        "maker_share": 0.3,
        "half_spread_bps": 3,
        "impact": 0.7,
        "borrow_bps_per_year": 876,
    }
    costs = rules(capital=20_000, costs=given).costs
    assert costs.tier_volume == near([0, 2.5])
    assert costs.maker_fee == near([0.0015, 0.0005])
    assert costs.taker_fee == near([0.0025, 0.0010])
    assert costs.maker_share == 0.3
    assert costs.half_spread == near(np.array([[3e-4], [3e-4]]))
    assert costs.impact == near(np.array([[0.7], [0.7]]))
    assert costs.borrow == near(0.0876 / 8760)  # 8,760 hours a year
    assert costs.volume_memory == near(1 - 1 / 720)  # 720 hours in 30 days


FIVE_YEARS = ("2019-01-01", "2023-12-31")


@pytest.mark.parametrize(
    ("name", "bar"),
    [("XNYS", 3600), ("XNYS", 86_400), ("XLON", 1800), ("XTKS", 1800), ("24/5", 3600)],
)
@pytest.mark.parametrize("named", [False, True])
def test_time_goes_on_while_the_exchange_is_closed(name: str, bar: int, named: bool) -> None:
    """A year of bars costs the annual rate, and 30 days of volume are 30 days."""
    panel = panel_at(session_times(name, bar, *FIVE_YEARS), bar)
    panel = follow_calendar(panel, name) if named else panel
    costs = make_rules(MarketSettings(), panel).costs
    years = 5 * 365.25 / 365
    assert float(costs.borrow) * panel.n_bars / years == near(0.05, rel=0.01)
    memory_bars = 1 / (1 - float(costs.volume_memory))
    assert memory_bars == near(30 / 365 * panel.n_bars / years, rel=0.01)
    span = panel.time[1000 + round(memory_bars)] - panel.time[1000]
    assert span / np.timedelta64(1, "D") == near(30, abs=4)  # whole sessions, weekends, holidays


@pytest.mark.parametrize("bar", [60, 300, 900, 3600, 14_400, 86_400])
def test_costs_around_the_clock_are_those_of_the_clock(bar: int) -> None:
    """To the last bit, so that studies of markets which never close are what they were."""
    panel = RandomWalk(n_bars=50, bar_seconds=bar).panel()
    costs = make_rules(MarketSettings(), panel).costs
    assert costs.borrow == 500.0 * 1e-4 * bar / (365 * 86_400)
    assert costs.volume_memory == max(0.0, 1 - bar / (30 * 86_400))
    assert panel.bars_per_year == 365 * 86_400 / bar


def test_limits_become_shares_of_the_capital() -> None:
    given = {
        "min_notional": 50,
        "lot_step": 0.5,
        "max_weight": 0.4,
        "max_short_weight": 0.2,
        "gross_limit": 1.5,
    }
    given |= {
        "reserve": 0.1,
        "participation": 0.03,
        "trailing_stop": 0.05,
        "cooldown_bars": 4,
        "max_held_bars": 9,
    }
    given |= {"forced_share": 0.25, "trade_size": 0.6, "ruin": 0.2}
    limits = rules(capital=20_000, limits=given).limits
    expected = given | {"min_notional": 50 / 20_000, "lot_step": 0.5 / 20_000}
    for name, value in limits._asdict().items():
        assert value == near(np.full(value.shape, expected[name])), name
        assert value.shape == (
            () if name in ("gross_limit", "reserve", "trade_size", "ruin") else (2, 1)
        ), name


def test_rules_that_are_not_given_are_off() -> None:
    limits = rules().limits
    assert (limits.trailing_stop == OFF).all()
    assert (limits.max_held_bars == OFF).all()
    assert (limits.cooldown_bars == 0).all()
    assert (limits.lot_step == 0).all()


def test_lot_step_by_symbol() -> None:
    limits = rules(capital=100, limits={"lot_step": {"S01": 0.5}}).limits
    assert limits.lot_step == near(np.array([[0.0], [0.005]]))


def test_lot_step_of_an_unknown_symbol_is_an_error() -> None:
    with pytest.raises(RulesError, match=r"lot_step names BTC, ETH; the bars hold S00, S01"):
        rules(limits={"lot_step": {"S01": 0.5, "ETH": 1, "BTC": 1}})


def test_reward_weights() -> None:
    reward = rules(
        reward={"log_return": 2, "excess": 3, "drawdown": 4, "scale": 5, "sharpe_bars": 50}
    ).reward
    assert reward._asdict() == {
        "log_return": 2, "excess": 3, "differential_sharpe": 0, "drawdown": 4, "turnover": 0,
        "concentration": 0, "concentration_above": 0.5,
        "scale": 5, "sharpe_memory": near(0.98),
    }  # fmt: skip


def test_one_segment_after_the_warm_up() -> None:
    """Ten bars to warm up, and one more for the second bar of the lookback."""
    market = build_market(PANEL, settings(episode_bars=20))
    found = market.rules.segments
    assert (found.first.tolist(), found.stop.tolist(), int(found.length)) == (
        [WARMUP + 1],
        [60],
        20,
    )
    assert int(build_market(PANEL, settings()).rules.segments.length) == (60 - WARMUP - 1) // 4
    assert found.first.dtype == found.length.dtype == np.int32


def test_too_few_bars_is_an_error() -> None:
    fitted = fit(Recipe(INDICATORS, lookback=2, scaler="zscore"), PANEL, np.arange(60))
    assert (
        build_market(PANEL.rows(0, WARMUP + 3), settings(), fitted).rules.segments.stop[0]
        == WARMUP + 3
    )
    with pytest.raises(RulesError, match=r"12 bars are too few: the features need 11 bars"):
        build_market(PANEL.rows(0, WARMUP + 2), settings(), fitted)


def test_fitted_recipe_decides_the_features() -> None:
    fitted = fit(Recipe(("return_1",), lookback=3, scaler="robust"), PANEL, np.arange(30))
    market = build_market(PANEL, settings(), fitted)
    assert (market.shape.n_features, market.shape.lookback) == (1, 3)
    np.testing.assert_array_equal(market.tape.features, fitted.transform(PANEL).reshape(60, -1))


def test_without_a_recipe_all_bars_teach() -> None:
    expected = fit(Recipe(INDICATORS, lookback=2, scaler="zscore"), PANEL, np.arange(60))
    np.testing.assert_array_equal(
        build_market(PANEL, settings()).fitted.scaler.statistics, expected.scaler.statistics
    )


def test_shape_and_sizes() -> None:
    market = build_market(PANEL, settings(action="direction_amount", fill="next_close"))
    assert market.shape == (2, 2, 2, "direction_amount", "next_close", ())
    assert (market.action_size, market.observation_size) == (4, 2 * 2 * 2 + 7 + 4 * 2)
    chosen = build_market(PANEL, settings(action="discrete", order_sizes=[1, 0.5]))
    assert (chosen.action_size, chosen.shape.levels) == (2, (-1, -0.5, 0, 0.5, 1))


def test_between_changes_the_segment_only() -> None:
    market = biting_market(60)
    part = market.between(20, 40, episode_bars=5)
    assert [x.tolist() for x in part.rules.segments] == [[20], [40], 5]
    assert part.tape is market.tape
    assert part.rules[:3] == market.rules[:3]
    assert market.rules.segments.first[0] == WARMUP + 1
    assert int(market.between(20, 40).rules.segments.length) == 20 // 4
    assert market.between(58, 60).rules.segments.stop[0] == 60


@pytest.mark.parametrize(("first", "stop"), [(-1, 5), (5, 6), (9, 5), (58, 61)])
def test_between_refuses_what_is_not_in_the_bars(first: int, stop: int) -> None:
    with pytest.raises(
        RulesError, match=rf"segment {first}\.\.{stop} must hold at least two bars of 0\.\.60"
    ):
        biting_market(60).between(first, stop)


def test_arrays_in_the_precision_asked_for() -> None:
    market = biting_market(60)
    for dtype in (np.float32, np.float64):
        tape, found = market.arrays(dtype)
        assert {x.dtype for x in (*tape, *found.costs, *found.limits, *found.reward)} == {
            np.dtype(dtype)
        }
        assert {x.dtype for x in found.segments} == {np.dtype(np.int32)}
