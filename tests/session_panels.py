"""Panels with the bars that exchanges really have, built session by session from
`exchange_calendars`, without flatout's own code for calendars.
"""

import warnings
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from flatout.bars.panel import Panel

Times = NDArray[np.datetime64]


def panel_at(
    times: Times, bar: int, symbols: tuple[str, ...] = ("A",), price: float = 1.0
) -> Panel:
    """Bars of one price at these times."""
    prices = np.full((len(times), len(symbols)), price)
    return Panel(
        symbols=symbols,
        time=times.astype("datetime64[us]"),
        bar_seconds=bar,
        open=prices,
        high=prices,
        low=prices,
        close=prices,
        volume=np.full_like(prices, 1e9),
        tradable=prices > 0,
    )


@cache
def session_times(name: str, bar: int, first: str, last: str) -> Times:
    """The opening times of the bars of all sessions: from the open to the lunch break and from its
    end to the close, the last one shorter if it must; of daily bars the sessions' days.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the package and its pandas
        calendars = pytest.importorskip("exchange_calendars")
        schedule = calendars.get_calendar(name, start=first, end=last).schedule
        if bar == 86_400:
            return schedule.index.to_numpy().astype("datetime64[us]")
        found: list[np.datetime64] = []
        for row in schedule.itertuples():
            halves = [(row.open, row.close)]
            if row.break_start == row.break_start:  # NaT is not
                halves = [(row.open, row.break_start), (row.break_end, row.close)]
            for start, stop in halves:
                start, stop = start.timestamp(), stop.timestamp()
                found += [np.datetime64(int(t), "s") for t in np.arange(start, stop, bar)]
    return np.unique(np.array(found)).astype("datetime64[us]")
