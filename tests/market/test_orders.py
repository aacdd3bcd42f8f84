"""From actions to money: three kinds that are clipped to [-1, 1], and choices."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_markets import beginner, column, flat, owner, play, rules

from flatout.market.account import equity
from flatout.market.orders import (
    ActionKind,
    action_size,
    order_from,
    order_levels,
    target_weights,
    weights_action,
)
from rounding import assert_close
from scenarios import cast

near = pytest.approx
MARK = [100.0, 50.0]


def order(kind: ActionKind, action: list[float], account, **limits) -> np.ndarray:
    """The order of one account at prices of 100 and 50."""
    worth = equity(account, column(MARK), np)
    return order_from(
        kind, column(action), account, worth, column(MARK), rules(2, **limits)[1], np
    )[:, 0]


@pytest.mark.parametrize(
    ("kind", "width"), [("trade", 3), ("weights", 4), ("direction_amount", 6), ("discrete", 3)]
)
def test_action_size(kind: ActionKind, width: int) -> None:
    assert action_size(kind, 3) == width


def test_trade_is_a_share_of_the_equity() -> None:
    """Equity 2, trade size 0.3: an action of 1 is 0.6; -7 is clipped to -1."""
    assert order("trade", [0.5, -7], owner([0.01, 0.0], cash=1), trade_size=0.3) == near(
        [0.3, -0.6]
    )


def test_weights_are_shares_of_their_sum() -> None:
    """Shares (0.5, 0, cash 1) of 1.5: weights 1/3 and 0; equity 2, of which 0.1 and 0.2 are
    owned.
    """
    account = owner([0.001, 0.004], cash=1.7)
    assert order("weights", [0, -1, 1], account) == near([2 / 3 - 0.1, -0.2])
    assert order("weights", [0, -3, 8], account) == near([2 / 3 - 0.1, -0.2])  # clipped


def test_weights_of_nothing_sell_everything() -> None:
    assert order("weights", [-1, -1, -1], owner([0.001, 0.004], cash=1.7)) == near([-0.1, -0.2])
    assert order("weights", [0, 0, -1], beginner(2), max_short_weight=0.5) == near([0, 0])


UNLEVERED = {"max_short_weight": 0.5, "gross_limit": 1.0}


def test_weights_with_shorts() -> None:
    """Shares (-0.5, 0.25, cash 0.25) already sum to 1 in absolute value; twice the first one
    divides by 1.5.
    """
    assert order("weights", [-0.5, 0.25, -0.5], beginner(2), **UNLEVERED) == near([-0.5, 0.25])
    assert order("weights", [-1, 0.25, -0.5], beginner(2), **UNLEVERED) == near(
        [-1 / 1.5, 0.25 / 1.5]
    )


def test_weights_with_shorts_of_one_asset_only() -> None:
    """The second asset may not be sold short, so its -0.5 means a share of 0.25."""
    limits = UNLEVERED | {"max_short_weight": [0.5, 0]}
    assert order("weights", [-0.5, -0.5, -0.5], beginner(2), **limits) == near([-0.5, 0.25])


@pytest.mark.parametrize(
    ("gross_limit", "max_short_weight", "gross"),
    [
        (1.5, 1.0, 1.5),
        (2.0, 1.0, 2.0),  # all the money in one asset, as much again short in the other
        (3.0, 1.0, 2.0),  # more cannot be reached
        (3.0, 0.25, 1.25),
        (3.0, [0.5, 0.0], 1.5),
        (3.0, 2.5, 3.0),  # both short would be 5
        (1.0, 1.0, 1.0),
        (0.5, 1.0, 1.0),  # the market cuts the order, as it always did
        (3.0, 0.0, 1.0),  # purchases are paid with one's own money: no leverage without shorts
    ],
)
def test_weights_ask_for_what_the_gross_limit_allows(
    gross_limit: float, max_short_weight: float, gross: float
) -> None:
    """All of it where the action leaves no share to cash."""
    limits = {"gross_limit": gross_limit, "max_short_weight": max_short_weight}
    assert np.abs(order("weights", [-1, 1, -1], beginner(2), **limits)).sum() == near(gross)


def test_leverage_that_was_asked_for_is_reached_in_the_market() -> None:
    """One asset long with all the money, the other short with as much: a gross weight of 2."""
    limits = {"gross_limit": 2.0, "max_short_weight": 1.0}
    money = order("weights", [1, -1, -1], beginner(2), **limits)
    after = play(beginner(2), money, flat(MARK), mark=MARK, **limits)
    assert after.units * MARK == near([1, -1])
    # shares of 1, -1 and cash 1: each has a third of 2
    money = order("weights", [1, -1, 1], beginner(2), **limits)
    assert money == near([2 / 3, -2 / 3])


@given(
    st.lists(st.floats(-1, 1), min_size=4, max_size=4),
    st.sampled_from([0.0, 0.3, 1.0]),
    st.floats(0.1, 4.0),
    st.sampled_from([np.float32, np.float64]),
)
def test_weights_without_leverage_are_what_they_were_bit_for_bit(
    action: list[float], shorts: float, gross_limit: float, precision: type
) -> None:
    """Policies saved before act as before: long-only at any gross limit, with shorts up to 1."""
    limits = rules(3, max_short_weight=shorts, gross_limit=gross_limit)[1]
    given = column(action).astype(precision)
    asset, cash = given[:-1], (given[-1] + 1) / 2
    share = asset if shorts else (asset + 1) / 2
    total = np.sum(np.abs(share), axis=0) + cash
    before = share / np.where(total <= 0, total + 1, total)
    found = target_weights(given, cast(limits, precision), np)
    assert found.dtype == precision
    if shorts == 0 or gross_limit <= 1:
        np.testing.assert_array_equal(found, before)
    else:
        reach = min(gross_limit, 1 + 2 * shorts)
        assert_close(found, before * reach, roundings=8, size=reach)


@given(
    st.lists(st.floats(0, 1), min_size=4, max_size=4).filter(lambda x: sum(x) > 1e-3),
    st.integers(0, 1),
)
def test_asked_weights_are_reached_without_costs(shares: list[float], owned: int) -> None:
    weights = np.array(shares)[:3] / sum(shares)
    prices = np.array([100.0, 7.0, 3000.0])
    action = weights_action(weights[:, None], np)
    limits = rules(3)[1]
    assert target_weights(action, limits, np)[:, 0] == near(weights, abs=1e-12)
    account = owner(np.array([0.2, 0.3, 0.4]) * owned / prices, cash=1 - 0.9 * owned)
    money = order_from("weights", action, account, np.ones(1), column(prices), limits, np)[:, 0]
    after = play(account, money, flat(prices), mark=prices)
    assert after.units * prices == near(
        weights, abs=2e-6
    )  # what is less than a millionth is no order


@pytest.mark.parametrize(
    ("direction", "amount", "money"),
    [
        (0.3, 1, 0.8),  # all the cash
        (0.2999, 1, 0.0),
        (-0.2999, 1, 0.0),
        (-0.3, 1, -0.2),  # all of the position
        (1, -1, 0.0),
        (1, 0, 0.4),
        (-1, -0.5, -0.05),
        (9, 9, 0.8),  # clipped
        (-9, -9, 0.0),
    ],
)
def test_direction_and_amount(direction: float, amount: float, money: float) -> None:
    account = owner([0.002, 0.0], cash=0.8)
    assert order("direction_amount", [direction, amount, 0, 0], account) == near([money, 0])


def test_direction_and_amount_come_in_pairs() -> None:
    account = owner([0.002, 0.004], cash=0.6)
    assert order("direction_amount", [-1, 0, 1, -0.5], account) == near([-0.1, 0.15])


def test_direction_sells_the_position_and_the_largest_short() -> None:
    """Equity 1, position 0.2, shorts up to 0.3: all of it is 0.5; a short position of 0.3 leaves
    nothing to sell.
    """
    sell = [-1, 1, 0, 0]
    assert order(
        "direction_amount", sell, owner([0.002, 0.0], cash=0.8), max_short_weight=0.3
    ) == near([-0.5, 0])
    assert order(
        "direction_amount", sell, owner([-0.003, 0.0], cash=1.3), max_short_weight=0.3
    ) == near([0, 0])


def test_no_cash_buys_nothing() -> None:
    assert order("direction_amount", [1, 1, 1, 1], owner([0.02, 0.0], cash=-0.5)) == near([0, 0])


# --- choices ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "choice", "share"),
    [
        ((0.25,), 0, -0.25),
        ((0.25,), 1, 0.0),
        ((0.25,), 2, 0.25),
        ((1.0, 0.1), 0, -1.0),
        ((1.0, 0.1), 1, -0.1),
        ((1.0, 0.1), 2, 0.0),
        ((1.0, 0.1), 3, 0.1),
        ((1.0, 0.1), 4, 1.0),
    ],
)
def test_choices_are_shares_of_the_equity(
    sizes: tuple[float, ...], choice: int, share: float
) -> None:
    """Equity 2, of which an action of 1 is half."""
    account, levels = owner([0.01, 0.0], cash=1), order_levels("discrete", sizes)
    hold = len(sizes)
    found = order_from(
        "discrete", column([choice, hold]), account, equity(account, column(MARK), np),
        column(MARK), rules(2, trade_size=0.5)[1], np, levels,
    )[:, 0]  # fmt: skip
    assert found == near([share, 0.0])


def test_only_discrete_actions_have_levels() -> None:
    assert order_levels("trade", (0.25,)) == ()
