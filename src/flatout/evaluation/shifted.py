"""Traders without skill that are matched by construction: a path's own decisions, at other times.

The decisions of a path are moved along its history by a number of bars, around its end, and run
through the real market: weights, holding times, turnover and costs stay as they were; only what
they knew of the next bar is lost. If the path's t statistic is no better than those of its moved
copies, it was luck.

Moves forward by less than a sixth of history are left out: the weights of a path that follows
prices know the past, and a copy moved a little would hold its weights in the very bars that they
were made from. That would call every contrarian skilled, and no trend follower. A path whose rule
remembers more than a sixth of history knows the bars of its copies all the same. Therefore the p
value is never smaller than that of the path's t statistic itself, which is sound whatever a rule
remembers of prices: the benchmark of `skill` knows only what came before.

A rule may also look at its own results: stop when it is ahead, or raise its stakes while it is
behind. Without an edge such a rule reaches p <= 0.05 by a common t value in a third of the cases,
and no copy stops with it. So the deviation in the t value is not that of all bars, but that of the
wildest third of each block: who has stopped, or has begun small, is measured by what was at stake
where it was most. It then reaches it in less than 5 %.

The statistic is a t value, not a sum: a path that holds less in wild times, moved, holds more in
them, and its sums would spread wider than the path's own. Costs are left out on both sides: the
trades of a trend follower go with the drift of its positions and are smaller than those of its
copies, and a contrarian's are larger; that costs are earned back is for other gates to say.
"""

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flatout.bars.panel import FloatArray
from flatout.evaluation.accounts import Floats
from flatout.evaluation.backtest import History, Progress, backtest
from flatout.evaluation.baselines import Moment
from flatout.evaluation.decisions import CHANGED, Decisions, measure_change
from flatout.folds.blocks import Block
from flatout.market.market import Market

COPIES = 199
LEFT_OUT = 1 / 6  # of history, from the bar itself on
THIRDS = 3  # of a block, the wildest of which says what was at stake
ROUNDING = 1e-24  # square of a return that is none


class MovedDecisions(NamedTuple):
    """A policy: each account repeats a path's decisions, moved by its own number of bars."""

    decisions: Decisions
    moves: NDArray[np.int64]  # (account,)
    first: int  # bar of the path with which the backtest begins

    def __call__(self, moment: Moment) -> Floats:
        """Orders as shares of the equity; at the first bar all take the position of their time."""
        row = (self.first + moment.age + self.moves) % len(self.decisions.targets)
        wanted = self.decisions.targets[row] - moment.weights
        return wanted if moment.age == 0 else np.where(self.decisions.traded[row], wanted, 0.0)

    def money(self, moment: Moment) -> Floats:
        """Orders in money: from long to short is more than all of the equity."""
        return self(moment) * moment.require_accounts().equity[:, None]


class ShiftedNull(NamedTuple):
    """A path beside its moved copies."""

    p_value: float  # 0 to 1: see `rank_path`
    statistic: float  # t value of the path's skill returns before costs
    copies: FloatArray  # (copy,) their t values
    histories: tuple[
        History, ...
    ]  # block after block; account 0 is the path, the others its copies


class Ranked(NamedTuple):
    """Where a path stands among its copies."""

    p_value: float
    statistic: float
    copies: FloatArray


def rank_path(skill: FloatArray, changes: bool, lengths: Sequence[int]) -> Ranked:
    """The path in the first row of (account, bar) skill returns before costs, in blocks of these
    lengths, among its copies in the others: the share of copies whose t value is at least its own
    (add-one), or the probability of such a t value by luck, whichever is larger. One that never
    changes its weights is no better than any.
    """
    statistic, *copies = t_value(skill, lengths).tolist()
    as_good = sum(copy >= statistic for copy in copies) if changes else len(copies)
    rank, luck = (1 + as_good) / (1 + len(copies)), 1 - NormalDist().cdf(statistic)
    return Ranked(max(rank, luck), statistic, np.array(copies))


def draw_moves(bars: int, copies: int, seed: int) -> NDArray[np.int64]:
    """Different moves, as far as there are as many; none forward by less than a sixth."""
    least = max(1, math.ceil(LEFT_OUT * bars))
    possible = np.arange(least, bars)
    rng = np.random.default_rng(seed)
    return rng.choice(possible, copies, replace=len(possible) < copies)


def t_value(returns: FloatArray, lengths: Sequence[int]) -> FloatArray:
    """Of the sum of (..., bar) returns, in blocks of these lengths one after another, by the
    deviation of the wildest third of each block; 0 where they never vary.
    """
    blocks = np.split(returns, np.cumsum(lengths)[:-1], axis=-1)
    variance = sum((block.shape[-1] * find_wildest(block) for block in blocks), start=np.zeros(1))
    risky = variance > ROUNDING * returns.shape[-1]
    found: FloatArray = np.where(
        risky, np.sum(returns, axis=-1) / np.sqrt(np.where(risky, variance, 1.0)), 0.0
    )
    return found


def find_wildest(block: FloatArray) -> FloatArray:
    """(...) the largest mean square of the thirds of a block of (..., bar) returns."""
    thirds = [third for third in np.array_split(block, THIRDS, axis=-1) if third.shape[-1]]
    return np.max([np.mean(third * third, axis=-1) for third in thirds], axis=0)


def compare_with_moves(
    market: Market,
    blocks: Sequence[Block],
    decisions: Decisions,
    held: FloatArray,
    copies: int = COPIES,
    seed: int = 0,
    progress: Progress = lambda bar: None,
) -> ShiftedNull:
    """Compare a path on some blocks with its moved copies, all in excess of the (bar,) returns of
    the path's average weights. A path that never changes its weights cannot be told from its
    copies: p is 1.
    """
    if changes_weights(decisions, blocks):
        moves = np.append(0, draw_moves(len(held), copies, seed))
    else:
        moves = np.zeros(1 + copies, np.int64)
    histories, first = [], 0
    for block in blocks:
        history = backtest(
            market,
            MovedDecisions(decisions, moves, first),
            accounts=len(moves),
            first=block.first - 1,
            stop=block.stop,
            progress=progress,
        )
        histories.append(history)
        first += block.length
    gross = np.concatenate([history.returns + history.cost for history in histories])
    ranked = rank_path(
        (gross - held[:, None]).T, bool(moves.any()), [block.length for block in blocks]
    )
    return ShiftedNull(*ranked, tuple(histories))


def changes_weights(decisions: Decisions, blocks: Sequence[Block]) -> bool:
    """Whether a path ever asks for weights other than those with which it began a block."""
    ends = np.cumsum([block.length for block in blocks])
    return any(
        np.any(measure_change(targets - targets[0])[traded.any(axis=1)] > CHANGED)
        for targets, traded in zip(
            np.split(decisions.targets, ends[:-1]),
            np.split(decisions.traded, ends[:-1]),
            strict=True,
        )
    )
