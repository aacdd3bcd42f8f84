"""One bar at a time, with the arithmetic beside it; prices are near 100, capital is 1."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_markets import bar, beginner, flat, owner, play

from flatout.market.account import Account
from flatout.market.execute import Fill, trade_cost
from flatout.market.rules import OFF

near = pytest.approx


@pytest.mark.parametrize(
    ("fill", "price"), [("next_open", 102.0), ("next_close", 104.0), ("same_close", 100.0)], ids=str
)
def test_fill_price(fill: Fill, price: float) -> None:
    """Half the capital at the mark of 100 is 0.005 units, whatever they then cost."""
    after = play(beginner(), 0.5, bar(102, 105, 99, 104), mark=100, fill=fill)
    assert after.units == near(0.005)
    assert after.cash == near(1 - 0.005 * price)  # 0.49, 0.48 or 0.50
    assert after.executed.notional[0] == near(0.005 * price)


# --- trailing stops: 10 % below the best price of 100 is a level of 90 ----------------------------


@pytest.mark.parametrize(
    ("met", "price"),
    [
        (bar(88, 95, 85, 94), 88.0),  # opens beyond the level: the open
        (bar(90, 95, 85, 94), 90.0),  # opens on it
        (bar(95, 96, 85, 94), 90.0),  # falls through it
        (bar(95, 96, 90, 94), 90.0),  # touches it
    ],
    ids=["gap", "open at the level", "fall", "touch"],
)
def test_stop_of_a_long_position(met, price: float) -> None:
    after = play(owner(0.01, cash=0), 0, met, trailing_stop=0.1, cooldown_bars=3)
    assert (after.units, after.cash) == (0, near(0.01 * price))
    assert after.account.cooldown[0, 0] == 3
    assert after.account.held[0, 0] == 0


@pytest.mark.parametrize(
    ("met", "price"),
    [
        (bar(114, 115, 105, 106), 114.0),
        (bar(105, 115, 104, 106), 112.5),
        (bar(105, 112.5, 104, 106), 112.5),
    ],
    ids=["gap", "rise", "touch"],
)
def test_stop_of_a_short_position(met, price: float) -> None:
    """Sold short at 100 for 1: cash 2; an eighth above is a level of 112.5; 0.01 units are bought
    back at the price.
    """
    after = play(owner(-0.01, cash=2), 0, met, trailing_stop=0.125)
    assert (after.units, after.cash) == (0, near(2 - 0.01 * price))


@pytest.mark.parametrize(
    ("units", "met"), [(0.01, bar(95, 96, 90.01, 94)), (-0.01, bar(105, 109.99, 104, 106))]
)
def test_stop_that_is_not_reached(units: float, met) -> None:
    after = play(owner(units, cash=1), 0, met, trailing_stop=0.1, cooldown_bars=3)
    assert (after.units, after.cash) == (units, 1)
    assert after.account.cooldown[0, 0] == 0


def test_low_comes_before_high() -> None:
    """The high of 120 puts the level at 108 for the next bar only; this bar's low of 95 meets the
    old level of 90.
    """
    first = play(owner(0.01, cash=0), 0, bar(100, 120, 95, 119), trailing_stop=0.1)
    assert first.units == 0.01
    assert first.account.best[0, 0] == 120
    second = play(first.account, 0, bar(115, 116, 107, 110), trailing_stop=0.1)
    assert (second.units, second.cash) == (0, near(1.08))


def test_high_comes_before_low_for_a_short_position() -> None:
    """The low of 80 puts the level at 88 for the next bar only; this bar's high of 105 meets the
    old level of 110.
    """
    first = play(owner(-0.01, cash=2), 0, bar(100, 105, 80, 81), trailing_stop=0.1)
    assert first.units == -0.01
    assert first.account.best[0, 0] == 80
    second = play(first.account, 0, bar(85, 89, 84, 86), trailing_stop=0.1)
    assert (second.units, second.cash) == (0, near(2 - 0.88))


def test_entry_bar_can_stop() -> None:
    """Bought at the open of 100, stopped at 90 in the same bar: 10 % of 0.5 is lost."""
    after = play(beginner(), 0.5, bar(100, 101, 89, 95), trailing_stop=0.1)
    assert (after.units, after.cash) == (0, near(0.95))


def test_next_close_enters_after_the_bars_stop() -> None:
    """At the close the low is past; the stop hangs on the fill price, not on the bar's high."""
    after = play(beginner(), 0.5, bar(100, 120, 80, 100), trailing_stop=0.1, fill="next_close")
    assert after.units == near(0.005)
    assert after.account.best[0, 0] == 100


# --- memory: cooldown, forced reductions ----------------------------------------------------------


def test_cooldown_blocks_growth_for_exactly_its_bars() -> None:
    account = play(
        owner(0.005, cash=0.5), 0, bar(80, 80, 80, 80), trailing_stop=0.1, cooldown_bars=3
    ).account
    filled = []
    for _ in range(5):
        played = play(account, 0.1, flat(100), trailing_stop=0.1, cooldown_bars=3)
        account = played.account
        filled.append(played.executed.notional[0] > 0)
    assert filled == [False, False, False, True, True]


def test_cooldown_lets_positions_shrink() -> None:
    after = play(owner(0.01, cash=0, cooldown=2), -0.4, flat(100), cooldown_bars=3)
    assert (after.units, after.account.cooldown[0, 0]) == (near(0.006), 1)


def sizes_held(orders: list[float]) -> list[float]:
    """Units over 0.01 at the end of each bar, under a forced reduction by a quarter after three
    bars.
    """
    account, sizes = beginner(), []
    for order in orders:
        played = play(account, order, flat(100), max_held_bars=3, forced_share=0.25)
        account = played.account
        sizes.append(played.units / 0.01)
    return sizes


def test_forced_reduction_after_three_bars_and_again_three_bars_later() -> None:
    """Bought at the open of bar 0, so held for three bars at the open of bar 3."""
    assert sizes_held([1, 0, 0, 0, 0, 0, 0]) == near([1, 1, 1, 0.75, 0.75, 0.75, 0.5625])


def test_forced_reduction_overrules_buying_but_not_a_larger_sale() -> None:
    assert sizes_held([0.5, 0, 0, 0.5]) == near([0.5, 0.5, 0.5, 0.375])
    assert sizes_held([0.5, 0, 0, -0.4]) == near([0.5, 0.5, 0.5, 0.1])


# --- sizes: minimum notional, lots, participation -------------------------------------------------


@pytest.mark.parametrize(
    ("units", "order", "left"),
    [
        (0.0, 0.099, 0.0),  # too small to open
        (0.0, 0.101, 0.00101),
        (0.01, -0.099, 0.01),  # too small to reduce
        (0.01, -0.101, 0.00899),
        (0.0005, -0.05, 0.0),  # a close of the whole position may be smaller
        (-0.0005, 0.05, 0.0),
    ],
)
def test_minimum_notional(units: float, order: float, left: float) -> None:
    assert play(owner(units, cash=1), order, flat(100), min_notional=0.1).units == near(left)


@pytest.mark.parametrize(
    ("units", "order", "left"),
    [
        (0.0, 1.0, 0.009),  # 0.01 units are three lots of 0.003 and a rest
        (0.0, -1.0, -0.009),
        (0.0, 0.5, 0.003),  # 1.67 lots are one
        (0.0, -0.5, -0.003),
        (0.02, -1.0, 0.011),
        (0.01, -1.0, 0.0),  # a close of the whole position needs no whole lots
    ],
)
def test_lots_round_toward_zero(units: float, order: float, left: float) -> None:
    after = play(owner(units, cash=1), order, flat(100), lot_step=0.003, max_short_weight=OFF)
    assert after.units == near(left)


def test_whole_lots_are_not_lost_to_rounding() -> None:
    """0.3 / 0.1 is 2.9999999999999996 in floating point, yet three lots."""
    assert play(beginner(), 0.3, flat(1), mark=1, lot_step=0.1).units == near(0.3)


def test_participation_fills_a_part_and_cancels_the_rest() -> None:
    """A tenth of a volume of 0.02 is 0.002 units; the other 0.003 are not bought later."""
    first = play(beginner(), 0.5, flat(100, volume=0.02), participation=0.1)
    assert (first.units, first.cash) == (near(0.002), near(0.8))
    assert play(first.account, 0, flat(100, volume=0.02), participation=0.1).units == near(0.002)


def test_order_and_stop_share_the_bars_volume() -> None:
    """Room for 0.005 units: the order sells 0.003 at the open of 95, the stop 0.002 at 90, and
    0.005 stay.
    """
    met = bar(95, 96, 85, 88, volume=0.05)
    after = play(
        owner(0.01, cash=0), -0.3, met, trailing_stop=0.1, participation=0.1, cooldown_bars=2
    )
    assert after.units == near(0.005)
    assert after.cash == near(0.003 * 95 + 0.002 * 90)
    assert after.account.cooldown[0, 0] == 2
    at_close = play(
        owner(0.01, cash=0), -0.3, met, trailing_stop=0.1, participation=0.1, fill="next_close"
    )
    assert at_close.cash == near(0.005 * 90)  # the stop came first and took it all


def test_bar_that_is_not_tradable() -> None:
    """Volume 0: no order, no stop, no forced reduction; time passes."""
    account = owner(0.01, cash=0.5, held=7)
    after = play(
        account,
        -0.5,
        bar(80, 80, 80, 80, volume=0),
        trailing_stop=0.1,
        max_held_bars=5,
        forced_share=0.5,
    )
    assert (after.units, after.cash, after.executed.notional[0]) == (0.01, 0.5, 0)
    assert (after.account.held[0, 0], after.account.cooldown[0, 0]) == (8, 0)
    assert play(beginner(), 0.5, flat(100, volume=0)).units == 0


# --- costs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("volume", "rate"), [(0.0, 0.009), (1.99, 0.009), (2.0, 0.0035)])
def test_fee_tier_by_volume_and_maker_share(volume: float, rate: float) -> None:
    """A quarter fills as maker: 0.006 / 4 + 0.01 * 3 / 4 = 0.009, and 0.002 / 4 + 0.004 * 3 / 4 =
    0.0035.
    """
    fees = {
        "tier_volume": [0, 2],
        "maker_fee": [0.006, 0.002],
        "taker_fee": [0.01, 0.004],
        "maker_share": 0.25,
    }
    after = play(owner(0.0, cash=1, volume=volume), 0.5, flat(100), **fees, volume_memory=0.9)
    assert after.cash == near(0.5 - 0.5 * rate)
    assert after.account.volume[0] == near(0.9 * volume + 0.5)


def test_stops_pay_fee_and_spread_and_count_as_volume() -> None:
    """0.01 units at 90 bring 0.9, less 1 % fee and 0.5 % half spread."""
    costs = {"tier_volume": [0], "maker_fee": [0], "taker_fee": [0.01], "half_spread": 0.005}
    after = play(owner(0.01, cash=0), 0, bar(95, 96, 85, 94), trailing_stop=0.1, **costs)
    assert after.cash == near(0.9 * (1 - 0.015))
    assert after.account.volume[0] == near(0.9)


def test_impact_by_hand() -> None:
    """0.5 x 0.1 x sqrt(0.0025 units) = 0.25 % of a notional of 0.25."""
    after = play(beginner(), 0.25, flat(100, impact_rate=0.1), impact=0.5)
    assert after.cash == near(0.75 - 0.25 * 0.0025)


@given(st.floats(1e-4, 0.5), st.floats(1.01, 1.9), st.sampled_from([-1, 1]))
def test_impact_per_notional_grows_with_size(size: float, factor: float, side: int) -> None:
    rates = []
    for order in (size, size * factor):
        after = play(
            beginner(), side * order, flat(100, impact_rate=0.1), impact=0.5, max_short_weight=OFF
        )
        rates.append(trade_cost(after.executed.traded)[0, 0] / after.executed.notional[0])
    assert 0 < rates[0] < rates[1]
    assert rates[1] / rates[0] == near(np.sqrt(factor), rel=1e-6)


def test_slippage_is_capped_at_half_the_price() -> None:
    after = play(beginner(), 0.5, flat(100, impact_rate=1e6), impact=1e6)
    assert (after.units, after.cash) == (near(0.005), near(1 - 0.5 - 0.25))
    assert play(owner(0.01, cash=0), -1, flat(100, impact_rate=1e6), impact=1e6).cash == near(0.5)


@pytest.mark.parametrize(
    ("account", "paid"),
    [
        (owner(-0.01, cash=2), 0.001 * 1.2),  # a short position, at the close of 120
        (owner(0.015, cash=-0.5), 0.001 * 0.5),  # negative cash
        (owner(0.01, cash=0.5), 0.0),
    ],
    ids=["short", "debt", "neither"],
)
def test_borrow(account: Account, paid: float) -> None:
    assert account.cash[0] - play(account, 0, bar(100, 120, 100, 120), borrow=0.001).cash == near(
        paid
    )


# --- what an order may reach ----------------------------------------------------------------------


def test_weight_cap_per_asset() -> None:
    after = play(beginner(2), [0.9, 0.1], flat([100, 50]), mark=[100, 50], max_weight=[0.3, 0.6])
    assert after.units * [100, 50] == near([0.3, 0.1])


def test_weight_cap_sells_nothing() -> None:
    """A price rise may carry a weight (0.8) over its cap (0.3): then it may not grow, that is
    all.
    """
    for order in (0.0, 0.1):
        assert play(owner(0.008, cash=0.2), order, flat(100), max_weight=0.3).units == 0.008


def test_gross_limit_cuts_all_alike() -> None:
    """0.5 of 0.4 + 0.3 asked; shorts count too."""
    after = play(
        beginner(2),
        [0.4, -0.3],
        flat([100, 50]),
        mark=[100, 50],
        gross_limit=0.5,
        max_short_weight=OFF,
    )
    assert after.units * [100, 50] == near([0.4 * 0.5 / 0.7, -0.3 * 0.5 / 0.7])


def test_reserve_stays_in_cash() -> None:
    after = play(beginner(2), [0.6, 0.6], flat([100, 50]), mark=[100, 50], reserve=0.2)
    assert after.units * [100, 50] == near([0.4, 0.4])
    assert after.cash == near(0.2)


def test_budget_pays_the_costs_too() -> None:
    """Everything into one asset at a fee of 1 %: the notional is 1 / 1.01 and nothing is left."""
    after = play(beginner(), 5, flat(100), tier_volume=[0], maker_fee=[0], taker_fee=[0.01])
    assert after.units * 100 == near(1 / 1.01)
    assert 0 <= after.cash < 1e-12


def test_sales_pay_for_purchases_in_the_same_bar() -> None:
    after = play(owner([0.01, 0.0], cash=0), [-1, 1], flat([100, 100]))
    assert after.units == near([0, 0.01])


def test_reversal_in_one_order() -> None:
    """Long 0.5, sell 0.8: 0.5 close the position, 0.3 open a short one that counts from here."""
    after = play(owner(0.005, cash=0.5, best=150, held=9), -0.8, flat(100), max_short_weight=OFF)
    assert (after.units, after.cash) == (near(-0.003), near(1.3))
    assert (after.account.best[0, 0], after.account.held[0, 0]) == (100, 1)
    capped = play(owner(0.005, cash=0.5), -0.8, flat(100), max_short_weight=0.2)
    assert capped.units == near(-0.002)
    # no shorts: the position is closed
    assert play(owner(0.005, cash=0.5), -0.8, flat(100)).units == 0


def test_reversal_pays_impact_for_the_whole_order() -> None:
    """0.0025 units close at 0.05 x sqrt(0.0025) = 0.25 %; 0.0075 more open at
    0.05 x sqrt(0.01) = 0.5 %.
    """
    met = flat(100, impact_rate=0.1)
    after = play(owner(0.0025, cash=0.75), -1, met, impact=0.5, max_short_weight=OFF)
    assert after.cash == near(1.75 - 0.25 * 0.0025 - 0.75 * 0.005)


def test_reversal_from_short_to_long() -> None:
    after = play(owner(-0.005, cash=1.5), 0.8, flat(100), max_short_weight=OFF)
    assert (after.units, after.cash) == (near(0.003), near(0.7))


def test_volume_forgets_without_trading() -> None:
    assert (
        play(owner(0.0, cash=1, volume=4.0), 0, flat(100), volume_memory=0.75).account.volume[0]
        == 3
    )
