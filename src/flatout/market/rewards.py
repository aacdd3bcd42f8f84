"""Named reward terms, all per bar and of the size of a return; their weights are data.

log_return           log of the equity's change
excess               log_return minus that of holding all living assets equally, rebalanced each
                     bar, free of costs
differential_sharpe  the bar's contribution to an exponentially averaged Sharpe ratio (Moody and
                     Saffell, 1998) times the deviation of the returns in that average, which makes
                     it a return: about log_return minus its average
drawdown             minus what the bar adds to the loss from the equity's peak, as a share of the
                     peak; 0 where it adds nothing. Over an episode it sums to minus all falls of
                     the equity, each as a share of the peak before it: never less than the largest
                     drawdown, and the same where nothing was won back in between
turnover             minus the traded notional per equity: the one term that is no return itself.
                     Its weight is a rate of cost, which makes it one: 0.001 is 10 bps of what is
                     traded
concentration        minus what positions above a stated weight (`concentration_above`) risked: the
                     sum over assets of the weight above it times the size of the price's move from
                     the bar's open to its close

A level in place of `drawdown` or `concentration` would be charged again in every bar: a hundred
times what a bar can earn, and the best policy would be to own nothing.
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
    moves: Array,
    traded: Array,
    benchmark: Array,
    weights: RewardWeights,
    xp: Namespace,
) -> tuple[Marks, RewardTerms]:
    """Terms of a bar that ends with equity `worth` in positions `values` (asset, ...) after trading
    `traded` notional; `moves` (asset, ...) are the returns of the prices from its open to its
    close.

    Where the loss from the peak neither grows nor shrinks, where a position has just the weight
    from which it counts and where a price stands still, gradients lie between those on either side.
    """
    before, after = xp.clip(marks.equity, LEAST_EQUITY, None), xp.clip(worth, LEAST_EQUITY, None)
    log_return = xp.log(after / before)
    peak = xp.maximum(marks.peak, worth)
    gain = log_return - marks.mean
    gain_square = log_return * log_return - marks.mean_square
    variance = xp.clip(marks.mean_square - marks.mean * marks.mean, LEAST_VARIANCE, None)
    sharpe = (marks.mean_square * gain - marks.mean * gain_square / 2) / variance
    above = xp.abs(values) - (weights.concentration_above * after)[None]
    pace = 1 - weights.sharpe_memory
    terms = RewardTerms(
        log_return=log_return,
        excess=log_return - benchmark,
        differential_sharpe=sharpe,
        drawdown=xp.clip(worth / peak - marks.equity / marks.peak, None, 0.0),
        turnover=-traded / before,
        concentration=-xp.sum(xp.clip(above, 0.0, None) * xp.abs(moves), axis=0) / after,
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
