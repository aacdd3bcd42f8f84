"""How much of a Sharpe ratio is luck: its probability, the expected best of many trials, and how
many they really were.

Everything is per bar: give bar Sharpes and get bars. Moments are those of `metrics`: the Sharpe
ratio divides by the sample deviation (n - 1), skew and kurtosis are population moments. The latter
obey kurtosis >= 1 + skew², so that the variance of the Sharpe ratio is never negative; moments
corrected for bias break that on short paths. Returns that never vary carry no evidence: their
Sharpe ratio counts as 0 here, where `metrics` says ±inf.

Sources: Bailey & López de Prado, "The Sharpe Ratio Efficient Frontier" (2012) and "The Deflated
Sharpe Ratio" (2014); Bailey, Borwein, López de Prado & Zhu, "Pseudo-Mathematics and Financial
Charlatanism" (2014). This file does not know how trials were made, nor how many were run elsewhere
on the same bars.
"""

import math
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from flatout.bars.panel import FloatArray
from flatout.errors import FlatoutError
from flatout.evaluation import metrics

NORMAL = NormalDist()
# random vectors at a time, and how often: N_eff is then right to a few percent
DRAWS, ROUNDS = 512, 8


class Track(NamedTuple):
    """What a path of returns tells about its Sharpe ratio, which is one of a bar."""

    bars: int
    sharpe: float  # per bar
    skew: float
    kurtosis: float  # 3 for a normal distribution

    @property
    def variance(self) -> float:
        """Variance of the estimated bar Sharpe, times bars - 1; at least what rounding leaves."""
        raw = 1 - self.skew * self.sharpe + (self.kurtosis - 1) / 4 * self.sharpe**2
        return max(raw, metrics.ROUNDING)

    def probability_above(self, benchmark: float) -> float:
        """The probability, 0 to 1, that the true bar Sharpe exceeds this one."""
        return NORMAL.cdf((self.sharpe - benchmark) * math.sqrt((self.bars - 1) / self.variance))


def track(returns: FloatArray) -> Track:
    """Length and moments of one path of simple returns per bar, (bar,); nothing is annualised."""
    returns = metrics.check_returns(returns)
    if returns.ndim != 1 or len(returns) < 2:
        raise FlatoutError(
            f"returns of shape {returns.shape} have no Sharpe ratio: give one path of two "
            f"bars or more"
        )
    sharpe = float(metrics.bar_sharpe(returns))
    return Track(
        bars=len(returns),
        sharpe=sharpe if math.isfinite(sharpe) else 0.0,
        skew=float(metrics.skew(returns)),
        kurtosis=3 + float(metrics.excess_kurtosis(returns)),
    )


def probabilistic_sharpe(returns: FloatArray, benchmark: float = 0.0) -> float:
    """PSR: the probability, 0 to 1, that the true Sharpe ratio exceeds the benchmark; 0.5 where
    they are equal. The benchmark is a Sharpe ratio per bar: divide an annual one by
    sqrt(bars_per_year).
    """
    return track(returns).probability_above(_finite(benchmark, "benchmark"))


def expected_best_sharpe(trials: float, deviation: float) -> float:
    """The best Sharpe ratio that so many independent trials without skill are expected to show.

    `deviation` is the standard deviation of their Sharpe ratios; the result has its unit. `trials`
    need not be whole: between 1 (which gives 0) and 2 the line is straight, since the approximation
    falls to -inf there.
    """
    if not 1 <= trials < math.inf:
        raise FlatoutError(f"trials is {trials!r}; it counts what was tried, from 1")
    if not 0 <= deviation < math.inf:
        raise FlatoutError(f"deviation is {deviation!r}; it is a standard deviation, 0 or more")
    if trials < 2:
        return (trials - 1) * expected_best_sharpe(2, deviation)
    # Quantiles of the lower tail: 1 - 1/trials would lose digits that 1/trials keeps.
    usual, rare = -NORMAL.inv_cdf(1 / trials), -NORMAL.inv_cdf(1 / (trials * math.e))
    return deviation * ((1 - np.euler_gamma) * usual + np.euler_gamma * rare)


def deflated_sharpe(returns: FloatArray, trials: float, deviation: float) -> float:
    """DSR: the probability, 0 to 1, that the true Sharpe ratio of a bar exceeds what the best of so
    many trials without skill would show.

    `deviation` is the standard deviation of the bar Sharpes across trials. Below 1 / sqrt(bars),
    its value for independent trials without skill, it is taken to be that.
    """
    path = track(returns)
    # Trials that resemble each other have Sharpe ratios that do so too: equal trials would make the
    # deviation 0, and the benchmark would vanish however many there were. Likeness is what
    # `effective_trials` measures; it may lower the number of trials, and must not lower the
    # deviation again. Trials that differ more than luck explains do raise the benchmark, as in the
    # paper.
    floor = 1 / math.sqrt(path.bars)
    expected_best_sharpe(trials, deviation)  # refuses what is no number of trials and no deviation
    return path.probability_above(expected_best_sharpe(trials, max(deviation, floor)))


def minimum_track_length(
    returns: FloatArray, benchmark: float = 0.0, confidence: float = 0.95
) -> float:
    """MinTRL: how many bars of such returns make it probable that the true bar Sharpe exceeds the
    benchmark.

    At least 2; inf if the Sharpe ratio does not exceed the benchmark. Not rounded to whole bars.
    """
    if not 0 < confidence < 1:
        raise FlatoutError(
            f"confidence is {confidence!r}; it is a probability between 0 and 1, such as 0.95"
        )
    path = track(returns)
    lead = path.sharpe - _finite(benchmark, "benchmark")
    if lead <= 0:
        return math.inf
    quantile = max(NORMAL.inv_cdf(confidence), 0.0)  # up to one half, any lead is enough
    return max(2.0, 1 + path.variance * (quantile / lead) ** 2)


def minimum_backtest_length(trials: float, target_sharpe: float) -> float:
    """MinBTL: the length at which the best of so many trials without skill is expected to show the
    target.

    In bars for a bar Sharpe, in years for an annual one. A shorter backtest with that Sharpe ratio
    says nothing. 0 for one trial; inf for a target of 0 or below, which luck reaches at any length.
    """
    best = expected_best_sharpe(trials, 1.0)
    if _finite(target_sharpe, "target_sharpe") <= 0:
        return math.inf
    return (best / target_sharpe) ** 2


def effective_trials(returns_matrix: FloatArray) -> float:
    """N_eff: how many independent trials have the same expected best as these, from (bar, trial)
    returns.

    Without skill, Sharpe ratios estimated on the same bars are normal and correlate as the returns
    do. The expected best of such normals is measured with random numbers (always the same ones), as
    a share of the expected best of as many independent normals (from the same numbers);
    `expected_best_sharpe` then says how many trials have that share. So N_eff means precisely what
    `deflated_sharpe` makes of it. For N trials that all correlate by c, the share is sqrt(1 - c).
    Equal columns are one trial. Columns that never vary (policies that never traded) are one trial
    together, independent of the rest. Never more than the number of columns.

    Simpler figures flatter. 400 equal trials and 100 independent ones, as a sampler that converges
    leaves them, are about 100 here; the entropy of the correlation's eigenvalues says 4 and their
    participation ratio 2, because both weigh a trial by its copies. 500 trials that all correlate
    by 0.5 are 36 here; the participation ratio says 4. Clusters chosen by silhouette merge trials
    that are independent. The work grows with the cube of the number of trials: half a second for a
    thousand.
    """
    columns = _trials_of(returns_matrix)
    varying = columns[np.ptp(columns, axis=1) > metrics.ROUNDING * np.max(np.abs(columns), axis=1)]
    count = min(len(varying) + 1, len(columns))
    if count == 1:
        return 1.0
    correlation = np.eye(count)
    correlation[: len(varying), : len(varying)] = np.corrcoef(varying)
    return _trials_with(_share_of_best(correlation) * expected_best_sharpe(count, 1.0), count)


def _trials_of(returns_matrix: FloatArray) -> FloatArray:
    """Checked (bar, trial) returns as (trial, bar)."""
    matrix = np.asarray(returns_matrix, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[0] < 2 or matrix.shape[1] < 1:
        raise FlatoutError(
            f"returns of shape {matrix.shape} are not (bar, trial) with two bars and one "
            f"trial or more"
        )
    return metrics.check_returns(matrix.T)


def _share_of_best(correlation: FloatArray) -> float:
    """The expected best of correlated normals over that of independent ones."""
    values, vectors = np.linalg.eigh(correlation)
    values = np.where(values > metrics.ROUNDING * len(values), values, 0.0)
    root = (
        vectors * np.sqrt(values)
    ) @ vectors.T  # the symmetric root is 1 for independent trials: no noise there
    random = np.random.default_rng(0)
    correlated = independent = 0.0
    for _ in range(ROUNDS):
        draws = random.standard_normal((DRAWS, len(root)))
        independent += float(
            np.sum(np.ptp(draws, axis=1))
        )  # best minus worst: each draw and its mirror image
        correlated += float(np.sum(np.ptp(draws @ root, axis=1)))
    return correlated / independent


def _trials_with(best: float, most: float) -> float:
    """The number of independent trials, from 1 to `most`, whose expected best this is, in
    deviations.
    """
    low, high = 1.0, float(most)
    if best >= expected_best_sharpe(high, 1.0):
        return high
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if expected_best_sharpe(middle, 1.0) < best else (low, middle)
    return low


def _finite(value: float, name: str) -> float:
    if not math.isfinite(value):
        raise FlatoutError(f"{name} is {value!r}; it must be a finite Sharpe ratio")
    return value
