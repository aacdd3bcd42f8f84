"""Trailing stops against prices minute by minute: of all paths that a bar may hide, the kernel's
answer is never better than the best and never worse than the worst.

A path starts at the open, ends at the close and touches the high and the low, in either order; it
moves without jumps, so a stop fills exactly at its level, and at the open if that lies beyond it.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from small_markets import Played, bar, beginner, owner, play

from flatout.market.rules import OFF
from flatout.settings.tables import Fill
from rounding import tolerance

FILLS: tuple[Fill, ...] = ("next_open", "next_close", "same_close")
ENTRY = 100.0  # what was paid; also the last close
SIDES = pytest.mark.parametrize("side", [1, -1], ids=["long", "short"])
near = pytest.approx


class Minutes(NamedTuple):
    """A bar in prices, and the stop that it meets."""

    open: float
    high: float
    low: float
    close: float
    distance: float
    seed: int


def draw_minutes(
    gap: float, move: float, up: float, down: float, distance: float, seed: int
) -> Minutes:
    open_, close = ENTRY * (1 + gap), ENTRY * (1 + gap) * (1 + move)
    high, low = max(open_, close) * (1 + up), min(open_, close) * (1 - down)
    return Minutes(open_, high, low, close, distance, seed)


MOVES = st.floats(-0.2, 0.2)
MINUTES = st.builds(
    draw_minutes,
    gap=MOVES,
    move=MOVES,
    up=st.floats(0, 0.15),
    down=st.floats(0, 0.15),
    distance=st.floats(0.005, 0.3),
    seed=st.integers(0, 2**32 - 1),
)
FOLLOWED = Minutes(110, 118, 103, 117, 0.05, 0)  # the open moves the stop before the low meets it
MIRROR = Minutes(90, 97, 82, 83, 0.05, 0)
FALLEN_BACK = Minutes(100, 120, 99, 101, 0.05, 0)  # the close lies beyond the stop of the high


def stop_on_path(turns: list[float], best: float, side: int, distance: float) -> float:
    """What a unit brings on a path through these turning points: the stop's price, else the
    close.
    """
    favourable = max if side > 0 else min
    for k, price in enumerate(turns):
        level = best * (1 - side * distance)
        if (price - level) * side <= 0:
            return price if k == 0 else level
        best = favourable(best, price)
    return turns[-1]


def turns_of(minutes: Minutes, side: int) -> Iterator[list[float]]:
    """Paths inside the bar: straight, with random turns, and with one turn in front of each of many
    heights, among them that from which the adverse extreme is just the stop's distance away.
    """
    first, high, low, last, distance, seed = minutes
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


def check_outcome(played: Played, minutes: Minutes, best: float, side: int) -> None:
    """What the kernel says lies between the worst and the best path."""
    stopped = played.executed.stopped
    found = float(stopped.price[0, 0]) if stopped.units[0, 0] != 0 else minutes.close
    assert (played.units == 0) == (stopped.units[0, 0] != 0)
    outcomes = [
        stop_on_path(turns, best, side, minutes.distance) for turns in turns_of(minutes, side)
    ]
    slack = tolerance(16, 2 * ENTRY)
    assert min(outcomes) - slack <= found <= max(outcomes) + slack


@SIDES
@pytest.mark.parametrize("fill", FILLS)
@settings(max_examples=150, deadline=None)
@given(minutes=MINUTES, gained=st.floats(0, 0.25))
@example(minutes=FOLLOWED, gained=0.0)
@example(minutes=MIRROR, gained=0.0)
@example(minutes=FALLEN_BACK, gained=0.0)
def test_position_of_earlier_bars(side: int, fill: Fill, minutes: Minutes, gained: float) -> None:
    """It meets the whole bar, whenever orders fill."""
    best = ENTRY * (1 + side * gained)
    account = owner(side * 0.01, cash=1 - side, best=best)
    played = play(account, 0, bar(*minutes[:4]), fill=fill, trailing_stop=minutes.distance)
    check_outcome(played, minutes, best, side)


@SIDES
@pytest.mark.parametrize("fill", ["next_open", "same_close"])
@settings(max_examples=150, deadline=None)
@given(minutes=MINUTES)
@example(minutes=FOLLOWED)
@example(minutes=MIRROR)
def test_position_opened_in_this_bar(side: int, fill: Fill, minutes: Minutes) -> None:
    """Bought at the open, its best price is the open; bought at the last close, the open comes
    later.
    """
    limits = {"trailing_stop": minutes.distance, "max_short_weight": OFF}
    played = play(beginner(), side * 0.5, bar(*minutes[:4]), mark=ENTRY, fill=fill, **limits)
    check_outcome(played, minutes, minutes.open if fill == "next_open" else ENTRY, side)


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


def test_the_open_moves_the_stop_and_the_high_only_the_next_bars() -> None:
    """The open of 110 lifts the stop to 104.5; the low of 105 does not reach it, although it lies
    below 112.1, the stop of the high.
    """
    first = play(owner(0.01, cash=0), 0, bar(110, 118, 105, 117), trailing_stop=0.05)
    assert (first.units, first.account.best[0, 0]) == (0.01, 118)
    second = play(first.account, 0, bar(113, 114, 112, 113), trailing_stop=0.05)
    assert (second.units, second.cash) == (0, near(0.01 * 112.1))


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
