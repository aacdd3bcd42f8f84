"""Scalers: from indicators to numbers of the size that networks like, fitted on training rows only.

Each (asset, feature) column has its own statistics. NaN is ignored in fitting and becomes 0 in
scaling; a column that had no value in training stays 0, since no policy can have learnt to read it.
The numbers are those of scikit-learn's StandardScaler, RobustScaler and QuantileTransformer,
without its random subsampling. This file knows nothing about what the columns mean.
"""

import difflib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flatout.bars.panel import BoolArray, FloatArray
from flatout.errors import RecipeError
from flatout.foreign import shorten_repr

Rows = BoolArray | NDArray[np.int64]  # a mask over the rows, or row numbers

CLIP = 10.0  # zscore and robust values end at ±10: one wild bar must not drown the rest of a batch
MAX_QUANTILES = 1000
MOST_STATISTICS = 50_000_000  # numbers: 50,000 columns with their quantiles, 400 MB
EDGE = 1e-7  # a probability closer than this to 0 or 1 counts as this far: ±5.2 standard deviations
# a spread below this is rounding; the column is centred only
NO_SPREAD = 10 * np.finfo(np.float64).eps


class Scaler(NamedTuple):
    """A fitted scaler: `statistics[:, asset, feature]` belongs to one column."""

    name: str
    # zscore, robust: (2, asset, feature), centre and scale; quantile: (quantile, ...)
    statistics: FloatArray


class Method(NamedTuple):
    """How one column is fitted and scaled. `fit` sees NaN; `scale` returns NaN for NaN."""

    fit: Callable[[FloatArray], FloatArray]
    scale: Callable[[FloatArray, FloatArray], FloatArray]
    meaning: str


def fit_scaler(name: str, values: FloatArray, rows: Rows) -> Scaler:
    """Statistics of `values` (time, asset, feature) in the given rows; no other row is looked
    at.
    """
    method = find_method(name)
    training = values[rows]
    if len(training) < 2:
        raise RecipeError(f"scaler {name!r} needs at least 2 training rows, got {len(training)}")
    columns = training.reshape(len(training), -1)
    fitted = np.stack([method.fit(columns[:, k]) for k in range(columns.shape[1])], axis=-1)
    return Scaler(name, fitted.reshape(-1, *training.shape[1:]))


def scale(scaler: Scaler, values: FloatArray) -> NDArray[np.float32]:
    """`values` (time, asset, feature) in the scaler's units, ready for a network: float32, NaN as
    0.
    """
    out = np.zeros(values.shape, np.float32)
    for asset, feature in np.ndindex(values.shape[1:]):
        scaled = scale_column(
            scaler.name, scaler.statistics[:, asset, feature], values[:, asset, feature]
        )
        out[:, asset, feature] = np.nan_to_num(scaled, nan=0.0)
    return out


def scale_column(name: str, statistics: FloatArray, values: FloatArray) -> FloatArray:
    """One (asset, feature) column in double precision, with its NaN; all NaN if training had no
    value.
    """
    if np.isnan(statistics).any():
        return np.full_like(values, np.nan)
    return find_method(name).scale(values, statistics)


def check_statistics(scaler: Scaler, columns: tuple[int, int]) -> None:
    """Refuse what no fit on these (asset, feature) columns leaves: other shapes, infinities,
    spreads of zero, quantiles out of order. NaN stands for a column without a value in training; of
    each feature, one asset must have some.
    """
    statistics, linear = scaler.statistics, find_method(scaler.name).scale is scale_linearly
    least, most = (2, 2) if linear else (2, MAX_QUANTILES)
    right = (
        statistics.ndim == 3
        and least <= len(statistics) <= most
        and statistics.shape[1:] == columns
    )
    if statistics.dtype != np.float64 or not right or statistics.size > MOST_STATISTICS:
        count = "2" if linear else f"2 to {MAX_QUANTILES}"
        raise RecipeError(
            f"the statistics of scaler {scaler.name!r} are {statistics.dtype} {statistics.shape}, "
            f"not float64 ({count}, {columns[0]}, {columns[1]}) of at most {MOST_STATISTICS:,} "
            "numbers"
        )
    empty = np.isnan(statistics[0])
    if (
        np.isinf(statistics).any()
        or (np.isnan(statistics) != empty).any()
        or empty.all(axis=0).any()
    ):
        raise RecipeError("the scaler's statistics hold NaN or infinite values: no bars have such")
    spread = statistics[1]
    least_spread = NO_SPREAD * np.maximum(1.0, np.abs(statistics[0]))
    ordered = (
        (spread >= least_spread) | (spread == 1)
        if linear
        else (np.diff(statistics, axis=0) >= 0).all(axis=0)
    )
    if not (ordered | empty).all():
        wrong = "a spread is next to nothing" if linear else "quantiles do not ascend"
        raise RecipeError(f"the scaler's statistics are not those of any bars: {wrong}")


# --- centre and scale


def fit_zscore(column: FloatArray) -> FloatArray:
    """Mean and population standard deviation."""
    seen = column[~np.isnan(column)]
    if not seen.size:
        return np.full(2, np.nan)
    return _centre_and_scale(float(seen.mean()), float(seen.std()))


def fit_robust(column: FloatArray) -> FloatArray:
    """Median and distance between the quartiles."""
    seen = column[~np.isnan(column)]
    if not seen.size:
        return np.full(2, np.nan)
    low, middle, high = np.percentile(seen, (25, 50, 75))
    return _centre_and_scale(float(middle), float(high - low))


def _centre_and_scale(centre: float, spread: float) -> FloatArray:
    flat = spread < NO_SPREAD * max(1.0, abs(centre))
    return np.array([centre, 1.0 if flat else spread])


def scale_linearly(values: FloatArray, statistics: FloatArray) -> FloatArray:
    centre, spread = statistics
    return np.asarray(np.clip((values - centre) / spread, -CLIP, CLIP), np.float64)


# --- quantiles


def fit_quantiles(column: FloatArray) -> FloatArray:
    """As many quantiles as rows, at most 1000, evenly spaced from the minimum to the maximum."""
    seen = column[~np.isnan(column)]
    levels = np.linspace(0, 1, min(MAX_QUANTILES, len(column)))
    if not seen.size:
        return np.full(len(levels), np.nan)
    # interpolation may put a quantile an ulp below its neighbour, and np.interp wants them in order
    return np.maximum.accumulate(np.percentile(seen, levels * 100))


def scale_to_uniform(values: FloatArray, quantiles: FloatArray) -> FloatArray:
    """Share of the training values below: 0 to 1; a constant column gives 0."""
    share = _share_below(values, quantiles)
    share[values == quantiles[-1]] = 1.0
    share[values == quantiles[0]] = 0.0
    return share


def scale_to_normal(values: FloatArray, quantiles: FloatArray) -> FloatArray:
    """The normal deviate with the same share of training values below: -5.2 to 5.2; a constant
    gives -5.2.
    """
    share = _share_below(values, quantiles)
    share[values + EDGE > quantiles[-1]] = 1.0
    share[values - EDGE < quantiles[0]] = 0.0
    edge = EDGE - np.spacing(1)
    return inverse_normal(np.clip(share, edge, 1 - edge))


def _share_below(values: FloatArray, quantiles: FloatArray) -> FloatArray:
    """Interpolated from both ends and averaged: a value tied over many quantiles gets their
    middle.
    """
    levels = np.linspace(0, 1, len(quantiles))
    upward = np.interp(values, quantiles, levels)
    downward = np.interp(-values, -quantiles[::-1], -levels[::-1])
    return np.asarray((upward - downward) / 2, np.float64)


# Rational approximations of M. J. Wichura, algorithm AS 241 (PPND16), Applied Statistics 37 (1988):
# numerator and denominator, lowest power first, for centre, tails and far tails. Relative error
# about 1e-16.
CENTRE = (
    (
        3.387132872796366608, 1.3314166789178437745e2, 1.9715909503065514427e3,
        1.3731693765509461125e4, 4.5921953931549871457e4, 6.7265770927008700853e4,
        3.3430575583588128105e4, 2.5090809287301226727e3,
    ),
    (
        1.0, 4.2313330701600911252e1, 6.871870074920579083e2,
        5.3941960214247511077e3, 2.1213794301586595867e4, 3.930789580009271061e4,
        2.8729085735721942674e4, 5.226495278852854561e3,
    ),
)  # fmt: skip
TAIL = (
    (
        1.42343711074968357734, 4.6303378461565452959, 5.7694972214606914055,
        3.64784832476320460504, 1.27045825245236838258, 2.4178072517745061177e-1,
        2.27238449892691845833e-2, 7.7454501427834140764e-4,
    ),
    (
        1.0, 2.05319162663775882187, 1.6763848301838038494,
        6.8976733498510000455e-1, 1.4810397642748007459e-1, 1.51986665636164571966e-2,
        5.475938084995344946e-4, 1.05075007164441684324e-9,
    ),
)  # fmt: skip
FAR_TAIL = (
    (
        6.6579046435011037772, 5.4637849111641143699, 1.7848265399172913358,
        2.9656057182850489123e-1, 2.6532189526576123093e-2, 1.2426609473880784386e-3,
        2.71155556874348757815e-5, 2.01033439929228813265e-7,
    ),
    (
        1.0, 5.9983220655588793769e-1, 1.3692988092273580531e-1,
        1.48753612908506148525e-2, 7.868691311456132591e-4, 1.8463183175100546818e-5,
        1.4215117583164458887e-7, 2.04426310338993978564e-15,
    ),
)  # fmt: skip


def inverse_normal(share: FloatArray) -> FloatArray:
    """The deviate below which the given share (0 < share < 1) of a normal distribution lies; NaN
    stays.
    """
    q = share - 0.5
    centre = q * _rational(0.180625 - q * q, CENTRE)
    r = np.sqrt(-np.log(np.minimum(share, 1 - share)))
    tail = np.where(r <= 5, _rational(r - 1.6, TAIL), _rational(r - 5, FAR_TAIL))
    return np.where(np.abs(q) <= 0.425, centre, np.copysign(tail, q))


def _rational(
    x: FloatArray, coefficients: tuple[tuple[float, ...], tuple[float, ...]]
) -> FloatArray:
    numerator, denominator = (
        np.polynomial.polynomial.polyval(x, powers) for powers in coefficients
    )
    return np.asarray(numerator / denominator, np.float64)


# --- the methods by name

SCALERS: dict[str, Method] = {
    "zscore": Method(fit_zscore, scale_linearly, "mean 0, standard deviation 1, clipped at ±10"),
    "robust": Method(fit_robust, scale_linearly, "median 0, interquartile range 1, clipped at ±10"),
    "quantile": Method(fit_quantiles, scale_to_normal, "normal by rank, ±5.2"),
    "quantile_uniform": Method(fit_quantiles, scale_to_uniform, "uniform by rank, 0 to 1"),
}


def find_method(name: str) -> Method:
    """The method of that name; an unknown name is refused with the nearest known one."""
    if name not in SCALERS:
        near = difflib.get_close_matches(str(name), SCALERS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        raise RecipeError(f"unknown scaler {shorten_repr(name)}{hint} Known: {', '.join(SCALERS)}")
    return SCALERS[name]
