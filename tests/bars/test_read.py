"""Files and folders as one panel; the real files as their description says they are."""

from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
from bar_files import HEADER, MONDAY, line, real_data, save, times

from flatout.bars.read import read_bars
from flatout.errors import BarsError

NAMELESS = HEADER.rsplit(",", 1)[0]


def one_symbol(path: Path, dates: list[str]) -> Path:
    return save(path, [line(t).rsplit(",", 1)[0] for t in dates], NAMELESS)


def test_a_folder_of_one_file_per_symbol(tmp_path: Path) -> None:
    one_symbol(tmp_path / "ETH_USDT-1h.csv", times(4))
    one_symbol(tmp_path / "BTC_USDT-1h.csv", times(3, start=MONDAY + timedelta(hours=1)))
    save(tmp_path / "other.csv", [line(t, "ADA") for t in times(2)])
    (tmp_path / "README.md").write_text("notes are left alone")
    panel = read_bars(tmp_path)
    assert panel.symbols == ("ADA", "BTC_USDT", "ETH_USDT")
    assert panel.tradable.T.tolist() == [
        [True, True, False, False],
        [False, True, True, True],
        [True] * 4,
    ]
    np.testing.assert_array_equal(panel.close[:, 1], [np.nan, 11, 11, 11])
    assert panel.close[:, 0].tolist() == [11.0] * 4


def test_long_files_may_be_ordered_by_symbol_or_by_time(tmp_path: Path) -> None:
    by_symbol = [line(t, s) for s in ("BBB", "AAA") for t in times(4)]
    by_time = [line(t, s) for t in times(4) for s in ("AAA", "BBB")]
    first = read_bars(save(tmp_path / "x.csv", by_symbol))
    assert first.symbols == ("AAA", "BBB")
    assert first.fingerprint == read_bars(save(tmp_path / "y.csv", by_time)).fingerprint


def test_symbols_are_chosen_in_the_order_given(tmp_path: Path) -> None:
    path = save(tmp_path / "x.csv", [line(t, s) for s in ("AAA", "BBB", "CCC") for t in times(3)])
    assert read_bars(path, symbols=("CCC", "AAA")).symbols == ("CCC", "AAA")


def test_bad_rows_of_symbols_that_are_not_wanted_do_not_matter(tmp_path: Path) -> None:
    path = save(
        tmp_path / "x.csv", [*[line(t) for t in times(3)], line(times(1)[0], "BBB", volume=-1)]
    )
    assert read_bars(path, symbols=("AAA",)).n_bars == 3
    with pytest.raises(BarsError, match=r"symbol BBB, row 5: volume"):
        read_bars(path)


def test_rows_keep_their_number_when_symbols_are_chosen(tmp_path: Path) -> None:
    path = save(
        tmp_path / "x.csv", [*[line(t) for t in times(3)], line(times(1)[0], "BBB", volume=-1)]
    )
    with pytest.raises(BarsError, match=r"symbol BBB, row 5: volume"):
        read_bars(path, symbols=("BBB",), bar="1h")


def test_unknown_symbols_are_refused_with_the_nearest_names(tmp_path: Path) -> None:
    path = save(tmp_path / "x.csv", [line(t, s) for s in ("BTCUSDT", "ETHUSDT") for t in times(3)])
    with pytest.raises(
        BarsError, match=r"x\.csv: symbol BTCUSD: there are no bars of it\. Nearest: BTCUSDT"
    ):
        read_bars(path, symbols=("BTCUSD",))


def test_an_empty_wish_is_no_wish_for_all(tmp_path: Path) -> None:
    path = save(tmp_path / "x.csv", [line(t, "AAA") for t in times(3)])
    with pytest.raises(BarsError, match="empty list: name one at least, or leave them out"):
        read_bars(path, symbols=[])


@pytest.mark.parametrize("symbols", [("AAA", "AAA")])
def test_a_wish_must_name_each_symbol_once(tmp_path: Path, symbols: tuple[str, ...]) -> None:
    with pytest.raises(BarsError, match=r"x\.csv: symbols=.* is empty or repeats a symbol"):
        read_bars(save(tmp_path / "x.csv", [line(t) for t in times(3)]), symbols=symbols)


def test_a_symbol_in_two_files_is_refused(tmp_path: Path) -> None:
    one_symbol(tmp_path / "AAA.csv", times(3))
    save(tmp_path / "more.csv", [line(t) for t in times(3)])
    with pytest.raises(BarsError, match=r"more\.csv: symbol AAA: the symbol is also in AAA\.csv"):
        read_bars(tmp_path)


def test_file_names_state_the_bar(tmp_path: Path) -> None:
    with pytest.raises(
        BarsError,
        match=r"AAA-1h\.csv: symbol AAA, row 3: the step of 5m .* smaller than the bar of 1h",
    ):
        read_bars(one_symbol(tmp_path / "AAA-1h.csv", times(10, 5)))
    one_symbol(tmp_path / "BBB-5m.csv", times(10, 5))
    with pytest.raises(BarsError, match="the file names state several bar sizes: 1h, 5m"):
        read_bars(tmp_path)
    assert read_bars(tmp_path, symbols=("BBB",)).bar_seconds == 300


REAL = [
    ("crypto_spot_5m_10coins_2024.parquet", 10, 300, 717_600, 0),
    ("crypto_spot_1h_30coins_2021H1.parquet", 30, 3600, 122_670, 7 * 30),
    ("crypto_spot_5m_btc_eth_2023.parquet", 2, 300, 209_632, 32),
    ("btc_spot_1h_2017_2024.parquet", 1, 3600, 58_418, 128),
    ("crypto_perp_1h_16coins_2020_2024.parquet", 16, 3600, 511_552, 0),
    ("dow29_daily_2009_2023.parquet", 29, 86_400, 103_675, 0),
]


@pytest.mark.parametrize(
    ("name", "assets", "bar", "rows", "missing"), REAL, ids=[name for name, *_ in REAL]
)
def test_real_candles(name: str, assets: int, bar: int, rows: int, missing: int) -> None:
    panel = read_bars(real_data(name))
    assert (panel.n_assets, panel.bar_seconds) == (assets, bar)
    assert int(panel.exists.sum()) == rows
    assert int((~panel.exists).sum()) == missing
    assert panel.always_open == (bar < 86_400)
    assert np.isfinite(panel.close).all()


@pytest.mark.parametrize("symbol", ["", "a\udcff", "a\nb", "x" * 10_000])
def test_a_wish_that_is_no_name_is_refused(tmp_path: Path, symbol: str) -> None:
    with pytest.raises(
        BarsError, match=r"x\.csv: .* is no symbol\. A symbol has 1 to 100 characters"
    ) as refused:
        read_bars(save(tmp_path / "x.csv", [line(t) for t in times(3)]), symbols=(symbol,))
    assert len(str(refused.value)) < 500


def test_a_folder_of_many_odd_files_is_refused_by_the_first_that_is_damaged(tmp_path: Path) -> None:
    for k in range(300):
        (tmp_path / f"{k:03}.{('txt', 'json', 'xlsx', 'md')[k % 4]}").write_bytes(
            bytes([k % 256]) * 20
        )
    one_symbol(tmp_path / "AAA.csv", times(3))
    assert read_bars(tmp_path).symbols == ("AAA",)
    (tmp_path / "BBB.feather").write_bytes(b"nonsense")
    with pytest.raises(BarsError, match=r"BBB\.feather: the file cannot be read"):
        read_bars(tmp_path)
