"""Bars that somebody has in memory: a Polars or pandas frame as the raw table of a file would be.

A frame has the columns that a file may have (`columns.py` knows the spellings), with the symbol in
a column, or one symbol that the caller names. pandas is not needed to be installed: a frame of its
kind is known by its module. An index with a name, or of times, becomes a column.
"""

from typing import Any, Protocol

import polars as pl

from flatout.bars.files import FRAME, ROW, Table, number_rows
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


Frame = pl.DataFrame | PandasFrame


def is_pandas(given: object) -> bool:
    """Whether this is a frame of pandas, which may not be installed."""
    kind = type(given)
    return kind.__module__.split(".")[0] == "pandas" and kind.__name__ == "DataFrame"


def read_frame(frame: Frame) -> Table:
    """The frame as a raw table, with row numbers from 1 on."""
    if isinstance(frame, pl.DataFrame):
        found = frame
    elif is_pandas(frame):
        found = from_pandas(frame)
    else:
        raise BarsError(
            f"bars are of type {type(frame).__name__}: give a path, a Panel, or a frame of Polars "
            "or pandas"
        )
    if ROW in found.columns:
        raise refusal(FRAME, f"a column is called {ROW!r}", "Remove it.")
    if found.is_empty():
        raise refusal(FRAME, "it has no bars", "Give a frame with one row per bar and symbol.")
    return Table(FRAME, tuple(found.columns), number_rows(found, first=1), newest_first=False)


def from_pandas(frame: PandasFrame) -> pl.DataFrame:
    """A frame of pandas with its index as columns; times in UTC."""
    if frame.columns.nlevels > 1:
        raise refusal(
            FRAME,
            f"its columns have {frame.columns.nlevels} levels",
            "Bring the symbols into a column: frame.stack(level=1).reset_index().",
        )
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
