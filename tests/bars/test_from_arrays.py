"""Price and indicator arrays as bars: what is taken, what is assumed, and what is refused."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flatout.bars.from_arrays import ASSUMED_TURNOVER, ArrayFiles, read_arrays
from flatout.bars.synthetic import RandomWalk
from flatout.errors import BarsError

SYMBOLS = ("BTC", "ETH", "AAVE")  # not in order of name
WALK = RandomWalk(n_bars=60, symbols=SYMBOLS, bar_seconds=300, start_price=20.0).panel()
OHLCV = ("open", "high", "low", "close", "volume")
RSI = np.random.default_rng(0).uniform(0, 100, WALK.close.shape)


def stacked(order: str = "asset", **columns: np.ndarray) -> np.ndarray:
    """(time, asset x indicator), as FinRL stacks them, or the other way round."""
    axis = 2 if order == "asset" else 1
    return np.stack(list(columns.values()), axis=axis).reshape(WALK.n_bars, -1)


def save(folder: Path, **arrays: np.ndarray) -> ArrayFiles:
    """The arrays as files; prices are the walk's unless given."""
    for name, array in ({"prices": WALK.close} | arrays).items():
        np.save(folder / f"{name}.npy", array)
    given = {name: folder / f"{name}.npy" for name in ("prices", *arrays)}
    return ArrayFiles(
        symbols=SYMBOLS, bar="5m", start=None if "times" in arrays else "2024-01-05", **given
    )


def refused(files: ArrayFiles, message: str, **changes: Any) -> None:
    with pytest.raises(BarsError, match=message):
        read_arrays(replace(files, **changes))


# --- what is taken --------------------------------------------------------------------------------


def test_whole_bars_come_back_as_they_were(tmp_path: Path) -> None:
    columns = {name: getattr(WALK, name) for name in OHLCV}
    for order in ("asset", "indicator"):
        files = save(tmp_path, tech=stacked(order, **columns, rsi=RSI), times=WALK.time)
        files = replace(files, indicators=(*OHLCV, "rsi"), tech_order=order)
        panel, assumed = read_arrays(files)
        assert assumed == ()
        assert panel.symbols == SYMBOLS
        assert panel.fingerprint == replace(WALK, extras={"rsi": RSI}).fingerprint


def test_closes_alone_assume_the_rest_and_say_so(tmp_path: Path) -> None:
    panel, assumed = read_arrays(save(tmp_path))
    for name in ("open", "high", "low", "close"):
        np.testing.assert_array_equal(getattr(panel, name), WALK.close)
    np.testing.assert_allclose(panel.volume * WALK.close[0], ASSUMED_TURNOVER)
    assert panel.tradable.all()
    assert [line.split(" ")[0] for line in assumed] == ["open", "high", "volume", "no"]
    assert "fills at the next close" in assumed[0]
    assert "stops see less" in assumed[1]
    assert "participation limits and impact mean nothing" in assumed[2]
    assert panel.time[0] == np.datetime64("2024-01-05")
    assert np.all(np.diff(panel.time) == np.timedelta64(5, "m"))


def test_an_order_cannot_fill_at_the_price_it_was_decided_on(tmp_path: Path) -> None:
    """The open of a bar is not the close before, which the agent has seen."""
    panel, _ = read_arrays(save(tmp_path))
    assert not (panel.open[1:] == panel.close[:-1]).any()


def test_opens_without_highs_reach_from_open_to_close(tmp_path: Path) -> None:
    files = save(tmp_path, tech=stacked(open=WALK.open), volume=WALK.volume)
    panel, assumed = read_arrays(replace(files, indicators=("Open",)))
    np.testing.assert_array_equal(panel.open, WALK.open)
    np.testing.assert_array_equal(panel.high, np.maximum(WALK.open, WALK.close))
    np.testing.assert_array_equal(panel.low, np.minimum(WALK.open, WALK.close))
    np.testing.assert_array_equal(panel.volume, WALK.volume)
    assert assumed[0].startswith("high and low reach no further than open and close")
    assert len(assumed) == 2


def test_bars_without_volume_are_not_tradable(tmp_path: Path) -> None:
    volume = WALK.volume.copy()
    volume[5, 1] = 0
    panel, _ = read_arrays(save(tmp_path, volume=volume))
    assert np.argwhere(~panel.tradable).tolist() == [[5, 1]]


@pytest.mark.parametrize("unit", ["seconds", "milliseconds", "text", "datetime64[D]"])
def test_times_in_all_spellings(unit: str, tmp_path: Path) -> None:
    days = np.datetime64("2024-01-01") + np.arange(WALK.n_bars)
    seconds = days.astype("datetime64[s]").astype(np.int64)
    times = {"seconds": seconds, "milliseconds": 1000.0 * seconds, "text": days.astype(str)}.get(
        unit, days
    )
    panel, _ = read_arrays(replace(save(tmp_path, times=times), bar="1d"))
    np.testing.assert_array_equal(panel.time, days.astype("datetime64[us]"))


def test_gaps_in_the_times_are_missing_bars(tmp_path: Path) -> None:
    panel, _ = read_arrays(
        save(tmp_path, times=np.delete(WALK.time, 7), prices=np.delete(WALK.close, 7, axis=0))
    )
    assert panel.n_bars == WALK.n_bars
    assert not panel.exists[7].any()
    assert not panel.tradable[7].any()


def test_one_symbol_may_be_a_plain_row_of_prices(tmp_path: Path) -> None:
    panel, _ = read_arrays(replace(save(tmp_path, prices=WALK.close[:, 0]), symbols=("BTC",)))
    np.testing.assert_array_equal(panel.close, WALK.close[:, :1])


def test_indicators_without_a_value_stay_so(tmp_path: Path) -> None:
    rsi = RSI.copy()
    rsi[:14] = np.nan
    panel, _ = read_arrays(replace(save(tmp_path, tech=stacked(rsi=rsi)), indicators=("rsi",)))
    np.testing.assert_array_equal(panel.extras["rsi"], rsi)


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prices", "message"),
    [
        (WALK.close.T, r"its shape is \(3, 60\), not \(time, 3\) .*Save its transpose"),
        (
            WALK.close[:, :2],
            (
                r"its shape is \(60, 2\), not \(time, 3\) for the symbols BTC, ETH, AAVE.*name the "
                r"columns"
            ),
        ),
        (WALK.close[:, 0], r"its shape is \(60,\)"),
        (WALK.close[None], r"its shape is \(1, 60, 3\)"),
        (WALK.close[:1], "with two bars or more"),
        (WALK.close.astype(str), "not numbers"),
    ],
)
def test_prices_of_another_shape_are_refused(
    prices: np.ndarray, message: str, tmp_path: Path
) -> None:
    refused(save(tmp_path, prices=prices), message)


@pytest.mark.parametrize(
    ("value", "shown"), [(np.nan, "nan"), (np.inf, "inf"), (0.0, "0"), (-2.5, "-2.5")]
)
def test_impossible_prices_are_refused_by_place(value: float, shown: str, tmp_path: Path) -> None:
    prices = WALK.close.copy()
    prices[[8, 9], 1] = value
    refused(
        save(tmp_path, prices=prices), rf"symbol ETH, row 8: the price is {shown} \(2 such rows\)"
    )


@pytest.mark.parametrize(("name", "value", "message"), [
    ("volume", np.nan, "volume is nan"), ("volume", -1.0, ("volume is -1.0, below "
                                                          "zero")), ("rsi", np.inf, "rsi is inf"),
    ("low", 1e6, "high .* is below low"), ("open", np.nan, "open is nan"),
])  # fmt: skip
def test_impossible_columns_are_refused_by_place(
    name: str, value: float, message: str, tmp_path: Path
) -> None:
    columns = {name: getattr(WALK, name).copy() for name in OHLCV} | {"rsi": RSI.copy()}
    columns[name][8, 1] = value
    files = save(tmp_path, tech=stacked(**columns))
    refused(
        files,
        rf"prices\.npy \+ .*tech\.npy: symbol ETH, row 8: {message}",
        indicators=tuple(columns),
    )


def test_indicators_of_another_shape_are_refused(tmp_path: Path) -> None:
    files = save(tmp_path, tech=stacked(rsi=RSI, dx=RSI))
    message = r"its shape is \(60, 6\), not \(time, 9\) for 3 symbols x 3 indicators"
    refused(files, message, indicators=("rsi", "dx", "obv"))
    refused(files, "tech.* and their names .`indicators`. are needed together")
    refused(save(tmp_path), "are needed together", indicators=("rsi",))
    refused(save(tmp_path, tech=RSI[1:]), "it has 59 rows, the prices have 60", indicators=("rsi",))
    refused(
        save(tmp_path, tech=RSI.reshape(60, 3, 1)),
        r"its shape is \(60, 3, 1\)",
        indicators=("rsi",),
    )


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("rsi", "RSI"), "'rsi' has no name or is named twice"),
        (("rsi", " "), "'' has no name"),
        (("rsi", "Vol"), "'Vol' would be read as the volume. Name it otherwise"),
        (("rsi", "timestamp"), "would be read as the date"),
        (("ticker", "rsi"), "would be read as the symbol"),
    ],
)
def test_names_that_mean_something_else_are_refused(
    names: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    refused(save(tmp_path, tech=stacked(one=RSI, two=RSI)), message, indicators=names)


def test_closes_show_a_wrong_order(tmp_path: Path) -> None:
    files = save(tmp_path, tech=stacked("indicator", close=WALK.close, rsi=RSI))
    message = (
        r"symbol ETH, row 0: its close is .*, the price is .*whether columns lie by asset "
        r"\(`tech_order`\)"
    )
    refused(files, message, indicators=("close", "rsi"))
    panel, _ = read_arrays(replace(files, indicators=("close", "rsi"), tech_order="indicator"))
    assert list(panel.extras) == ["rsi"]


def test_times_are_given_once_and_fit(tmp_path: Path) -> None:
    files = save(tmp_path, times=WALK.time)
    refused(files, "either the first bar's time .* or a file", start="2024-01-05")
    refused(files, "either the first bar's time .* or a file", times=None)
    refused(save(tmp_path), "'yesterday' is not a time", start="yesterday")
    refused(save(tmp_path, times=WALK.time[:-1]), "it has 59 rows, the prices have 60")
    refused(save(tmp_path, times=WALK.time[::-1]), "symbol BTC, row 1: the time .* is before")
    refused(
        save(tmp_path, times=np.repeat(WALK.time[::2], 2)),
        "symbol BTC, row 1: the time .* is already in row 0",
    )
    refused(
        save(tmp_path, times=WALK.time),
        r"prices\.npy \+ .*times\.npy: symbol AAVE, row 1: .*smaller than",
        bar="1h",
    )
    refused(save(tmp_path), "is not a bar size", bar="week")


def test_a_start_with_a_zone_becomes_utc(tmp_path: Path) -> None:
    panel, _ = read_arrays(replace(save(tmp_path), start="2024-01-05T02:00+02:00"))
    assert panel.time[0] == np.datetime64("2024-01-05")


def test_symbols_are_named_once(tmp_path: Path) -> None:
    refused(save(tmp_path), "name each column of the prices once", symbols=("BTC", "BTC", "ETH"))
    refused(save(tmp_path), r"symbols \(none\)", symbols=())


def test_volume_is_given_once(tmp_path: Path) -> None:
    files = save(tmp_path, tech=stacked(volume=WALK.volume), volume=WALK.volume)
    refused(files, "the indicators name a volume too", indicators=("volume",))
    refused(
        save(tmp_path, volume=WALK.volume[:, :2]),
        r"its shape is \(60, 2\), not \(time, 3\) as the prices",
    )


@pytest.mark.parametrize(
    "start", ["0001-01-01T00:00+05:00", "9999-12-31T23:00-05:00", "x" * 100_000]
)
def test_a_start_that_no_calendar_has_is_refused_in_a_short_sentence(
    tmp_path: Path, start: str
) -> None:
    with pytest.raises(BarsError, match=r"the start '.* is not a time") as failed:
        read_arrays(replace(save(tmp_path), start=start))
    assert len(str(failed.value)) < 300


@pytest.mark.parametrize("start", ["0001-01-01", "9999-12-31"])
def test_a_start_outside_of_all_markets_is_refused(tmp_path: Path, start: str) -> None:
    refused(save(tmp_path), r"row 0: the time .* is outside the years 1800 to 2261", start=start)


@pytest.mark.parametrize("price", [1e300, 5e-324])
def test_prices_whose_products_overflow_are_refused(tmp_path: Path, price: float) -> None:
    prices = WALK.close.copy()
    prices[0, 1] = price
    refused(
        save(tmp_path, prices=prices),
        r"symbol ETH, row 0: the price is .*Prices lie between 1e-15 and 1e\+15",
    )


@pytest.mark.parametrize("symbol", ["x" * 101, "a\nb", "a\udcff"])
def test_names_that_cannot_be_shown_are_no_symbols(tmp_path: Path, symbol: str) -> None:
    refused(save(tmp_path), "is no symbol", symbols=("BTC", symbol, "AAVE"))
