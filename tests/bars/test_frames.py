"""Bars in memory: frames of Polars and pandas are read as files are."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from flatout.bars.read import read_bars, read_each
from flatout.bars.synthetic import RandomWalk
from flatout.bars.write import write_bars
from flatout.errors import BarsError

WALK = RandomWalk(n_bars=60, seed=3, symbols=("AAA", "BBB")).panel()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    write_bars(WALK, tmp_path / "walk.parquet")
    return tmp_path / "walk.parquet"


def test_a_polars_frame_is_the_file_it_was_read_from(file: Path) -> None:
    assert read_bars(pl.read_parquet(file)).fingerprint == read_bars(file).fingerprint


@pytest.mark.parametrize(
    "shape", ["columns", "index of times", "index and column", "index of both"]
)
def test_a_pandas_frame_is_the_file_it_was_read_from(file: Path, shape: str) -> None:
    frame = pd.DataFrame(pl.read_parquet(file).to_dict(as_series=False))
    if shape == "index of times":
        frame = frame.set_index("date")
    if shape == "index and column":
        frame = frame.set_index("date", drop=False)
    if shape == "index of both":
        frame = frame.set_index(["symbol", "date"])
    assert read_bars(frame).fingerprint == WALK.fingerprint


@pytest.mark.parametrize("above", ["prices", "symbols"])
@pytest.mark.parametrize("names", [("Price", "Ticker"), (None, None)])
@pytest.mark.parametrize("symbols", [("AAA", "BBB"), ("BBB",)])
def test_symbols_may_be_a_level_of_the_columns(
    file: Path, above: str, names: tuple[str | None, str | None], symbols: tuple[str, ...]
) -> None:
    """As yfinance gives them, with `group_by="ticker"` or without."""
    frame = pd.DataFrame(pl.read_parquet(file).to_dict(as_series=False))
    frame = frame[frame["symbol"].isin(symbols)].rename(columns=str.capitalize)
    wide = frame.pivot(index="Date", columns="Symbol").rename_axis(columns=names)
    wide = wide if above == "prices" else wide.swaplevel(axis=1).sort_index(axis=1)
    assert read_bars(wide).fingerprint == read_bars(file, symbols=symbols).fingerprint


def test_bars_that_one_of_several_symbols_lacks_are_missing(file: Path) -> None:
    frame = pd.DataFrame(pl.read_parquet(file).to_dict(as_series=False))
    wide = frame.drop(index=[3, 4]).pivot(index="date", columns="symbol")
    panel = read_bars(wide)
    assert panel.exists[:, 0].tolist() == [True] * 3 + [False] * 2 + [True] * 55
    assert panel.exists[:, 1].all()
    wide.loc[wide.index[7], ("low", "BBB")] = -1.0
    with pytest.raises(BarsError, match="the frame: symbol BBB, row 8: low is -1"):
        read_bars(wide)


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata", "America/New_York"])
def test_times_with_a_zone_are_utc(file: Path, zone: str) -> None:
    frame = pd.DataFrame(pl.read_parquet(file).to_dict(as_series=False))
    times = pd.to_datetime(frame["date"], utc=True).dt.tz_convert(zone)
    assert read_bars(frame.assign(date=times)).fingerprint == WALK.fingerprint


def test_an_unnamed_index_of_times_is_the_time() -> None:
    times = pd.date_range("2024-01-01", periods=5, freq="h")
    frame = pd.DataFrame({"open": 1.0, "high": 1.0, "low": 1.0, "close": 1.0, "volume": 2}, times)
    panel = read_bars(frame, symbols=["BTC"])
    assert panel.symbols == ("BTC",)
    assert (panel.time == times.to_numpy().astype("datetime64[us]")).all()


def test_each_symbol_has_the_grid_of_its_own_bars(tmp_path: Path) -> None:
    """The later symbol must not get an hour without prices because the other one was there."""
    table = pl.concat([bars_from(symbol, start) for symbol, start in (("AAA", 0), ("BBB", 7))])
    path = tmp_path / "bars.parquet"
    table.write_parquet(path)
    for source in (table, path):
        each = read_each(source, ["BBB", "AAA"])
        alone = [read_bars(source, symbols=[name]) for name in ("BBB", "AAA")]
        assert [panel.fingerprint for panel in each] == [panel.fingerprint for panel in alone]
        assert [panel.n_bars for panel in each] == [20, 20]


def bars_from(symbol: str, start: int) -> pl.DataFrame:
    times = [datetime(2024, 1, 1, tzinfo=UTC) + timedelta(hours=start + k) for k in range(20)]
    prices = 100 + np.arange(20.0)
    values: dict[str, Any] = dict.fromkeys(("open", "high", "low", "close"), prices)
    return pl.DataFrame({"date": times, "symbol": [symbol] * 20, **values, "volume": prices})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (pl.DataFrame(), "the frame: it has no bars"),
        (pl.DataFrame({"date": [1], "close": [2.0]}), "the frame"),
        ([1, 2, 3], "bars are of type list: give a path, a Panel, or a frame"),
        (RandomWalk(n_bars=30).panel(), "a Panel already"),
        (pd.DataFrame({("a", "b"): [1.0]}), "its columns have 2 levels, and not one of symbols"),
        (pd.DataFrame({("a", "b", "c"): [1.0]}), "its columns have 3 levels, and not one of"),
        (pd.DataFrame([[1.0, 2.0]], columns=["a", "a"]), "two of its columns have one name"),
    ],
    ids=["empty", "columns", "list", "panel", "levels", "three levels", "twice"],
)
def test_what_is_no_frame_of_bars_is_refused(given: Any, said: str) -> None:
    with pytest.raises(BarsError) as error:
        read_bars(given)
    assert said in str(error.value)


def test_a_bad_row_is_named(file: Path) -> None:
    frame = pl.read_parquet(file).with_columns(
        pl.when(pl.int_range(pl.len()) == 4).then(-1.0).otherwise(pl.col("low")).alias("low")
    )
    with pytest.raises(BarsError, match=r"the frame: .*row 5: low is -1"):
        read_bars(frame)
