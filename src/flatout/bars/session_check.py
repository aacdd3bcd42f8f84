"""`check_sessions`: where a panel's bars differ from the sessions of an exchange calendar. It
reports and changes nothing.
"""

from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from flatout.bars.calendars import ExpectedBars, expect_bars, resolve_calendar
from flatout.bars.panel import Panel


@dataclass(frozen=True)
class SessionReport:
    """One symbol's bars against a calendar, times in UTC; half days end where the calendar ends
    them.
    """

    symbol: str
    closed_day_bars: int  # on weekends and holidays
    first_closed_day_bar: datetime | None
    outside_bars: int  # on trading days: before the open, after the close or at lunch
    first_outside_bar: datetime | None
    missing_bars: int  # of sessions between the symbol's first and last bar
    first_missing_bar: datetime | None


def check_sessions(panel: Panel, calendar: str) -> list[SessionReport]:
    """A report per symbol, in the panel's order."""
    found = expect_bars(panel, resolve_calendar(calendar))
    return [
        report_sessions(symbol, found, np.flatnonzero(panel.exists[:, asset]))
        for asset, symbol in enumerate(panel.symbols)
    ]


def report_sessions(symbol: str, found: ExpectedBars, bars: NDArray[np.int64]) -> SessionReport:
    """The report of a symbol that has these of the panel's bars."""
    given, trading_day = found.given[bars], found.trading_day[bars]
    outside = ~found.in_session[bars]
    expected = found.expected
    if len(bars):
        expected = expected[(expected >= given[0]) & (expected <= given[-1])]
    missing = np.setdiff1d(expected if len(bars) else given, given)
    closed_day, other = given[outside & ~trading_day], given[outside & trading_day]
    return SessionReport(
        symbol=symbol,
        closed_day_bars=len(closed_day),
        first_closed_day_bar=first_time(closed_day),
        outside_bars=len(other),
        first_outside_bar=first_time(other),
        missing_bars=len(missing),
        first_missing_bar=first_time(missing),
    )


def first_time(seconds: NDArray[np.int64]) -> datetime | None:
    """The first of some times, if there is one."""
    return datetime.fromtimestamp(int(seconds[0]), UTC) if len(seconds) else None
