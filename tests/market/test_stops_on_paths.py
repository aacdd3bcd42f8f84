"""Trailing stops against prices minute by minute: of all paths that some bars may hide, the
kernel's answer is never better than the best and never worse than the worst.

A path starts at a bar's open, ends at its close and touches the high and the low, in either order;
it moves without jumps, so a stop fills exactly at its level, and at the open if that lies beyond
it. Bars follow each other: a position that no path can have brought through a bar must not meet the
next one.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from small_markets import Played, bar, beginner, owner, play

from flatout.market.account import Account
from flatout.market.execute import Bar
from flatout.market.rules import OFF
from flatout.settings.tables import Fill
from rounding import tolerance

FILLS: tuple[Fill, ...] = ("next_open", "next_close", "same_close")
ENTRY = 100.0  # what was paid; also the last close
SIDES = pytest.mark.parametrize("side", [1, -1], ids=["long", "short"])
near = pytest.approx


class Minutes(NamedTuple):
    """A bar in prices; the seed draws paths through it."""

    open: float
    high: float
    low: float
    close: float
    seed: int = 0


class Moves(NamedTuple):
    """A bar seen from the close before it."""

    gap: float
    move: float
    up: float
    down: float
    seed: int


def chain(moves: list[Moves]) -> list[Minutes]:
    """Bars that follow each other."""
    bars, last = [], ENTRY
    for gap, move, up, down, seed in moves:
        open_, close = last * (1 + gap), last * (1 + gap) * (1 + move)
        high, low = max(open_, close) * (1 + up), min(open_, close) * (1 - down)
        bars.append(Minutes(open_, high, low, close, seed))
        last = close
    return bars


STEPS, SPREADS = st.floats(-0.2, 0.2), st.floats(0, 0.15)
MOVES = st.builds(Moves, STEPS, STEPS, SPREADS, SPREADS, st.integers(0, 2**32 - 1))
# each prefix is judged too, so one bar alone needs no lists of its own
BARS = st.lists(MOVES, min_size=2, max_size=4).map(chain)
DISTANCES = st.floats(0.005, 0.3)
STILL = Minutes(100, 100, 100, 100)
FOLLOWED = [Minutes(110, 118, 103, 117)]  # the open moves the stop before the low meets it
MIRROR = [Minutes(90, 97, 82, 83)]
# the close lies beyond the stop of the high, so nobody is there to meet the next bar
FALLEN_BACK = [Minutes(100, 120, 99, 101), Minutes(150, 160, 149, 155)]
RISEN_BACK = [Minutes(100, 101, 80, 99), Minutes(60, 61, 50, 55)]


class PathEnd(NamedTuple):
    """What a unit has brought, and the best price if it is still there."""

    price: float
    best: float | None


def stop_on_path(turns: list[float], best: float, side: int, distance: float) -> PathEnd:
    """A path through these turning points ends at its stop's price, else at the close."""
    favourable = max if side > 0 else min
    for k, price in enumerate(turns):
        level = best * (1 - side * distance)
        if (price - level) * side <= 0:
            return PathEnd(price if k == 0 else level, None)
        best = favourable(best, price)
    return PathEnd(turns[-1], best)


def turns_of(minutes: Minutes, side: int, distance: float) -> Iterator[list[float]]:
    """Paths inside the bar: straight, with random turns, and with one turn in front of each of many
    heights, among them that from which the adverse extreme is just the stop's distance away.
    """
    first, high, low, last, seed = minutes
    rng = np.random.default_rng(seed)
    adverse = low if side > 0 else high
    just = adverse / (1 - side * distance) * (1 + side * tolerance(4))  # beyond, if rounded
    heights = np.clip([just, *np.linspace(low, high, 41)], low, high).tolist()
    for extremes in ([low, high], [high, low]):
        yield [first, *extremes, last]
        for height in heights:
            yield [first, height, *extremes, last]
        for _ in range(40):
            legs = [rng.uniform(low, high, rng.integers(0, 5)).tolist() for _ in range(3)]
            yield [first, *legs[0], extremes[0], *legs[1], extremes[1], *legs[2], last]


def ends_of(
    ends: set[PathEnd], minutes: Minutes, side: int, distance: float
) -> tuple[set[PathEnd], set[PathEnd]]:
    """How all paths end that were stopped before or in this bar, and those that go on."""
    paths = list(turns_of(minutes, side, distance))
    gone = {end for end in ends if end.best is None}
    there = {end.best for end in ends if end.best is not None}
    met = {stop_on_path(turns, best, side, distance) for best in there for turns in paths}
    return gone | {end for end in met if end.best is None}, {e for e in met if e.best is not None}


def worth_of(played: Played, minutes: Minutes) -> float:
    return played.cash + played.units * minutes.close


def check_bars(
    account: Account, bars: list[Minutes], best: float, side: int, fill: Fill, distance: float
) -> None:
    """After each bar the account is worth no more than on the best path and no less than on the
    worst, it is in the market only if a path is, and out of it only if a path is.
    """
    bought, cash = float(account.units[0, 0]), float(account.cash[0])
    ends = {PathEnd(ENTRY, best)}
    for minutes in bars:
        held = account.units[0, 0] != 0
        played = play(account, 0, bar(*minutes[:4]), fill=fill, trailing_stop=distance)
        assert (held and played.units == 0) == (played.executed.stopped.units[0, 0] != 0)
        gone, there = ends_of(ends, minutes, side, distance)
        assert there if played.units != 0 else gone
        ends = gone | {end._replace(price=minutes.close) for end in there}
        worth = [cash + bought * end.price for end in ends]
        slack = tolerance(16, abs(bought) * max(ENTRY, *(x.high for x in bars)) + abs(cash))
        assert min(worth) - slack <= worth_of(played, minutes) <= max(worth) + slack
        account = played.account


@SIDES
@pytest.mark.parametrize("fill", FILLS)
@settings(max_examples=100, deadline=None)
@given(bars=BARS, distance=DISTANCES, gained=st.floats(0, 0.25))
@example(bars=FOLLOWED, distance=0.05, gained=0.0)
@example(bars=MIRROR, distance=0.05, gained=0.0)
@example(bars=FALLEN_BACK, distance=0.05, gained=0.0)
@example(bars=RISEN_BACK, distance=0.05, gained=0.0)
def test_position_of_earlier_bars(
    side: int, fill: Fill, bars: list[Minutes], distance: float, gained: float
) -> None:
    """It meets all of its bars, whenever orders fill."""
    best = ENTRY * (1 + side * gained)
    account = owner(side * 0.01, cash=1 - side, best=best)
    check_bars(account, bars, best, side, fill, distance)


@SIDES
@pytest.mark.parametrize("fill", FILLS)
@settings(max_examples=100, deadline=None)
@given(bars=BARS, distance=DISTANCES)
@example(bars=[*FOLLOWED, STILL], distance=0.05)
@example(bars=[*MIRROR, STILL], distance=0.05)
@example(bars=FALLEN_BACK, distance=0.05)
@example(bars=RISEN_BACK, distance=0.05)
def test_position_opened_in_the_first_bar(
    side: int, fill: Fill, bars: list[Minutes], distance: float
) -> None:
    """Bought at the open, its best price is the open; bought at the last close, the open comes
    later; bought at the close, it meets the next bar first.
    """
    first, *later = bars
    rules: dict[str, Any] = {"trailing_stop": distance, "max_short_weight": OFF}
    paid = {"next_open": first.open, "same_close": ENTRY, "next_close": first.close}[fill]
    entered = play(beginner(), side * 0.5, bar(*first[:4]), mark=ENTRY, fill=fill, **rules)
    bought = side * 0.5 / ENTRY
    assert entered.executed.traded.units[0, 0] == near(bought)
    if fill == "next_close":
        check_bars(entered.account, later, paid, side, fill, distance)
        return
    # the same bar, met by a position that was already there when its first price came
    owned = owner(bought, cash=1 - bought * paid, best=paid)
    check_bars(owned, bars, paid, side, fill, distance)
    met = play(owned, 0, bar(*first[:4]), fill=fill, trailing_stop=distance)
    # the units bought are an order in money over a price, rounded
    assert (entered.units, worth_of(entered, first)) == near((met.units, worth_of(met, first)))
    assert (entered.units == 0) == (met.units == 0)
    assert entered.units == 0 or entered.account.best == met.account.best


# --- by hand --------------------------------------------------------------------------------------


@pytest.mark.parametrize("fill", FILLS)
def test_stop_follows_the_open_before_it_meets_the_low(fill: Fill) -> None:
    """Entry 100, 5 %: the open of 110 lifts the stop to 104.5, and the low of 103 lies below."""
    met = bar(110, 118, 103, 117)
    after = play(owner(0.01, cash=0), 0, met, fill=fill, trailing_stop=0.05)
    assert (after.units, after.cash) == (0, near(0.01 * 104.5))


@pytest.mark.parametrize("fill", FILLS)
def test_stop_of_a_short_follows_the_open_before_it_meets_the_high(fill: Fill) -> None:
    """Entry 100, 5 %: the open of 90 lowers the stop to 94.5, and the high of 97 lies above."""
    met = bar(90, 97, 82, 83)
    after = play(owner(-0.01, cash=2), 0, met, fill=fill, trailing_stop=0.05)
    assert (after.units, after.cash) == (0, near(2 - 0.01 * 94.5))


def test_a_close_above_the_stop_of_the_high_leaves_it_to_the_next_bar() -> None:
    """The open of 110 lifts the stop to 104.5; the low of 105 does not reach it, although it lies
    below 112.1, the stop of the high: it may have come first.
    """
    first = play(owner(0.01, cash=0), 0, bar(110, 118, 105, 117), trailing_stop=0.05)
    assert (first.units, first.account.best[0, 0]) == (0.01, 118)
    second = play(first.account, 0, bar(113, 114, 112, 113), trailing_stop=0.05)
    assert (second.units, second.cash) == (0, near(0.01 * 112.1))


@pytest.mark.parametrize("fill", FILLS)
def test_close_beyond_the_stop_of_the_high_sells_at_the_low(fill: Fill) -> None:
    """Entry 100, 5 %: from the high of 120 down to the close of 101 the price crosses 114, so no
    path keeps the position. The worst one first rises to 104.2 and is stopped at the low of 99.
    """
    rules = {"trailing_stop": 0.05, "cooldown_bars": 2, "half_spread": 0.01}
    after = play(owner(0.01, cash=0), 0, bar(100, 120, 99, 101), fill=fill, **rules)
    assert (after.units, after.cash) == (0, near(0.01 * 99 * 0.99))
    assert (after.account.cooldown[0, 0], after.account.held[0, 0]) == (2, 0)
    assert after.executed.notional[0] == near(0.99)


@pytest.mark.parametrize("fill", FILLS)
def test_close_beyond_the_stop_of_a_shorts_low_buys_at_the_high(fill: Fill) -> None:
    """Entry 100, 5 %: from the low of 80 up to the close of 99 the price crosses 84; the worst path
    first falls to 96.2 and is stopped at the high of 101.
    """
    rules = {"trailing_stop": 0.05, "cooldown_bars": 2, "half_spread": 0.01}
    after = play(owner(-0.01, cash=2), 0, bar(100, 101, 80, 99), fill=fill, **rules)
    assert (after.units, after.cash) == (0, near(2 - 0.01 * 101 * 1.01))
    assert (after.account.cooldown[0, 0], after.account.held[0, 0]) == (2, 0)
    assert after.executed.notional[0] == near(1.01)


@pytest.mark.parametrize(
    ("side", "met", "price"),
    [
        (1, bar(64, 128, 50, 64), 50),  # the close touches the stop of the high, as a low would
        (1, bar(64, 128, 50, 64.1), None),
        (1, bar(64, 64, 32, 33), 32),  # hit by the low: at the stop, as ever
        (1, bar(20, 128, 10, 40), 20),  # gone at the open
        (-1, bar(64, 80, 32, 48), 80),
        (-1, bar(64, 80, 32, 47.9), None),
        (-1, bar(64, 96, 60, 95), 96),
        (-1, bar(100, 120, 32, 90), 100),
    ],
)
def test_close_and_the_stop_of_the_bars_best_price(
    side: int, met: Bar, price: float | None
) -> None:
    """Entry 64, stop a half: the stop of a high of 128 is 64, that of a low of 32 is 48."""
    after = play(owner(side, cash=64 - 64 * side, best=64), 0, met, trailing_stop=0.5)
    if price is None:
        assert after.units == side
    else:
        assert (after.units, after.cash) == (0, 64 - 64 * side + side * price)


def test_stop_of_a_fallen_close_is_subject_to_volume_lots_and_minimum() -> None:
    """Room for 0.0058 of 0.01 units in lots of 0.001: five are sold at 99, and the rest at the next
    open, which lies beyond 114. Five lots are worth 0.495: less than a minimum of 0.5 stays.
    """
    met, rules = bar(100, 120, 99, 101, volume=0.058), {"trailing_stop": 0.05, "lot_step": 0.001}
    rules |= {"participation": 0.1, "cooldown_bars": 2}
    first = play(owner(0.01, cash=0), 0, met, **rules)
    assert (first.units, first.cash) == (near(0.005), near(0.005 * 99))
    assert (first.account.best[0, 0], first.account.cooldown[0, 0]) == (120, 2)
    second = play(first.account, 0, bar(102, 130, 101, 125), **rules)
    assert (second.units, second.cash) == (0, near(0.005 * 99 + 0.005 * 102))
    kept = play(owner(0.01, cash=0), 0, met, min_notional=0.5, **rules)
    assert (kept.units, kept.cash, kept.account.cooldown[0, 0]) == (0.01, 0, 0)
    shut = play(owner(0.01, cash=0), 0, bar(100, 120, 99, 101, volume=0), **rules)
    assert (shut.units, shut.cash, shut.account.cooldown[0, 0]) == (0.01, 0, 0)


def test_open_beyond_the_old_stop_sells_at_the_open() -> None:
    """What has fallen to 94 overnight is sold there; an open cannot follow itself downwards."""
    after = play(owner(0.01, cash=0), 0, bar(94, 99, 93, 98), trailing_stop=0.05)
    assert (after.units, after.cash) == (0, near(0.94))


def test_entry_at_the_last_close_follows_the_open_entry_at_the_open_does_not() -> None:
    """Filled at 100, an open of 110 lifts the stop to 104.5: 103 meets it. Filled at 110, so does
    the same stop. Filled at the close, nothing of the bar is left to be met.
    """
    met, distance = bar(110, 118, 103, 117), 0.05
    earlier, now, later = (
        play(beginner(), 0.5, met, mark=100, fill=fill, trailing_stop=distance)
        for fill in ("same_close", "next_open", "next_close")
    )
    assert (earlier.units, earlier.cash) == (0, near(1 + 0.005 * 4.5))
    assert (now.units, now.cash) == (0, near(1 - 0.005 * 5.5))
    assert (later.units, later.account.best[0, 0]) == (near(0.005), 117)
