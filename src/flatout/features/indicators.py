"""Indicators: what one asset's bars say at the close of bar t, in numbers without a unit.

Every indicator is causal (row t uses bars up to t), relative to price or volume (multiplying all
prices of an asset by a constant changes nothing) and finite on flat prices. It is computed for one
asset at a time, from that asset's first bar on; missing bars enter as the panel carries them: last
close, no volume. Rows before an indicator has forgotten where the data began are NaN.

A name may begin with the size of larger bars, as in "1h:rsi" on bars of 5m: the indicator is
computed on bars of that size, and each bar has the value of the last of them that was over at its
close (`coarse_bars.py`). This file knows nothing about scaling, training rows or observations.
"""

import difflib
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import talib

from flatout.bars.panel import EXTRA, FloatArray, Panel
from flatout.errors import RecipeError
from flatout.features.coarse_bars import find_coarse_bars
from flatout.features.names import AskedIndicator, group_by_bar, parse_indicator
from flatout.features.windows import lag, ratio, trailing_mean, trailing_std, trailing_sum
from flatout.foreign import shorten_repr

PERIOD = 14  # RSI, CCI, DX, ADX, ATR, Williams %R
RANGE = 20  # breakout, OBV, volatility
BASELINE = 50  # what "normal" is for ATR and volume
ROUNDING = 1e-12  # relative differences below this are arithmetic, not prices


class AssetBars(NamedTuple):
    """One asset from its first bar on, each (time,); prices are in units of its first close."""

    high: FloatArray
    low: FloatArray
    close: FloatArray
    volume: FloatArray


class Indicator(NamedTuple):
    """A named function of one asset's bars.

    `warmup` counts the leading bars without a value. Windows need as many bars as they are long.
    Averages that never forget (EMA, Wilder) need as many as reduce the influence of the first bar
    below 1e-3 of the indicator's standard deviation, so that a history that begins elsewhere gives
    the same numbers.
    """

    name: str
    compute: Callable[[AssetBars], FloatArray]
    warmup: int
    meaning: str


# --- indicators ---------------------------------------------------------------------------------


def macd(bars: AssetBars, part: int) -> FloatArray:
    """Part 0: EMA 12 minus EMA 26; 1: its EMA 9, the signal; 2: their difference. Relative to the
    close.
    """
    line: FloatArray = talib.MACD(bars.close, 12, 26, 9)[part]
    return line / bars.close


def rsi(bars: AssetBars) -> FloatArray:
    """(RSI - 50) / 50, taken from CMO = 2 RSI - 100, which is neutral where nothing moved (RSI says
    0).
    """
    momentum: FloatArray = talib.CMO(bars.close, PERIOD)
    return momentum / 100


def cci(bars: AssetBars) -> FloatArray:
    """CCI / 100; zero on flat prices, where TA-Lib divides rounding errors by each other."""
    typical = (bars.high + bars.low + bars.close) / 3
    highest = talib.MAX(typical, PERIOD)
    flat = highest - talib.MIN(typical, PERIOD) <= ROUNDING * highest
    return np.where(flat, 0.0, talib.CCI(bars.high, bars.low, bars.close, PERIOD) / 100)


def dx(bars: AssetBars) -> FloatArray:
    index: FloatArray = talib.DX(bars.high, bars.low, bars.close, PERIOD)
    return index / 100


def adx_acceleration(bars: AssetBars) -> FloatArray:
    """Second difference of ADX in points: whether a trend gains strength faster or slower than a
    bar ago.
    """
    adx: FloatArray = talib.ADX(bars.high, bars.low, bars.close, PERIOD)
    return adx - 2 * lag(adx, 1) + lag(adx, 2)


def average_true_range(bars: AssetBars) -> FloatArray:
    atr: FloatArray = talib.ATR(bars.high, bars.low, bars.close, PERIOD)
    return atr


def atr_regime(bars: AssetBars) -> FloatArray:
    atr = average_true_range(bars)
    usual = trailing_mean(atr, BASELINE)
    return ratio(atr - usual, usual)


def breakout_volume(bars: AssetBars) -> FloatArray:
    """How far the close left the range of the previous 20 bars, in ATRs, times volume / its 20-bar
    mean.

    The range ends one bar before: no close can leave a range that contains its own bar.
    """
    above = np.maximum(bars.close - lag(talib.MAX(bars.high, RANGE), 1), 0.0)
    below = np.minimum(bars.close - lag(talib.MIN(bars.low, RANGE), 1), 0.0)
    distance = ratio(above + below, average_true_range(bars))
    return distance * ratio(bars.volume, trailing_mean(bars.volume, RANGE))


def roc(bars: AssetBars) -> FloatArray:
    percent: FloatArray = talib.ROC(bars.close, 10)
    return percent / 100


def ultosc(bars: AssetBars) -> FloatArray:
    """(ULTOSC - 50) / 50 over 7, 14 and 28 bars; TA-Lib's running sums would derail on flat
    prices.
    """
    before = lag(bars.close, 1)
    low = np.minimum(bars.low, before)
    pressure, width = bars.close - low, np.maximum(bars.high, before) - low
    short, middle, long = (
        ratio(trailing_sum(pressure, span), trailing_sum(width, span), neutral=0.5)
        for span in (7, 14, 28)
    )
    return 2 * (4 * short + 2 * middle + long) / 7 - 1


def willr(bars: AssetBars) -> FloatArray:
    """Where the close stands in the range of 14 bars: 1 at the high, -1 at the low, 0 without a
    range.
    """
    highest, lowest = talib.MAX(bars.high, PERIOD), talib.MIN(bars.low, PERIOD)
    return ratio(2 * bars.close - highest - lowest, highest - lowest)


def obv(bars: AssetBars) -> FloatArray:
    """Change of on-balance volume over 20 bars as a share of the volume traded in them, -1 to 1."""
    signed = np.sign(bars.close - lag(bars.close, 1)) * bars.volume
    return ratio(trailing_sum(signed, RANGE), trailing_sum(bars.volume, RANGE))


def log_return(bars: AssetBars, span: int) -> FloatArray:
    return np.log(bars.close / lag(bars.close, span))


def volatility(bars: AssetBars) -> FloatArray:
    return trailing_std(log_return(bars, 1), RANGE)


def volume(bars: AssetBars) -> FloatArray:
    """log((1 + volume / its 50-bar mean) / 2): 0 at the usual volume, and finite when nothing was
    traded.
    """
    relative = ratio(bars.volume, trailing_mean(bars.volume, BASELINE), neutral=1.0)
    return np.log((1 + relative) / 2)


INDICATORS = (
    Indicator("macd", partial(macd, part=0), 150, "EMA 12 - EMA 26 of the close, / close"),
    Indicator("macd_signal", partial(macd, part=1), 150, "EMA 9 of macd, / close"),
    Indicator("macd_hist", partial(macd, part=2), 160, "macd - macd_signal, / close"),
    Indicator("rsi", rsi, 150, "(RSI 14 - 50) / 50"),
    Indicator("cci", cci, 13, "CCI 14 / 100"),
    Indicator("dx", dx, 150, "directional movement index 14 / 100"),
    Indicator("atr_regime", atr_regime, 170, "ATR 14 against its 50-bar mean, relative"),
    Indicator(
        "breakout_volume",
        breakout_volume,
        150,
        "close beyond the previous 20 bars, in ATRs, x volume",
    ),
    Indicator("adx_acceleration", adx_acceleration, 180, "second difference of ADX 14, points"),
    Indicator("roc", roc, 10, "return over 10 bars"),
    Indicator("ultosc", ultosc, 28, "(ultimate oscillator 7/14/28 - 50) / 50"),
    Indicator("willr", willr, 13, "place of the close in the 14-bar range, -1 to 1"),
    Indicator("obv", obv, 20, "20-bar change of on-balance volume / volume traded"),
    Indicator("return_1", partial(log_return, span=1), 1, "log return of the bar"),
    Indicator("return_5", partial(log_return, span=5), 5, "log return over 5 bars"),
    Indicator("return_20", partial(log_return, span=20), 20, "log return over 20 bars"),
    Indicator("return_60", partial(log_return, span=60), 60, "log return over 60 bars"),
    Indicator("volatility", volatility, 20, "standard deviation of 20 log returns"),
    Indicator("volume", volume, 49, "log of volume against its 50-bar mean"),
)

DEFAULT_INDICATORS = (
    "macd", "macd_signal", "macd_hist", "rsi", "cci", "dx", "atr_regime",
    "breakout_volume", "adx_acceleration", "roc", "obv", "return_1", "volatility", "volume",
)  # fmt: skip


# --- names --------------------------------------------------------------------------------------


def find_indicator(name: str) -> Indicator:
    """The indicator of that name, whatever the size of its bars; an unknown name is refused with
    the nearest known one.
    """
    own = parse_indicator(name).own
    for indicator in INDICATORS:
        if indicator.name == own:
            return indicator
    known = [indicator.name for indicator in INDICATORS]
    near = difflib.get_close_matches(own, known, n=1)
    hint = f"; did you mean {name.removesuffix(own) + near[0]!r}?" if near else "."
    raise RecipeError(
        f"unknown indicator {shorten_repr(name)}{hint} Known: {', '.join(known)} and {EXTRA}NAME, "
        "and each of larger bars, as in 1h:rsi"
    )


def warmup(name: str) -> int:
    """Leading bars, of the size that it is computed on, for which the indicator has no value; none
    for a further column of the panel.
    """
    return 0 if parse_indicator(name).column else find_indicator(name).warmup


# --- panels -------------------------------------------------------------------------------------


def count_warmup(panel: Panel, indicators: Sequence[str]) -> int:
    """How many of the panel's bars pass until all indicators have values, and how far any of them
    looks back: whichever is more.
    """
    counts = []
    for seconds, group in group_by_bar(indicators).items():
        longest = max(warmup(asked.name) for asked in group.values())
        counts.append(
            find_coarse_bars(panel, seconds).count_warmup(longest) if seconds else longest
        )
    return max(counts)


def compute_indicators(panel: Panel, indicators: Sequence[str]) -> FloatArray:
    """The indicators of every asset, (time, asset, feature); NaN until an asset's warm-up is
    over.
    """
    out = np.full((panel.n_bars, panel.n_assets, len(indicators)), np.nan)
    for seconds, group in group_by_bar(indicators).items():
        if seconds:
            coarse = find_coarse_bars(panel, seconds)
            values = coarse.spread(_compute_own(coarse.panel, [*group.values()]))
        else:
            values = _compute_own(panel, [*group.values()])
        out[:, :, [*group]] = values
    return out


def _compute_own(panel: Panel, indicators: Sequence[AskedIndicator]) -> FloatArray:
    """Indicators of a panel's own bars, whatever size the names ask for."""
    out = np.full((panel.n_bars, panel.n_assets, len(indicators)), np.nan)
    own: list[tuple[int, Indicator]] = []
    for feature, asked in enumerate(indicators):
        if asked.column:
            out[:, :, feature] = _extra(panel, asked.column)
        else:
            own.append((feature, find_indicator(asked.name)))
    for asset in range(panel.n_assets):
        start = _first_bar(panel, asset)
        if start == panel.n_bars:
            continue
        bars = _asset_bars(panel, asset, start)
        for feature, indicator in own:
            out[start + indicator.warmup :, asset, feature] = indicator.compute(bars)[
                indicator.warmup :
            ]
    return out


def _first_bar(panel: Panel, asset: int) -> int:
    present = np.flatnonzero(np.isfinite(panel.close[:, asset]))
    return int(present[0]) if present.size else panel.n_bars


def _asset_bars(panel: Panel, asset: int, start: int) -> AssetBars:
    """Prices in units of the first close: TA-Lib calls anything below 1e-14 zero, whatever the coin
    costs.
    """
    unit = panel.close[start, asset]
    high, low, close = (
        values[start:, asset] / unit for values in (panel.high, panel.low, panel.close)
    )
    return AssetBars(
        high, low, close, np.ascontiguousarray(panel.volume[start:, asset], np.float64)
    )


def _extra(panel: Panel, name: str) -> FloatArray:
    if name not in panel.extras:
        has = ", ".join(sorted(panel.extras)) or "none"
        raise RecipeError(f"the panel has no further column {name!r}; it has: {has}")
    values = np.asarray(panel.extras[name], np.float64)
    if np.isinf(values).any():
        row, asset = np.argwhere(np.isinf(values))[0]
        raise RecipeError(
            f"further column {name!r} is infinite for {panel.symbols[asset]} at {panel.time[row]}"
        )
    return values
