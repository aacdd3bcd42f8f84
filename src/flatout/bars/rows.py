"""From one raw table to checked rows: symbol, time, prices, volume and extras, each with its row
number.

Refused here is everything that one file alone can show: text where numbers belong, impossible
prices, duplicates, rows out of order. Bar sizes and grids are the business of `grid.py`; nothing is
corrected or filled.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import polars as pl

from flatout.bars.columns import find_bar_columns, find_extras, find_symbol_column
from flatout.bars.files import FRAME, ROW, Table, name_of_file
from flatout.bars.grouped_numbers import parse_numbers
from flatout.bars.panel import PRICES
from flatout.bars.refusal import refusal, refuse_rows
from flatout.bars.times import to_microseconds
from flatout.foreign import shorten

LEAST_PRICE, MOST_PRICE, MOST_VOLUME, MOST_EXTRA = (
    1e-15,
    1e15,
    1e20,
    1e30,
)  # what single precision can multiply
TOLERANCE = 1e-9  # relative; sources that store single precision round open and high apart
LONGEST = 100  # characters of a symbol
# No control characters, no line ends, none that turn the direction of text, no halves of
# characters.
SYMBOL = re.compile(
    rf"[^\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]{{1,{LONGEST}}}"
)
NAMES = (pl.Categorical, pl.Enum)
VALUES = (*PRICES, "volume")
CORRECT = "Correct or remove such rows."
USE_A_POINT = (
    "Write a point before the decimals, and commas only between groups of three digits: "
    "1020.5 or 1,020.5."
)


def symbols_of(table: Table, sole: str | None, columns: Mapping[str, str]) -> pl.Series:
    """The symbol of every row: from its column, else from the file's name, else the caller's
    `sole`.
    """
    path, column = table.path, find_symbol_column(table.path, table.columns, columns)
    if column is not None:
        named = symbol_texts(table, column)
        shown = pl.DataFrame([named, table.frame[ROW].alias("row")])
        bad = named.is_null() | (named == "")
        refuse_rows(
            path,
            shown,
            bad=bad,
            reason="the symbol is missing",
            advice="Fill it in or remove the row.",
        )
        check_symbols(path, named.unique(maintain_order=True))
        return named
    symbol = name_of_file(path)[0] or sole
    if symbol is None:
        if path == FRAME:
            reason, rename = "there is no symbol column", ""
        else:
            reason = "there is no symbol column and the file name is no symbol"
            rename = "call the file SYMBOL.csv or SYMBOL-1h.csv in capitals, or "
        advice = f"Add a column called symbol, or {rename}name its one symbol by `symbols`."
        raise refusal(path, reason, advice)
    check_symbols(path, [symbol])
    return pl.repeat(symbol, len(table.frame), eager=True).alias("symbol")


def symbol_texts(table: Table, column: str) -> pl.Series:
    """The symbols of a column: text, or whole numbers as some exchanges have them."""
    raw = table.frame[column]
    if not (
        raw.dtype in (pl.String, pl.Null) or raw.dtype.is_integer() or isinstance(raw.dtype, NAMES)
    ):
        reason = f"the column for the symbol holds {shorten(raw.dtype)}, not names"
        raise refusal(table.path, reason, "Write them as text.")
    return raw.cast(pl.String).str.strip_chars().alias("symbol")


def check_symbols(path: Path, symbols: Iterable[str]) -> None:
    """Refuse names that cannot be shown in one line."""
    for symbol in symbols:
        if not SYMBOL.fullmatch(symbol):
            reason = f"{shorten(symbol)!r} is no symbol"
            raise refusal(
                path,
                reason,
                f"A symbol has 1 to {LONGEST} characters, none of which controls anything.",
            )


def checked_rows(
    table: Table,
    symbol: pl.Series,
    extras: Sequence[str] = (),
    columns: Mapping[str, str] | None = None,
) -> pl.DataFrame:
    """Columns `symbol, row, date` (UTC microseconds), prices, volume and extras, per symbol in time
    order.
    """
    path, names = table.path, symbol.unique(maintain_order=True).to_list()
    chosen = find_bar_columns(path, table.columns, names, columns or {})
    chosen |= {
        f"extra {name}": column for name, column in find_extras(path, table.columns, extras).items()
    }
    raw = [table.frame[column].alias(name) for name, column in chosen.items()]
    rows = pl.DataFrame([symbol, table.frame[ROW].alias("row"), *raw])
    rows = rows.with_columns(
        to_microseconds(path, rows).alias("date"), *convert_numbers(path, rows)
    )
    check_values(path, rows)
    check_duplicates(path, rows)
    rows = rows.reverse() if table.newest_first and is_newest_first(rows) else rows
    check_order(path, rows)
    return rows


def convert_numbers(path: Path, rows: pl.DataFrame) -> list[pl.Series]:
    """Prices, volume and extras as Float64; text that is no number is quoted in the refusal."""
    converted = []
    for name in rows.columns[3:]:
        raw, label = rows[name], shorten(name.removeprefix("extra "))
        quoted = label.replace("{", "{{").replace("}", "}}")
        if not (raw.dtype.is_numeric() or raw.dtype in (pl.String, pl.Null)):
            reason = f"the column for {label} holds {shorten(raw.dtype)}, not numbers"
            raise refusal(
                path, reason, "Write it as numbers.", symbol=rows["symbol"][0], row=rows["row"][0]
            )
        shown = rows.select("symbol", "row", raw.alias("value"))
        if raw.dtype == pl.String:
            value = parse_numbers(raw)
            reason = f"{quoted} is the text {{value!r}}, not a number"
            bad = value.is_null() & (raw.str.strip_chars() != "").fill_null(False)
            first = bad.arg_max()
            comma = first is not None and "," in (raw[first] or "")
            refuse_rows(
                path, shown, bad=bad, reason=reason, advice=USE_A_POINT if comma else CORRECT
            )
        else:
            value = raw.cast(pl.Float64, strict=False)
        if name not in VALUES:
            wild = (value.abs() > MOST_EXTRA).fill_null(False)
            wild &= ~value.is_nan().fill_null(False)  # which counts as larger than all numbers
            reason = f"{quoted} is {{value}}"
            advice = f"Write a number from -{MOST_EXTRA:g} to {MOST_EXTRA:g} or leave it empty."
            refuse_rows(path, shown, bad=wild, reason=reason, advice=advice)
            value = value.fill_null(float("nan"))
        converted.append(value.alias(name))
    return converted


def check_values(path: Path, rows: pl.DataFrame) -> None:
    """Refuse the first row that no market can have produced."""
    found: list[tuple[int, int, str, pl.Series]] = []
    for reason, condition in list_offences().items():
        bad = rows.select(condition.alias("bad")).to_series()
        first = bad.arg_max()
        if first is not None and bad[first]:
            found.append((first, len(found), reason, bad))
    if found:
        _, _, reason, bad = min(found, key=lambda offence: offence[:2])
        refuse_rows(path, rows, bad=bad, reason=reason, advice=CORRECT)


def list_offences() -> dict[str, pl.Expr]:
    """What is wrong with a row, as a reason and the condition that finds it."""
    wrong = {}
    for name in VALUES:
        wrong[f"{name} is missing"] = pl.col(name).is_null()
        wrong[f"{name} is {{{name}}}"] = pl.col(name).is_not_null() & ~pl.col(name).is_finite()
    for name in PRICES:
        wrong[f"{name} is {{{name}}}, not above zero"] = pl.col(name).fill_null(1) <= 0
        size = pl.col(name).is_finite() & (pl.col(name) > 0)
        wild = size & ~pl.col(name).is_between(LEAST_PRICE, MOST_PRICE)
        wrong[f"{name} is {{{name}}}, not from {LEAST_PRICE:g} to {MOST_PRICE:g}"] = wild.fill_null(
            False
        )
    wrong["volume is {volume}, below zero"] = pl.col("volume").fill_null(0) < 0
    volume = pl.col("volume").is_finite() & (pl.col("volume") > 0)
    wild = volume & ~pl.col("volume").is_between(1 / MOST_VOLUME, MOST_VOLUME)
    wrong[f"volume is {{volume}}, neither 0 nor from {1 / MOST_VOLUME:g} to {MOST_VOLUME:g}"] = (
        wild.fill_null(False)
    )
    wrong["high {high} is below low {low}"] = (pl.col("high") < pl.col("low")).fill_null(False)
    for name in ("open", "close"):
        above = pl.col(name) > pl.col("high") * (1 + TOLERANCE)
        below = pl.col(name) < pl.col("low") * (1 - TOLERANCE)
        wrong[f"{name} {{{name}}} is outside low {{low}} and high {{high}}"] = (
            above | below
        ).fill_null(False)
    return wrong


def check_duplicates(path: Path, rows: pl.DataFrame) -> None:
    again = ~rows.select(pl.struct("symbol", "date").is_first_distinct()).to_series()
    if not again.any():
        return
    first = again.arg_max()
    assert first is not None
    symbol, date = rows["symbol"][first], rows["date"][first]
    before = rows.filter((pl.col("symbol") == symbol) & (pl.col("date") == date))["row"][0]
    reason = f"the time {format_time(date)} is already in row {before}"
    refuse_rows(path, rows, bad=again, reason=reason, advice="Keep one row per symbol and time.")


def is_newest_first(rows: pl.DataFrame) -> bool:
    steps = rows.select(pl.col("date").diff().over("symbol")).to_series().drop_nulls()
    return len(steps) > 0 and bool((steps < 0).all())


def check_order(path: Path, rows: pl.DataFrame) -> None:
    """Within each symbol time must rise; symbols may follow each other or alternate."""
    step = rows.select(pl.col("date").diff().over("symbol").fill_null(1)).to_series()
    shown = rows.select("symbol", "row", pl.from_epoch("date", time_unit="us").alias("date"))
    refuse_rows(
        path,
        shown,
        bad=step <= 0,
        reason="the time {date} is before that of the symbol's previous row",
        advice="Sort by time.",
    )


def format_time(microsecond: int) -> str:
    return str(pl.Series([microsecond]).cast(pl.Datetime("us"))[0])
