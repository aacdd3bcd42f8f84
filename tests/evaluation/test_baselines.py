"""Baselines: what they order at a given moment, and that they know nothing of the future."""

from dataclasses import replace

import numpy as np
import pytest

from flatout.bars.panel import DAY
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
    spread_equally,
)
from flatout.market.market import build_market
from flatout.settings.tables import Settings
from scenarios import random_panel

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


def test_the_baselines_rebalance_daily() -> None:
    assert (
        EqualWeight().period_seconds,
        Momentum().period_seconds,
        RandomTrader().period_seconds,
    ) == (DAY,) * 3
    assert list(BASELINES) == ["cash", "buy_and_hold", "equal_weight", "momentum", "random"]
