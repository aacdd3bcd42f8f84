"""What all trials of a study together say about its winner: overfitting, deflation, lengths that
would be needed.
"""

import math
from typing import Any

import numpy as np

from flatout.bars.panel import FloatArray
from flatout.evaluation import metrics
from flatout.evaluation.deflation import (
    NORMAL,
    deflated_sharpe,
    effective_trials,
    expected_best_sharpe,
    minimum_backtest_length,
    minimum_track_length,
    probabilistic_sharpe,
)
from flatout.evaluation.overfitting import overfitting
from flatout.evaluation.paths import finite

BLOCKS = 16


def overfitting_facts(columns: FloatArray, bars_per_year: float) -> dict[str, Any] | None:
    """PBO of (bar, trial) returns with all that its picture needs, Sharpe ratios per year; None for
    fewer than two trials.
    """
    if columns.shape[1] < 2 or columns.shape[0] < 2 * BLOCKS:
        return None
    found, annual = overfitting(columns, BLOCKS), math.sqrt(bars_per_year)
    return {
        "pbo": found.pbo,
        "probability_of_loss": found.probability_of_loss,
        "slope": finite(found.slope),
        "intercept": finite(found.intercept * annual),
        "r2": finite(found.r2),
        "blocks": found.blocks,
        "logits": found.logits.tolist(),
        "in_sample": (found.in_sample * annual).tolist(),
        "out_of_sample": (found.out_of_sample * annual).tolist(),
    }


def weigh_lead(skill: FloatArray, other: FloatArray) -> float:
    """How probable such a lead is where there is none: of the mean difference of two paths' (bar,)
    skill returns, each in units of its own deviation. Returns that never vary count as 0.
    """

    def in_deviations(returns: FloatArray) -> FloatArray:
        deviation = float(np.std(returns))
        return returns / deviation if deviation > metrics.ROUNDING else np.zeros_like(returns)

    lead = in_deviations(skill) - in_deviations(other)
    deviation = float(np.std(lead))
    if deviation <= metrics.ROUNDING:
        return 1.0
    return 1 - NORMAL.cdf(float(np.mean(lead)) / deviation * math.sqrt(len(lead)))


def deflation_facts(
    paths: FloatArray, sharpes: FloatArray, columns: FloatArray, trials: int, bars_per_year: float
) -> dict[str, Any]:
    """How much of the winner's Sharpe ratio the number of trials explains.

    `paths` (path, bar) are the winner's, `sharpes` the bar Sharpes of all trials of this study,
    `columns` their (bar, trial) returns, `trials` the number ever run on these bars. Probabilities
    are medians over the paths.

    The question is what the best of so many trials *without skill* would show. Their Sharpe ratios
    differ by 1 / sqrt(bars), and that is what `dsr` uses. The ratios of a study's trials differ by
    more wherever some learned something and others lost money trading: as a measure of luck that is
    too much, yet it is what the paper's estimate takes, so it stands beside as `dsr_dispersion`.
    """
    luck = 1 / math.sqrt(paths.shape[1])
    dispersion = float(np.std(sharpes, ddof=1)) if len(sharpes) > 1 else luck
    effective = effective_trials(columns) + max(
        0, trials - columns.shape[1]
    )  # of others only the number is known
    effective = min(max(effective, 1.0), float(max(trials, 1)))
    annual = math.sqrt(bars_per_year)

    def median(figure: Any) -> float | None:
        return finite(float(np.median([figure(path) for path in paths])))

    sharpe = float(np.median(metrics.bar_sharpe(paths)))
    return {
        "sharpe": finite(sharpe * annual),
        "psr": median(probabilistic_sharpe),
        "dsr": median(lambda path: deflated_sharpe(path, trials, luck)),
        "dsr_effective": median(lambda path: deflated_sharpe(path, effective, luck)),
        "dsr_dispersion": median(lambda path: deflated_sharpe(path, trials, dispersion)),
        "trials": trials,
        "effective": effective,
        "expected_best": finite(expected_best_sharpe(trials, luck) * annual),
        "min_track_years": median(lambda path: minimum_track_length(path) / bars_per_year),
        "min_backtest_years": finite(minimum_backtest_length(trials, sharpe * annual)),
        "years": paths.shape[1] / bars_per_year,
    }
