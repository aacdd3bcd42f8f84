"""How refusals read when what they quote is long or wild."""

from pathlib import Path

import polars as pl
import pytest

from flatout.bars.refusal import LISTED, list_names, refusal, refuse_rows
from flatout.errors import BarsError


def test_many_names_are_counted() -> None:
    assert list_names(["a", "b"]) == "a, b"
    names = [f"c{k}" for k in range(100_000)]
    assert list_names(names).endswith(f"c{LISTED - 1}, {100_000 - LISTED:,} others")


def test_a_refusal_is_one_line() -> None:
    message = str(refusal(Path("x.csv"), "no column for low among a\nb, \x1b[31mred", "Add it."))
    assert message == r"x.csv: no column for low among a\nb, \x1b[31mred. Add it."


def test_a_cell_of_ten_megabytes_is_not_quoted_whole() -> None:
    rows = pl.DataFrame({"symbol": ["AAA"], "row": [2], "date": ["x" * 10_000_000]})
    with pytest.raises(BarsError) as refused:
        refuse_rows(
            Path("x.csv"),
            rows,
            pl.Series([True]),
            "the time {date!r} is not understood",
            "Write it.",
        )
    assert len(str(refused.value)) < 200
