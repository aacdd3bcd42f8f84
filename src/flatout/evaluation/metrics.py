"""Figures of merit of per-bar simple returns: pure functions, time on the last axis, leading axes
free.

A thousand paths are one array. Annual figures always take `bars_per_year` from the caller: nothing
is guessed from dates. Returns are net of costs; -1 is a total loss, anything below is refused, as
are NaN and empty arrays. There is no risk-free rate: subtract it from the returns beforehand.

A ratio whose denominator is zero is 0 if its numerator is zero too (cash has Sharpe 0), else ±inf.
Figures that one bar cannot define (volatility, Sharpe) are NaN for one bar. This file does not know
where returns come from, nor whether they are luck.
"""

import math
from typing import NamedTuple

import numpy as np

from flatout.bars.panel import FloatArray
from flatout.errors import FlatoutError

TAIL = 0.05  # share of the worst bars that CVaR averages
ROUNDING = 1e-12  # a spread below this part of the largest return is rounding, not volatility


class Metrics(NamedTuple):
    """The summary of one path (each figure a scalar) or of many (each an array of their shape)."""

    total_return: FloatArray  # last equity over first, minus 1
    annual_return: FloatArray  # compound growth per year
    annual_volatility: FloatArray  # sample standard deviation x sqrt(bars per year)
    sharpe: FloatArray  # annualised
    bar_sharpe: FloatArray  # mean over standard deviation of one bar
    sortino: FloatArray  # annualised, against zero
    calmar: FloatArray  # annual return over the largest drawdown
    max_drawdown: FloatArray  # 0 or below: -0.25 is a fall by a quarter from a peak
    cvar: FloatArray  # mean of the worst 5 % of bars
    hit_rate: FloatArray  # winning bars among those that won or lost
    skew: FloatArray
    excess_kurtosis: FloatArray  # 0 for a normal distribution
    bar_turnover: FloatArray | None = None  # mean traded notional over equity, per bar
    annual_turnover: FloatArray | None = None  # the same per year
    exposure: FloatArray | None = None  # mean gross weight
    cost_share: FloatArray | None = None  # part of the profit before costs that costs ate

    def as_dict(self) -> dict[str, float | FloatArray]:
        """The figures that are there, as plain floats for one path."""
        there = {
            name: np.asarray(value) for name, value in self._asdict().items() if value is not None
        }
        return {name: float(value) if value.ndim == 0 else value for name, value in there.items()}


def summarise(
    returns: FloatArray,
    bars_per_year: float,
    turnover: FloatArray | None = None,
    exposure: FloatArray | None = None,
    costs: FloatArray | None = None,
) -> Metrics:
    """All figures at once, of simple returns per bar, (..., bar), as fractions: 0.01 is one
    percent.

    Turnover, exposure (gross weight) and costs are per bar too, as fractions of equity; the figures
    of those that are not given are None. What the result calls annual, and its Sharpe and Sortino
    ratios, are scaled to a year of `bars_per_year` bars.
    """
    returns = check_returns(returns)
    return Metrics(
        total_return=total_return(returns),
        annual_return=annual_return(returns, bars_per_year),
        annual_volatility=annual_volatility(returns, bars_per_year),
        sharpe=sharpe(returns, bars_per_year),
        bar_sharpe=bar_sharpe(returns),
        sortino=sortino(returns, bars_per_year),
        calmar=calmar(returns, bars_per_year),
        max_drawdown=max_drawdown(returns),
        cvar=cvar(returns),
        hit_rate=hit_rate(returns),
        skew=skew(returns),
        excess_kurtosis=excess_kurtosis(returns),
        bar_turnover=None if turnover is None else bar_turnover(turnover),
        annual_turnover=None if turnover is None else annual_turnover(turnover, bars_per_year),
        exposure=None if exposure is None else mean_exposure(exposure),
        cost_share=None if costs is None else cost_share(returns, costs),
    )


def check_returns(returns: FloatArray) -> FloatArray:
    """Returns in float64, or an error that says what is wrong with them."""
    returns = _finite(returns, "returns")
    if np.any(returns < -1):
        raise FlatoutError(
            f"a return of {np.min(returns):g} loses more than everything: give simple returns"
        )
    return returns


def total_return(returns: FloatArray) -> FloatArray:
    """What the whole path earned, as a fraction, not annualised: the product of (1 + return), minus
    1.
    """
    return _equity(returns)[..., -1] - 1


def annual_return(returns: FloatArray, bars_per_year: float) -> FloatArray:
    """Compound growth rate of a year of `bars_per_year` bars, as a fraction; inf where a few
    splendid bars overflow a year.
    """
    equity = _equity(returns)
    with np.errstate(over="ignore"):
        yearly: FloatArray = (
            equity[..., -1] ** (_positive(bars_per_year) / (equity.shape[-1] - 1)) - 1
        )
    return yearly


def annual_volatility(returns: FloatArray, bars_per_year: float) -> FloatArray:
    """Sample standard deviation (n - 1) of the returns times sqrt(bars_per_year), as a fraction per
    year; NaN for one bar.
    """
    return _deviation(check_returns(returns)) * math.sqrt(_positive(bars_per_year))


def bar_sharpe(returns: FloatArray) -> FloatArray:
    """Sharpe ratio of one bar: mean over sample standard deviation, not annualised, as tests of
    significance need it. No unit; NaN for one bar.
    """
    returns = check_returns(returns)
    return _ratio(np.mean(returns, axis=-1), _deviation(returns))


def sharpe(returns: FloatArray, bars_per_year: float) -> FloatArray:
    """Annualised Sharpe ratio: that of one bar times sqrt(bars_per_year), as if bars were
    independent. No unit; NaN for one bar.
    """
    return bar_sharpe(returns) * math.sqrt(_positive(bars_per_year))


def sortino(returns: FloatArray, bars_per_year: float) -> FloatArray:
    """Annualised Sortino ratio: mean over the root mean square of the losses (gains count as zero),
    times sqrt(bars_per_year). No unit.
    """
    returns = check_returns(returns)
    downside = np.sqrt(np.mean(np.minimum(returns, 0.0) ** 2, axis=-1))
    return _ratio(np.mean(returns, axis=-1), downside) * math.sqrt(_positive(bars_per_year))


def calmar(returns: FloatArray, bars_per_year: float) -> FloatArray:
    """Compound annual return over the size of the largest drawdown. No unit; the drawdown is that
    of the whole path, not of a year.
    """
    return _ratio(annual_return(returns, bars_per_year), -max_drawdown(returns))


def max_drawdown(returns: FloatArray) -> FloatArray:
    """The deepest fall below an earlier peak, the start included, as a fraction of the peak: 0 or
    below. Not annualised.
    """
    equity = _equity(returns)
    lowest: FloatArray = np.min(equity / np.maximum.accumulate(equity, axis=-1), axis=-1) - 1
    return lowest


def cvar(returns: FloatArray, tail: float = TAIL) -> FloatArray:
    """Mean return per bar of the worst bars, as a fraction, not annualised: of the worst one and
    further ones up to the share `tail` of the rest.
    """
    returns = check_returns(returns)
    if not 0 <= tail <= 1:
        raise FlatoutError(f"tail is {tail!r}; it is the share of bars to average, from 0 to 1")
    last = int((returns.shape[-1] - 1) * tail)
    worst: FloatArray = np.mean(np.partition(returns, last, axis=-1)[..., : last + 1], axis=-1)
    return worst


def hit_rate(returns: FloatArray) -> FloatArray:
    """Share of the winning bars among winning and losing ones, 0 to 1; 0 when nothing ever
    moved.
    """
    returns = check_returns(returns)
    wins, losses = np.sum(returns > 0, axis=-1), np.sum(returns < 0, axis=-1)
    rate: FloatArray = wins / np.maximum(wins + losses, 1)
    return rate


def skew(returns: FloatArray) -> FloatArray:
    """Third standardised moment (population) of the returns per bar, not annualised; 0 without
    volatility.
    """
    return _standardised_moment(check_returns(returns), 3)


def excess_kurtosis(returns: FloatArray) -> FloatArray:
    """Fourth standardised moment (population) of the returns per bar minus 3, not annualised; 0
    without volatility.
    """
    returns = check_returns(returns)
    moment = _standardised_moment(returns, 4)
    return np.where(moment == 0, 0.0, moment - 3)


def bar_turnover(turnover: FloatArray) -> FloatArray:
    """Mean over bars of traded notional as a fraction of equity; a full round trip trades 2."""
    mean: FloatArray = np.mean(_finite(turnover, "turnover"), axis=-1)
    return mean


def annual_turnover(turnover: FloatArray, bars_per_year: float) -> FloatArray:
    """Traded notional per year in multiples of equity: the mean per bar times bars_per_year."""
    return bar_turnover(turnover) * _positive(bars_per_year)


def mean_exposure(exposure: FloatArray) -> FloatArray:
    """Mean over bars of the gross weight, as a fraction of equity; 1 is fully invested."""
    mean: FloatArray = np.mean(_finite(exposure, "exposure"), axis=-1)
    return mean


def cost_share(returns: FloatArray, costs: FloatArray) -> FloatArray:
    """Share of the profit before costs that costs took: the sum of costs over the sum of returns
    before costs, both fractions of equity per bar; inf where there was no such profit.
    """
    returns, costs = check_returns(returns), _finite(costs, "costs")
    paid = np.sum(costs, axis=-1)
    return _ratio(paid, np.maximum(np.sum(returns, axis=-1) + paid, 0.0))


def _finite(values: FloatArray, name: str) -> FloatArray:
    values = np.asarray(values, dtype=np.float64)
    if values.ndim == 0 or values.shape[-1] == 0:
        raise FlatoutError(
            f"{name} of shape {values.shape} hold no bar: time is the last axis, one bar or more"
        )
    bad = int(np.sum(~np.isfinite(values)))
    if bad:
        raise FlatoutError(
            f"{bad} of {values.size} {name} are NaN or infinite: leave out bars that have none"
        )
    return values


def _positive(bars_per_year: float) -> float:
    if not 0 < bars_per_year < np.inf:
        raise FlatoutError(
            f"bars_per_year is {bars_per_year!r}; it must be positive, such as 8760 for hours"
        )
    return bars_per_year


def _equity(returns: FloatArray) -> FloatArray:
    """Equity from 1 at the start: one entry more than returns."""
    returns = check_returns(returns)
    start = np.ones((*returns.shape[:-1], 1))
    return np.concatenate([start, np.cumprod(1 + returns, axis=-1)], axis=-1)


def _deviation(returns: FloatArray) -> FloatArray:
    """Sample standard deviation; exactly zero where only rounding differs, NaN for one bar."""
    if returns.shape[-1] == 1:
        return np.full(returns.shape[:-1], np.nan)
    deviation = np.std(returns, axis=-1, ddof=1)
    return np.where(deviation <= ROUNDING * np.max(np.abs(returns), axis=-1), 0.0, deviation)


def _standardised_moment(returns: FloatArray, order: int) -> FloatArray:
    centred = returns - np.mean(returns, axis=-1, keepdims=True)
    deviation = np.sqrt(np.mean(centred**2, axis=-1))
    varies = deviation > ROUNDING * np.max(np.abs(returns), axis=-1)
    scaled = centred / np.where(varies, deviation, 1.0)[..., None]
    return np.where(varies, np.mean(scaled**order, axis=-1), 0.0)


def _ratio(numerator: FloatArray, denominator: FloatArray) -> FloatArray:
    """Division with 0 / 0 = 0 and x / 0 = ±inf; NaN stays NaN."""
    nothing = denominator == 0
    quotient = numerator / np.where(nothing, 1.0, denominator)
    return np.where(nothing & (numerator != 0), np.copysign(np.inf, numerator), quotient)
