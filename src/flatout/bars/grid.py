"""The bar size of checked rows and the grid of times that they stand on.

Always-open markets have a regular grid from the first bar to the last. Exchanges, which have no
weekend bars, have the union of their symbols' times as a grid: nights, weekends and holidays are
not missing bars. Bars of unequal size are refused, because a step of the environment must mean one
length of time. This file does not look at prices.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from flatout.bars.bar_size import bar_name
from flatout.bars.panel import DAY, BoolArray
from flatout.bars.refusal import refusal

Calendar = Literal["always_open", "exchange"]
IntArray = NDArray[np.int64]

SECOND = 1_000_000
HOUR = 3600 * SECOND
# A grid is emptier than honest ones if it has more places than these. One hole that is most of it
# is a wrong date; else it may be as large as the memory of any machine allows.
FREE_PLACES, PLACES_PER_ROW, HOLE = 50_000, 20, 0.5
MOST_PLACES = 5_000_000
FREE_DAYS, DAYS_PER_DAY = (
    250,
    10,
)  # weekdays of an exchange's grid, likewise: ten for each that has bars
SHORT = 7  # days; a shorter file without a weekend does not show which calendar it has
SEVERAL = 3  # equal larger steps in a row: fewer are gaps
BY_CHANCE = 0.01  # how often missing bars may be expected to look like another bar size


class Steps(NamedTuple):
    """The differences between neighbouring rows of one symbol, in microseconds."""

    size: IntArray
    start: IntArray  # time of the earlier row
    row: IntArray  # index of the later row
    symbol: IntArray


def steps_of(rows: pl.DataFrame) -> Steps:
    """All steps; `rows` is sorted by symbol and time."""
    time = rows["date"].to_numpy()
    symbol = rows["symbol"].rle_id().to_numpy().astype(np.int64)
    later = np.flatnonzero(symbol[1:] == symbol[:-1]) + 1
    return Steps(time[later] - time[later - 1], time[later - 1], later, symbol[later])


def infer_calendar(rows: pl.DataFrame) -> Calendar:
    """Weekend bars mean always open; so does a file of less than a week, which cannot tell."""
    days = np.unique(rows["date"].to_numpy() // (DAY * SECOND))
    weekend = bool(np.any((days + 3) % 7 >= 5))
    return "always_open" if weekend or days[-1] - days[0] < SHORT else "exchange"


def infer_bar(rows: pl.DataFrame, files: Mapping[str, Path]) -> int:
    """The most common step in seconds; the smallest of equally common ones."""
    sizes, counts = np.unique(steps_of(rows).size, return_counts=True)
    file = files[rows["symbol"][0]]
    if not len(sizes):
        raise refusal(
            file, "no symbol has two bars, so the bar size is unknown", "State it, as in bar='1h'."
        )
    size = int(sizes[np.argmax(counts)])
    if DAY * SECOND % size or size % SECOND:
        reason = f"the bars are {size / SECOND:g} s apart, which does not divide a day"
        raise refusal(
            file, reason, "Use bars that do (5m, 1h, 1d); if bars are missing, state bar='1d'."
        )
    return size // SECOND


def has_finer_steps(rows: pl.DataFrame, bar_seconds: int) -> bool:
    """Whether some neighbouring rows of a symbol are less than a bar of this size apart."""
    return bool(np.any(steps_of(rows).size < bar_seconds * SECOND))


def check_steps(
    rows: pl.DataFrame, files: Mapping[str, Path], bar_seconds: int, calendar: Calendar
) -> None:
    """Refuse rows that are not bars of one size."""
    bar, steps = bar_seconds * SECOND, steps_of(rows)
    name = bar_name(bar_seconds)
    for bad, reason in (
        (steps.size < bar, "smaller than"),
        (find_off_multiples(steps, bar, calendar), "no multiple of"),
    ):
        if bad.any():
            where = int(np.argmax(bad))
            reason = (
                f"the step of {format_duration(steps.size[where])} from the row before is {reason} "
                f"the bar of {name}"
            )
            advice = "Keep bars of one size per file, or state the size: bar='...'."
            raise refuse_at(
                rows,
                files,
                index=steps.row[where],
                reason=reason,
                advice=advice,
                count=int(bad.sum()),
            )
    for where, count in find_other_sizes(steps, bar):
        reason = f"from here on the bars are {format_duration(steps.size[where])} apart, not {name}"
        advice = "Keep bars of one size per file, or read the others apart and resample."
        raise refuse_at(
            rows, files, index=steps.row[where], reason=reason, advice=advice, count=count
        )
    check_phase(rows, files, bar_seconds, calendar)


def find_off_multiples(steps: Steps, bar: int, calendar: Calendar) -> BoolArray:
    """Steps that are no multiple of the bar. Over a Sunday one hour is allowed: exchanges change
    clocks.
    """
    odd = steps.size % bar != 0
    if calendar == "exchange":
        last_sunday = (steps.start + steps.size) // (DAY * SECOND) - 3
        over_sunday = last_sunday // 7 > (steps.start // (DAY * SECOND) - 3) // 7
        moved = ((steps.size + HOUR) % bar == 0) | ((steps.size - HOUR) % bar == 0)
        odd &= ~(over_sunday & moved)
    return np.asarray(odd, dtype=np.bool_)


def find_other_sizes(steps: Steps, bar: int) -> Iterator[tuple[int, int]]:
    """Where a symbol, or a stretch of it, has larger bars: the index of its first step and their
    number.

    A stretch is a run of equal larger steps that missing bars do not explain: with a share p of
    larger steps elsewhere among the symbol's n, a run of length k is expected n p^k times.
    """
    bounds = np.flatnonzero(np.diff(steps.symbol)) + 1
    for part in np.split(np.arange(len(steps.size)), bounds):
        sizes = steps.size[part]
        if len(part) >= SEVERAL and not np.any(sizes == bar):
            yield int(part[0]), len(part)
        starts = np.flatnonzero(np.diff(sizes, prepend=-1))
        lengths = np.diff(starts, append=len(part))
        larger, n = int(np.sum(sizes > bar)), len(part)
        candidates = (lengths >= SEVERAL) & (sizes[starts] > bar)
        for start, length in zip(starts[candidates], lengths[candidates], strict=True):
            share = (larger - length + 1) / (n - length + 1)
            if n * share**length < BY_CHANCE:
                yield int(part[start]), int(length)


def check_phase(
    rows: pl.DataFrame, files: Mapping[str, Path], bar_seconds: int, calendar: Calendar
) -> None:
    """Refuse symbols whose bars open between the bars of the others."""
    time, bar = rows["date"].to_numpy(), bar_seconds * SECOND
    if calendar == "always_open":
        bad = (time - time[0]) % bar != 0
    else:
        union = np.unique(time)
        near = np.diff(union) < bar
        crowded = union[np.append(near, False) | np.append(False, near)]
        of_first = rows["symbol"].eq(rows["symbol"][0]).to_numpy()
        bad = np.isin(time, crowded) & ~np.isin(time, time[of_first])
    if bad.any():
        reason = f"bars of {bar_name(bar_seconds)} open between those of other symbols"
        advice = "Read symbols whose bars open together, or build all bars from smaller ones."
        raise refuse_at(
            rows,
            files,
            index=int(np.argmax(bad)),
            reason=reason,
            advice=advice,
            count=int(bad.sum()),
        )


def grid_of(
    rows: pl.DataFrame, files: Mapping[str, Path], bar_seconds: int, calendar: Calendar
) -> IntArray:
    """The times of the panel in UTC microseconds; refused where hardly any of its places has a
    bar.
    """
    union: IntArray = np.unique(rows["date"].to_numpy())
    bar = bar_seconds * SECOND
    days = np.unique(union // (DAY * SECOND))
    weekdays = int(days[-1] - days[0] + 1) * 5 // 7
    if calendar == "exchange" and weekdays > FREE_DAYS + DAYS_PER_DAY * len(days):
        raise refuse_empty(rows, files, union, f"{weekdays:,} weekdays")
    n_bars = len(union) if calendar == "exchange" else int(union[-1] - union[0]) // bar + 1
    places, filled = n_bars * len(files), PLACES_PER_ROW * len(rows)
    one_hole = (
        calendar != "exchange" and len(union) > 1 and np.diff(union).max() > HOLE * n_bars * bar
    )
    if places > FREE_PLACES + filled and (one_hole or places > MOST_PLACES + filled):
        size = f"{n_bars:,} bars" + (f" of {len(files):,} symbols" if len(files) > 1 else "")
        raise (
            refuse_empty(rows, files, union, size) if one_hole else refuse_sparse(rows, files, size)
        )
    return (
        union
        if calendar == "exchange"
        else np.arange(union[0], union[-1] + bar, bar, dtype=np.int64)
    )


def refuse_empty(
    rows: pl.DataFrame, files: Mapping[str, Path], union: IntArray, places: str
) -> Exception:
    """One wrong date makes such a grid: the row beside the longest time without any bar, on its
    shorter side.
    """
    later = int(np.argmax(np.diff(union, prepend=union[0])))
    time = rows["date"].to_numpy()
    few_before = 2 * np.sum(time < union[later]) < len(rows)
    wrong = union[later - 1] if later and few_before else union[later]
    hours = int(union[later] - union[later - 1]) / HOUR if later else 0.0
    reason = (
        f"{hours:,.0f} hours without any bar lie beside it, and {len(rows):,} rows nowhere "
        f"near fill {places}"
    )
    advice = (
        "Correct its date if it is wrong; else read what lies before and after it from two files."
    )
    return refuse_at(
        rows, files, index=int(np.argmax(time == wrong)), reason=reason, advice=advice, count=1
    )


def refuse_sparse(rows: pl.DataFrame, files: Mapping[str, Path], places: str) -> Exception:
    """Many symbols of different times, or bars with few trades."""
    reason = f"{len(rows):,} rows nowhere near fill {places}, which would not fit into the memory"
    return refusal(
        next(iter(files.values())), reason, "Read fewer symbols at once, or a file of larger bars."
    )


def refuse_at(
    rows: pl.DataFrame, files: Mapping[str, Path], index: int, reason: str, advice: str, count: int
) -> Exception:
    symbol, row = rows["symbol"][int(index)], rows["row"][int(index)]
    return refusal(files[symbol], reason, advice, symbol=symbol, row=row, count=count)


def format_duration(microseconds: int) -> str:
    seconds, rest = divmod(int(microseconds), SECOND)
    return f"{microseconds / SECOND:g}s" if rest or not seconds else bar_name(seconds)
