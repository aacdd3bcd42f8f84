"""From a time column to microseconds since 1970 in UTC.

Read are epoch numbers in s, ms, us or ns (told apart by size: unambiguous from 1973 to 5138), ISO
8601 text with or without an offset, and the date and time types of table files. Text and numbers
without a zone are UTC. One file has one unit and one offset; a named zone with summer time is fine
where the type itself carries it. Times before 1800 or after 2261 are refused. This file does not
know what a bar is.
"""

from pathlib import Path

import polars as pl

from flatout.bars.refusal import refusal, refuse_rows
from flatout.foreign import shorten

MICROSECONDS = {"s": 1_000_000.0, "ms": 1_000.0, "us": 1.0, "ns": 0.001}
SMALLEST = {"s": 1e8, "ms": 1e11, "us": 1e14, "ns": 1e17}
LARGEST = 9.2e18  # ns of the year 2261
FIRST, LAST = (
    -5_364_662_400_000_000,
    9_214_646_400_000_000,
)  # microseconds; nanoseconds and calendars hold these years
YEARS = "the years 1800 to 2261"
TYPED = {"d": 86_400_000_000, "ms": 1000, "us": 1, "ns": 0.001}  # microseconds per unit
SPELLED = {"d": "days", "ms": "ms", "us": "us", "ns": "ns"}
OFFSET = (
    r"(?i)^\d{4}-\d{2}-\d{2}(?:[T "
    r"]\d{2}:\d{2}[\d:.]*)?\s*(Z|UTC|[+-](?:0\d|1[0-4])(?::?[0-5]\d)?)?$"
)
FORMATS = ("%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%d", "%Y-%m-%dT%H:%M")
ACCEPTED = (
    "Write times as ISO 8601 (2024-01-31, 2024-01-31 09:30:00, 2024-01-31T09:30:00+00:00) "
    "or as UTC seconds, ms, us or ns since 1970."
)


def to_microseconds(path: Path, rows: pl.DataFrame) -> pl.Series:
    """The column `date` of `rows` (beside `symbol` and `row`) as UTC microseconds, Int64."""
    refuse_rows(
        path,
        rows,
        bad=rows["date"].is_null(),
        reason="the time is missing",
        advice="Remove the row or fill it in.",
    )
    time = convert_dates(path, rows)
    outside = ~time.is_between(FIRST, LAST)
    refuse_rows(
        path,
        rows,
        bad=outside,
        reason=f"the time {{date!r}} is outside {YEARS}",
        advice="Correct or remove such rows.",
    )
    return time


def convert_dates(path: Path, rows: pl.DataFrame) -> pl.Series:
    """The column `date` by its type."""
    kind = rows.schema["date"]
    if kind == pl.Date or isinstance(kind, pl.Datetime):
        return from_type(path, rows, getattr(kind, "time_unit", "d"))
    if kind.is_numeric():
        return from_epoch(path, rows, rows["date"])
    if kind != pl.String and not isinstance(kind, pl.Categorical | pl.Enum):
        reason = f"the column for the date holds {shorten(kind)}, not times"
        raise refusal(path, reason, ACCEPTED, symbol=rows["symbol"][0], row=rows["row"][0])
    text = rows["date"].cast(pl.String).str.strip_chars()
    if text[0].replace(".", "", 1).isdigit():
        number = text.cast(pl.Int64, strict=False)
        number = text.cast(pl.Float64, strict=False) if number.null_count() else number
        refuse_rows(
            path,
            rows,
            bad=number.is_null(),
            reason="the time {date!r} is no number as in the first row",
            advice=ACCEPTED,
        )
        return from_epoch(path, rows, number)
    return from_text(path, rows, text)


def from_type(path: Path, rows: pl.DataFrame, unit: str) -> pl.Series:
    """Dates and times of a table file: numbers in UTC, whatever the zone. Too large ones are found
    before they become times, because Python has no such dates.
    """
    number, factor = rows["date"].to_physical().cast(pl.Int64), TYPED[unit]
    outside = ~(number.cast(pl.Float64) * factor).is_between(FIRST, LAST)
    reason = f"the time {{date}} ({SPELLED[unit]} since 1970) is outside {YEARS}"
    shown = rows.select("symbol", "row", number.alias("date"))
    refuse_rows(path, shown, bad=outside, reason=reason, advice="Correct or remove such rows.")
    return number // 1000 if unit == "ns" else number * int(factor)


def from_epoch(path: Path, rows: pl.DataFrame, number: pl.Series) -> pl.Series:
    """Epoch numbers; the first decides the unit and the others must agree."""
    value = number.cast(pl.Float64)
    bad = ~(value.is_finite() & value.is_between(SMALLEST["s"], LARGEST))
    refuse_rows(
        path,
        rows,
        bad=bad,
        reason="the time {date!r} is no time since 1970 in s, ms, us or ns",
        advice=ACCEPTED,
    )
    unit = max(
        (unit for unit, least in SMALLEST.items() if value[0] >= least), key=SMALLEST.__getitem__
    )
    other = ~value.is_between(SMALLEST[unit], SMALLEST[unit] * 1000, closed="left")
    refuse_rows(
        path,
        rows,
        bad=other,
        reason=f"the time {{date!r}} is not in {unit} as in the first row",
        advice="Use one unit in the file.",
    )
    if number.dtype.is_integer() and unit != "ns":
        return number.cast(pl.Int64) * int(MICROSECONDS[unit])
    if number.dtype.is_integer():
        return number.cast(pl.Int64) // 1000
    return (value * MICROSECONDS[unit]).round().cast(pl.Int64)


def from_text(path: Path, rows: pl.DataFrame, text: pl.Series) -> pl.Series:
    """ISO 8601 text; the offset is taken off, checked to be the same everywhere, and subtracted."""
    refuse_rows(
        path,
        rows,
        bad=~text.str.contains(OFFSET),
        reason="the time {date!r} is not understood",
        advice=ACCEPTED,
    )
    offset = text.str.extract(OFFSET, 1).fill_null("").str.to_uppercase()
    body = text.str.replace(r"(?i)\s*(Z|UTC)$", "").str.replace(
        r"(:\d{2}[\d:.]*)\s*[+-][\d:]+$", "${1}"
    )
    body = body.str.replace(" ", "T", literal=True)
    parsed = pl.Series("date", [None], dtype=pl.Datetime("us")).extend_constant(None, len(text) - 1)
    for form in FORMATS:
        if not parsed.null_count():
            break
        parsed = parsed.fill_null(body.str.to_datetime(form, time_unit="us", strict=False))
    refuse_rows(
        path,
        rows,
        bad=parsed.is_null(),
        reason="the time {date!r} is not understood",
        advice=ACCEPTED,
    )
    seconds = {written: offset_seconds(written) for written in offset.unique()}
    zone = offset.replace_strict(
        list(seconds), [str(value) for value in seconds.values()], return_dtype=pl.String
    )
    reason = f"the time {{date!r}} has another UTC offset than the first, {shorten(text[0])!r}"
    refuse_rows(
        path, rows, bad=zone != zone[0], reason=reason, advice="Write all times of the file in UTC."
    )
    return parsed.to_physical() - (seconds[offset[0]] or 0) * 1_000_000


def offset_seconds(written: str) -> int | None:
    """ "+05:30" as seconds; no offset at all is None, which differs from a stated zero."""
    if not written:
        return None
    if written in ("Z", "UTC"):
        return 0
    digits = written[1:].replace(":", "").ljust(4, "0")
    return (-1 if written[0] == "-" else 1) * (int(digits[:2]) * 3600 + int(digits[2:]) * 60)
