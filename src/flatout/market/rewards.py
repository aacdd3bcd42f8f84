"""Named reward terms, all per bar and of the size of a return; their weights are data.

log_return           log of the equity's change
excess               log_return minus that of holding all assets equally, rebalanced each bar, free
                     of costs
differential_sharpe  the bar's contribution to an exponentially averaged Sharpe ratio (Moody and
                     Saffell, 1998)
drawdown             minus the share of the equity's peak that is lost at the bar's close
turnover             minus the traded notional per equity
concentration        minus the sum of squared weights
"""

from typing import NamedTuple

from flatout.arrays import Array, Namespace
from flatout.market.rules import RewardWeights

LEAST_VARIANCE = 1e-8  # (1 bp per bar) squared: before any risk was taken the ratio would explode
LEAST_EQUITY = 1e-6  # a ruined account may be worth less than nothing; its logarithm stays finite


class Marks(NamedTuple):
    """What the rewards remember of an account's equity; every field is (...)."""

    equity: Array
    peak: Array
    mean: Array  # exponential average of the returns
    mean_square: Array


class RewardTerms(NamedTuple):
    """The unweighted terms of one bar; every field is (...)."""

    log_return: Array
    excess: Array
    differential_sharpe: Array
    drawdown: Array
    turnover: Array
    concentration: Array


def first_marks(worth: Array, xp: Namespace) -> Marks:
    """The marks of an account that starts with this equity."""
    return Marks(
        equity=worth, peak=worth, mean=xp.zeros_like(worth), mean_square=xp.zeros_like(worth)
    )


def reward_terms(
    marks: Marks,
    worth: Array,
    values: Array,
    traded: Array,
    benchmark: Array,
    weights: RewardWeights,
    xp: Namespace,
) -> tuple[Marks, RewardTerms]:
    """Terms of a bar that ends with equity `worth` in positions `values` (asset, ...) after trading
    `traded` notional.
    """
    before, after = xp.clip(marks.equity, LEAST_EQUITY, None), xp.clip(worth, LEAST_EQUITY, None)
    log_return = xp.log(after / before)
    peak = xp.maximum(marks.peak, worth)
    gain = log_return - marks.mean
    gain_square = log_return * log_return - marks.mean_square
    variance = xp.clip(marks.mean_square - marks.mean * marks.mean, LEAST_VARIANCE, None)
    sharpe = (marks.mean_square * gain - marks.mean * gain_square / 2) / (
        variance * xp.sqrt(variance)
    )
    pace = 1 - weights.sharpe_memory
    terms = RewardTerms(
        log_return=log_return,
        excess=log_return - benchmark,
        differential_sharpe=pace * sharpe,
        drawdown=worth / peak - 1,
        turnover=-traded / before,
        concentration=-xp.sum(values * values, axis=0) / (after * after),
    )
    return Marks(
        worth, peak, marks.mean + pace * gain, marks.mean_square + pace * gain_square
    ), terms


def weigh_terms(terms: RewardTerms, weights: RewardWeights) -> Array:
    """The reward: the scaled, weighted sum of the terms."""
    total = sum(
        (getattr(weights, name) * term for name, term in zip(terms._fields, terms, strict=True)),
        start=0.0,
    )
    return total * weights.scale
