"""What a path decided: the weights that it asked for, and when it changed them.

A position's weight changes with prices alone; that is no decision. Units that change are one, and
the weight that they had at the prices of the decision is what was asked for. A rule that rebalances
to the same weights each bar trades and decides nothing.
"""

import math
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flatout.bars.panel import FloatArray

# of the position before and after together: 32-bit weights cannot tell smaller trades from
# rounding; where both are tiny, of the equity
TRADED, DUST = 1e-4, 1e-6
CHANGED = 0.005  # of the equity, between two decisions: half a per cent is no new opinion
LEAST_ACTIVE = 0.01  # share of the equity that a path which decides something moves about
BATCHES = 24


class Decisions(NamedTuple):
    """A path's orders, one row per bar that they met."""

    targets: FloatArray  # (bar, asset) weights asked for, at the prices of the decision
    traded: NDArray[np.bool_]  # (bar, asset) whether the position was changed in the bar


def find_decisions(
    weights: FloatArray, returns: FloatArray, asset_returns: FloatArray, starts: NDArray[np.bool_]
) -> Decisions:
    """The decisions behind a path's (bar, asset) weights at each bar's close, from its (bar,)
    simple returns and the (bar, asset) returns of the assets. `starts` marks the bars before which
    the account was flat.
    """
    before = np.vstack([np.zeros((1, weights.shape[1])), weights[:-1]]) * ~starts[:, None]
    # the same units at the prices, and in shares of the equity, from before the bar
    asked = weights * (1 + returns)[:, None] / (1 + asset_returns)
    traded = np.abs(asked - before) > TRADED * (np.abs(asked) + np.abs(before)) + DUST
    targets = np.where(traded, asked, np.nan)
    return Decisions(fill_forward(targets), traded)


def fill_forward(targets: FloatArray) -> FloatArray:
    """What was asked for last, where nothing is asked for; 0 before the first decision."""
    rows = np.where(np.isnan(targets), 0, np.arange(1, len(targets) + 1)[:, None])
    last = np.maximum.accumulate(rows, axis=0)
    padded = np.vstack([np.zeros((1, targets.shape[1])), targets])
    return np.take_along_axis(padded, last, axis=0)


def count_decisions(decisions: Decisions) -> int:
    """At how many bars a path asked for weights that differ from those it had asked for before."""
    count, last = 0, np.zeros(decisions.targets.shape[1])
    moved = decisions.traded.any(axis=1)
    for target in decisions.targets[moved]:
        if measure_change(target - last) > CHANGED:
            count, last = count + 1, target
    return count


def measure_change(weights: FloatArray) -> FloatArray:
    """(...) how much of the equity changes hands with these (..., asset) differences of weights,
    cash among them: half a per cent of one asset bought is half a per cent, and so is a thousandth
    of each of ten sold for another ten.

    >>> float(measure_change(np.array([0.25, 0.0]))), float(measure_change(np.array([0.25, -0.25])))
    (0.25, 0.25)
    """
    return (np.abs(weights).sum(axis=-1) + np.abs(weights.sum(axis=-1))) / 2


class Activity(NamedTuple):
    """How much of the equity a path moves about, beside what it holds on average."""

    share: float  # mean over bars of half the absolute differences from the average targets
    p_value: float  # of the hypothesis that it is no more than `LEAST_ACTIVE`


def measure_activity(decisions: Decisions) -> Activity:
    """The active share of a path's targets, tested by the means of consecutive batches of bars. A
    path with fewer decisions than batches says too little: one change of mind in all of history
    would make the batches alike.
    """
    targets = decisions.targets
    active = np.abs(targets - targets.mean(axis=0)).sum(axis=1) / 2
    batches = np.array([part.mean() for part in np.array_split(active, min(BATCHES, len(active)))])
    share = float(active.mean())
    if count_decisions(decisions) < BATCHES:
        return Activity(share, 1.0)
    error = float(np.std(batches)) / math.sqrt(max(len(batches) - 1, 1))
    if error == 0:
        return Activity(share, 1.0 if share <= LEAST_ACTIVE else 0.0)
    return Activity(share, 1 - NormalDist().cdf((share - LEAST_ACTIVE) / error))
