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
remembers: the benchmark of `skill` knows only what came before.

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
from flatout.evaluation.decisions import CHANGED, Decisions
from flatout.folds.blocks import Block
from flatout.market.market import Market

COPIES = 199
LEFT_OUT = 1 / 6  # of history, from the bar itself on


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


def rank_path(skill: FloatArray, changes: bool) -> Ranked:
    """The path in the first row of (account, bar) skill returns before costs among its copies in
    the others: the share of copies whose t value is at least its own (add-one), or the probability
    of such a t value by luck, whichever is larger. One that never changes its weights is no better
    than any.
    """
    statistic, *copies = t_value(skill).tolist()
    as_good = sum(copy >= statistic for copy in copies) if changes else len(copies)
    rank, luck = (1 + as_good) / (1 + len(copies)), 1 - NormalDist().cdf(statistic)
    return Ranked(max(rank, luck), statistic, np.array(copies))


def draw_moves(bars: int, copies: int, seed: int) -> NDArray[np.int64]:
    """Different moves, as far as there are as many; none forward by less than a sixth."""
    least = max(1, math.ceil(LEFT_OUT * bars))
    possible = np.arange(least, bars)
    rng = np.random.default_rng(seed)
    return rng.choice(possible, copies, replace=len(possible) < copies)


def t_value(returns: FloatArray) -> FloatArray:
    """Of the mean of (..., bar) returns; 0 where they never vary."""
    deviation = np.std(returns, axis=-1)
    risky = deviation > 1e-12
    mean = np.mean(returns, axis=-1)
    return np.where(risky, mean / np.where(risky, deviation, 1.0), 0.0) * math.sqrt(
        returns.shape[-1]
    )


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
    ranked = rank_path((gross - held[:, None]).T, bool(moves.any()))
    return ShiftedNull(*ranked, tuple(histories))


def changes_weights(decisions: Decisions, blocks: Sequence[Block]) -> bool:
    """Whether a path ever asks for weights other than those with which it began a block."""
    ends = np.cumsum([block.length for block in blocks])
    return any(
        np.any(np.abs(targets - targets[0])[traded] > CHANGED)
        for targets, traded in zip(
            np.split(decisions.targets, ends[:-1]),
            np.split(decisions.traded, ends[:-1]),
            strict=True,
        )
    )
