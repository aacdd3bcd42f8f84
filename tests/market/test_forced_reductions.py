"""Positions held too long: each forced reduction sells something, in sizes that can be sold.

Prices are 100 and the capital is 1, so 0.01 units are all of it.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_markets import column, flat, owner, play, rules

from flatout.arrays import map_leaves
from flatout.market.account import Account
from flatout.market.execute import DUST, LOT_SLACK, execute, forced_reduction
from rounding import tolerance
from scenarios import cast

near = pytest.approx
OVERDUE = {"max_held_bars": 3.0, "forced_share": 0.05}
SIDES = pytest.mark.parametrize("side", [1, -1], ids=["long", "short"])


def overdue(side: int, units: float = 0.01) -> Account:
    """An account that has held this position for three bars."""
    return owner(side * units, cash=1 - side * units * 100, held=3)


def left_of(side: int, order: float = 0.0, volume: float = 1e9, **limits: Any) -> float:
    """Which share of the position is left after one forced reduction."""
    met = flat(100, volume=volume)
    return float(side * play(overdue(side), order, met, **(OVERDUE | limits)).units / 0.01)


@SIDES
def test_ten_whole_shares_lose_one_at_each_reduction(side: int) -> None:
    """5 % of ten lots are half a lot, which rounds to none; one is sold, until nothing is left."""
    account, shares = overdue(side), []
    for _ in range(11):
        played = play(account, 0, flat(100), **(OVERDUE | {"max_held_bars": 1}), lot_step=0.001)
        account = played.account
        shares.append(side * played.units / 0.001)
    assert shares == near([9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 0], abs=1e-9)


@SIDES
@pytest.mark.parametrize(
    ("limits", "left"),
    [
        ({}, 0.95),
        ({"lot_step": 0.0002}, 0.96),  # 2.5 lots are two
        ({"lot_step": 0.001}, 0.9),  # half a lot is one
        ({"lot_step": 0.007}, 0.3),
        ({"lot_step": 0.01}, 0.0),  # it is one lot
        ({"lot_step": 0.03}, 0.0),  # less than one
        ({"min_notional": 0.05}, 0.95),
        ({"min_notional": 0.051}, 0.0),  # the part is too small to be sold alone
        ({"min_notional": 0.051, "lot_step": 0.001}, 0.9),  # one lot is not
        ({"min_notional": 0.11, "lot_step": 0.001}, 0.0),
        ({"min_notional": 0.3, "forced_share": 0.75}, 0.0),  # the rest is too small
        ({"min_notional": 0.2, "forced_share": 0.75}, 0.25),
        ({"min_notional": 2.0, "forced_share": 0.5}, 0.0),
        ({"forced_share": 1.0}, 0.0),
        ({"forced_share": 0.0}, 1.0),  # nothing is to be sold
        ({"forced_share": 0.0, "lot_step": 0.001, "min_notional": 0.1}, 1.0),
    ],
)
def test_what_is_left(side: int, limits: dict[str, float], left: float) -> None:
    assert left_of(side, **limits) == near(left, abs=1e-12)


@SIDES
def test_orders_and_forced_reductions_do_not_add_up(side: int) -> None:
    """The larger of both counts: a purchase is refused, a sale of less than the share is lifted to
    it, a larger one stays.
    """
    lots = {"lot_step": 0.001}
    assert [left_of(side, order=side * x, **lots) for x in (0.3, -0.07, -0.1, -0.35)] == near(
        [0.9, 0.9, 0.9, 0.7]
    )
    assert left_of(side, order=-side * 1.0, **lots) == 0


def test_what_the_volume_does_not_allow_is_sold_later() -> None:
    """Room for half a lot sells nothing, and the position stays overdue; room for one sells it."""
    limits = OVERDUE | {"lot_step": 0.001, "participation": 0.1}
    thin = play(overdue(1), 0, flat(100, volume=0.005), **limits)
    assert (thin.units, thin.account.held[0, 0]) == (0.01, 4)
    later = play(thin.account, 0, flat(100, volume=0.01), **limits)
    assert (later.units, later.account.held[0, 0]) == (near(0.009), 1)
    assert left_of(1, volume=0.04, min_notional=0.3, participation=0.1) == near(0.6)  # not all


@settings(max_examples=200, deadline=None)
@given(
    side=st.sampled_from([1, -1]),
    units=st.floats(1e-5, 1.0),
    share=st.floats(1e-3, 1.0),
    lot_step=st.just(0.0) | st.floats(1e-6, 0.1),
    min_notional=st.just(0.0) | st.floats(1e-4, 1.0),
    precision=st.sampled_from([np.float64, np.float32]),
)
def test_an_overdue_position_always_shrinks_by_what_can_be_sold(
    side: int, units: float, share: float, lot_step: float, min_notional: float, precision: Any
) -> None:
    """Never nothing; and unless all of it goes, whole lots, neither part below the minimum."""
    limits = {"lot_step": lot_step, "min_notional": min_notional, "forced_share": share}
    costs, given = cast(rules(max_held_bars=3, **limits), precision)
    before = cast(overdue(side, units), precision)
    bar, none = cast(flat(100), precision), column(0).astype(precision)
    after, executed = execute(before, none, bar.close, bar, costs, given, "next_open", np)
    had, left, sold = (
        abs(float(x[0, 0])) for x in (before.units, after.units, executed.traded.units)
    )
    assert 0 < sold <= had
    assert after.held[0, 0] == (left > 0)
    if left == 0:
        return
    least, slack = max(min_notional, DUST), tolerance(4, had * 100, precision)
    assert min(sold, had - sold) * 100 >= least - slack
    if lot_step:
        lots = sold / float(given.lot_step[0, 0])
        assert lots > 0.99
        assert abs(lots - round(lots)) < 2 * LOT_SLACK + tolerance(4, lots, precision)


@pytest.mark.parametrize("lot_step", [0.0, 0.001, 0.03])
@pytest.mark.parametrize("min_notional", [0.0, 0.06])
@pytest.mark.parametrize("size", [0.0, 0.0005, 0.01])
def test_gradients_are_those_of_the_branch_taken(
    lot_step: float, min_notional: float, size: float
) -> None:
    """In the size: the share, 0 where lots round, 1 where all of it goes; in the price: none."""
    limits = OVERDUE | {"lot_step": lot_step, "min_notional": min_notional}
    given = map_leaves(jnp.asarray, cast(rules(**limits)[1], np.float32))

    def sold(size: Any, price: Any) -> Any:
        return forced_reduction(size, price, given, jnp)[0, 0]

    inputs = (jnp.full((1, 1), x, jnp.float32) for x in (size, 100.0))
    in_size, in_price = jax.grad(sold, argnums=(0, 1))(*inputs)
    whole = size == 0 or size < lot_step or (min_notional > 0 and lot_step == 0)
    assert float(in_size[0, 0]) == near(1.0 if whole else 0.0 if lot_step else 0.05)
    assert float(in_price[0, 0]) == 0
