"""Every row that is refused, with its file, symbol and row, and how many there are."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from bar_files import HEADER, line, save, times

from flatout.bars.read import read_bars
from flatout.errors import BarsError

FINE = (10, 12, 9, 11)


@pytest.mark.parametrize(
    ("prices", "volume", "reason"),
    [
        (("nan", 12, 9, 11), 5, "open is nan"),
        (("", 12, 9, 11), 5, "open is missing"),
        ((10, "inf", 9, 11), 5, "high is inf"),
        ((10, 12, 0, 11), 5, "low is 0.0, not above zero"),
        ((10, 12, 9, -11), 5, "close is -11.0, not above zero"),
        ((10, 9, 12, 11), 5, "high 9.0 is below low 12.0"),
        ((13, 12, 9, 11), 5, "open 13.0 is outside low 9.0 and high 12.0"),
        ((10, 12, 9, 8), 5, "close 8.0 is outside low 9.0 and high 12.0"),
        ((10, 12, 9, "eleven"), 5, "close is the text 'eleven', not a number"),
        (FINE, -1, "volume is -1.0, below zero"),
        (FINE, "nan", "volume is nan"),
        (FINE, "", "volume is missing"),
        (FINE, "1,5", "cannot be read"),
    ],
)
def test_values(tmp_path: Path, prices: tuple[object, ...], volume: object, reason: str) -> None:
    first, second, third, fourth = times(4)
    bad = [line(t, "BBB", prices, volume) for t in (second, third)]
    path = save(tmp_path / "x.csv", [line(first, "BBB"), *bad, line(fourth, "BBB")])
    with pytest.raises(BarsError) as refused:
        read_bars(path)
    message = str(refused.value)
    assert str(path) in message
    assert reason in message
    if "cannot be read" not in reason:
        assert "symbol BBB, row 3: " in message
        assert "(2 such rows)" in message


def test_the_first_offence_is_reported_whatever_its_kind(tmp_path: Path) -> None:
    a, b, c = times(3)
    path = save(
        tmp_path / "x.csv", [line(a), line(b, volume=-1), line(c, prices=("nan", 12, 9, 11))]
    )
    with pytest.raises(BarsError, match=r"row 3: volume is -1\.0, below zero\. "):
        read_bars(path)


def test_rounding_of_a_billionth_is_allowed(tmp_path: Path) -> None:
    prices = (10 * (1 + 5e-10), 10, 9, 9 * (1 - 5e-10))
    assert (
        read_bars(save(tmp_path / "x.csv", [line(t, prices=prices) for t in times(2)])).n_bars == 2
    )


def test_parquet_rows_count_from_one(tmp_path: Path) -> None:
    frame = pl.DataFrame(
        {"date": times(3), **{n: [10.0] * 3 for n in ("open", "high", "low", "close")}}
    )
    frame = frame.with_columns(pl.Series("volume", [1.0, 1.0, -1.0]), pl.lit("BBB").alias("symbol"))
    frame.write_parquet(tmp_path / "x.parquet")
    with pytest.raises(BarsError, match=r"x\.parquet: symbol BBB, row 3: volume is -1\.0"):
        read_bars(tmp_path / "x.parquet")
    frame.with_columns(pl.Series("volume", [True, True, False])).write_parquet(
        tmp_path / "x.parquet"
    )
    with pytest.raises(
        BarsError, match=r"x\.parquet: symbol BBB, row 1: the column for volume holds Boolean"
    ):
        read_bars(tmp_path / "x.parquet")


@pytest.mark.parametrize("symbols", [("AAA", "BBB"), ("BBB", "AAA")])
def test_duplicates(tmp_path: Path, symbols: tuple[str, str]) -> None:
    a, b, c = times(3)
    rows = [line(t, symbol) for t in (a, b, c) for symbol in symbols]
    path = save(tmp_path / "x.csv", [*rows, line(b, "BBB"), line(c, "BBB")])
    again = 2 + rows.index(line(b, "BBB"))
    with pytest.raises(
        BarsError, match=rf"symbol BBB, row 8: the time .* already in row {again} \(2 such rows\)"
    ):
        read_bars(path)


def test_unsorted(tmp_path: Path) -> None:
    a, b, c = times(3)
    path = save(tmp_path / "x.csv", [line(a, "ZZZ"), line(a), line(c), line(b)])
    with pytest.raises(
        BarsError, match=r"x\.csv: symbol AAA, row 5: the time .*01:00:00 is before .*Sort by time"
    ):
        read_bars(path)


def test_newest_first_is_refused_where_the_format_does_not_say_so(tmp_path: Path) -> None:
    path = save(tmp_path / "x.csv", [line(t) for t in reversed(times(3))])
    with pytest.raises(BarsError, match=r"x\.csv: symbol AAA, row 3: .*Sort by time"):
        read_bars(path)


def test_a_cryptodatadownload_file_in_no_order_is_refused(tmp_path: Path) -> None:
    a, b, c = times(3)
    path = save(
        tmp_path / "x.csv",
        [HEADER, line(c), line(a), line(b)],
        "https://www.CryptoDataDownload.com",
    )
    with pytest.raises(BarsError, match=r"x\.csv: symbol AAA, row 4: .*Sort by time"):
        read_bars(path)


def test_a_row_without_a_symbol(tmp_path: Path) -> None:
    path = save(tmp_path / "x.csv", [line(times(1)[0]), line(times(2)[1], "")])
    with pytest.raises(BarsError, match=r"x\.csv: symbol \(none\), row 3: the symbol is missing"):
        read_bars(path)


def test_a_file_whose_symbol_is_unknown(tmp_path: Path) -> None:
    path = save(
        tmp_path / "prices.csv",
        [line(t).rsplit(",", 1)[0] for t in times(2)],
        HEADER.rsplit(",", 1)[0],
    )
    with pytest.raises(
        BarsError, match=r"prices\.csv: there is no symbol column .*one symbol by `symbols`"
    ):
        read_bars(path)
    assert read_bars(path, symbols=("GOLD",)).symbols == ("GOLD",)


def test_a_file_named_after_one_symbol_is_not_taken_for_another(tmp_path: Path) -> None:
    path = save(
        tmp_path / "ETH.csv",
        [line(t).rsplit(",", 1)[0] for t in times(2)],
        HEADER.rsplit(",", 1)[0],
    )
    with pytest.raises(BarsError, match=r"symbol BTC: there are no bars of it. Nearest: ETH"):
        read_bars(path, symbols=("BTC",))


def test_extras_may_be_missing_but_not_infinite_or_text(tmp_path: Path) -> None:
    def written(values: list[object]) -> Path:
        rows = [f"{line(t)},{value}" for t, value in zip(times(3), values, strict=True)]
        return save(tmp_path / "x.csv", rows, f"{HEADER},Signal")

    signal = read_bars(written([1, "", 3]), extras=("signal",)).extras["signal"]
    np.testing.assert_array_equal(signal, [[1.0], [np.nan], [3.0]])
    with pytest.raises(BarsError, match=r"symbol AAA, row 4: signal is inf"):
        read_bars(written([1, "", "inf"]), extras=("signal",))
    with pytest.raises(
        BarsError, match=r"symbol AAA, row 3: signal is the text 'up', not a number"
    ):
        read_bars(written([1, "up", 3]), extras=("signal",))
    assert read_bars(written([1, "up", 3])).extras == {}


@pytest.mark.parametrize(
    ("prices", "volume", "reason"),
    [
        ((1e300,) * 4, 5, "open is 1e+300, not from 1e-15 to 1e+15"),
        ((5e-324,) * 4, 5, "open is 5e-324, not from 1e-15 to 1e+15"),
        (FINE, 1e300, "volume is 1e+300, neither 0 nor from 1e-20 to 1e+20"),
        (FINE, 5e-324, "volume is 5e-324, neither 0 nor from 1e-20 to 1e+20"),
        (("9" * 5000, 12, 9, 11), 5, "open is inf"),
    ],
)
def test_numbers_whose_products_overflow_are_refused(
    tmp_path: Path, prices: tuple[object, ...], volume: object, reason: str
) -> None:
    first, second = times(2)
    path = save(tmp_path / "x.csv", [line(first), line(second, prices=prices, volume=volume)])
    with pytest.raises(BarsError) as refused:
        read_bars(path)
    assert f"symbol AAA, row 3: {reason}" in str(refused.value)


def test_a_cell_of_megabytes_is_quoted_by_its_beginning(tmp_path: Path) -> None:
    path = save(tmp_path / "x.csv", [line(times(1)[0], prices=("x" * 10_000_000, 12, 9, 11))])
    with pytest.raises(BarsError, match=r"open is the text 'x{80}…', not a number") as refused:
        read_bars(path)
    assert len(str(refused.value)) < 500


@pytest.mark.parametrize(
    "symbol", ["BTC/USDT", "../../up", "/abs", "=cmd|'/c calc'!A0", "[red]x", "ÄÖ", "x" * 100]
)
def test_unusual_symbols_are_read_as_they_are(tmp_path: Path, symbol: str) -> None:
    assert read_bars(save(tmp_path / "x.csv", [line(t, symbol) for t in times(2)])).symbols == (
        symbol,
    )


@pytest.mark.parametrize(
    "symbol", ["x" * 101, "a\x00b", "a\x1b[31m", '"a\nb"', "a\u202eb", "a\x7f"]
)
def test_names_that_cannot_be_shown_in_a_line_are_no_symbols(tmp_path: Path, symbol: str) -> None:
    path = save(tmp_path / "x.csv", [line(t, symbol) for t in times(2)])
    with pytest.raises(
        BarsError, match=r"is no symbol\. A symbol has 1 to 100 characters"
    ) as refused:
        read_bars(path)
    assert str(refused.value).isprintable()


@pytest.mark.parametrize(
    "symbols", [[["A"]] * 2, [{"a": 1}] * 2, [b"\xff"] * 2, [1.5] * 2, [True] * 2]
)
def test_columns_of_other_types_hold_no_symbols(tmp_path: Path, symbols: list[object]) -> None:
    frame = pl.DataFrame(
        {"date": times(2), **{n: [10.0] * 2 for n in ("open", "high", "low", "close", "volume")}}
    )
    frame.with_columns(pl.Series("symbol", symbols)).write_parquet(tmp_path / "x.parquet")
    with pytest.raises(
        BarsError, match=r"x\.parquet: the column for the symbol holds .*, not names"
    ):
        read_bars(tmp_path / "x.parquet")


@pytest.mark.parametrize("prices", [[[1.0]] * 2, [{"a": 1.0}] * 2, [b"1"] * 2])
def test_nested_types_are_no_prices_and_do_no_harm_elsewhere(
    tmp_path: Path, prices: list[object]
) -> None:
    frame = pl.DataFrame(
        {"date": times(2), **{n: [10.0] * 2 for n in ("open", "high", "low", "close", "volume")}}
    )
    frame = frame.with_columns(pl.lit("AAA").alias("symbol"))
    frame.with_columns(pl.Series("close", prices)).write_parquet(tmp_path / "x.parquet")
    with pytest.raises(BarsError, match=r"row 1: the column for close holds .*, not numbers"):
        read_bars(tmp_path / "x.parquet")
    frame.with_columns(pl.Series("notes", prices)).write_parquet(tmp_path / "x.parquet")
    assert read_bars(tmp_path / "x.parquet").n_bars == 2


def test_an_extra_may_have_braces_in_its_name_and_no_wild_values(tmp_path: Path) -> None:
    for value, message in (
        ("up", r"\{x\} is the text 'up', not a number"),
        ("-1e31", r"\{x\} is -1e31\. Write a number"),
    ):
        path = save(tmp_path / "x.csv", [f"{line(times(1)[0])},{value}"], f"{HEADER},{{x}}")
        with pytest.raises(BarsError, match=rf"symbol AAA, row 2: {message}"):
            read_bars(path, extras=("{x}",))
