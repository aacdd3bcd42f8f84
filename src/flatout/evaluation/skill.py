"""Skill and not direction: what a path earned beyond the same average weights, held.

In a rising market whoever holds something earns, in a falling one whoever holds less loses less;
neither is skill. So evidence is about *skill returns*: the return of a bar minus what a benchmark
of the path's own average weights would have earned in it, rebalanced each bar and free of costs.

The benchmark of a bar knows only what the path held before it in the same block of bars. It is the
average of those weights, plus a repayment: what the path has held beyond its average so far, in
every part of the block, is spread evenly over the bars of the block that follow. From that two
things follow, whatever the rule remembers:

- Where no bar can be foretold, a skill return is zero on average, given all that was known before
  the bar. An average over all of history knows better: a path that buys what has fallen holds, long
  after a bar that fell, more of it, so that its average weights fit the returns that they are held
  against. On 600 walks without an edge, 1,440 bars, a rule that buys what has fallen since the
  first bar passes a t-test at 5 % in 30 % of the cases against the average over all bars but the
  following sixth, and in 4 % against this one; rules that look back 8 to 400 bars, with or against
  the trend, in rising, falling and flat markets, in 3 to 7 %.
- What is held beyond the average is paid back within the block, so the benchmark's weights add up
  to the path's, and a constant drift of the market cancels.

Blocks are apart because a path may join blocks of agents that were taught on each other's bars: the
weights of the agent of one block know the returns of another. On flat walks agents that hold what
fell in their training bars pass a t-test at 5 % in more than 10 % of the cases against an average
over the blocks before, those that hold what rose in less than 3 %. The price is noise: an average
of little history, and repayments in a hurry. It is the smaller the longer the blocks are.

Weights that never change are their own average: no skill, whatever the market does. The first part
of a block has nothing before it and is not judged: there the path is its own benchmark. What is
held in the last part cannot be paid back, so it is not judged either: only repayments are.

Weights are summed over parts of blocks: the sums are all that must be kept of a trial.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flatout.bars.panel import FloatArray
from flatout.folds.blocks import Block

PARTS = 24  # of each block; the first and the last are lost to the judgement


class Timeline(NamedTuple):
    """The bars of a path, block after block, as its benchmark sees them."""

    asset_returns: FloatArray  # (bar, asset) close to close, 0 where there is no price
    part: NDArray[np.int64]  # (bar,) in which part of the path a bar lies
    bars: NDArray[np.int64]  # (part,) how many bars a part has


def make_timeline(closes: FloatArray, blocks: Sequence[Block]) -> Timeline:
    """The timeline of blocks of (bar, asset) closes; a block does not begin with bar 0."""
    before = np.concatenate([np.arange(block.first - 1, block.stop - 1) for block in blocks])
    with np.errstate(invalid="ignore", divide="ignore"):
        returns = closes[before + 1] / closes[before] - 1
    lengths = [block.length for block in blocks]
    part = np.concatenate([k * PARTS + cut_block(length) for k, length in enumerate(lengths)])
    return Timeline(
        asset_returns=np.where(np.isfinite(returns), returns, 0.0),
        part=part,
        bars=np.bincount(part, minlength=PARTS * len(blocks)),
    )


def cut_block(length: int) -> NDArray[np.int64]:
    """In which of its parts each bar of a block lies; parts of a short block may be empty."""
    return np.arange(length, dtype=np.int64) * PARTS // max(length, 1)


def sum_by_part(weights: NDArray[np.floating], length: int) -> FloatArray:
    """Sums of a block's (..., asset, bar) weights, of which the first `length` bars count, over its
    parts: (..., part, asset).
    """
    member = np.zeros((length, PARTS))
    member[np.arange(length), cut_block(length)] = 1.0
    return np.swapaxes(weights[..., :length].astype(np.float64) @ member, -1, -2)


def average_weights(sums: FloatArray, timeline: Timeline) -> FloatArray:
    """What a path's benchmark holds in each of its parts, (..., part, asset), from the (..., part,
    asset) sums of its weights: the average of the parts before in the same block, and the repayment
    of what went beyond it. In the last part of a block only the repayment, in the first nothing.
    """
    blocks = np.reshape(sums, (*sums.shape[:-2], -1, PARTS, sums.shape[-1]))
    bars = timeline.bars.reshape(-1, PARTS, 1).astype(np.float64)
    known = add_before(bars)
    left = bars.sum(axis=-2, keepdims=True) - known - bars
    average = add_before(blocks) / np.maximum(known, 1)
    beyond = np.where(known > 0, blocks - average * bars, 0.0)
    repaid = add_before(beyond / np.maximum(left, 1))
    return np.reshape(np.where(left > 0, average, 0.0) + repaid, sums.shape)


def add_before(values: FloatArray) -> FloatArray:
    """(..., part, asset): the sums of the parts before each part, of which it is no part itself."""
    none = np.zeros_like(values[..., :1, :])
    return np.concatenate([none, np.cumsum(values, axis=-2)[..., :-1, :]], axis=-2)


def find_judged(timeline: Timeline) -> NDArray[np.bool_]:
    """(bar,) whether what a path holds there is judged: not in the first nor in the last part of a
    block.
    """
    bars = timeline.bars.reshape(-1, PARTS)
    known = np.cumsum(bars, axis=1) - bars
    left = bars.sum(axis=1, keepdims=True) - known - bars
    judged: NDArray[np.bool_] = ((known > 0) & (left > 0)).reshape(-1)[timeline.part]
    return judged


def held_returns(returns: FloatArray, sums: FloatArray, timeline: Timeline) -> FloatArray:
    """(..., bar): what the benchmark of a path with these (..., bar) simple returns earned; the
    path's own returns, and repayments, where it is not judged.
    """
    earned = earn_average(sums, timeline)
    return np.where(find_judged(timeline), earned, returns + earned)


def skill_returns(returns: FloatArray, sums: FloatArray, timeline: Timeline) -> FloatArray:
    """(..., bar): simple returns in excess of the benchmark's."""
    return np.where(find_judged(timeline), returns, 0.0) - earn_average(sums, timeline)


def earn_average(sums: FloatArray, timeline: Timeline) -> FloatArray:
    """(..., bar): what a path's average weights, and its repayments, earned."""
    held = average_weights(sums, timeline)[..., timeline.part, :]
    earned: FloatArray = np.einsum("...ba,ba->...b", held, timeline.asset_returns)
    return earned
