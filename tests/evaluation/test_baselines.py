"""Baselines: what they order at a given moment, and that they know nothing of the future."""

from dataclasses import replace

import numpy as np
import pytest

from flatout.bars.panel import DAY, DEAD_AFTER_DAYS, PRICES, Panel
from flatout.evaluation.backtest import backtest
from flatout.evaluation.baselines import (
    BASELINES,
    BuyAndHold,
    Cash,
    EqualWeight,
    Moment,
    Momentum,
    Policy,
    RandomTrader,
    count_bars,
    is_rebalancing_due,
    spread_equally,
)
from flatout.market.market import build_market
from flatout.settings.tables import Settings
from scenarios import random_panel
from session_panels import panel_at, session_times

HOUR = 3600
LIGHT = Settings.model_validate({"features": {"indicators": ["return_1"]}})


def moment(
    closes: list[list[float]], weights: list[list[float]] | None = None, age: int = 0
) -> Moment:
    """A moment after hourly closes (time, asset); accounts are flat unless weights are given."""
    rows = np.array(closes)
    held = np.zeros((1, rows.shape[1])) if weights is None else np.array(weights)
    return Moment(age=age, closes=rows, weights=held, bar_seconds=HOUR)


def orders_of(policy: Policy, panel_seed: int, poison_after: int | None = None) -> np.ndarray:
    """All orders of a backtest: (decision, account, asset); later bars may be replaced by other
    prices.
    """
    panel = random_panel(panel_seed, n_bars=120, assets=4)
    if poison_after is not None:
        prices = {name: getattr(panel, name).copy() for name in ("open", "high", "low", "close")}
        for rows in prices.values():
            rows[poison_after + 1 :] *= np.linspace(0.3, 4.0, rows.shape[1])
        panel = replace(panel, **prices)
    given: list[np.ndarray] = []

    def recording(now: Moment) -> np.ndarray:
        given.append(policy(now))
        return given[-1]

    backtest(build_market(panel, LIGHT), recording, accounts=2)
    return np.array(given)


def test_cash_never_orders() -> None:
    assert not Cash()(moment([[1.0, 2.0]], [[0.5, 0.2]])).any()


def test_buy_and_hold_buys_what_exists_and_never_sells() -> None:
    policy = BuyAndHold()
    np.testing.assert_array_equal(policy(moment([[1.0, np.nan, 3.0]])), [[0.5, 0.0, 0.5]])
    partly = moment([[1.0, np.nan, 3.0]], [[0.6, 0.0, 0.3]], age=1)
    np.testing.assert_allclose(
        policy(partly), [[0.0, 0.0, 0.2]]
    )  # the volume did not suffice: bought later that day
    assert not policy(partly._replace(age=24)).any()


@pytest.mark.parametrize(
    ("age", "due"), [(0, True), (1, False), (23, False), (24, True), (25, False), (48, True)]
)
def test_equal_weight_orders_the_difference_when_a_day_is_over(age: int, due: bool) -> None:
    order = EqualWeight()(moment([[1.0, 2.0]], [[0.7, 0.1], [0.5, 0.5]], age))
    np.testing.assert_allclose(
        order, [[-0.2, 0.4], [0.0, 0.0]] if due else np.zeros((2, 2)), atol=1e-15
    )


def test_a_period_shorter_than_a_bar_is_every_bar() -> None:
    policy = EqualWeight(period_seconds=60)
    assert all(policy(moment([[1.0, 2.0]], age=age)).any() for age in range(3))


def test_momentum_holds_the_better_half_of_the_winners() -> None:
    policy = Momentum(past_seconds=2 * HOUR, period_seconds=HOUR)
    closes = [
        [9.0, 9.0, 9.0, 9.0],
        [10.0, 10.0, 10.0, 10.0],
        [1.0, 1.0, 1.0, 1.0],
        [11.0, 13.0, 12.0, 9.0],
    ]
    np.testing.assert_array_equal(policy(moment(closes)), [[0.0, 0.5, 0.5, 0.0]])
    only_one_rose = [[10.0, 10.0, 10.0, 10.0], [1.0, 1.0, 1.0, 1.0], [9.0, 8.0, 12.0, 9.5]]
    np.testing.assert_array_equal(policy(moment(only_one_rose)), [[0.0, 0.0, 1.0, 0.0]])


def test_momentum_goes_to_cash_when_nothing_rose() -> None:
    policy = Momentum(past_seconds=HOUR, period_seconds=HOUR)
    np.testing.assert_array_equal(
        policy(moment([[10.0, 10.0], [9.0, 10.0]], [[0.3, 0.4]])), [[-0.3, -0.4]]
    )


def test_momentum_uses_what_history_there_is_and_no_asset_without_one() -> None:
    closes = [[10.0, np.nan, 10.0], [11.0, 5.0, 9.0]]
    np.testing.assert_array_equal(Momentum()(moment(closes)), [[1.0, 0.0, 0.0]])


def test_dead_assets_are_not_bought() -> None:
    """Of three assets with a price the second is dead."""
    now = moment([[1.0, 2.0, 4.0]])._replace(alive=np.array([True, False, True]))
    for policy in (BuyAndHold(), EqualWeight()):
        np.testing.assert_array_equal(policy(now), [[0.5, 0.0, 0.5]])
    assert not RandomTrader()(now)[:, 1].any()


def test_equal_weight_spreads_what_is_not_stuck_in_a_dead_asset() -> None:
    """A fifth is stuck: 0.4 for each of the others, of which one holds more and is sold."""
    now = moment([[1.0, 2.0, 4.0]], [[0.5, 0.2, 0.3]])
    now = now._replace(alive=np.array([True, False, True]))
    np.testing.assert_allclose(EqualWeight()(now), [[-0.1, -0.2, 0.1]], atol=1e-15)


def test_momentum_knows_no_gain_of_a_dead_asset() -> None:
    """The best of four has died: the better half of the other three is one."""
    policy = Momentum(past_seconds=HOUR, period_seconds=HOUR)
    now = moment([[10.0, 10.0, 10.0, 10.0], [19.0, 13.0, 12.0, 9.0]])
    np.testing.assert_array_equal(policy(now), [[0.5, 0.5, 0.0, 0.0]])
    without = now._replace(alive=np.array([False, True, True, True]))
    np.testing.assert_array_equal(policy(without), [[0.0, 1.0, 0.0, 0.0]])
    nothing = now._replace(alive=np.zeros(4, bool))
    np.testing.assert_array_equal(policy(nothing), np.zeros((1, 4)))


def daily_panel(died: int | None = None) -> Panel:
    """Three assets day by day, without gaps; the last one's last bar is `died`."""
    panel = random_panel(5, n_bars=120, assets=3, gaps=False)
    time = panel.time[0] + np.arange(panel.n_bars) * np.timedelta64(1, "D")
    arrays = {name: getattr(panel, name).copy() for name in (*PRICES, "volume", "tradable")}
    if died is not None:
        for name, values in arrays.items():
            values[died + 1 :, 2] = panel.close[died, 2] if name in PRICES else 0
    return replace(panel, time=time, bar_seconds=DAY, **arrays)


@pytest.mark.parametrize("name", ["buy_and_hold", "equal_weight", "momentum", "random"])
def test_no_baseline_knows_that_an_asset_will_die(name: str) -> None:
    """Its last bar is 50; the orders at closes up to 50 are those in the market in which it
    lives.
    """
    given: dict[int | None, list[np.ndarray]] = {}
    for died in (None, 50):
        orders = given.setdefault(died, [])

        def recording(now: Moment, orders: list[np.ndarray] = orders) -> np.ndarray:
            orders.append(BASELINES[name](now))
            return orders[-1]

        backtest(build_market(daily_panel(died), LIGHT), recording)
    np.testing.assert_array_equal(given[None][:50], given[50][:50])  # decisions from bar 1 on


def test_equal_weight_goes_on_without_the_dead() -> None:
    """It dies before the backtest starts: all money is in the two that live, not two thirds. When
    it dies later, its share is stuck and the others stay balanced.
    """
    market = build_market(daily_panel(died=20), LIGHT)
    early = backtest(market, EqualWeight(), first=21 + DEAD_AFTER_DAYS)
    assert early.exposure[5:, 0].min() > 0.95
    weights: list[np.ndarray] = []

    def recording(now: Moment) -> np.ndarray:
        weights.append(now.weights[0])
        return EqualWeight()(now)

    backtest(build_market(daily_panel(died=50), LIGHT), recording)
    last = np.array(weights)[50 + DEAD_AFTER_DAYS + 5 :]
    assert (last[:, 2] > 0.2).all()
    np.testing.assert_allclose(last[:, 0], last[:, 1], atol=0.03)
    np.testing.assert_allclose(last.sum(axis=1), 1.0, atol=0.03)


@pytest.mark.parametrize("name", BASELINES)
def test_later_bars_change_no_earlier_order(name: str) -> None:
    """All bars after the third daily decision, at the close of bar 49, are replaced: it knows none
    of them.
    """
    honest, poisoned = orders_of(BASELINES[name], 3), orders_of(BASELINES[name], 3, poison_after=49)
    known = 49  # decisions at the closes of bars 1 to 49
    np.testing.assert_array_equal(honest[:known], poisoned[:known])
    if name in ("equal_weight", "momentum", "random"):
        assert not np.array_equal(honest[known:], poisoned[known:])


def test_momentum_on_each_day_of_a_backtest_follows_from_the_closes_so_far() -> None:
    policy = Momentum(past_seconds=5 * HOUR, period_seconds=HOUR)
    panel = random_panel(8, n_bars=60, assets=4)
    seen: list[tuple[np.ndarray, np.ndarray]] = []

    def recording(now: Moment) -> np.ndarray:
        seen.append((now.closes, policy(now) + now.weights))
        return policy(now)

    backtest(build_market(panel, LIGHT), recording)
    for t, (closes, target) in enumerate(seen, start=1):
        np.testing.assert_array_equal(closes, panel.close[: t + 1])
        gain = panel.close[t] / panel.close[max(t - 5, 0)]
        winners = {i for i in np.argsort(gain)[-2:] if gain[i] > 1}
        assert set(np.flatnonzero(target[0] > 1e-9)) == winners


def test_the_random_trader_follows_from_seed_and_age_alone() -> None:
    flat = np.zeros((3, 2))
    now = moment([[1.0, 2.0]], flat.tolist())
    order = RandomTrader(seed=5)(now)
    np.testing.assert_array_equal(
        order, RandomTrader(seed=5)(now._replace(closes=np.array([[7.0, 8.0]])))
    )
    assert not np.array_equal(order, RandomTrader(seed=6)(now))
    assert not np.array_equal(order, RandomTrader(seed=5)(now._replace(age=24)))
    assert not RandomTrader(seed=5)(now._replace(age=23)).any()


def test_random_accounts_differ_and_do_not_see_each_other() -> None:
    now = moment([[1.0, 2.0]], [[0.0, 0.0], [0.0, 0.0]])
    order = RandomTrader()(now)
    assert not np.array_equal(order[0], order[1])
    moved = RandomTrader()(now._replace(weights=np.array([[0.9, 0.0], [0.0, 0.0]])))
    np.testing.assert_array_equal(moved[1], order[1])
    np.testing.assert_allclose(moved[0], order[0] - [0.9, 0.0])


def test_random_targets_are_weights_of_assets_that_exist() -> None:
    """From a flat account the order is the target: not negative, in all at most 1, on average
    alike.
    """
    now = moment([[1.0, np.nan, 3.0]], np.zeros((4000, 3)).tolist())
    target = RandomTrader()(now)
    assert (target >= 0).all()
    assert (target.sum(axis=1) <= 1).all()
    assert not target[:, 1].any()
    np.testing.assert_allclose(target[:, [0, 2]].mean(axis=0), 0.25, atol=0.02)


def test_pace_is_the_share_of_the_way_per_account() -> None:
    now = moment([[1.0, 2.0]], [[0.2, 0.1]] * 3)
    whole = RandomTrader(1.0)(now)
    np.testing.assert_allclose(
        RandomTrader(np.array([0.0, 0.5, 1.0]))(now), whole * [[0.0], [0.5], [1.0]]
    )
    np.testing.assert_allclose(RandomTrader(0.25)(now), whole / 4)


def test_equal_shares_of_nothing_are_nothing() -> None:
    np.testing.assert_array_equal(spread_equally(np.array([False, False])), [0, 0])
    np.testing.assert_array_equal(
        spread_equally(np.array([True, False, True, True])), [1 / 3, 0, 1 / 3, 1 / 3]
    )


@pytest.mark.parametrize(
    ("bars_per_day", "bar", "seconds", "bars"),
    [
        (None, HOUR, DAY, 24),
        (None, HOUR, 30 * DAY, 720),
        (None, HOUR, 90 * 60, 1),
        (None, DAY, HOUR, 1),
        (6.98, HOUR, DAY, 7),  # New York: a session
        (6.98, HOUR, 30 * DAY, 209),  # 30 sessions
        (6.98, HOUR, 3 * HOUR, 3),
        (6.98, HOUR, 12 * HOUR, 7),  # no longer than a session
        (1.0, DAY, DAY, 1),
        (1.0, DAY, 5 * DAY, 5),
        (1.0, DAY, HOUR, 1),
        (24.0, HOUR, DAY, 24),  # currencies
    ],
)
def test_a_day_is_a_session(bars_per_day: float | None, bar: int, seconds: int, bars: int) -> None:
    now = moment([[1.0]])._replace(bars_per_day=bars_per_day, bar_seconds=bar)
    assert count_bars(now, seconds) == bars
    due = [is_rebalancing_due(now._replace(age=age), seconds) for age in range(2 * bars + 1)]
    assert np.flatnonzero(due).tolist() == [0, bars, 2 * bars]


def test_backtests_tell_policies_how_long_a_session_is() -> None:
    """Equal weight is rebalanced once a session of New York, not every 24 bars."""
    times = session_times("XNYS", HOUR, "2023-08-01", "2023-09-29")
    seen: list[Moment] = []

    def watching(now: Moment) -> np.ndarray:
        seen.append(now)
        return np.zeros_like(now.weights)

    backtest(build_market(panel_at(times, HOUR, ("A", "B")), LIGHT), watching)
    due = [now.age for now in seen if is_rebalancing_due(now, DAY)]
    assert due == list(range(0, len(seen), 7))
    bought = [now.age for now in seen if BuyAndHold()(now).any()]
    assert bought == list(range(7))
    backtest(build_market(random_panel(0, n_bars=60, assets=2), LIGHT), watching)
    assert seen[-1].bars_per_day is None


def test_the_baselines_rebalance_daily() -> None:
    assert (
        EqualWeight().period_seconds,
        Momentum().period_seconds,
        RandomTrader().period_seconds,
    ) == (DAY,) * 3
    assert list(BASELINES) == ["cash", "buy_and_hold", "equal_weight", "momentum", "random"]
