"""Bars that somebody has in memory: a Polars or pandas frame as the raw table of a file would be.

A frame has the columns that a file may have (`columns.py` knows the spellings), with the symbol in
a column, or one symbol that the caller names. pandas is not needed to be installed: a frame of its
kind is known by its module. An index with a name, or of times, becomes a column; so do symbols that
stand above or below the names of columns, as yfinance has them.
"""

from typing import Any, Protocol

import polars as pl

from flatout.bars.files import FRAME, ROW, Table, number_rows
from flatout.bars.panel import PRICES
from flatout.bars.refusal import refusal
from flatout.errors import BarsError

PandasObject = Any  # pandas may not be installed, so that its types cannot be named


class PandasFrame(Protocol):
    """What is asked of a frame of pandas."""

    columns: PandasObject
    index: PandasObject

    def __getitem__(self, name: object) -> PandasObject:
        """The column of this name."""
        ...

    def reset_index(self, *, names: str | None = None) -> "PandasFrame":
        """The frame with its index as columns."""
        ...

    def xs(self, key: object, *, axis: int, level: int) -> "PandasFrame":
        """The columns that have this name in a level, under their names in the others."""
        ...


Frame = pl.DataFrame | PandasFrame


def is_pandas(given: object) -> bool:
    """Whether this is a frame of pandas, which may not be installed."""
    kind = type(given)
    return kind.__module__.split(".")[0] == "pandas" and kind.__name__ == "DataFrame"


def read_frame(frame: Frame) -> Table:
    """The frame as a raw table, with row numbers from 1 on."""
    if isinstance(frame, pl.DataFrame):
        parts = [frame]
    elif is_pandas(frame):
        parts = [from_pandas(frame)] if frame.columns.nlevels == 1 else split_symbols(frame)
    else:
        raise BarsError(
            f"bars are of type {type(frame).__name__}: give a path, a Panel, or a frame of Polars "
            "or pandas"
        )
    if any(ROW in part.columns for part in parts):
        raise refusal(FRAME, f"a column is called {ROW!r}", "Remove it.")
    numbered = [drop_absent(number_rows(part, first=1), len(parts)) for part in parts]
    found = pl.concat(numbered, how="diagonal_relaxed")
    if found.is_empty():
        raise refusal(FRAME, "it has no bars", "Give a frame with one row per bar and symbol.")
    columns = tuple(name for name in found.columns if name != ROW)
    return Table(FRAME, columns, found, newest_first=False)


def split_symbols(frame: PandasFrame) -> list[pl.DataFrame]:
    """A frame whose columns have two levels, one of symbols and one of open, high, low and close,
    as a frame for each symbol; either level may be the upper one.
    """
    levels = [frame.columns.get_level_values(k) for k in range(frame.columns.nlevels)]
    named = [set(PRICES) <= {str(name).lower() for name in level} for level in levels]
    if len(levels) != 2 or sum(named) != 1:
        raise refusal(
            FRAME,
            f"its columns have {len(levels)} levels, and not one of symbols and one of "
            f"{', '.join(PRICES)}",
            "Bring the symbols into a column called symbol.",
        )
    of_symbols = 0 if named[1] else 1
    return [
        from_pandas(frame.xs(symbol, axis=1, level=of_symbols)).with_columns(
            pl.lit(str(symbol)).alias("symbol")
        )
        for symbol in levels[of_symbols].unique()
    ]


def drop_absent(part: pl.DataFrame, n_parts: int) -> pl.DataFrame:
    """Without the rows in which this symbol has no prices at all, where it shares them with others:
    they are there because the others have bars then.
    """
    prices = [name for name in part.columns if name.lower() in PRICES]
    if n_parts == 1 or not prices:
        return part
    numbers = [pl.col(name).cast(pl.Float64, strict=False).fill_nan(None) for name in prices]
    return part.filter(~pl.all_horizontal(number.is_null() for number in numbers))


def from_pandas(frame: PandasFrame) -> pl.DataFrame:
    """A frame of pandas with its index as columns; times in UTC."""
    if not frame.columns.is_unique:
        raise refusal(FRAME, "two of its columns have one name", "Give each column its own name.")
    index = frame.index
    if index.nlevels > 1:
        frame = frame.reset_index()
    elif index.dtype.kind == "M" or hasattr(index, "tz"):
        name = "date" if "date" not in frame.columns else None
        frame = frame.reset_index(names=name) if name else frame
    elif index.name is not None and index.name not in frame.columns:
        frame = frame.reset_index()
    return pl.DataFrame({str(name): from_series(frame[name]) for name in frame.columns})


def from_series(series: PandasObject) -> pl.Series:
    """One column: numbers as they are, times as UTC, all else as text; nothing stays nothing."""
    if series.dtype.kind == "M" or getattr(series.dtype, "tz", None) is not None:
        if series.dt.tz is not None:
            series = series.dt.tz_convert("UTC").dt.tz_localize(None)
        return pl.Series(series.to_numpy(dtype="datetime64[us]"))
    if series.dtype.kind in "biuf":
        return pl.Series(series.to_numpy())
    values = [
        None if value is None or value != value else value for value in series
    ]  # NaN is not itself
    if all(isinstance(value, int | float | None) for value in values):
        return pl.Series(values, dtype=pl.Float64)
    return pl.Series([None if value is None else str(value) for value in values], dtype=pl.String)
