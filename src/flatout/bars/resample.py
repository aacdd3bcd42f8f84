"""`resample`: smaller bars joined into larger ones.

Buckets stand on UTC midnight. A bucket takes the first open, highest high, lowest low, last close
and summed volume of its tradable bars; without one it is not tradable and carries the source's last
close. The first and the last bucket are dropped unless bars fill them from start to end: a partial
last one would be a bar that was not over yet. This file knows panels only.
"""

import numpy as np
from numpy.typing import NDArray

from flatout.bars.bar_size import bar_name, parse_bar
from flatout.bars.calendars import follow_calendar
from flatout.bars.panel import BoolArray, FloatArray, Panel
from flatout.errors import BarsError

IntArray = NDArray[np.int64]


def resample(panel: Panel, bar: str) -> Panel:
    """The panel in bars of size `bar`, a multiple of its own. Extras take their last value in the
    bucket; a named calendar stays.
    """
    target = parse_bar(bar)
    if target == panel.bar_seconds:
        return panel
    check_target(panel, target)
    panel, bucket = complete_buckets(panel, target, bar)
    joined = join_bars(panel, bucket, target)
    calendar = panel.year and panel.year.calendar
    return follow_calendar(joined, calendar) if calendar else joined


def join_bars(panel: Panel, bucket: IntArray, target: int) -> Panel:
    """One bar of `target` seconds for each bucket, whatever part of it the panel's bars fill;
    `bucket` holds their ascending bucket numbers, counted from 1970. No calendar is kept.
    """
    starts = bucket_starts(bucket)
    ends = np.append(starts[1:], len(bucket))[: len(starts)] - 1
    traded = panel.tradable
    any_traded = np.logical_or.reduceat(traded, starts)
    marked = panel.close[ends]

    def take(values: FloatArray) -> FloatArray:
        return np.where(any_traded, values, marked)

    return Panel(
        symbols=panel.symbols,
        time=(bucket[starts] * target * 1_000_000).astype("datetime64[us]"),
        bar_seconds=target,
        open=take(first_in(panel.open, traded, starts)),
        high=take(np.maximum.reduceat(np.where(traded, panel.high, -np.inf), starts)),
        low=take(np.minimum.reduceat(np.where(traded, panel.low, np.inf), starts)),
        close=take(last_in(panel.close, traded, starts)),
        volume=np.add.reduceat(np.where(traded, panel.volume, 0.0), starts),
        tradable=any_traded,
        extras={name: last_in(x, ~np.isnan(x), starts) for name, x in panel.extras.items()},
        present=np.logical_or.reduceat(panel.exists, starts),
    )


def bucket_starts(bucket: IntArray) -> IntArray:
    """Where each bucket begins among its bars; bars before 1970 have negative numbers."""
    return np.flatnonzero(np.diff(bucket, prepend=bucket[:1] - 1))


def check_target(panel: Panel, target: int) -> None:
    """Refuse sizes that the panel's bars cannot fill exactly."""
    if target % panel.bar_seconds:
        own = bar_name(panel.bar_seconds)
        raise BarsError(
            f"Bars of {own} do not make bars of {bar_name(target)}. Use a multiple of {own}."
        )
    offset = seconds_of(panel) % target
    across = offset + panel.bar_seconds > target
    if across.any():
        first = panel.time[np.argmax(across)]
        raise BarsError(
            f"The bar of {bar_name(panel.bar_seconds)} at {first} is not over when "
            f"its {bar_name(target)} bucket ends "
            f"({int(across.sum()):,} such bars). Resample to a size whose buckets end where these "
            f"bars do."
        )


def complete_buckets(panel: Panel, target: int, bar: str) -> tuple[Panel, IntArray]:
    """The panel without partial buckets at its ends, and the bucket number of each of its bars."""
    seconds = seconds_of(panel)
    bucket = seconds // target
    start, stop = 0, len(bucket)
    if seconds[0] % target:
        start = int(np.searchsorted(bucket, bucket[0], side="right"))
    if (seconds[-1] + panel.bar_seconds) % target:
        stop = int(np.searchsorted(bucket, bucket[-1], side="left"))
    if start >= stop:
        raise BarsError(
            f"{panel.n_bars} bars of {bar_name(panel.bar_seconds)} fill no bar of {bar}. Use "
            f"more bars."
        )
    return panel.rows(start, stop), bucket[start:stop]


def seconds_of(panel: Panel) -> IntArray:
    return panel.time.astype("datetime64[s]").astype(np.int64)


def first_in(values: FloatArray, known: BoolArray, starts: IntArray) -> FloatArray:
    """Per bucket the first known value, or NaN."""
    index = np.where(known, np.arange(len(values))[:, None], len(values))
    return pick_rows(values, np.minimum.reduceat(index, starts))


def last_in(values: FloatArray, known: BoolArray, starts: IntArray) -> FloatArray:
    """Per bucket the last known value, or NaN."""
    index = np.where(known, np.arange(len(values))[:, None], -1)
    return pick_rows(values, np.maximum.reduceat(index, starts))


def pick_rows(values: FloatArray, index: IntArray) -> FloatArray:
    inside = (index >= 0) & (index < len(values))
    return np.where(inside, np.take_along_axis(values, np.where(inside, index, 0), axis=0), np.nan)
