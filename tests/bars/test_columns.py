"""Every spelling of columns that the reader promises to know, in a file as its source writes it."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from bar_files import line, save, times

from flatout.bars.panel import Panel
from flatout.bars.read import read_bars
from flatout.errors import BarsError

T0, T1 = 1_704_067_200, 1_704_070_800  # 2024-01-01 00:00 and 01:00 UTC
KLINE = "{t},10,12,9,11,5,{t},55,7,2,22,0"


def check_two_hours(panel: Panel, symbol: str) -> None:
    assert panel.symbols == (symbol,)
    assert panel.bar_seconds == 3600
    assert (
        panel.time.tolist()
        == np.array(["2024-01-01T00", "2024-01-01T01"], "datetime64[us]").tolist()
    )
    for name, value in {"open": 10, "high": 12, "low": 9, "close": 11, "volume": 5}.items():
        assert getattr(panel, name).tolist() == [[value], [value]], name
    assert panel.tradable.all()


def test_flatout(tmp_path: Path) -> None:
    check_two_hours(read_bars(save(tmp_path / "bars.csv", [line(t) for t in times(2)])), "AAA")


@pytest.mark.parametrize("suffix", ["csv", "parquet", "feather"])
def test_freqtrade(tmp_path: Path, suffix: str) -> None:
    frame = pl.DataFrame(
        {
            "date": times(2),
            "open": [10, 10],
            "high": [12, 12],
            "low": [9, 9],
            "close": [11, 11],
            "volume": [5.0, 5.0],
        }
    ).with_columns(
        pl.col("date").str.to_datetime().dt.replace_time_zone("UTC").cast(pl.Datetime("ms", "UTC"))
    )
    path = tmp_path / f"BTC_USDT-1h.{suffix}"
    {"csv": frame.write_csv, "parquet": frame.write_parquet, "feather": frame.write_ipc}[suffix](
        path
    )
    check_two_hours(read_bars(path), "BTC_USDT")


@pytest.mark.parametrize(
    "header",
    [
        "symbol,timestamp,open,high,low,close,volume,trade_count,vwap",
        "symbol,t,o,h,l,c,v,n,vw",
        "S,T,O,H,L,C,V,n,vw",
    ],
)
def test_alpaca(tmp_path: Path, header: str) -> None:
    header = header.replace("S,T", "Symbol,T")
    rows = [f"AAPL,2024-01-01T0{hour}:00:00Z,10,12,9,11,5,3,10.5" for hour in (0, 1)]
    path = save(tmp_path / "alpaca.csv", rows, header)
    check_two_hours(read_bars(path), "AAPL")
    extra = header.split(",")[-1]
    assert read_bars(path, extras=(extra,)).extras[extra].tolist() == [[10.5], [10.5]]


@pytest.mark.parametrize("zeros", ["000", "000000"])
@pytest.mark.parametrize(
    "header", [None, "Open time,Open,High,Low,Close,Volume,Close time,q,n,tb,tq,Ignore"]
)
def test_binance_klines(tmp_path: Path, zeros: str, header: str | None) -> None:
    path = save(
        tmp_path / "BTCUSDT_1h.csv", [KLINE.format(t=f"{t}{zeros}") for t in (T0, T1)], header
    )
    check_two_hours(read_bars(path), "BTCUSDT")


def test_binance_headerless_extras_have_the_kline_names(tmp_path: Path) -> None:
    path = save(tmp_path / "BTCUSDT.csv", [KLINE.format(t=f"{t}000") for t in (T0, T1)], None)
    assert read_bars(path, extras=("quote_volume",)).extras["quote_volume"].tolist() == [
        [55.0],
        [55.0],
    ]


@pytest.mark.parametrize(
    "names", ["Unix,Date,Symbol", "unix,date,symbol", "Unix Timestamp,Date,Symbol"]
)
def test_cryptodatadownload_is_newest_first_and_has_two_volumes(tmp_path: Path, names: str) -> None:
    lines = [
        f"{names},Open,High,Low,Close,Volume USDT,Volume BTC,tradecount",
        f"{T1},2024-01-01 01-AM,BTC/USDT,10,12,9,11,55,5,1",
        f"{T0},2024-01-01 12-AM,BTC/USDT,10,12,9,11,55,5,1",
    ]
    path = save(tmp_path / "Binance_BTCUSDT_1h.csv", lines, "https://www.CryptoDataDownload.com")
    check_two_hours(read_bars(path), "BTC/USDT")


def test_yahoo_takes_close_not_adj_close(tmp_path: Path) -> None:
    rows = [f"2024-01-0{day},10,12,9,11,3.5,5" for day in (1, 2, 3)]
    panel = read_bars(
        save(tmp_path / "BRK-B.csv", rows, "Date,Open,High,Low,Close,Adj Close,Volume")
    )
    assert panel.symbols == ("BRK-B",)
    assert panel.bar_seconds == 86_400
    assert panel.close.tolist() == [[11.0]] * 3


@pytest.mark.parametrize("name", ["ticker", "TIC", "Pair", "instrument"])
def test_symbol_columns(tmp_path: Path, name: str) -> None:
    check_two_hours(
        read_bars(
            save(
                tmp_path / "x.csv",
                [line(t) for t in times(2)],
                f"date,open,high,low,close,volume,{name}",
            )
        ),
        "AAA",
    )


def test_unusual_columns_can_be_stated(tmp_path: Path) -> None:
    path = save(
        tmp_path / "x.csv", [line(t) for t in times(2)], "when,open,high,low,close,amount,symbol"
    )
    check_two_hours(read_bars(path, columns={"date": "when", "volume": "amount"}), "AAA")
    with pytest.raises(
        BarsError, match=r"x\.csv: no column for date, volume among when, open.*timestamp.*columns="
    ):
        read_bars(path)
    with pytest.raises(BarsError, match=r"no column 'wen' for date.*Found: when"):
        read_bars(path, columns={"date": "wen"})
    with pytest.raises(BarsError, match=r"columns= has no 'price'.*It takes date"):
        read_bars(path, columns={"price": "close"})


@pytest.mark.parametrize(
    ("header", "meaning"),
    [
        ("date,open,high,low,close,volume,time", "date: date, time"),
        ("date,open,high,low,close,volume,Close", "close: close, Close"),
    ],
)
def test_two_columns_for_one_meaning_are_refused(tmp_path: Path, header: str, meaning: str) -> None:
    path = save(tmp_path / "AAA.csv", [line(t, "1") for t in times(2)], header)
    with pytest.raises(
        BarsError,
        match=rf"AAA\.csv: several columns could be the {meaning}.*Remove the others, or in Python",
    ):
        read_bars(path)


def test_base_volume_that_cannot_be_told_is_refused(tmp_path: Path) -> None:
    path = save(
        tmp_path / "x.csv",
        [line(t, "ETH/USD") for t in times(2)],
        "date,open,high,low,close,Volume USD,symbol",
    )
    with pytest.raises(
        BarsError, match=r"x\.csv: cannot tell the base volume of ETH/USD among Volume USD"
    ):
        read_bars(path)


def test_unknown_extra_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    path = save(
        tmp_path / "x.csv",
        [line(t) + ",1" for t in times(2)],
        "date,open,high,low,close,volume,symbol,signal",
    )
    with pytest.raises(BarsError, match=r"x\.csv: no column 'signl'\. Nearest: signal"):
        read_bars(path, extras=("signl",))
