"""Numbers with commas between the thousands, as exchanges export them, and commas that are none."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from bar_files import line, save, times
from hypothesis import given
from hypothesis import strategies as st

from flatout.bars.files import KLINE_COLUMNS
from flatout.bars.grouped_numbers import has_grouped_thousands, parse_numbers
from flatout.bars.read import read_bars
from flatout.errors import BarsError

ADVICE = (
    "Write a point before the decimals, and commas only between groups of three digits: "
    "1020.5 or 1,020.5."
)


def quote_all(values: tuple[str, ...]) -> list[str]:
    return [f'"{value}"' for value in values]


@given(
    st.integers(-(10**15), 10**15),
    st.sampled_from(("", ".", ".0", ".5", ".25", ".020", ".123456")),
    st.sampled_from(("", "+")),
    st.sampled_from(("", " ", "\t")),
)
def test_a_grouped_number_is_the_number_without_its_commas(
    whole: int, decimals: str, sign: str, space: str
) -> None:
    sign = sign if whole >= 0 else ""
    grouped = f"{space}{sign}{whole:,}{decimals}{space}"
    assert parse_numbers(pl.Series([grouped]))[0] == float(f"{whole}{decimals}")
    assert has_grouped_thousands(grouped.strip()) == (abs(whole) >= 1000)


@given(st.floats(0.01, 1e12, allow_nan=False))
def test_what_is_written_with_commas_is_read_as_it_was(value: float) -> None:
    assert parse_numbers(pl.Series([f"{value:,.6f}"]))[0] == float(f"{value:.6f}")


@given(st.text("0123456789,.+-e ", max_size=14))
def test_no_other_text_with_a_comma_is_a_number(text: str) -> None:
    """What is read is what Python writes for that number: nothing else can be meant by it."""
    value = parse_numbers(pl.Series([text], dtype=pl.String))[0]
    if value is None or "," not in text:
        return
    whole, _, decimals = text.strip().lstrip("+-").partition(".")
    assert whole == f"{int(whole.replace(',', '')):,}"
    assert "," not in decimals
    assert value == float(text.strip().replace(",", ""))


@pytest.mark.parametrize(
    "text", ["1,02", "1,0200", "0,123", "01,234", ",123", "1,,234", "1,234,", "1.5,000", "1,234e3"]
)
def test_other_commas_are_refused_with_what_was_given_and_what_to_do(
    tmp_path: Path, text: str
) -> None:
    first, second, third, fourth = times(4)
    bad = [line(t, "BBB", (10, 12, 9, f'"{text}"')) for t in (second, third)]
    path = save(tmp_path / "x.csv", [line(first, "BBB"), *bad, line(fourth, "BBB")])
    with pytest.raises(BarsError) as refused:
        read_bars(path)
    assert str(refused.value) == (
        f"{path}: symbol BBB, row 3: close is the text {text!r}, not a number (2 such rows). "
        f"{ADVICE}"
    )


def test_a_file_of_an_exchange(tmp_path: Path) -> None:
    prices = quote_all(("1,020.00", "1,234,567.5", "999.25", "1,100"))
    rows = [line(t, prices=prices, volume='"12,345"') for t in times(3)]
    panel = read_bars(save(tmp_path / "x.csv", rows))
    assert panel.open.tolist() == [[1020.0]] * 3
    assert panel.high.tolist() == [[1234567.5]] * 3
    assert panel.low.tolist() == [[999.25]] * 3
    assert panel.close.tolist() == [[1100.0]] * 3
    assert panel.volume.tolist() == [[12345.0]] * 3


def test_extras_and_columns_of_table_files_are_read_so_too(tmp_path: Path) -> None:
    text = {name: ["1,020.00"] * 2 for name in ("open", "high", "low", "close", "volume", "trades")}
    frame = pl.DataFrame({"date": times(2), **text, "symbol": ["AAA"] * 2})
    frame.write_parquet(tmp_path / "x.parquet")
    panel = read_bars(tmp_path / "x.parquet", extras=("trades",))
    assert np.array_equal(panel.close, [[1020.0]] * 2)
    assert np.array_equal(panel.extras["trades"], [[1020.0]] * 2)


def test_values_behind_the_commas_are_still_checked_in_their_row(tmp_path: Path) -> None:
    a, b, c = times(3)
    prices = quote_all(("1,020", "1,500", "1,000", "1,100"))
    wrong = quote_all(("1,020", "1,500", "1,600", "1,100"))
    rows = [line(a, prices=prices), line(b, prices=wrong), line(c, prices=prices)]
    with pytest.raises(BarsError, match=r"row 3: high 1500\.0 is below low 1600\.0\. "):
        read_bars(save(tmp_path / "x.csv", rows))


def test_a_grouped_first_row_is_no_header(tmp_path: Path) -> None:
    fields = ["1704067200000", '"42,283.58"', '"42,554.57"', '"42,261.02"', '"42,475.23"']
    fields += ['"1,271.68"', "1704070799999", '"53,957,248.97"', '"47,134"', '"682.57"', "1", "0"]
    assert len(fields) == len(KLINE_COLUMNS)
    later = ["1704070800000", *fields[1:]]
    path = save(tmp_path / "BTCUSDT-1h.csv", [",".join(fields), ",".join(later)], header=None)
    panel = read_bars(path)
    assert panel.open.tolist() == [[42283.58]] * 2
    assert panel.volume.tolist() == [[1271.68]] * 2
