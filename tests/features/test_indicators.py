"""Indicators against TA-Lib and plain loops, and the properties that all of them share."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import talib
from feature_panels import flat_panel, listed_late, random_panel, with_gap
from hypothesis import given, settings
from hypothesis import strategies as st

from flatout.bars.panel import Panel
from flatout.errors import RecipeError
from flatout.features.indicators import DEFAULT_INDICATORS, INDICATORS, compute_indicators, warmup
from rounding import assert_close

NAMES = tuple(indicator.name for indicator in INDICATORS)
LONGEST = max(indicator.warmup for indicator in INDICATORS)
SHARED_DATA = Path(
    os.environ.get("FLATOUT_SHARED_DATA", Path(__file__).parents[2] / "../shared/data")
)


def second_difference(values):
    return np.concatenate([[np.nan, np.nan], np.diff(values, 2)])


def change(values, bars):
    return np.concatenate([np.full(bars, np.nan), values[bars:] - values[:-bars]])


def regime(atr):
    mean = talib.SMA(atr, 50)
    return (atr - mean) / mean


def breakout_loop(high, low, close, volume):
    """Written bar by bar, Wilder's average included."""
    out = [float("nan")] * len(close)
    atr = None
    ranges = []
    for t in range(1, len(close)):
        true_range = max(high[t], close[t - 1]) - min(low[t], close[t - 1])
        ranges.append(true_range)
        if t == 14:
            atr = sum(ranges) / 14
        elif t > 14:
            atr = (13 * atr + true_range) / 14
        if t < 20:
            continue
        top, bottom = max(high[t - 20 : t]), min(low[t - 20 : t])
        outside = (
            close[t] - top if close[t] > top else close[t] - bottom if close[t] < bottom else 0.0
        )
        out[t] = outside / atr * volume[t] / (sum(volume[t - 19 : t + 1]) / 20)
    return np.array(out)


ORACLES = {  # high, low, close, volume of one asset in its own prices
    "macd": lambda h, lo, c, v: talib.MACD(c, 12, 26, 9)[0] / c,
    "macd_signal": lambda h, lo, c, v: talib.MACD(c, 12, 26, 9)[1] / c,
    "macd_hist": lambda h, lo, c, v: talib.MACD(c, 12, 26, 9)[2] / c,
    "rsi": lambda h, lo, c, v: (talib.RSI(c, 14) - 50) / 50,
    "cci": lambda h, lo, c, v: talib.CCI(h, lo, c, 14) / 100,
    "dx": lambda h, lo, c, v: talib.DX(h, lo, c, 14) / 100,
    "atr_regime": lambda h, lo, c, v: regime(talib.ATR(h, lo, c, 14)),
    "adx_acceleration": lambda h, lo, c, v: second_difference(talib.ADX(h, lo, c, 14)),
    "roc": lambda h, lo, c, v: talib.ROCP(c, 10),
    "ultosc": lambda h, lo, c, v: (talib.ULTOSC(h, lo, c, 7, 14, 28) - 50) / 50,
    "willr": lambda h, lo, c, v: (talib.WILLR(h, lo, c, 14) + 50) / 50,
    "obv": lambda h, lo, c, v: change(talib.OBV(c, v), 20) / talib.SUM(v, 20),
    "return_1": lambda h, lo, c, v: change(np.log(c), 1),
    "return_5": lambda h, lo, c, v: change(np.log(c), 5),
    "return_20": lambda h, lo, c, v: change(np.log(c), 20),
    "return_60": lambda h, lo, c, v: change(np.log(c), 60),
    "volatility": lambda h, lo, c, v: talib.STDDEV(change(np.log(c), 1), 20),
    "volume": lambda h, lo, c, v: np.log((1 + v / talib.SMA(v, 50)) / 2),
    "breakout_volume": breakout_loop,
}


def values_of(panel: Panel, name: str, asset: int = 0):
    return compute_indicators(panel, (name,))[:, asset, 0]


def test_every_indicator_has_an_oracle():
    assert set(ORACLES) == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
@given(seed=st.integers(0, 2**32 - 1), volatility=st.sampled_from([1e-4, 0.01, 0.05]))
@settings(max_examples=10, deadline=None)
def test_equals_oracle_on_raw_prices(name, seed, volatility):
    panel = random_panel(seed, volatility=volatility)
    for asset in range(panel.n_assets):
        bars = [
            np.ascontiguousarray(x[:, asset])
            for x in (panel.high, panel.low, panel.close, panel.volume)
        ]
        got, want = values_of(panel, name, asset), ORACLES[name](*bars)
        np.testing.assert_allclose(got[warmup(name) :], want[warmup(name) :], rtol=1e-7, atol=1e-8)


def test_fourteen_defaults_all_known_and_distinct():
    assert len(DEFAULT_INDICATORS) == len(set(DEFAULT_INDICATORS)) == 14
    assert set(DEFAULT_INDICATORS) <= set(NAMES)


@given(seed=st.integers(0, 2**32 - 1), price=st.floats(1e-9, 1e9), volume=st.floats(1e-6, 1e9))
@settings(max_examples=25, deadline=None)
def test_price_and_volume_units_do_not_matter(seed, price, volume):
    panel = with_gap(random_panel(seed, bars=300), 220, 240)
    scaled = replace(
        panel,
        open=panel.open * price,
        high=panel.high * price,
        low=panel.low * price,
        close=panel.close * price,
        volume=panel.volume * volume,
    )
    np.testing.assert_allclose(
        compute_indicators(scaled, NAMES), compute_indicators(panel, NAMES), rtol=1e-7, atol=1e-9
    )


@pytest.mark.parametrize("name", NAMES)
def test_nan_exactly_during_warmup(name):
    panel = with_gap(random_panel(1), 300, 310)
    missing = np.isnan(values_of(panel, name))
    assert missing[: warmup(name)].all()
    assert not missing[warmup(name) :].any()


@pytest.mark.parametrize("name", NAMES)
def test_a_history_that_begins_elsewhere_gives_the_same_numbers(name):
    panel = random_panel(2, bars=900, assets=20)
    whole, later = (
        compute_indicators(panel, (name,))[400:],
        compute_indicators(panel.rows(400, 900), (name,)),
    )
    error = np.abs(whole - later)[warmup(name) :] / np.nanstd(whole)
    assert error.max() < 1e-3


@pytest.mark.parametrize("volume", [0.0, 3.0])
@pytest.mark.parametrize("price", [0.1, 1e-8, 67_432.17])
def test_constant_prices_are_neutral(price, volume):
    values = compute_indicators(flat_panel(price=price, volume=volume), NAMES)[LONGEST:]
    np.testing.assert_allclose(values, 0, atol=1e-12)


@pytest.mark.parametrize("growth", [1.0, 1000.0])
def test_long_standstill_and_the_jump_after_it_are_finite(growth):
    panel = random_panel(3, bars=2000, assets=1)
    rise = np.where(np.arange(2000) < 500, 1, growth)[:, None]
    panel = replace(
        panel, **{p: getattr(panel, p) * rise for p in ("open", "high", "low", "close")}
    )
    values = compute_indicators(with_gap(panel, 600, 1900), NAMES)[LONGEST:, 0]
    assert np.isfinite(values).all()
    bounded = [NAMES.index(name) for name in ("rsi", "dx", "ultosc", "willr", "obv")]
    assert np.abs(values[:, bounded]).max() <= 1 + 1e-12
    assert np.abs(values).max() < 1000 * growth


@pytest.mark.parametrize("name", NAMES)
def test_asset_listed_late_is_computed_from_its_first_bar(name):
    panel = listed_late(random_panel(4), asset=1, start=150)
    values = compute_indicators(panel, (name,))
    assert np.isnan(values[:150, 1]).all()
    assert_close(
        values[150:, 1], compute_indicators(panel.rows(150, 400), (name,))[:, 1], roundings=64
    )
    np.testing.assert_array_equal(values[:, 0], compute_indicators(random_panel(4), (name,))[:, 0])


def test_asset_without_bars_has_no_values():
    values = compute_indicators(listed_late(random_panel(5), asset=0, start=400), NAMES)
    assert np.isnan(values[:, 0]).all()
    assert np.isfinite(values[LONGEST:, 1]).all()


@pytest.mark.parametrize("bars", [0, 1, 2, 13, 14, 27, 60])
def test_few_bars_give_nan_and_no_error(bars):
    values = compute_indicators(random_panel(6, bars=60).rows(0, bars), NAMES)
    assert values.shape == (bars, 2, len(NAMES))
    for k, name in enumerate(NAMES):
        assert np.isnan(values[: warmup(name), :, k]).all()


def test_breakout_volume_sees_both_directions_and_is_mostly_silent():
    values = values_of(random_panel(7, bars=2000), "breakout_volume")[LONGEST:]
    assert (values > 0).mean() > 0.02
    assert (values < 0).mean() > 0.02
    assert (values == 0).mean() > 0.5


def test_breakout_volume_by_hand():
    panel = flat_panel(bars=300, price=100.0, volume=10.0)
    panel = replace(panel, high=panel.high + 1, low=panel.low - 1)
    for name, last in {"high": 105.0, "close": 104.0, "volume": 200.0}.items():
        getattr(panel, name)[-1] = last
    atr = (13 * 2 + (105 - 99)) / 14
    expected = (104 - 101) / atr * 200 / ((19 * 10 + 200) / 20)
    values = values_of(panel, "breakout_volume")
    assert values[-1] == pytest.approx(expected, rel=1e-12)
    assert values[-2] == 0


def test_extra_column_passes_through():
    panel = random_panel(8)
    funding = np.random.default_rng(8).normal(size=panel.close.shape)
    funding[:5] = np.nan
    values = compute_indicators(
        replace(panel, extras={"funding": funding}), ("rsi", "extra:funding")
    )
    np.testing.assert_array_equal(values[:, :, 1], funding)
    np.testing.assert_array_equal(values[:, :, 0], compute_indicators(panel, ("rsi",))[:, :, 0])


def test_refuses_unknown_and_infinite_columns():
    panel = random_panel(9)
    with pytest.raises(RecipeError, match=r"'macd_sgnal'; did you mean 'macd_signal'\?"):
        compute_indicators(panel, ("macd_sgnal",))
    with pytest.raises(RecipeError, match="no further column 'funding'; it has: none"):
        compute_indicators(panel, ("extra:funding",))
    bad = np.zeros(panel.close.shape)
    bad[3, 1] = np.inf
    with pytest.raises(RecipeError, match="'funding' is infinite for COIN1 at 2021-03-01T03"):
        compute_indicators(replace(panel, extras={"funding": bad}), ("extra:funding",))


def test_compute_leaves_the_panel_alone():
    panel = random_panel(10)
    before = panel.fingerprint
    compute_indicators(panel, NAMES)
    assert replace(panel).fingerprint == before


def test_finite_on_real_daily_bars():
    polars = pytest.importorskip("polars")
    path = SHARED_DATA / "dow29_daily_2009_2023.parquet"
    if not path.exists():
        pytest.skip(f"no real bars at {path}; set FLATOUT_SHARED_DATA")
    table = polars.read_parquet(path).sort("timestamp", "symbol")
    symbols = tuple(sorted(table["symbol"].unique()))
    grid = {
        name: table.pivot(on="symbol", index="timestamp", values=name)
        .select(symbols)
        .to_numpy()
        .astype(float)
        for name in ("open", "high", "low", "close", "volume")
    }
    time = table["timestamp"].unique().sort().to_numpy().astype("datetime64[us]")
    complete = np.isfinite(grid["close"]).all(axis=1)
    panel = Panel(
        symbols, time[complete], 86_400, **{k: v[complete] for k, v in grid.items()},
        tradable=np.ones((complete.sum(), len(symbols)), bool),
    )  # fmt: skip
    values = compute_indicators(panel, NAMES)[LONGEST:]
    assert len(values) > 3000
    assert np.isfinite(values).all()
    assert (values.std(axis=0) > 0).all()
