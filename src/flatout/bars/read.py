"""`read_bars`: a file of many symbols, or a folder of one file per symbol, as one checked `Panel`.

Bad files are refused, never repaired; what is refused and how files may look is in `files.py`,
`columns.py`, `times.py`, `rows.py` and `grid.py`. This file only puts them in order.
"""

import difflib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl

from flatout.bars.align import align
from flatout.bars.bar_size import parse_bar
from flatout.bars.calendars import find_kind, follow_calendar
from flatout.bars.columns import COMPARED
from flatout.bars.files import FRAME, Table, find_files, load_table, name_of_file
from flatout.bars.frames import Frame, read_frame
from flatout.bars.grid import check_steps, grid_of, has_finer_steps, infer_bar, infer_calendar
from flatout.bars.panel import Panel
from flatout.bars.probing import probing
from flatout.bars.refusal import refusal
from flatout.bars.resample import resample
from flatout.bars.rows import check_symbols, checked_rows, symbols_of
from flatout.errors import BarsError
from flatout.foreign import shorten_repr
from flatout.settings.loading import split_names


def read_bars(
    path: str | Path | Frame,
    *,
    symbols: Sequence[str] | None = None,
    bar: str | None = None,
    calendar: str | None = None,
    extras: Sequence[str] = (),
    columns: Mapping[str, str] | None = None,
) -> Panel:
    """Read bars from a CSV, Parquet or Feather file, from a folder of them, or from a Polars or
    pandas frame.

    path      the file, the folder or the frame
    symbols   which ones, in this order (by default all, sorted); names a single file or frame
              without a symbol column
    bar       the size of the bars that come out, as in "4h": finer bars are joined, as `train` does
              it; where none are finer it says what size they have. By default the one in the
              files' names, or the most common step
    calendar  "always_open", "exchange", or the name of an exchange calendar, as in "XNYS", which
              then tells how many bars a year has; by default inferred from weekend bars (less than
              a week: always open)
    extras    further numeric columns to keep in `Panel.extras`; NaN where a bar or a value is
              missing
    columns   names for columns with unusual spellings, as in {"volume": "amount"}

    A file's symbols come from its symbol column, else from its name in capitals:
    BTC_USDT-1h.parquet is BTC_USDT, BTCUSDT_1h.csv is BTCUSDT, AAPL.csv is AAPL.

    >>> import polars as pl
    >>> from flatout import read_bars
    >>> from datetime import datetime, timedelta
    >>> hours = [datetime(2024, 1, 1) + timedelta(hours=k) for k in range(3)]
    >>> prices = {name: [100.0, 101.0, 102.0] for name in ("open", "high", "low", "close")}
    >>> read_bars(pl.DataFrame({"date": hours, **prices, "volume": 1.0}), symbols=["BTC"]).n_bars
    3
    """
    if isinstance(path, Panel):
        raise BarsError("these bars are a Panel already: use it as it is")
    check_read(bar, calendar, columns)
    panel = read_own_size(
        path, symbols=symbols, bar=bar, calendar=calendar, extras=extras, columns=columns
    )
    return panel if bar is None else resample(panel, bar)


def check_read(bar: object, calendar: object, columns: object) -> None:
    """Refuse what names no bar size, no calendar and no columns, before anything is read."""
    if bar is not None:
        parse_bar(bar)
    if calendar is not None and not isinstance(calendar, str):
        raise BarsError(
            f"calendar is {shorten_repr(calendar)}: give a text, as in 'XNYS' or 'always_open'"
        )
    texts = isinstance(columns, Mapping) and all(
        isinstance(word, str) for pair in columns.items() for word in pair
    )
    if columns is not None and not texts:
        raise BarsError(
            f"columns are {shorten_repr(columns)}: give what is called how, as in "
            "{'volume': 'amount'}"
        )


def read_own_size(
    path: str | Path | Frame,
    *,
    symbols: Sequence[str] | None = None,
    bar: str | None = None,
    calendar: str | None = None,
    extras: Sequence[str] = (),
    columns: Mapping[str, str] | None = None,
) -> Panel:
    """The bars as `read_bars` reads them, in the size that they have before they are joined."""
    names = name_symbols(symbols)
    rows, files = read_rows(path, names, extras, columns)
    return make_panel(
        path_of(path), rows, files, symbols=names, bar=bar, calendar=calendar, extras=extras
    )


def name_symbols(given: object) -> tuple[str, ...] | None:
    """Symbols as callers give them: names in a sequence or an array, or texts with commas; None is
    all there are.

    >>> name_symbols("BTC, ETH"), name_symbols(["BTC", "ETH,XRP"])
    (('BTC', 'ETH'), ('BTC', 'ETH', 'XRP'))
    """
    if given is None:
        return None
    names = given.tolist() if hasattr(given, "tolist") else given
    texts = [names] if isinstance(names, str) else names
    if not isinstance(texts, Sequence) or not all(isinstance(name, str) for name in texts):
        raise BarsError(f"symbols are {shorten_repr(given)}: give names, as in ['BTC', 'ETH']")
    if not texts:
        raise BarsError("symbols are an empty list: name one at least, or leave them out for all")
    return tuple(name for text in texts for name in split_names(text) or [text])


def path_of(source: str | Path | Frame) -> Path:
    """Where bars come from, for refusals too."""
    return Path(source) if isinstance(source, str | os.PathLike) else FRAME


def read_each(
    path: str | Path | Frame,
    symbols: Sequence[str],
    *,
    bar: str | None = None,
    calendar: str | None = None,
    extras: Sequence[str] = (),
) -> list[Panel]:
    """One panel for each symbol, on the grid of its own bars, as `read_own_size` would give them
    one by one; the files are read once.
    """
    rows, files = read_rows(path, symbols, extras, None)
    where = path_of(path)
    return [
        make_panel(
            where,
            rows.filter(pl.col("symbol") == name),
            {name: files[name]},
            symbols=[name],
            bar=bar,
            calendar=calendar,
            extras=extras,
        )
        for name in symbols
    ]


def make_panel(
    path: Path,
    rows: pl.DataFrame,
    files: Mapping[str, Path],
    symbols: Sequence[str] | None,
    bar: str | None,
    calendar: str | None,
    extras: Sequence[str],
) -> Panel:
    """Checked rows on their grid."""
    bar_seconds = find_bar_size(path, rows, files, bar)
    kind = find_kind(calendar) if calendar else infer_calendar(rows)
    check_steps(rows, files, bar_seconds, kind)
    time = grid_of(rows, files, bar_seconds, kind)
    panel = align(
        rows, list(symbols or sorted(files)), time=time, bar_seconds=bar_seconds, extras=extras
    )
    return follow_calendar(panel, calendar) if calendar else panel


def read_rows(
    source: str | Path | Frame,
    symbols: Sequence[str] | None,
    extras: Sequence[str],
    columns: Mapping[str, str] | None,
) -> tuple[pl.DataFrame, dict[str, Path]]:
    """The checked rows of the wanted symbols, sorted by symbol and time, and the file of each
    symbol.
    """
    path = path_of(source)
    check_wish(path, symbols)
    sole = symbols[0] if symbols is not None and len(symbols) == 1 and not path.is_dir() else None
    parts: list[pl.DataFrame] = []
    files: dict[str, Path] = {}
    for table in read_tables(source):
        symbol = symbols_of(table, sole, columns or {})
        note_file(files, table.path, symbol)
        if symbols is not None:
            wanted = symbol.is_in(list(symbols))
            table = replace(table, frame=table.frame.filter(wanted))
            symbol = symbol.filter(wanted)
        if len(symbol):
            parts.append(checked_rows(table, symbol, extras, columns))
    check_found(path, files, symbols or ())
    chosen = {symbol: files[symbol] for symbol in symbols or files}
    return pl.concat(parts).sort("symbol", maintain_order=True), chosen


def read_tables(source: str | Path | Frame) -> Iterator[Table]:
    """The raw tables, one after another: a frame is one, a folder has one per file."""
    if not isinstance(source, str | os.PathLike):
        yield read_frame(source)
        return
    with probing() as probe:
        for file in find_files(Path(source)):
            yield load_table(file, probe)


def note_file(files: dict[str, Path], file: Path, symbol: pl.Series) -> None:
    """Enter the file's symbols; one that is in two files is refused, because either may be
    wrong.
    """
    for name in symbol.unique(maintain_order=True):
        if name in files:
            reason = f"the symbol is also in {files[name].name}"
            raise refusal(file, reason, "Join the two files or move one away.", symbol=name)
        files[name] = file


def check_wish(path: Path, symbols: Sequence[str] | None) -> None:
    """Refuse symbols that are named twice, or none at all, or no names."""
    if symbols is None:
        return
    if not symbols or len(set(symbols)) < len(symbols):
        raise refusal(
            path,
            f"symbols={shorten_repr(symbols)} is empty or repeats a symbol",
            "Name each symbol once.",
        )
    check_symbols(path, symbols)


def check_found(path: Path, files: Mapping[str, Path], symbols: Sequence[str]) -> None:
    """Refuse symbols that are not there."""
    for symbol in symbols:
        if symbol not in files:
            names = sorted(files)[:COMPARED]
            near = difflib.get_close_matches(symbol, names, n=3, cutoff=0.4) or names[:10]
            raise refusal(
                path, "there are no bars of it", f"Nearest: {', '.join(near)}.", symbol=symbol
            )


def find_bar_size(
    path: Path, rows: pl.DataFrame, files: Mapping[str, Path], asked: str | None
) -> int:
    """The seconds of the rows' own bars. Where none of them are finer than the size that is asked
    for it is that size; else finer bars will be joined, so it is what names or steps tell.
    """
    if asked is not None and not has_finer_steps(rows, parse_bar(asked)):
        return parse_bar(asked)
    return bar_in_names(path, files) or infer_bar(rows, files)


def bar_in_names(path: Path, files: Mapping[str, Path]) -> int | None:
    """The bar size that file names state, as in BTC_USDT-1h.parquet, if any does."""
    stated = {bar for file in files.values() if (bar := name_of_file(file)[1]) is not None}
    if len(stated) > 1:
        reason = f"the file names state several bar sizes: {', '.join(sorted(stated))}"
        raise refusal(path, reason, "Keep one size per folder.")
    return parse_bar(stated.pop()) if stated else None
