"""Open hours of an exchange against a plain loop over the moments of its schedule."""

import numpy as np
import pytest

from flatout.bars.session_times import SessionTimes, load_session_times
from session_panels import session_times

pytest.importorskip("exchange_calendars")
STEP, HOUR = 300, 3600  # sessions begin and end on multiples of 5 minutes


def seconds(moment: str) -> int:
    return int(np.datetime64(moment, "s").astype(np.int64))


def hours_of(calendar: str, first: str, last: str) -> SessionTimes:
    return load_session_times(calendar, *np.array([first, last], "datetime64[us]"))


@pytest.mark.parametrize("calendar", ["XNYS", "XTKS", "CMES"])
@pytest.mark.parametrize("size", [1800, 4 * HOUR, 24 * HOUR])
def test_open_moments_are_found_whatever_the_stretch(calendar: str, size: int) -> None:
    """Half days, lunch breaks, a change of clocks, and sessions over midnight."""
    first, last = "2023-11-01", "2023-12-01"
    opened = session_times(calendar, STEP, first, last).astype("datetime64[s]").astype(np.int64)
    start = np.arange(seconds("2023-11-02"), seconds("2023-11-29"), size)
    found = hours_of(calendar, first, last)
    begin, end = found.narrow(start, start + size)
    some = found.are_open(start, start + size)
    for k, moment in enumerate(start):
        inside = opened[(opened >= moment) & (opened < moment + size)]
        assert some[k] == bool(len(inside))
        expected = (inside[0], inside[-1] + STEP) if len(inside) else (moment, moment + size)
        assert (begin[k], end[k]) == expected


def test_a_lunch_break_is_closed() -> None:
    tokyo = hours_of("XTKS", "2024-01-10", "2024-01-10")
    lunch = np.array([seconds("2024-01-10T02:30")])  # 11:30 to 12:30 there
    assert not tokyo.are_open(lunch, lunch + HOUR)[0]
    assert tokyo.are_open(lunch - 1, lunch)[0]
    assert tokyo.are_open(lunch + HOUR, lunch + HOUR + 1)[0]
