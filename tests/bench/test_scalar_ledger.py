"""The oracle itself, by hand: what nothing else would tell it."""

import numpy as np
import pytest

from flatout.bench.scalar_ledger import Ledger, plain_rules
from rounding import close_to
from scenarios import free_market

PLENTY = 1e9  # of volume


def one_asset(fill: str = "next_open", **limits: float) -> Ledger:
    """An account that may go short, in a market without costs."""
    costs, free = free_market(1)
    given = {name: np.array([[value]]) for name, value in limits.items()}
    rules = free._replace(max_short_weight=free.max_weight, **given)
    return Ledger(1, plain_rules(costs, rules), fill)


def pass_bar(
    ledger: Ledger,
    money: float,
    mark: float,
    prices: tuple[float, float, float, float],
    volume: float = PLENTY,
) -> float:
    return ledger.step([money], [mark], [[price] for price in (*prices, volume, 0.0)])


@pytest.mark.parametrize(
    ("side", "bar", "sold_at"),
    [
        (1, (110, 118, 103, 117), 104.5),  # 5 % below the open, which is known to come first
        (1, (110, 118, 105, 117), None),
        (1, (94, 99, 93, 98), 94),  # a gap
        (1, (99, 120, 96, 119), None),  # whether the high came first is not known
        (1, (100, 120, 99, 101), 99),  # nor here, but 114 was crossed on the way to the close
        (1, (100, 120, 99, 114), 99),
        (1, (100, 120, 99, 114.1), None),
        (1, (110, 120, 103, 105), 104.5),  # hit by the low: at the stop, whatever the close
        (-1, (90, 97, 82, 83), 94.5),
        (-1, (90, 94, 82, 83), None),
        (-1, (106, 107, 101, 102), 106),
        (-1, (101, 104, 80, 81), None),
        (-1, (100, 101, 80, 99), 101),
        (-1, (100, 101, 80, 84), 101),
        (-1, (100, 101, 80, 83.9), None),
        (-1, (90, 97, 82, 96), 94.5),
    ],
)
@pytest.mark.parametrize("fill", ["next_open", "next_close", "same_close"])
def test_stop_follows_the_open_and_meets_the_worst_that_the_bar_allows(
    side: int, bar: tuple[float, float, float, float], sold_at: float | None, fill: str
) -> None:
    ledger = one_asset(fill, trailing_stop=0.05, cooldown_bars=2)
    pass_bar(ledger, 0.5 * side, 100, (100, 100, 100, 100))
    worth = pass_bar(ledger, 0.0, 100, bar)
    position = ledger.positions[0]
    end = bar[3] if sold_at is None else sold_at
    assert worth == close_to(1 + 0.5 * side * (end / 100 - 1), roundings=20)
    assert (position.units == 0) == (sold_at is not None)
    assert position.cooldown == (0 if sold_at is None else 2)


def hold(ledger: Ledger, price: float, bars: int) -> list[float]:
    """The size of the position, in lots of one, after each bar at a constant price."""
    sizes = []
    for _ in range(bars):
        pass_bar(ledger, 0.0, price, (price, price, price, price))
        sizes.append(abs(ledger.positions[0].units))
    return sizes


@pytest.mark.parametrize("side", [1, -1])
@pytest.mark.parametrize(
    ("lots", "share", "minimum", "expected"),
    [
        (10, 0.05, 0.0, [9, 9, 8, 8, 7]),  # half a lot becomes one
        (10, 0.25, 0.0, [8, 8, 6, 6, 5]),
        (2, 0.05, 0.0, [1, 1, 0, 0, 0]),
        (10, 0.25, 0.03, [0, 0, 0, 0, 0]),  # two lots are worth less than the minimum
        (5, 0.6, 0.03, [0, 0, 0, 0, 0]),  # the two lots that would be left are
        (6, 0.5, 0.03, [3, 3, 0, 0, 0]),
        (10, 0.0, 0.0, [10, 10, 10, 10, 10]),
    ],
)
def test_forced_reduction_never_stands_still(
    side: int, lots: int, share: float, minimum: float, expected: list[float]
) -> None:
    price = 0.01
    ledger = one_asset(lot_step=1.0, max_held_bars=2, forced_share=share, min_notional=minimum)
    pass_bar(ledger, side * lots * price, price, (price, price, price, price))
    assert hold(ledger, price, 1) == [lots]
    assert hold(ledger, price, 5) == expected


def test_forced_reduction_takes_what_the_volume_gives() -> None:
    ledger = one_asset(lot_step=1.0, max_held_bars=1, forced_share=0.5, participation=0.1)
    pass_bar(ledger, 0.1, 0.01, (0.01, 0.01, 0.01, 0.01))
    pass_bar(ledger, 0.0, 0.01, (0.01, 0.01, 0.01, 0.01), volume=9.0)
    assert (ledger.positions[0].units, ledger.positions[0].held) == (10, 2)
    pass_bar(ledger, 0.0, 0.01, (0.01, 0.01, 0.01, 0.01), volume=29.0)
    assert (ledger.positions[0].units, ledger.positions[0].held) == (8, 1)


@pytest.mark.parametrize("fill", ["next_open", "next_close", "same_close"])
def test_cooldown_keeps_so_many_orders_from_growing(fill: str) -> None:
    ledger = one_asset(fill, trailing_stop=0.05, cooldown_bars=2)
    still = (100.0, 100.0, 100.0, 100.0)
    pass_bar(ledger, 0.5, 100, still)
    bars = [(100.0, 100.0, 90.0, 100.0), still, still, still]
    # an order at the open or the mark is there before the stop, one at the close comes after it
    orders = [0.5 if fill == "next_close" else 0.0, 0.5, 0.5, 0.5]
    grown = []
    for money, bar in zip(orders, bars, strict=True):
        pass_bar(ledger, money, 100, bar)
        grown.append(ledger.positions[0].units > 0)
    assert grown == ([False, False, True, True] if fill == "next_close" else [False] * 3 + [True])
