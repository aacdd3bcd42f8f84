"""Backtests against closed forms, against the scalar ledger, and against each other."""

from functools import cache
from typing import Any

import numpy as np
import pytest

from flatout.bars.panel import Panel
from flatout.bars.synthetic import RandomWalk
from flatout.bench.scalar_ledger import Ledger, plain_rules
from flatout.errors import RulesError
from flatout.evaluation.backtest import (
    History,
    SideBySide,
    backtest,
    decision_range,
)
from flatout.evaluation.baselines import (
    BuyAndHold,
    Cash,
    EqualWeight,
    Moment,
    Momentum,
    Policy,
    RandomTrader,
)
from flatout.market.market import Market, build_market
from flatout.settings.tables import Settings
from rounding import assert_close
from scenarios import random_panel
from session_panels import panel_at, session_times

FREE = {"tiers": [{"maker_bps": 0, "taker_bps": 0}], "half_spread_bps": 0, "impact": 0}
ALL_RULES = {
    "costs": {
        "tiers": [{"taker_bps": 120}, {"volume": 10_000, "taker_bps": 50}],
        "maker_share": 0.2,
    },
    "limits": {
        "lot_step": 0.01,
        "max_weight": 0.4,
        "max_short_weight": 0.3,
        "reserve": 0.05,
        "trailing_stop": 0.02,
        "cooldown_bars": 3,
        "max_held_bars": 12,
        "gross_limit": 1.2,
        "participation": 0.0005,
    },
}

CHAIN = {"roundings": 400 * 100, "size": 1.0}  # bars, and operations of each; equities are near 1


def market_of(panel: Panel, **market: Any) -> Market:
    """A market whose features are warm after one bar."""
    return build_market(
        panel, Settings.model_validate({"market": market, "features": {"indicators": ["return_1"]}})
    )


@cache
def walk(n_bars: int = 300) -> Market:
    """Three assets, every bar opens at the close before it, no order is too large."""
    return market_of(RandomWalk(n_bars=n_bars).panel())


def steady(growth: float, n_bars: int = 40, jump: float = 1.0) -> Panel:
    """One asset that moves by the same factor each bar, and by `jump` at bar 20."""
    factors = np.full(n_bars, growth)
    factors[20] *= jump
    close = 100 * np.cumprod(factors)[:, None]
    open_ = np.concatenate([[[100.0]], close[:-1]])
    high, low = np.maximum(open_, close), np.minimum(open_, close)
    time = np.datetime64("2024-01-01", "us") + np.arange(n_bars) * np.timedelta64(3600, "s")
    return Panel(
        ("UP",),
        time,
        3600,
        open_,
        high,
        low,
        close,
        np.full_like(close, 1e9),
        np.ones_like(close, bool),
    )


def ordering(first: float) -> Policy:
    """Orders this share of the equity at the first decision, then nothing."""
    return lambda now: np.full_like(now.weights, first if now.age == 0 else 0.0)


def noisy(now: Moment) -> np.ndarray:
    """Orders that depend on the bar alone, some of them none."""
    rng = np.random.default_rng(now.age)
    return rng.uniform(-0.5, 0.5, now.weights.shape) * (rng.random(now.weights.shape) > 0.4)


def test_cash_stays_exactly_one() -> None:
    history = backtest(walk(), Cash(), accounts=2)
    assert (history.equity == 1).all()
    assert not history.turnover.any()
    assert not history.exposure.any()
    assert not history.cost.any()


def test_buy_and_hold_has_a_closed_form() -> None:
    """Everything is spent: notional and costs together are 1, so each asset gets 1 / n / (1 +
    cost).
    """
    costs = {"tiers": [{"taker_bps": 30}], "half_spread_bps": 5, "impact": 0}
    market = market_of(RandomWalk(n_bars=200).panel(), costs=costs)
    history = backtest(market, BuyAndHold())
    close, cost = market.panel.close, 35e-4
    expected = np.mean(close[2:] / close[1], axis=1) / (1 + cost)
    np.testing.assert_allclose(history.equity[1:, 0], expected, rtol=1e-12)
    np.testing.assert_allclose(history.turnover[0, 0], 1 / (1 + cost), rtol=1e-12)
    assert_close(history.cost[0, 0], cost / (1 + cost), roundings=100, size=1.0)
    assert not history.turnover[1:].any()
    np.testing.assert_allclose(history.exposure, 1, rtol=1e-12)


def test_equal_weight_trades_when_due_and_ends_at_equal_weights() -> None:
    market = market_of(RandomWalk(n_bars=150).panel(), costs=FREE, limits={"min_notional": 0})
    history = backtest(market, EqualWeight(), record_fills=True)
    assert [fill.bar for fill in history.fills] == [2, 26, 50, 74, 98, 122, 146]
    units = np.zeros(3)
    for fill in history.fills:
        units = units + fill.units
        values = units * market.panel.open[fill.bar]
        np.testing.assert_allclose(values / values.sum(), 1 / 3, rtol=1e-9)
    assert np.array_equal(np.flatnonzero(history.turnover[:, 0]), np.arange(0, 148, 24))


@pytest.mark.parametrize("fill", ["next_open", "next_close", "same_close"])
@pytest.mark.parametrize(
    "policy", [noisy, Momentum(period_seconds=3600), RandomTrader(period_seconds=7200)]
)
def test_a_backtest_is_what_the_scalar_ledger_says(policy: Policy, fill: str) -> None:
    market = market_of(random_panel(1, n_bars=250), **ALL_RULES, fill=fill)
    given: list[np.ndarray] = []

    def recording(now: Moment) -> np.ndarray:
        given.append(policy(now)[0])
        return policy(now)

    history = backtest(market, recording)
    tape, rules = market.arrays(np.float64)
    rows = tape.columns[:-1].T.reshape(market.panel.n_bars, -1, 3).tolist()
    stated = plain_rules(rules.costs, rules.limits)
    ledger, equity = Ledger(3, stated, fill), [1.0]
    for t, order in enumerate(given, start=1):
        money = (np.clip(order, -1, 1) * equity[-1]).tolist()
        equity.append(ledger.step(money, rows[t][0], rows[t][1:]))
    assert np.std(equity) > 1e-3
    assert_close(history.equity[:, 0], equity, **CHAIN)


def test_policies_side_by_side_do_what_they_do_alone() -> None:
    market = market_of(random_panel(2, n_bars=200), **ALL_RULES)
    policies = (Momentum(), RandomTrader(seed=3), EqualWeight())
    together = backtest(market, SideBySide(policies, (1, 4, 2)), accounts=7)
    for policy, part, size in zip(
        policies, (slice(0, 1), slice(1, 5), slice(5, 7)), (1, 4, 2), strict=True
    ):
        alone = backtest(market, policy, accounts=size)
        for name in ("equity", "turnover", "exposure", "cost"):
            assert_close(getattr(together.accounts(part), name), getattr(alone, name), **CHAIN)


def test_a_ruined_account_is_frozen_and_the_others_go_on() -> None:
    market = market_of(steady(0.98), costs=FREE, limits={"ruin": 0.75})
    history = backtest(market, SideBySide((BuyAndHold(), ordering(0.2)), (1, 1)), accounts=2)
    ruined, other = history.equity.T
    end = int(np.argmax(ruined <= 0.75))
    assert ruined[end - 1] > 0.75 > ruined[end] > 0.73
    assert (ruined[end:] == ruined[end]).all()
    assert not history.exposure[end:, 0].any()
    assert not history.returns[end:, 0].any()
    assert (np.diff(other) < 0).all()


def test_a_ruined_account_trades_no_more() -> None:
    """The policy goes on ordering; no fill, no turnover and no cost come of it."""
    market = market_of(steady(0.98), limits={"ruin": 0.75})

    def restless(now: Moment) -> np.ndarray:
        return np.where(now.age % 2 == 0, 0.9, -0.05) * np.ones_like(now.weights)

    history = backtest(market, restless, record_fills=True)
    end = int(np.argmax(history.equity[:, 0] <= 0.75))
    assert 0 < end < len(history.bars) - 5
    assert history.turnover[:end, 0].all()
    assert not history.turnover[end:].any()
    assert not history.cost[end:].any()
    assert max(fill.bar for fill in history.fills) == history.bars[end - 1]


def test_more_than_everything_cannot_be_lost() -> None:
    """A short position meets a price three times as high: equity ends at zero, and nothing
    follows.
    """
    market = market_of(
        steady(1.0, jump=3.0), costs=FREE, limits={"max_short_weight": 1, "gross_limit": 1}
    )
    history = backtest(market, ordering(-0.9))
    assert (history.equity[:19, 0] > 0.99).all()
    assert not history.equity[19:].any()
    assert history.returns[18, 0] == -1
    assert not history.returns[19:].any()
    assert history.metrics(8760)["total_return"] == -1


def test_the_default_run_starts_when_features_are_warm_and_ends_with_the_panel() -> None:
    market = build_market(RandomWalk(n_bars=200).panel())
    history = backtest(market, Cash())
    assert (history.bars[0], history.bars[-1]) == (
        market.fitted.recipe.count_warmup(market.panel) + 1,
        199,
    )
    assert history.equity.shape == (len(history.bars) + 1, 1)


def test_a_run_may_begin_and_end_anywhere() -> None:
    market, seen = walk(), []
    history = backtest(market, BuyAndHold(), first=100, stop=150, progress=seen.append)
    assert history.bars.tolist() == seen == list(range(101, 150))
    whole = market_of(market.panel.rows(0, 150))
    assert_close(history.equity, backtest(whole, BuyAndHold(), first=100).equity, **CHAIN)


@pytest.mark.parametrize(
    ("first", "stop"),
    [(0, None), (None, 301), (299, None), (100, 101), (150, 100), (-5, None), (1, -10)],
)
def test_bars_that_are_not_there_are_refused(first: int | None, stop: int | None) -> None:
    with pytest.raises(
        RulesError, match=r"cannot run bars .* warm from bar 1\b.* 300 bars.* at least two"
    ):
        decision_range(walk(), first, stop)


def test_the_shortest_run_has_one_bar() -> None:
    assert decision_range(walk(), 298, None) == (298, 300)
    assert backtest(walk(), Cash(), first=298).bars.tolist() == [299]


def test_orders_are_shares_of_the_equity_whatever_the_agents_actions_are() -> None:
    panel = RandomWalk(n_bars=60).panel()
    small = market_of(panel, action="direction_amount", limits={"trade_size": 0.1})
    np.testing.assert_array_equal(
        backtest(small, noisy).equity, backtest(market_of(panel), noisy).equity
    )
    assert small.rules.limits.trade_size == 0.1


# --- histories ------------------------------------------------------------------------------------


def history_of(*equity: list[float]) -> History:
    """A history with these equity paths, one per account."""
    paths = np.array(equity).T
    zero = np.zeros((len(paths) - 1, paths.shape[1]))
    return History(np.arange(1, len(paths)), paths, zero + 0.5, zero + 0.25, zero + 0.001, ())


def test_returns_are_simple_and_nothing_follows_a_total_loss() -> None:
    history = history_of([1.0, 1.1, 0.55, 0.55], [1.0, 0.5, 0.0, 0.0])
    np.testing.assert_allclose(history.returns, [[0.1, -0.5], [-0.5, -1.0], [0.0, 0.0]])


def test_metrics_are_those_of_the_first_account() -> None:
    figures = history_of([1.0, 1.1, 0.55, 0.66], [1.0, 2.0, 3.0, 4.0]).metrics(bars_per_year=3)
    assert figures["total_return"] == pytest.approx(-0.34)
    assert figures["annual_return"] == pytest.approx(-0.34)
    assert figures["max_drawdown"] == pytest.approx(-0.5)
    assert (figures["bar_turnover"], figures["annual_turnover"]) == (0.5, 1.5)
    assert figures["exposure"] == 0.25


def test_a_ratio_to_no_risk_is_none_and_never_infinite() -> None:
    figures = history_of([1.0, 1.1, 1.2, 1.4]).metrics(bars_per_year=8760)
    assert figures["sortino"] is None
    assert figures["calmar"] is None
    assert figures["sharpe"] is not None
    assert all(value is None or np.isfinite(value) for value in figures.values())


def test_accounts_can_be_told_apart() -> None:
    history = history_of([1.0, 2.0], [1.0, 3.0], [1.0, 4.0])
    np.testing.assert_array_equal(history.accounts(slice(1, 3)).equity, [[1, 1], [3, 4]])
    assert history.accounts(slice(1, 2)).metrics(1.0)["total_return"] == 2


def test_a_year_of_borrowing_costs_the_annual_rate_on_exchange_hours() -> None:
    """Half of the capital sold short in New York for five years, at a price that never moves."""
    panel = panel_at(session_times("XNYS", 3600, "2019-01-01", "2023-12-31"), 3600)
    free = {"tiers": [{"maker_bps": 0, "taker_bps": 0}], "half_spread_bps": 0, "impact": 0}
    market = market_of(
        panel,
        action="trade",
        costs={**free, "borrow_bps_per_year": 500},
        limits={"max_short_weight": 1.0},
    )

    def sell_once(now: Moment) -> np.ndarray:
        return np.full_like(now.weights, -0.5 if now.age == 0 else 0.0)

    history = backtest(market, sell_once)
    paid = 1 - float(history.equity[-1, 0])
    assert paid / 5 == pytest.approx(0.5 * 0.05, rel=0.01)
