"""Properties that hold for every account, order, bar and rule: the kernel's invariants."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flatout.market.account import Account, equity, open_account
from flatout.market.execute import Bar, Trade, execute, trade_cost
from flatout.market.rules import Costs, Limits
from flatout.settings.tables import Fill
from rounding import assert_close, tolerance
from scenarios import Path, all_rules, cast, free_market, random_path


class Case(NamedTuple):
    """What hypothesis draws."""

    seed: int
    assets: int
    order_size: float
    shorts: float
    fill: Fill

    def build(self) -> tuple[Path, Costs, Limits]:
        path = random_path(np.random.default_rng(self.seed), 15, 6, self.assets, self.order_size)
        return path, *all_rules(self.assets, path.mark[0].mean(axis=1), self.shorts)


SOMETIMES_SHORT = st.sampled_from([0.0, 0.4])


def cases(shorts: st.SearchStrategy[float] = SOMETIMES_SHORT) -> st.SearchStrategy[Case]:
    return st.builds(
        Case,
        seed=st.integers(0, 2**32 - 1),
        assets=st.integers(1, 6),
        order_size=st.sampled_from([0.02, 0.5, 5.0]),
        shorts=shorts,
        fill=st.sampled_from(["next_open", "next_close", "same_close"]),
    )


Trades = tuple[Trade, Trade]


def walk(
    path: Path, costs: Costs, limits: Limits, fill: Fill
) -> list[tuple[Account, Account, Trades, Bar, np.ndarray]]:
    """(before, after, trades, bar, mark) of every step."""
    account, steps = open_account(path.mark[0], np), []
    for order, mark, fields in zip(path.orders, path.mark, path.bars, strict=True):
        before, bar = account, Bar(*fields)
        account, executed = execute(before, order, mark, bar, costs, limits, fill, np)
        steps.append((before, account, executed[:2], bar, mark))
    return steps


@settings(max_examples=60, deadline=None)
@given(cases())
def test_equity_changes_by_profit_minus_costs(case: Case) -> None:
    path, costs, limits = case.build()
    for before, after, trades, bar, mark in walk(path, costs, limits, case.fill):
        profit = np.sum(before.units * (bar.close - mark), axis=0)
        profit += sum(np.sum(trade.units * (bar.close - trade.price), axis=0) for trade in trades)
        paid = sum(np.sum(trade_cost(trade), axis=0) for trade in trades)
        shorts = np.sum(np.maximum(-after.units * bar.close, 0), axis=0)
        cash_before_borrow = before.cash + sum(np.sum(trade.cash, axis=0) for trade in trades)
        borrow = costs.borrow * (shorts + np.maximum(-cash_before_borrow, 0))
        change = equity(after, bar.close, np) - equity(before, mark, np)
        assert_close(
            change, profit - paid - borrow, roundings=1000, size=10.0
        )  # orders are up to 5 capitals
        parts = before.units, trades[0].units, trades[1].units
        assert_close(after.units, sum(parts), roundings=8, size=np.sum(np.abs(parts), axis=0))


@settings(max_examples=60, deadline=None)
@given(cases())
def test_costs_are_never_negative(case: Case) -> None:
    for _, _, trades, _, _ in walk(*case.build(), case.fill):
        for trade in trades:
            assert np.all(trade_cost(trade) >= -tolerance(8, trade.notional))


@settings(max_examples=60, deadline=None)
@given(cases(shorts=st.just(0.0)))
def test_without_shorts_nothing_is_negative(case: Case) -> None:
    path, costs, limits = case.build()
    for precision in (np.float64, np.float32):
        typed = (cast(path, precision), cast(costs, precision), cast(limits, precision))
        for _, after, _, _, _ in walk(*typed, case.fill):
            assert np.all(after.cash >= 0)
            assert np.all(after.units >= 0)


@settings(max_examples=40, deadline=None)
@given(cases())
def test_limits_hold_when_orders_fill(case: Case) -> None:
    path, costs, limits = case.build()
    for before, _, (trade, stop), bar, mark in walk(path, costs, limits, case.fill):
        room = limits.participation * bar.volume
        assert np.all(np.abs(trade.units) + np.abs(stop.units) <= room * (1 + 1e-12))
        if case.fill == "next_close":
            # stops come first there, so the account at the fill is not the one before the bar
            continue
        price = bar.open if case.fill == "next_open" else mark
        filled = before.units + trade.units
        worth = before.cash + np.sum(before.units * price, axis=0)
        grown = np.abs(filled) > np.abs(before.units) * (1 + 1e-12)
        weight = np.abs(filled) * price / worth
        cap = np.where(filled > 0, limits.max_weight, limits.max_short_weight)
        assert np.all(~grown | (weight <= cap * (1 + 1e-9)))
        assert not np.any(grown & (before.cooldown > 0))
        lots = np.abs(trade.units) / limits.lot_step
        whole = (filled == 0) | (np.sign(filled) != np.sign(before.units)) & (before.units != 0)
        assert np.all(whole | (np.abs(lots - np.round(lots)) < 2e-3))


@settings(max_examples=30, deadline=None)
@given(cases())
def test_permuting_assets_permutes_the_result(case: Case) -> None:
    path, costs, limits = case.build()
    order = np.random.default_rng(case.seed).permutation(case.assets)
    shuffled = Path(path.mark[:, order], path.bars[:, :, order], path.orders[:, order])
    asset_wise = (
        {"half_spread", "impact"},
        set(Limits._fields) - {"gross_limit", "reserve", "trade_size", "ruin"},
    )
    costs_, limits_ = (
        rules._replace(**{name: getattr(rules, name)[order] for name in names})
        for rules, names in zip((costs, limits), asset_wise, strict=True)
    )
    for one, other in zip(
        walk(path, costs, limits, case.fill),
        walk(shuffled, costs_, limits_, case.fill),
        strict=True,
    ):
        assert_close(one[1].cash, other[1].cash, roundings=15 * 1000, size=1.0)  # 15 bars
        assert_close(
            one[1].units[order] * one[4][order],
            other[1].units * other[4],
            roundings=15 * 1000,
            size=1.0,
        )


def test_zero_order_changes_nothing() -> None:
    path = random_path(np.random.default_rng(0), 10, 4, 3)
    costs, limits = all_rules(3, path.mark[0].mean(axis=1))
    fresh = open_account(path.mark[0], np)
    after, _ = execute(
        fresh, np.zeros((3, 4)), path.mark[0], Bar(*path.bars[0]), costs, limits, "next_open", np
    )
    np.testing.assert_array_equal(after.cash, fresh.cash)
    np.testing.assert_array_equal(after.units, fresh.units)


def flat_bar(price: float, assets: int = 1) -> Bar:
    """A bar that does not move, with endless volume."""
    level = np.full((assets, 1), price)
    return Bar(level, level, level, level, np.full((assets, 1), 1e12), np.zeros((assets, 1)))


def test_round_trip_at_a_constant_price_loses_exactly_the_costs() -> None:
    costs, limits = free_market(1)
    fee, spread, price, money = 0.0025, 0.0003, 50.0, 0.4
    costs = costs._replace(taker_fee=np.array([fee]), half_spread=np.array([[spread]]))
    account, bar, mark = open_account(np.ones((1, 1)), np), flat_bar(price), np.full((1, 1), price)
    for order in (money, -money):
        account, _ = execute(
            account, np.full((1, 1), order), mark, bar, costs, limits, "next_open", np
        )
    paid = 2 * money * (spread + fee)
    assert account.units[0, 0] == 0
    assert_close(1 - account.cash[0], paid, roundings=32, size=1.0)


def test_buy_and_hold_in_closed_form() -> None:
    """All money into assets at the first open: equity is the mean price relative over one plus the
    costs of buying.
    """
    rng = np.random.default_rng(3)
    path = random_path(rng, 200, 1, 4)
    bars = path.bars.copy()
    bars[:, 4], bars[:, 5] = 1e12, 0.0
    costs, limits = free_market(4)
    fee, spread = 0.0025, 0.0003
    costs = costs._replace(taker_fee=np.array([fee]), half_spread=np.full((4, 1), spread))
    limits = limits._replace(gross_limit=np.asarray(1.0))
    account = open_account(path.mark[0], np)
    for k in range(200):
        # equal money at the open
        order = np.full((4, 1), 10.0 if k == 0 else 0.0) * path.mark[0] / bars[0, 0]
        account, _ = execute(
            account, order, path.mark[k], Bar(*bars[k]), costs, limits, "next_open", np
        )
        relative = bars[k, 3] / bars[0, 0]
        expected = np.mean(relative) / (1 + spread + fee)
        np.testing.assert_allclose(equity(account, bars[k, 3], np)[0], expected, rtol=1e-12)


def test_orders_are_scaled_together() -> None:
    """Seven orders of all the money each: nobody is served first, nothing is overspent."""
    costs, limits = free_market(7)
    limits = limits._replace(gross_limit=np.asarray(1.0))
    mark = np.linspace(1, 1000, 7)[:, None]
    bar = Bar(mark, mark, mark, mark, np.full((7, 1), 1e12), np.zeros((7, 1)))
    after, _ = execute(
        open_account(mark, np), np.ones((7, 1)), mark, bar, costs, limits, "next_open", np
    )
    np.testing.assert_allclose(after.units * mark, 1 / 7, rtol=1e-12)
    assert 0 <= after.cash[0] < 1e-12


@pytest.mark.long
def test_float32_drifts_less_than_one_basis_point_over_100_000_bars() -> None:
    """Eight accounts rebalance at every bar for 100,000 bars in single and in double precision.

    Roundings of a bar go either way: after so many bars an account is off by about 2e-5, and five
    times that is a lot.
    """
    rng = np.random.default_rng(5)
    bars, accounts, assets = 100_000, 8, 3
    costs, limits = free_market(assets)
    costs = costs._replace(taker_fee=np.array([1e-6]), half_spread=np.full((assets, 1), 1e-6))
    limits = limits._replace(gross_limit=np.asarray(1.0))
    close = np.exp(np.cumsum(rng.normal(0, 0.001, (bars + 1, assets)), axis=0)).astype(np.float32)
    wanted = np.moveaxis(
        rng.dirichlet(np.ones(assets + 1), (bars, accounts))[..., :-1], 1, 2
    ).astype(np.float32)
    worth = {}
    with jax.enable_x64(True):
        for precision in (np.float32, np.float64):
            rules = cast(costs, precision), cast(limits, precision)
            worth[precision] = np.asarray(
                rebalance(close.astype(precision), wanted.astype(precision), *rules)
            )
            assert worth[precision].dtype == precision
    drift = np.abs(worth[np.float32] / worth[np.float64] - 1)
    assert 0 < drift.max() < 1e-4


@jax.jit
def rebalance(close: Any, wanted: Any, costs: Costs, limits: Limits) -> Any:
    """Equity of (account,) accounts that go to `wanted` (bar, asset, account) weights at every
    open.
    """

    def body(account: Account, inputs: Any) -> Any:
        weights, mark, later = inputs
        mark, later = mark[:, None], later[:, None]
        order = weights * equity(account, mark, jnp)[None] - account.units * mark
        bar = Bar(mark, later, mark, later, jnp.full_like(mark, 1e9), jnp.zeros_like(mark))
        return execute(account, order, mark + 0 * order, bar, costs, limits, "next_open", jnp)[
            0
        ], None

    start = open_account(jnp.ones(wanted.shape[1:], close.dtype), jnp)
    account, _ = jax.lax.scan(body, start, (wanted, close[:-1], close[1:]))
    return equity(account, close[-1][:, None], jnp)
