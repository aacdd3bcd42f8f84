"""`SessionTimes`: when an exchange is open by its calendar, in seconds since 1970, UTC.

Calendars are published ahead, so a bar may be told by them that its session is over. This file does
not look at bars: what they are worth, whether they are there, or where in an hour they begin.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flatout.bars.calendars import MARGIN, load_schedule
from flatout.bars.panel import TimeArray

IntArray = NDArray[np.int64]


class SessionTimes(NamedTuple):
    """Stretches of open hours, ascending and apart; a lunch break divides a session in two."""

    opens: IntArray
    closes: IntArray

    def are_open(self, start: IntArray, stop: IntArray) -> NDArray[np.bool_]:
        """Whether the exchange is open at some time from `start` up to `stop`."""
        last = np.searchsorted(self.opens, stop) - 1
        found: NDArray[np.bool_] = (last >= 0) & (self.closes[last] > start)
        return found

    def narrow(self, start: IntArray, stop: IntArray) -> tuple[IntArray, IntArray]:
        """The first and the last open moment from `start` up to `stop`; unchanged where there is
        none.
        """
        some = self.are_open(start, stop)
        first = np.minimum(np.searchsorted(self.closes, start, side="right"), len(self.opens) - 1)
        last = np.searchsorted(self.opens, stop) - 1
        return (
            np.where(some, np.maximum(self.opens[first], start), start),
            np.where(some, np.minimum(self.closes[last], stop), stop),
        )


def load_session_times(calendar: str, first: TimeArray, last: TimeArray) -> SessionTimes:
    """The open hours of a named calendar around two moments."""
    margin = np.timedelta64(MARGIN, "D")
    days = (first.astype("datetime64[D]") - margin, last.astype("datetime64[D]") + margin)
    schedule, _, _ = load_schedule(calendar, *map(str, days))
    opens = np.concatenate([schedule.opens, schedule.break_ends])
    closes = np.concatenate([schedule.break_starts, schedule.closes])
    order = np.argsort(opens)
    opens, closes = opens[order], closes[order]
    real = closes > opens  # a session without a break has nothing before it
    return SessionTimes(opens[real], closes[real])
