"""From a path to raw tables: which files there are, and their columns with the row numbers that people see.

CSV values stay text here, so that a refusal can quote them. This file knows file formats; it does not know
what a column means.
"""

import csv
import re
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from flatout.bars.refusal import refusal

KLINE_COLUMNS = (
    "open_time", "open", "high", "low", "close", "volume", "close_time", "quote_volume", "count",
    "taker_buy_volume", "taker_buy_quote_volume", "ignore",
)  # fmt: skip
ROW = "\0row"  # a name that no file uses
SUFFIXES = (".csv", ".parquet", ".feather")

# SYMBOL or SYMBOL-1h or SYMBOL_1h. Capitals only, because `prices.csv` is not a symbol called "prices".
NAMED = re.compile(r"(?P<symbol>[A-Z0-9.]+(?:[-_][A-Z][A-Z0-9]*){0,2})(?:[-_](?P<bar>[1-9][0-9]*[smhd]))?")


@dataclass(frozen=True)
class Table:
    """One file as it was found."""

    path: Path
    columns: tuple[str, ...]
    frame: pl.DataFrame  # the columns, and ROW: the number that an editor or a table viewer shows
    newest_first: bool  # the format (CryptoDataDownload) is written newest first


def find_files(path: Path) -> list[Path]:
    """The file itself, or the folder's bar files by name; its other files (notes, manifests) are left."""
    if path.is_dir():
        files = sorted(
            file for file in path.iterdir() if file.suffix.lower() in SUFFIXES and not file.name.startswith(".")
        )
        if not files:
            raise refusal(path, f"the folder has no {', '.join(SUFFIXES)} file", "Put one file per symbol there.")
        return files
    if not path.exists():
        raise refusal(path, "there is no such file or folder", "Check the path.")
    if path.suffix.lower() not in SUFFIXES:
        raise refusal(
            path,
            f"the extension {path.suffix!r} is not supported",
            f"Bars are read from {', '.join(SUFFIXES)}.",
        )
    return [path]


def name_of_file(path: Path) -> tuple[str | None, str | None]:
    """Symbol and bar size that the file's name states: BTC_USDT-1h.parquet, BTCUSDT_1h.csv, AAPL.csv."""
    match = NAMED.fullmatch(path.stem)
    return (match["symbol"], match["bar"]) if match else (None, None)


def load(path: Path) -> Table:
    """The file's table; refused when it is empty or cannot be read at all."""
    try:
        table = load_csv(path) if path.suffix.lower() == ".csv" else load_columnar(path)
    except (pl.exceptions.PolarsError, OSError, UnicodeDecodeError) as error:
        reason = f"the file cannot be read: {str(error).splitlines()[0]}"
        raise refusal(path, reason, "Check that it is complete and of the kind its extension says.") from error
    if table.frame.is_empty():
        raise refusal(path, "the file has no bars", "Remove it or download it again.")
    return table


def load_columnar(path: Path) -> Table:
    frame = pl.read_parquet(path) if path.suffix.lower() == ".parquet" else pl.read_ipc(path)
    columns = tuple(frame.columns)
    return Table(path, columns, number_rows(frame, first=1), newest_first=False)


def load_csv(path: Path) -> Table:
    """A comma-separated file: with a header, under a line with a web address, or a headerless kline file."""
    lines = first_lines(path)
    commented = bool(lines) and lines[0].lower().startswith(("http://", "https://"))
    header = next(csv.reader(lines[commented:]), [])
    if not header:
        raise refusal(path, "the file is empty", "Remove it or download it again.")
    if headerless := all(is_number(field) for field in header):
        if len(header) != len(KLINE_COLUMNS):
            reason = f"there is no header and {len(header)} columns, not the {len(KLINE_COLUMNS)} of klines"
            raise refusal(path, reason, "Add a first line with column names: date,open,high,low,close,volume,symbol.")
        header = list(KLINE_COLUMNS)
    if twice := {name for name in header if header.count(name) > 1}:
        raise refusal(path, f"several columns are called {', '.join(sorted(twice))}", "Give each its own name.")
    frame = pl.read_csv(
        path.read_bytes(), has_header=not headerless, skip_rows=int(commented), new_columns=header, infer_schema=False
    )
    frame = number_rows(frame, first=1 + commented + (not headerless))
    frame = frame.filter(~pl.all_horizontal(pl.exclude(ROW).is_null()))  # blank lines
    newest_first = commented or {"unix", "date", "symbol"} <= {name.strip().lower() for name in header}
    return Table(path, tuple(header), frame, newest_first)


def first_lines(path: Path) -> list[str]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        return [line.rstrip("\r\n") for _, line in zip(range(2), file, strict=False)]


def is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def number_rows(frame: pl.DataFrame, first: int) -> pl.DataFrame:
    return frame.with_row_index(ROW, offset=first)
