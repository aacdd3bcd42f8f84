"""`read_bars`: a file of many symbols, or a folder of one file per symbol, as one checked `Panel`.

Bad files are refused, never repaired; what is refused and how files may look is in `files.py`,
`columns.py`, `times.py`, `rows.py` and `grid.py`. This file only puts them in order.
"""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl

from flatout.bars.align import align
from flatout.bars.bar_size import parse_bar
from flatout.bars.columns import COMPARED
from flatout.bars.files import find_files, load, name_of_file
from flatout.bars.grid import Calendar, check_steps, grid_of, infer_bar, infer_calendar
from flatout.bars.panel import Panel
from flatout.bars.probing import probing
from flatout.bars.refusal import refusal
from flatout.bars.rows import check_symbols, checked_rows, symbols_of
from flatout.foreign import shortened


def read_bars(
    path: str | Path,
    *,
    symbols: Sequence[str] | None = None,
    bar: str | None = None,
    calendar: Calendar | None = None,
    extras: Sequence[str] = (),
    columns: Mapping[str, str] | None = None,
) -> Panel:
    """Read bars from a CSV, Parquet or Feather file, or from a folder of them.

    symbols   which ones, in this order (by default all, sorted); names a single file without a
              symbol column
    bar       the bar size, as in "5m"; by default the one in the files' names, or the most common
              step
    calendar  "always_open" or "exchange"; by default told by weekend bars (less than a week: always
              open)
    extras    further numeric columns to keep in `Panel.extras`; NaN where a bar or a value is
              missing
    columns   names for columns with unusual spellings, as in {"volume": "amount"}

    A file's symbols come from its symbol column, else from its name in capitals:
    BTC_USDT-1h.parquet is BTC_USDT, BTCUSDT_1h.csv is BTCUSDT, AAPL.csv is AAPL.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     rows = ["time,open,high,low,close,volume"]
    ...     rows += [f"2024-01-01T0{hour}:00:00Z,1,2,1,2,10" for hour in range(9)]
    ...     _ = Path(folder, "BTC_USDT-1h.csv").write_text("\\n".join(rows))
    ...     read_bars(folder).symbols
    ('BTC_USDT',)
    """
    path = Path(path)
    check_wish(path, symbols)
    rows, files = read_rows(path, symbols, extras, columns)
    named = parse_bar(bar) if bar is not None else bar_in_names(path, files)
    bar_seconds = named or infer_bar(rows, files)
    calendar = calendar or infer_calendar(rows)
    check_steps(rows, files, bar_seconds, calendar)
    time = grid_of(rows, files, bar_seconds, calendar)
    return align(rows, list(symbols or sorted(files)), time, bar_seconds, extras)


def read_rows(
    path: Path,
    symbols: Sequence[str] | None,
    extras: Sequence[str],
    columns: Mapping[str, str] | None,
) -> tuple[pl.DataFrame, dict[str, Path]]:
    """The checked rows of the wanted symbols, sorted by symbol and time, and the file of each
    symbol.
    """
    sole = symbols[0] if symbols is not None and len(symbols) == 1 and not path.is_dir() else None
    parts: list[pl.DataFrame] = []
    files: dict[str, Path] = {}
    with probing() as probe:
        for file in find_files(path):
            table = load(file, probe)
            symbol = symbols_of(table, sole, columns or {})
            note_file(files, file, symbol)
            if symbols is not None:
                wanted = symbol.is_in(list(symbols))
                table, symbol = (
                    replace(table, frame=table.frame.filter(wanted)),
                    symbol.filter(wanted),
                )
            if len(symbol):
                parts.append(checked_rows(table, symbol, extras, columns))
    check_found(path, files, symbols or ())
    chosen = {symbol: files[symbol] for symbol in symbols or files}
    return pl.concat(parts).sort("symbol", maintain_order=True), chosen


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
            f"symbols={shortened(symbols)} is empty or repeats a symbol",
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


def bar_in_names(path: Path, files: Mapping[str, Path]) -> int | None:
    """The bar size that file names state, as in BTC_USDT-1h.parquet, if any does."""
    stated = {bar for file in files.values() if (bar := name_of_file(file)[1]) is not None}
    if len(stated) > 1:
        reason = f"the file names state several bar sizes: {', '.join(sorted(stated))}"
        raise refusal(path, reason, "Keep one size per folder.")
    return parse_bar(stated.pop()) if stated else None
