"""Exchange calendars by name, as in "XNYS": which bars a panel should have, and how many a year.

Sessions, lunch breaks, half days and holidays are those of the package `exchange_calendars`, which
the extra `flatout[calendars]` brings; it is imported when a calendar is named and not before. A bar
belongs to a session if any of its time does, so bars may stand on the session's open or on the
clock's hours. Prices are not looked at.
"""

import difflib
import warnings
from dataclasses import replace
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flatout.bars.grid import Calendar
from flatout.bars.panel import DAY, BoolArray, Panel
from flatout.bars.trading_year import TradingYear, clock_year
from flatout.errors import BarsError
from flatout.foreign import shorten, shorten_repr

IntArray = NDArray[np.int64]
ALWAYS: Literal["always_open"] = "always_open"
EXCHANGE: Literal["exchange"] = "exchange"
ROUND_THE_CLOCK = "24/7"
MARGIN = 8  # days around the bars: sessions may begin on the evening before


class Schedule(NamedTuple):
    """The sessions of a calendar, in seconds since 1970 by one clock: UTC, or the exchange's."""

    labels: IntArray  # days since 1970
    opens: IntArray
    closes: IntArray
    break_starts: IntArray  # equal to break_ends where there is no lunch break
    break_ends: IntArray


class LaidBars(NamedTuple):
    """Bars of sessions by one clock."""

    times: IntArray
    session: IntArray  # to which each belongs, by number


class ExpectedBars(NamedTuple):
    """The bars that a panel should have by its calendar, beside those that it has."""

    expected: IntArray  # ascending opening times in seconds of UTC; of daily bars the midnights
    given: IntArray  # the panel's bars in the same form
    trading_day: BoolArray  # which of the panel's bars fall on a day with a session
    sessions: IntArray  # midnights of the days of the sessions, in seconds

    @property
    def in_session(self) -> BoolArray:
        """Which of the panel's bars lie in a session."""
        return np.isin(self.given, self.expected)


def find_kind(calendar: str) -> Calendar:
    """Which grid bars of this calendar have: "always_open" and "exchange" are kinds themselves, all
    else names an exchange calendar, and an unknown name is refused.
    """
    never_closes = calendar == ALWAYS or (
        calendar != EXCHANGE and resolve_calendar(calendar) == ROUND_THE_CLOCK
    )
    return ALWAYS if never_closes else EXCHANGE


def name_calendar(panel: Panel) -> str:
    """The exchange calendar that a panel follows, else the kind of its grid."""
    named = panel.trading_year.calendar
    return named or (ALWAYS if panel.always_open else EXCHANGE)


def follow_calendar(panel: Panel, calendar: str) -> Panel:
    """The panel with the trading year of a named exchange calendar; kinds of grids change
    nothing.
    """
    if calendar in (ALWAYS, EXCHANGE):
        return panel
    name = resolve_calendar(calendar)
    if name == ROUND_THE_CLOCK:
        return replace(panel, year=clock_year(panel.bar_seconds))
    return replace(panel, year=count_year(panel, name))


def count_year(panel: Panel, name: str) -> TradingYear:
    """The year by a calendar: the bars of its sessions in as many whole years up to the panel's
    last bar as cover the panel, per year.
    """
    found, years = expect_bars(panel, name), count_years(panel)
    stop = (int(found.given[-1]) // DAY + 1) * DAY
    bars, sessions = (
        np.sum((times >= stop - years * 365 * DAY) & (times < stop))
        for times in (found.expected, found.sessions)
    )
    return TradingYear(float(bars / years), float(bars / sessions), "calendar", name)


def count_years(panel: Panel) -> int:
    """How many whole years cover the panel, at least one."""
    days = (panel.time[-1] - panel.time[0]) / np.timedelta64(1, "D")
    return max(1, int(np.ceil(days / 365)))


def expect_bars(panel: Panel, name: str) -> ExpectedBars:
    """The bars of a calendar's sessions in the whole years that cover the panel, and a week more.

    Bars stand where most of the panel's bars stand, by UTC or by the exchange's clock, whichever
    explains more of them. Daily bars count by their day.
    """
    last = panel.time[-1].astype("datetime64[D]")
    first = last - np.timedelta64(365 * count_years(panel) + MARGIN, "D")
    utc, local, time_zone = load_schedule(name, str(first), str(last + np.timedelta64(MARGIN, "D")))
    times = panel.time.astype("datetime64[s]").astype(np.int64)
    local_times = shift_to_zone(times, time_zone)
    if panel.bar_seconds == DAY:
        return min((match_days(utc, times), match_days(utc, local_times)), key=count_unexplained)
    open_days = np.unique(np.concatenate([local.opens, local.closes - 1]) // DAY)
    trading_day = np.isin(local_times // DAY, open_days)
    found = []
    for clock, phases in ((utc, times), (local, local_times)):
        laid = lay_bars(clock, most_common(phases % panel.bar_seconds), panel.bar_seconds)
        to_utc = (utc.opens - clock.opens)[laid.session]
        expected = np.unique(laid.times + to_utc)
        found.append(ExpectedBars(expected, times, trading_day, utc.labels * DAY))
    return min(found, key=count_unexplained)


def match_days(schedule: Schedule, times: IntArray) -> ExpectedBars:
    """A bar for each session's day, beside the days of the panel's bars by some clock."""
    given, expected = times // DAY * DAY, schedule.labels * DAY
    return ExpectedBars(expected, given, np.isin(given, expected), expected)


def lay_bars(schedule: Schedule, phase: int, bar: int) -> LaidBars:
    """All bars that share time with a session; they stand at `phase` seconds after multiples of the
    bar.
    """
    first = (schedule.opens - phase) // bar
    count = -((phase - schedule.closes) // bar) - first
    session = np.repeat(np.arange(len(count)), count)
    index = np.arange(len(session)) - np.repeat(np.cumsum(count) - count, count)
    times = (first[session] + index) * bar + phase
    at_lunch = (times >= schedule.break_starts[session]) & (
        times + bar <= schedule.break_ends[session]
    )
    return LaidBars(times[~at_lunch], session[~at_lunch])


def most_common(values: IntArray) -> int:
    """The value that occurs most often, the smallest of several."""
    found, counts = np.unique(values, return_counts=True)
    return int(found[np.argmax(counts)])


def count_unexplained(found: ExpectedBars) -> int:
    """How many bars are not where the calendar has them, or are not there at all."""
    inside = (found.expected >= found.given[0]) & (found.expected <= found.given[-1])
    return len(np.setxor1d(found.expected[inside], found.given))


# --- the package


def resolve_calendar(name: str) -> str:
    """The calendar's own name from one of its names, as "XNYS" from "NYSE"; an unknown one is
    refused with names that are near.
    """
    package = import_package(name)
    names = package.get_calendar_names(include_aliases=True)
    if name in names:
        return str(package.resolve_alias(name))
    near = difflib.get_close_matches(name.upper(), names, n=3, cutoff=0.5)
    raise BarsError(
        f"the calendar {shorten_repr(name)} is unknown; "
        + (f"nearest: {', '.join(near)}. " if near else "")
        + f"Give a name of exchange_calendars, as XNYS, XLON or XTKS, or {ALWAYS!r} or "
        f"{EXCHANGE!r}"
    )


def import_package(name: str) -> Any:
    """The package of calendars, or a sentence that says how to get it."""
    try:
        import exchange_calendars
    except ImportError:
        raise BarsError(
            f"the calendar {shorten_repr(name)} needs the package exchange_calendars: pip install "
            f"'flatout[calendars]', or give {ALWAYS!r} or {EXCHANGE!r} as the calendar"
        ) from None
    return exchange_calendars


@lru_cache(maxsize=16)
def load_schedule(name: str, first: str, last: str) -> tuple[Schedule, Schedule, str]:
    """The sessions from one day to another by UTC and by the exchange's clock, and its zone."""
    package = import_package(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what it uses of pandas that will go is its business
        try:
            calendar = package.get_calendar(name, start=first, end=last)
        except (ValueError, package.errors.CalendarError) as error:
            raise BarsError(
                f"the calendar {name} does not know the days {first} to {last}: "
                f"{shorten(str(error), 200)}. Give bars of other years, or {EXCHANGE!r} as the "
                "calendar"
            ) from error
        table = calendar.schedule
        columns = [table[key] for key in ("open", "close", "break_start", "break_end")]
        columns[2:] = [column.fillna(table["open"]) for column in columns[2:]]
        labels = table.index.to_numpy().astype("datetime64[D]").astype(np.int64)
        utc = [to_seconds(column.dt.tz_convert(None)) for column in columns]
        local = [
            to_seconds(column.dt.tz_convert(calendar.tz).dt.tz_localize(None)) for column in columns
        ]
    return Schedule(labels, *utc), Schedule(labels, *local), str(calendar.tz)


def to_seconds(times: Any) -> IntArray:
    """A pandas column of times without a zone, in seconds since 1970."""
    seconds: IntArray = times.to_numpy().astype("datetime64[s]").astype(np.int64)
    return seconds


def shift_to_zone(seconds: IntArray, time_zone: str) -> IntArray:
    """Times of UTC by the clock of a zone."""
    import pandas

    stamps = pandas.DatetimeIndex(seconds.astype("datetime64[s]"), tz="UTC")
    return to_seconds(stamps.tz_convert(time_zone).tz_localize(None))
