"""`TradingYear`: how many bars a year has, from the times of the bars themselves.

Markets that never close have 365 days of 24 hours. Everywhere else the bars are counted: nights,
weekends, lunch breaks, half days and holidays are what the grid lacks. Annual rates are spread over
these bars, so that a year of them costs the annual rate whatever the sessions are. Named exchange
calendars are `calendars.py`'s business; this file knows times only, no prices.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]
YearOrigin = Literal["clock", "counted", "short", "calendar"]

YEAR_SECONDS = 365 * 86_400
DAY_SECONDS, WEEK_SECONDS = 86_400, 7 * 86_400
TRADING_DAYS = 252  # of a year with five-day weeks, where the bars are too few to show holidays
WORKDAYS = 5
COUNTED_WEEKS = 26  # half a year: fewer show too few holidays to count them
HOLE_SECONDS = 21 * 86_400  # no exchange closes for so long: bars are missing


@dataclass(frozen=True)
class TradingYear:
    """How many bars 365 days have, and how that is known.

    >>> year = TradingYear(bars=1764.0, bars_per_day=7.0, origin="counted")
    >>> year.describe()
    '1,764 (from the data: 7 bars a day, 252 days)'
    """

    bars: float  # in 365 days
    bars_per_day: float  # of a trading day: 24 hours, or a session; half days count as days
    # "clock": always open; "counted": from the bars; "short": from too few of them to show
    # holidays; "calendar": from the exchange calendar of that name
    origin: YearOrigin
    calendar: str | None = None

    @property
    def always_open(self) -> bool:
        """Whether the market never closes."""
        return self.origin == "clock"

    @property
    def seconds_per_bar(self) -> float:
        """The time that passes from one bar to the next on average, nights and weekends
        included.
        """
        return YEAR_SECONDS / self.bars

    def describe(self) -> str:
        """The bars of a year and where the number comes from, for reports."""
        if self.always_open:
            return f"{self.bars:,.0f} (bars around the clock)"
        number, days = f"{self.bars_per_day:.3g}", f"{self.bars / self.bars_per_day:.0f}"
        per_day = f"{number} bar{'s' * (number != '1')} a day"
        source = f"calendar {self.calendar}" if self.origin == "calendar" else "from the data"
        unseen = " assumed, as so few bars show no holidays" if self.origin == "short" else ""
        return f"{self.bars:,.0f} ({source}: {per_day}, {days} days{unseen})"


def estimate_year(time: NDArray[np.datetime64], bar_seconds: int) -> TradingYear:
    """The year of bars that open at these ascending times.

    Always open: 365 days of 24 hours. Else, with 26 weeks or more, the bars of all whole weeks from
    the first bar on, per week, times 365 / 7: whole weeks hold each weekday equally often, so it
    does not matter where the bars begin and end, and holidays are left out as the data leave them
    out. Times without any bar for more than three weeks are holes, not holidays, and do not count.
    Shorter samples cannot show holidays: the bars of a usual day, times 252 days for five days a
    week. A day with less than half of the usual bars is none: it is the evening or the rest of a
    session that midnight in UTC divides.
    """
    seconds = time.astype("datetime64[s]").astype(np.int64)
    if is_always_open(seconds, bar_seconds):
        return clock_year(bar_seconds)
    closed_up = close_holes(seconds, bar_seconds)
    weeks = int(closed_up[-1] - closed_up[0]) // WEEK_SECONDS
    if weeks < COUNTED_WEEKS:
        days, usual = find_trading_days(seconds)
        weekdays = max(len(np.unique(days % 7)), WORKDAYS)
        return TradingYear(usual * weekdays * TRADING_DAYS / WORKDAYS, usual, "short")
    inside = closed_up[: np.searchsorted(closed_up, closed_up[0] + weeks * WEEK_SECONDS)]
    days, _ = find_trading_days(inside)
    per_year = YEAR_SECONDS / WEEK_SECONDS / weeks
    return TradingYear(len(inside) * per_year, len(inside) / len(days), "counted")


def clock_year(bar_seconds: int) -> TradingYear:
    """The year of a market that never closes."""
    return TradingYear(YEAR_SECONDS / bar_seconds, DAY_SECONDS / bar_seconds, "clock")


def is_always_open(seconds: IntArray, bar_seconds: int) -> bool:
    """Whether bars that open at these times are those of a market that never closes.

    A grid without gaps is. One with gaps is if every weekday has its share of the bars; in less
    than two weeks, if bars fall on a weekend and on all days between the first and the last, and
    fill half of the time.
    """
    if len(seconds) < 2 or bool(np.all(np.diff(seconds) == bar_seconds)):
        return True
    days = seconds // DAY_SECONDS
    weekday = (days + 3) % 7  # 1970-01-01 was a Thursday
    if days[-1] - days[0] < 14:
        filled = len(seconds) * bar_seconds / (seconds[-1] - seconds[0])
        daily = len(np.unique(days)) == days[-1] - days[0] + 1
        return bool(np.any(weekday >= WORKDAYS) and daily and filled >= 0.5)
    counts = np.bincount(weekday, minlength=7)
    return bool(2 * counts.min() >= counts.mean())


def find_trading_days(seconds: IntArray) -> tuple[IntArray, float]:
    """The days in UTC, since 1970, that have at least half of a usual day's bars, and how many
    those are. Three quarters of the days have no more: half days and the ends of a sample do not
    make it smaller.
    """
    days, counts = np.unique(seconds // DAY_SECONDS, return_counts=True)
    usual = float(np.quantile(counts, 0.75, method="higher"))
    return days[2 * counts >= usual], usual


def close_holes(seconds: IntArray, bar_seconds: int) -> IntArray:
    """The times without holes: whatever follows one is moved towards it by whole weeks, so that
    weekdays stay what they are.
    """
    steps = np.diff(seconds)
    whole_weeks = (steps - bar_seconds) // WEEK_SECONDS * WEEK_SECONDS
    moved = np.cumsum(np.where(steps > HOLE_SECONDS, whole_weeks, 0))
    return seconds - np.concatenate([[0], moved])
