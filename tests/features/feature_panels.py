"""Panels for the tests of this folder: random walks with the irregularities that real bars have."""

from dataclasses import replace

import numpy as np

from flatout.bars.panel import PRICES, Panel
from session_panels import Times


def random_panel(seed: int, bars: int = 400, assets: int = 2, volatility: float = 0.01) -> Panel:
    """Geometric random walks with fat tails; highs and lows contain opens and closes."""
    rng = np.random.default_rng(seed)
    shape = (bars, assets)
    close = 50 * np.exp(np.cumsum(rng.standard_t(4, shape) * volatility, axis=0))
    open_ = np.vstack([close[:1], close[:-1]]) * np.exp(rng.normal(0, volatility / 5, shape))
    high = np.maximum(open_, close) * np.exp(np.abs(rng.normal(0, volatility / 3, shape)))
    low = np.minimum(open_, close) * np.exp(-np.abs(rng.normal(0, volatility / 3, shape)))
    volume = np.exp(rng.normal(8, 1, shape))
    return _panel(open_, high, low, close, volume)


def flat_panel(bars: int = 300, price: float = 0.1, volume: float = 0.0) -> Panel:
    """One asset whose price never moves."""
    open_, high, low, close = np.full((4, bars, 1), price)
    return _panel(open_, high, low, close, np.full((bars, 1), volume))


def with_gap(panel: Panel, start: int, stop: int) -> Panel:
    """Bars start..stop-1 are missing: the last close is carried, nothing is traded."""
    values = {name: getattr(panel, name).copy() for name in (*PRICES, "volume", "tradable")}
    for name in PRICES:
        values[name][start:stop] = panel.close[start - 1]
    values["volume"][start:stop] = 0
    values["tradable"][start:stop] = False
    return replace(panel, **values)


def listed_late(panel: Panel, asset: int, start: int) -> Panel:
    """The asset has no bar before `start`."""
    values = {name: getattr(panel, name).copy() for name in (*PRICES, "volume", "tradable")}
    for name in PRICES:
        values[name][:start, asset] = np.nan
    values["volume"][:start, asset] = 0
    values["tradable"][:start, asset] = False
    return replace(panel, **values)


def at_times(panel: Panel, times: Times, bar: int) -> Panel:
    """The same bars, as many as there are times, of another size and at other times."""
    cut = panel.rows(0, len(times))
    return replace(cut, time=times.astype("datetime64[us]"), bar_seconds=bar, year=None)


def every(bar: int, bars: int, start: str = "2021-03-01") -> Times:
    """Opening times around the clock."""
    return np.datetime64(start, "us") + np.arange(bars) * np.timedelta64(bar, "s")


def _panel(open_, high, low, close, volume) -> Panel:
    bars, assets = close.shape
    time = np.datetime64("2021-03-01", "us") + np.arange(bars) * np.timedelta64(3600, "s")
    symbols = tuple(f"COIN{k}" for k in range(assets))
    return Panel(
        symbols, time, 3600, open_, high, low, close, volume, np.ones((bars, assets), bool)
    )
