"""Arithmetic of indicators on one asset's numbers: quotients that are never infinite, and windows
of the last bars.

Everything is (time,). This file does not know what the numbers mean.
"""

import numpy as np

from flatout.bars.panel import FloatArray


def ratio(top: FloatArray, bottom: FloatArray, neutral: float = 0.0) -> FloatArray:
    """top / bottom, and `neutral` where the bottom is zero: nothing moved, so nothing is known."""
    return np.divide(top, bottom, out=np.full_like(top, neutral), where=bottom != 0)


def lag(values: FloatArray, bars: int) -> FloatArray:
    """The value `bars` rows earlier; NaN where there is none."""
    out = np.full_like(values, np.nan)
    out[bars:] = values[: max(len(values) - bars, 0)]
    return out


def trailing_sum(values: FloatArray, bars: int) -> FloatArray:
    """Sum of the last `bars` values, added afresh for each row.

    A running sum would be cheaper, but the rounding error that one large value leaves in it would
    stay.
    """
    total = values.copy()
    for k in range(1, bars):
        total += lag(values, k)
    return total


def trailing_mean(values: FloatArray, bars: int) -> FloatArray:
    return trailing_sum(values, bars) / bars


def trailing_std(values: FloatArray, bars: int) -> FloatArray:
    """Population standard deviation of the last `bars` values, from deviations rather than from
    squares.
    """
    mean = trailing_mean(values, bars)
    squares = np.zeros_like(values)
    for k in range(bars):
        squares += (lag(values, k) - mean) ** 2
    return np.sqrt(squares / bars)
