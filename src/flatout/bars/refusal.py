"""The one form in which bars are refused: file, symbol, row, reason, how many such rows, and what
to do.

This file knows how a refusal reads; it does not know what is refused or why.
"""

from collections.abc import Iterable
from itertools import islice
from pathlib import Path

import polars as pl

from flatout.errors import BarsError
from flatout.foreign import shorten

LISTED = 20  # names


def refusal(
    path: Path,
    reason: str,
    advice: str,
    *,
    symbol: str | None = None,
    row: int | None = None,
    count: int = 1,
) -> BarsError:
    """An error to raise; `row` is the line of a CSV file, its header included, or the row of a
    table file.
    """
    place = [f"symbol {shorten(symbol)}"] * (symbol is not None) + [f"row {row}"] * (
        row is not None
    )
    others = f" ({count:,} such rows)" if count > 1 else ""
    return BarsError(
        one_line(f"{path}: {', '.join(place) + ': ' if place else ''}{reason}{others}. {advice}")
    )


def refuse_rows(path: Path, rows: pl.DataFrame, bad: pl.Series, reason: str, advice: str) -> None:
    """Raise for the first row where `bad` holds, if there is one; `{column}` in the reason shows
    its value.

    `rows` has the columns `symbol` and `row` beside the ones that the reason names.
    """
    first = bad.arg_max()
    if first is None or not bad[first]:
        return
    values = rows.row(first, named=True)
    symbol = values["symbol"] if values["symbol"] is not None else "(none)"
    shown = {
        name: shorten(value) if isinstance(value, str) else value for name, value in values.items()
    }
    raise refusal(
        path, reason.format(**shown), advice, symbol=symbol, row=values["row"], count=int(bad.sum())
    )


def one_line(text: str) -> str:
    """The text with line ends and whatever else controls a terminal spelled out: names of columns
    may hold them.
    """
    return (
        text
        if text.isprintable()
        else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    )


def list_names(names: Iterable[str]) -> str:
    """Names for a message: the first of them, if there are many."""
    names = list(names)
    rest = len(names) - LISTED
    return ", ".join(
        [
            *(shorten(name) for name in islice(names, LISTED)),
            *([f"{rest:,} others"] if rest > 0 else []),
        ]
    )
