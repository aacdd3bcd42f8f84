"""From a path to raw tables: which files there are, and their columns with the row numbers that
people see.

CSV values stay text here, so that a refusal can quote them. This file knows file formats; it does
not know what a column means.
"""

import codecs
import csv
import errno
import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from flatout.bars.grouped_numbers import is_number
from flatout.bars.probing import CHECK, Probe
from flatout.bars.refusal import list_names, refusal
from flatout.bars.table_probe import MOST_COLUMNS, read_table
from flatout.errors import BarsError
from flatout.foreign import read_file, shorten

KLINE_COLUMNS = (
    "open_time", "open", "high", "low", "close", "volume", "close_time", "quote_volume", "count",
    "taker_buy_volume", "taker_buy_quote_volume", "ignore",
)  # fmt: skip
ROW = "\0row"  # a name that no file uses
SEPARATORS = {b";": "semicolons", b"\t": "tabs", b"|": "vertical bars"}
LEAST_SEPARATORS = 5  # of date, four prices and volume
FRAME = Path("the frame")  # what refusals call bars that are in no file
SUFFIXES = (".csv", ".parquet", ".feather")
CURE = "give a file that can be read"
MOST_BYTES = 4 << 30
LINE_BYTES = 1 << 20  # of a header
FREE_CELLS = 8_000_000  # a CSV file with more has at least a byte for each
HOLLOW_BYTES, HOLLOW_SHARE = (
    64 << 20,
    32,
)  # larger files that take less than this part of their size on the disk

# SYMBOL or SYMBOL-1h or SYMBOL_1h. Capitals only, because `prices.csv` is not a symbol called
# "prices".
NAMED = re.compile(
    r"(?P<symbol>[A-Z0-9.]+(?:[-_][A-Z][A-Z0-9]*){0,2})(?:[-_](?P<bar>[1-9][0-9]{0,8}[smhd]))?"
)


@dataclass(frozen=True)
class Table:
    """One file as it was found."""

    path: Path
    columns: tuple[str, ...]
    frame: pl.DataFrame  # the columns, and ROW: the number that an editor or a table viewer shows
    newest_first: bool  # the format (CryptoDataDownload) is written newest first


def find_files(path: Path) -> list[Path]:
    """The file itself, or the folder's bar files by name; its other files (notes, manifests) are
    left.
    """
    try:
        if path.is_dir():
            return files_in(path)
        there = os.path.lexists(path)
    except OSError as error:
        raise refusal(path, f"it cannot be opened: {error.strerror}", "Check the path.") from None
    if not there:
        raise refusal(path, "there is no such file or folder", "Check the path.")
    if path.suffix.lower() not in SUFFIXES:
        raise refusal(
            path,
            f"the extension {shorten(path.suffix)!r} is not supported",
            f"Bars are read from {', '.join(SUFFIXES)}.",
        )
    return [path]


def files_in(folder: Path) -> list[Path]:
    """The folder's bar files by name."""
    files = sorted(
        file
        for file in folder.iterdir()
        if file.suffix.lower() in SUFFIXES and not file.name.startswith(".")
    )
    if not files:
        raise refusal(
            folder,
            f"the folder has no {', '.join(SUFFIXES)} file",
            "Put one file per symbol there.",
        )
    return files


def name_of_file(path: Path) -> tuple[str | None, str | None]:
    """Symbol and bar size that the file's name states: BTC_USDT-1h.parquet, BTCUSDT_1h.csv,
    AAPL.csv.
    """
    match = NAMED.fullmatch(path.stem)
    return (match["symbol"], match["bar"]) if match else (None, None)


def load_table(path: Path, probe: Probe) -> Table:
    """The file's table; refused when it is empty or cannot be read at all."""
    content = read_content(path)
    try:
        table = (
            load_csv(path, content)
            if path.suffix.lower() == ".csv"
            else load_columnar(path, content, probe)
        )
    except (
        pl.exceptions.PolarsError,
        pl.exceptions.PanicException,
        OSError,
        UnicodeDecodeError,
        csv.Error,
    ) as error:
        reason = f"the file cannot be read: {shorten(next(iter(str(error).splitlines()), ''))}"
        raise refusal(path, reason, CHECK) from error
    if table.frame.is_empty():
        raise refusal(path, "the file has no bars", "Remove it or download it again.")
    return table


def read_content(path: Path) -> bytes:
    """The file's bytes, read once: whoever changes it meanwhile changes nothing here."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return read_file(path, MOST_BYTES, BarsError, CURE)  # says what is wrong with it
    if status.st_size > HOLLOW_BYTES and is_hollow(path, status):
        raise refusal(
            path, f"its {status.st_size:,} bytes are nearly all a hole", "Download it again."
        )
    return read_file(path, min(MOST_BYTES, status.st_size), BarsError, CURE)


def is_hollow(path: Path, status: os.stat_result) -> bool:
    """Whether hardly anything was written to a large file. Some systems count no blocks of any
    file, or count late.
    """
    if status.st_blocks:
        return status.st_blocks * 512 < status.st_size / HOLLOW_SHARE
    try:
        with path.open("rb") as file:
            os.lseek(file.fileno(), 0, os.SEEK_DATA)
    except OSError as error:
        return error.errno == errno.ENXIO
    return False


def load_columnar(path: Path, content: bytes, probe: Probe) -> Table:
    """A table file, which another process has read before this one does."""
    probe.check(path, content)
    frame = read_table(content, path.suffix.lower())
    columns = tuple(frame.columns)
    if ROW in columns:
        raise refusal(path, f"a column is called {ROW!r}", "Remove it.")
    return Table(path, columns, number_rows(frame, first=1), newest_first=False)


def load_csv(path: Path, content: bytes) -> Table:
    """A comma-separated file: with a header, under a line with a web address, or a headerless kline
    file.
    """
    first = line_at(path, content, 0)
    commented = first.removeprefix(codecs.BOM_UTF8).lower().startswith((b"http://", b"https://"))
    named = line_at(path, content, len(first) + 1) if commented else first
    header = next(csv.reader([named.decode("utf-8-sig").rstrip("\r")]), [])
    if not header:
        raise refusal(path, "the file is empty", "Remove it or download it again.")
    check_header(path, header)
    check_separator(path, named)
    check_lines(path, content, len(header))
    if headerless := all(is_number(field) for field in header):
        if len(header) != len(KLINE_COLUMNS):
            reason = (
                f"there is no header and {len(header)} columns, not the {len(KLINE_COLUMNS)} "
                f"of klines"
            )
            raise refusal(
                path,
                reason,
                "Add a first line with column names: date,open,high,low,close,volume,symbol.",
            )
        header = list(KLINE_COLUMNS)
    elif twice := sorted(name for name, count in Counter(header).items() if count > 1):
        raise refusal(
            path, f"several columns are called {list_names(twice)}", "Give each its own name."
        )
    frame = pl.read_csv(
        content,
        has_header=not headerless,
        skip_rows=int(commented),
        new_columns=header,
        infer_schema=False,
    )
    frame = number_rows(frame, first=1 + commented + (not headerless))
    frame = frame.filter(~pl.all_horizontal(pl.exclude(ROW).is_null()))  # blank lines
    newest_first = commented or {"unix", "date", "symbol"} <= {
        name.strip().lower() for name in header
    }
    return Table(path, tuple(header), frame, newest_first)


def line_at(path: Path, content: bytes, start: int) -> bytes:
    """The line that begins there."""
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise refusal(path, "the text is UTF-16", "Save it as UTF-8.")
    end = content.find(b"\n", start, start + LINE_BYTES + 1)
    line = content[start : end if end >= 0 else start + LINE_BYTES + 1]
    if len(line) > LINE_BYTES:
        raise refusal(path, f"a line before the bars has more than {LINE_BYTES:,} bytes", CHECK)
    return line


def check_header(path: Path, header: Sequence[str]) -> None:
    """Refuse columns that are too many to be bars."""
    if len(header) > MOST_COLUMNS:
        reason = f"it has {len(header):,} columns, and at most {MOST_COLUMNS:,} are read"
        raise refusal(path, reason, "Keep those of the bars.")
    if ROW in header:
        raise refusal(path, f"a column is called {ROW!r}", "Remove it.")


def check_separator(path: Path, line: bytes) -> None:
    """Refuse a table whose columns are separated by something else than commas, as programs in
    many countries write it: there the comma stands before decimals.
    """
    for mark, name in SEPARATORS.items():
        if line.count(mark) >= LEAST_SEPARATORS:
            raise refusal(
                path,
                f"its columns are separated by {name}, not by commas",
                "Save it with commas between columns and a point before decimals, or in Python "
                f"give the frame that polars.read_csv(..., separator={mark.decode()!r}) reads "
                "(decimal_comma=True where decimals have a comma).",
            )


def check_lines(path: Path, content: bytes, columns: int) -> None:
    """Refuse many blank lines: in a wide table each takes the memory of a full one."""
    lines = content.count(b"\n")
    if lines * columns > FREE_CELLS + len(content):
        reason = (
            f"its {len(content):,} bytes are {lines:,} lines of {columns:,} columns: most are blank"
        )
        raise refusal(path, reason, "Remove the blank lines.")


def number_rows(frame: pl.DataFrame, first: int) -> pl.DataFrame:
    return frame.with_row_index(ROW, offset=first)
