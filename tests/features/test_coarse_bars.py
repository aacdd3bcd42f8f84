"""Which larger bars a bar may know, against a plain loop over its past; and how far that reaches
back.
"""

from dataclasses import replace

import numpy as np
import pytest
from feature_panels import at_times, every, random_panel
from hypothesis import given, settings
from hypothesis import strategies as st

from flatout.bars.calendars import follow_calendar
from flatout.bars.panel import Panel
from flatout.bars.resample import resample
from flatout.errors import RecipeError
from flatout.features.coarse_bars import CoarseBars, find_coarse_bars
from session_panels import session_times

STEP, HOUR, DAY = 300, 3600, 86_400  # sessions begin and end on multiples of 5 minutes
SESSIONS = ("2023-11-15", "2023-12-01")  # holds Thanksgiving and the half day after it


def to_seconds(times: np.ndarray) -> np.ndarray:
    return times.astype("datetime64[s]").astype(np.int64)


def known_by_loop(panel: Panel, size: int) -> list[int | None]:
    """For each bar the start of the last larger bar whose time has passed at its close."""
    opens = to_seconds(panel.time).tolist()
    found = []
    for moment in opens:
        close = moment + panel.bar_seconds
        starts = [x // size * size for x in opens if x < close]
        over = [x for x in starts if x >= opens[0] and x + size <= close]
        found.append(max(over, default=None))
    return found


def known_in_sessions(panel: Panel, size: int, moments: np.ndarray) -> list[int | None]:
    """The same by a calendar: of the larger bars in whose open moments some bar lies, those that
    did not begin before the panel and have no open moment left.
    """
    opens, bar = to_seconds(panel.time).tolist(), panel.bar_seconds
    is_open = set(moments.tolist())
    filled = {x // size for x in opens if any(x + k in is_open for k in range(0, bar, STEP))}
    begun_before = {m // size for m in is_open if m < opens[0]}
    ends: dict[int, int] = {}
    for moment in sorted(is_open):
        ends[moment // size] = moment + STEP
    usable = {number: ends[number] for number in filled - begun_before}
    over = [[k for k, end in usable.items() if end <= moment + bar] for moment in opens]
    return [max(numbers) * size if numbers else None for numbers in over]


def known_starts(coarse: CoarseBars) -> list[int | None]:
    starts = to_seconds(coarse.panel.time)
    return [int(starts[k]) if k >= 0 else None for k in coarse.known]


@given(
    offset=st.integers(0, 30),
    bars=st.integers(0, 80),
    size=st.sampled_from([600, 900, HOUR]),
    holes=st.sets(st.integers(0, 79)),
    day=st.sampled_from(["2024-01-06", "1969-12-31T22:00", "1960-05-02"]),
)
@settings(max_examples=80, deadline=None)
def test_a_bar_knows_the_last_larger_bar_whose_time_has_passed(
    offset, bars, size, holes, day
) -> None:
    times = np.delete(every(300, 80, day), sorted(holes))[offset:][:bars]
    panel = at_times(random_panel(1, bars=80), times, 300)
    assert known_starts(find_coarse_bars(panel, size)) == known_by_loop(panel, size)


@pytest.mark.parametrize("begin", [0, 5, 13])
@pytest.mark.parametrize("size", [HOUR, 4 * HOUR, DAY])
@pytest.mark.parametrize("calendar", ["XNYS", "XTKS", "CMES"])
@pytest.mark.parametrize("beyond", [False, True])
def test_a_session_is_over_at_its_last_bar(calendar, size, begin, beyond) -> None:
    """Half days, lunch breaks and evenings of a session; with bars outside the sessions too."""
    moments = to_seconds(session_times(calendar, STEP, "2023-11-01", "2023-12-11"))
    times = session_times(calendar, 1800, *SESSIONS)
    if beyond:
        around = [times + np.timedelta64(half * 1800, "s") for half in range(-3, 4)]
        times = np.unique(np.concatenate(around))
    times = times[begin:]
    panel = follow_calendar(at_times(random_panel(2, bars=len(times)), times, 1800), calendar)
    coarse = find_coarse_bars(panel, size)
    assert known_starts(coarse) == known_in_sessions(panel, size, moments)
    if not beyond:
        whole = resample(panel, {HOUR: "1h", 4 * HOUR: "4h", DAY: "1d"}[size])
        shared = np.isin(coarse.panel.time, whole.time)
        assert shared.sum() == whole.n_bars
        for name in ("open", "high", "low", "close", "volume"):
            np.testing.assert_array_equal(getattr(coarse.panel, name)[shared], getattr(whole, name))


def test_the_last_bar_of_a_half_day_knows_the_day_and_no_bar_before() -> None:
    times = session_times("XNYS", 1800, *SESSIONS)
    panel = at_times(random_panel(2, bars=len(times)), times, 1800)
    last = int(np.flatnonzero(times == np.datetime64("2023-11-24T17:30"))[0])
    by_clock = find_coarse_bars(panel, DAY)
    by_calendar = find_coarse_bars(follow_calendar(panel, "XNYS"), DAY)
    day = np.datetime64("2023-11-24", "us")
    for coarse, first in ((by_calendar, last), (by_clock, last + 1)):
        assert coarse.panel.time[coarse.known[first]] == day
        assert coarse.panel.time[coarse.known[first - 1]] < day


def test_bars_outside_the_sessions_are_no_part_of_larger_bars() -> None:
    """They come after the day was over: else the day would change when it is known already."""
    times = session_times("XNYS", 1800, *SESSIONS)
    late = np.datetime64("2023-11-20T22:00", "us")
    both = np.sort(np.append(times, late))
    panel = follow_calendar(at_times(random_panel(2, bars=len(both)), both, 1800), "XNYS")
    row = int(np.flatnonzero(both == late)[0])
    wild = replace(panel, volume=np.where(np.arange(len(both))[:, None] == row, 1e9, panel.volume))
    coarse = find_coarse_bars(wild, DAY)
    assert coarse.panel.volume.max() < 1e9
    assert coarse.panel.time[coarse.known[row]] == np.datetime64("2023-11-20")


# --- how far it reaches ---------------------------------------------------------------------------


def reach_by_loop(coarse: CoarseBars, warmup: int) -> int:
    """The longest way back from a bar to the first bar of the larger ones that it needs, or to the
    panel's start.
    """
    starts = to_seconds(coarse.panel.time)
    opens = to_seconds(coarse.fine.time)
    longest, first = 0, None
    for row, number in enumerate(coarse.known):
        if number < warmup:
            continue
        first = row if first is None else first
        oldest = starts[number - warmup]
        longest = max(longest, row - min(k for k in coarse.rows if opens[k] >= oldest))
    return max(longest, first)


@pytest.mark.parametrize("warmup", [0, 1, 5])
@pytest.mark.parametrize("start", ["2024-01-06", "2024-01-06T00:20", "2024-01-06T23:55"])
def test_around_the_clock_the_reach_follows_from_the_sizes(start: str, warmup: int) -> None:
    """The next larger bar is nearly over, and each has so many bars."""
    panel = at_times(random_panel(1, bars=300), every(300, 300, start), 300)
    coarse = find_coarse_bars(panel, HOUR)
    assert coarse.count_warmup(warmup) == (warmup + 2) * 12 - 2 == reach_by_loop(coarse, warmup)


@pytest.mark.parametrize("named", [True, False])
def test_a_day_of_an_exchange_counts_its_own_bars(named: bool) -> None:
    times = session_times("XNYS", 1800, *SESSIONS)
    panel = at_times(random_panel(2, bars=len(times)), times, 1800)
    coarse = find_coarse_bars(follow_calendar(panel, "XNYS") if named else panel, DAY)
    for warmup in (0, 3, 6):
        assert coarse.count_warmup(warmup) == reach_by_loop(coarse, warmup)
        # 13 bars a day; without a calendar a day is known one bar later
        assert coarse.count_warmup(warmup) <= (warmup + 2) * 13 - (1 if named else 0)


@pytest.mark.parametrize("bars", [0, 1, 30])
def test_too_few_bars_ask_for_more_than_there_are(bars: int) -> None:
    panel = at_times(random_panel(1), every(300, bars), 300)
    assert find_coarse_bars(panel, HOUR).count_warmup(2) == 4 * 12


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("own", "asked", "message"),
    [
        (
            HOUR,
            HOUR,
            r"asks for bars of 1h \('1h:...'\), and the bars given are of that size: give a "
            "multiple, such as 2h, 4h, 6h, 12h, or leave '1h:' out of its name",
        ),
        (HOUR, 900, "bars of 15m .* are of 1h, which do not fill them: give a multiple, such as"),
        (900, 1200, "bars of 20m .* are of 15m, which do not fill them: .* such as 30m, 1h, 2h"),
        (DAY, HOUR, "are of 1d, which do not fill them: leave '1h:' out of its name"),
    ],
)
def test_sizes_that_the_bars_do_not_fill_are_refused(own: int, asked: int, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        find_coarse_bars(at_times(random_panel(1), every(own, 100), own), asked)


def test_bars_over_the_end_of_a_larger_bar_are_refused() -> None:
    panel = at_times(random_panel(1), every(HOUR, 100, "2024-01-06T00:30"), HOUR)
    with pytest.raises(RecipeError, match=r"indicator of 4h: The bar of 1h at .* is not over when"):
        find_coarse_bars(panel, 4 * HOUR)
