"""From checked rows to a `Panel`: every value at its place in (time, asset), missing bars carried.

A missing bar is not tradable; its prices are the last close and its volume is zero. Before the
first bar of a symbol there is no price. Nothing is filled backwards. This file knows nothing about
files and refuses nothing.
"""

from collections.abc import Sequence

import numpy as np
import polars as pl

from flatout.bars.grid import IntArray
from flatout.bars.panel import PRICES, BoolArray, FloatArray, Panel


def align(
    rows: pl.DataFrame,
    symbols: Sequence[str],
    time: IntArray,
    bar_seconds: int,
    extras: Sequence[str] = (),
) -> Panel:
    """The panel of `symbols` in that order on the grid `time`, which contains every row's date."""
    order = {symbol: index for index, symbol in enumerate(symbols)}
    asset = rows["symbol"].replace_strict(order, return_dtype=pl.Int64).to_numpy()
    place = np.searchsorted(time, rows["date"].to_numpy()), asset
    shape = len(time), len(symbols)

    def fill_grid(column: str, empty: float) -> FloatArray:
        values = np.full(shape, empty)
        values[place] = rows[column].to_numpy()
        return values

    present = np.zeros(shape, dtype=np.bool_)
    present[place] = True
    close = carry_forward(fill_grid("close", np.nan), present)
    prices = {name: np.where(present, fill_grid(name, np.nan), close) for name in PRICES}
    volume = fill_grid("volume", 0.0)
    return Panel(
        symbols=tuple(symbols),
        time=time.astype("datetime64[us]"),
        bar_seconds=bar_seconds,
        open=prices["open"],
        high=prices["high"],
        low=prices["low"],
        close=prices["close"],
        volume=volume,
        tradable=present & (volume > 0),
        extras={name: fill_grid(f"extra {name}", np.nan) for name in extras},
        present=present,
    )


def carry_forward(values: FloatArray, known: BoolArray) -> FloatArray:
    """Along time, the last known value; NaN before the first."""
    carried = np.full_like(values, np.nan)
    for asset in range(
        values.shape[1]
    ):  # one at a time: indices of all take more memory than the values
        last = np.maximum.accumulate(np.where(known[:, asset], np.arange(len(values)), -1))
        carried[:, asset] = np.where(last >= 0, values[np.maximum(last, 0), asset], np.nan)
    return carried
