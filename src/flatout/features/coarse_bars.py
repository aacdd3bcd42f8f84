"""`CoarseBars`: the bars of a panel joined into larger ones, and which of those a bar may know.

A coarse bar is known from the close of the bar on at which it is over, and not before. On a market
that never closes that is when its time has passed. An exchange with a named calendar is over for a
coarse bar at the last of its open hours, so the last bar of a session knows that session's day;
bars outside the sessions are no part of coarse bars then. Without a calendar nobody knows at a
close whether another bar will follow, and a coarse bar waits for the clock. This file knows
nothing about indicators.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from flatout.bars.bar_size import bar_name
from flatout.bars.panel import PRICES, FloatArray, Panel
from flatout.bars.resample import bucket_starts, check_target, join_bars, seconds_of
from flatout.bars.session_times import load_session_times
from flatout.errors import BarsError, RecipeError

IntArray = NDArray[np.int64]
USUAL_SIZES = (60, 300, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400)
NAMED_SIZES = 4  # in a message


@dataclass(frozen=True, eq=False)
class CoarseBars:
    """What the bars of a panel may know of larger bars.

    A first coarse bar that began before the panel is left out. The last may be unfinished: then no
    bar knows it, and indicators, which are causal, do not let it change those before.
    """

    fine: Panel
    seconds: int  # of a coarse bar
    rows: IntArray  # the fine bars that coarse ones are made of
    bucket: IntArray  # into which each of them falls, counted from 1970
    known: IntArray  # (fine bar,) the last coarse bar that is over at its close, by number; or -1

    @cached_property
    def panel(self) -> Panel:
        """The coarse bars themselves, joined as `resample` joins them."""
        return join_bars(pick_bars(self.fine, self.rows), self.bucket, self.seconds)

    def spread(self, values: FloatArray) -> FloatArray:
        """Values of coarse bars, (coarse bar, ...), as each fine bar knows them, (fine bar, ...);
        NaN where it knows none.
        """
        some = self.known >= 0
        out = np.full((len(self.known), *values.shape[1:]), np.nan)
        out[some] = values[self.known[some]]
        return out

    def count_warmup(self, warmup: int) -> int:
        """How many fine bars stand for a warm-up of so many coarse ones: no fewer than pass before
        the first value, and no fewer than any value looks back.

        Both are counted on the panel itself: a day of an exchange has fewer bars than 24 hours. The
        fine bar that knows a coarse one may be the last before the next is over.
        """
        warm = np.flatnonzero(self.known >= warmup)
        if not warm.size:
            per_bar = self.seconds // self.fine.bar_seconds
            return max((warmup + 2) * per_bar, self.fine.n_bars)
        first = self.rows[bucket_starts(self.bucket)]
        looked_back = warm - first[self.known[warm] - warmup]
        return int(max(warm[0], looked_back.max()))


def find_coarse_bars(panel: Panel, seconds: int) -> CoarseBars:
    """The coarse bars of that size, which the panel's own bars must fill exactly."""
    check_coarse_size(panel.bar_seconds, seconds)
    try:
        check_target(panel, seconds)
    except BarsError as error:
        raise RecipeError(f"an indicator of {bar_name(seconds)}: {error}") from None
    opens = seconds_of(panel)
    closes, bucket = opens + panel.bar_seconds, opens // seconds
    start, stop = bucket * seconds, (bucket + 1) * seconds
    usable = np.full(panel.n_bars, True)
    if panel.n_bars and (calendar := name_of_calendar(panel)):
        sessions = load_session_times(calendar, *panel.time[[0, -1]])
        usable = sessions.are_open(opens, closes)
        start, stop = sessions.narrow(start, stop)
    rows = np.flatnonzero(usable & (start >= opens[:1]))
    over = stop[rows[bucket_starts(bucket[rows])]]
    known = np.searchsorted(over, closes, side="right") - 1
    return CoarseBars(panel, seconds, rows=rows, bucket=bucket[rows], known=known)


def name_of_calendar(panel: Panel) -> str | None:
    """The exchange calendar that the panel was given, if any."""
    return panel.year.calendar if panel.year else None


def check_coarse_size(own: int, asked: int) -> None:
    """Refuse a size that is no multiple of the bars' own, or is not larger."""
    if asked > own and asked % own == 0:
        return
    size = bar_name(asked)
    wrong = "of that size" if asked == own else f"of {bar_name(own)}, which do not fill them"
    larger = [bar_name(size) for size in USUAL_SIZES if size > own and size % own == 0]
    cure = f"give a multiple, such as {', '.join(larger[:NAMED_SIZES])}, or " if larger else ""
    raise RecipeError(
        f"an indicator asks for bars of {size} ('{size}:...'), and the bars given are {wrong}: "
        f"{cure}leave '{size}:' out of its name"
    )


def pick_bars(panel: Panel, rows: IntArray) -> Panel:
    """Some of a panel's bars, without its year, which they no longer have."""
    values = {name: getattr(panel, name)[rows] for name in (*PRICES, "volume", "tradable")}
    return replace(
        panel,
        time=panel.time[rows],
        extras={name: column[rows] for name, column in panel.extras.items()},
        present=None if panel.present is None else panel.present[rows],
        year=None,
        **values,
    )
