"""Does the best trial of one half of history stay good in the other half? Combinatorially symmetric
cross-validation.

History is cut into blocks; every half of the blocks once chooses a trial, and the other half judges
it. The share of choices that land in the lower half of the trials is the probability of backtest
overfitting (PBO): Bailey, Borwein, López de Prado & Zhu (2017). A choice at the median counts as
overfitted: the logit 0 belongs to the integral of the paper, and doubt costs less than belief.
Sharpe ratios are per bar.

This file does not know what a trial is; its returns must all be on the same bars.
"""

import math
from itertools import combinations
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from flatout.bars.panel import FloatArray
from flatout.errors import FlatoutError
from flatout.evaluation import metrics

Metric = Literal["sharpe", "mean"]

MOST_BLOCKS = 20  # 184,756 combinations; each two blocks more are four times as many
CHUNK = 2**18  # scores at a time: 2 MB an array, which stays in the processor's cache
FLAT = 1e-12  # a variance below this part of the mean square is rounding of sums, not risk
EQUAL = 1e-12  # scores that differ by less than this part of the largest are tied


class Overfitting(NamedTuple):
    """What became of each half's best trial in the other half; arrays hold one entry per
    combination of blocks.
    """

    pbo: float  # share of combinations whose logit is 0 or below
    logits: FloatArray  # of the relative rank out of sample; above 0 = better than the median trial
    slope: float  # of out_of_sample on in_sample; NaN if in_sample is always the same
    intercept: float
    r2: float  # squared correlation of the two; NaN if either is always the same
    probability_of_loss: float  # share of combinations with out_of_sample below 0
    in_sample: FloatArray  # score of the best trial where it was chosen
    out_of_sample: FloatArray  # its score in the other half
    combinations: int
    blocks: int


class Choices(NamedTuple):
    """The trials that some halves choose, one entry per half."""

    logits: FloatArray  # of the relative rank out of sample
    in_sample: FloatArray
    out_of_sample: FloatArray


class Line(NamedTuple):
    """A least-squares line; NaN where it does not exist."""

    slope: float
    intercept: float
    r2: float


def overfitting(
    returns_matrix: FloatArray, blocks: int = 16, metric: Metric = "sharpe"
) -> Overfitting:
    """CSCV on (bar, trial) simple returns per bar. The metric is what trials are chosen by: the
    Sharpe ratio of a bar or the mean return of a bar, neither of them annualised.

    The first bars are dropped where bars are no multiple of blocks. A trial whose returns do not
    vary over a half took no risk there: its Sharpe ratio is 0, so that it does not win by a
    division by nothing. Ties out of sample share their average rank; among ties in sample the one
    that does worst out of sample is chosen.
    """
    returns = _check_matrix(returns_matrix, blocks, metric)
    length = len(returns) // blocks
    cut = returns[len(returns) - blocks * length :].reshape(blocks, length, -1)
    # (block, trial): all that scores need
    sums, squares = np.sum(cut, axis=1), np.einsum("btn,btn->bn", cut, cut)
    halves = _halves(blocks)
    rows = max(1, CHUNK // returns.shape[1])
    judged = [
        _judge(halves[start : start + rows], sums, squares=squares, length=length, metric=metric)
        for start in range(0, len(halves), rows)
    ]
    logits = np.concatenate([choices.logits for choices in judged])
    inside = np.concatenate([choices.in_sample for choices in judged])
    outside = np.concatenate([choices.out_of_sample for choices in judged])
    line = _fit_line(inside, outside)
    return Overfitting(
        pbo=float(np.mean(logits <= 0)),
        logits=logits,
        slope=line.slope,
        intercept=line.intercept,
        r2=line.r2,
        probability_of_loss=float(np.mean(outside < 0)),
        in_sample=inside,
        out_of_sample=outside,
        combinations=len(halves),
        blocks=blocks,
    )


def _check_matrix(returns_matrix: FloatArray, blocks: int, metric: str) -> FloatArray:
    """The matrix in float64, or an error that says what is wrong."""
    if metric not in get_args(Metric):
        raise FlatoutError(f"metric is {metric!r}; it is one of {', '.join(get_args(Metric))}")
    if blocks % 2 or not 2 <= blocks <= MOST_BLOCKS:
        raise FlatoutError(
            f"blocks is {blocks}; half of them choose and half judge: an even number, 2 to "
            f"{MOST_BLOCKS}"
        )
    matrix = np.asarray(returns_matrix, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[1] < 2:
        raise FlatoutError(
            f"returns of shape {matrix.shape} leave nothing to choose: give (bar, trial), two "
            f"trials up"
        )
    if len(matrix) < 2 * blocks:
        raise FlatoutError(
            f"{len(matrix)} bars are too few for {blocks} blocks of two bars: give more or "
            f"fewer blocks"
        )
    return metrics.check_returns(matrix.T).T


def _halves(blocks: int) -> NDArray[np.bool_]:
    """(combination, block): which blocks choose, in lexicographic order."""
    chosen = np.array(list(combinations(range(blocks), blocks // 2)))
    halves = np.zeros((math.comb(blocks, blocks // 2), blocks), dtype=np.bool_)
    np.put_along_axis(halves, chosen, True, axis=1)
    return halves


def _judge(
    halves: NDArray[np.bool_], sums: FloatArray, squares: FloatArray, length: int, metric: Metric
) -> Choices:
    """Logit, score in sample and score out of sample of the trial that each half chooses."""
    # The other half is added up itself: as a difference from the total, bars without trades would
    # leave rounding.
    inside = _scores(
        halves.astype(np.float64), sums, squares=squares, length=length, metric=metric
    )  # (combination, trial)
    outside = _scores(
        (~halves).astype(np.float64), sums, squares=squares, length=length, metric=metric
    )
    best = np.max(inside, axis=1, keepdims=True)
    tied = inside >= best - _grain(inside)
    result = np.min(np.where(tied, outside, np.inf), axis=1, keepdims=True)
    grain = _grain(outside)
    below = np.count_nonzero(outside < result - grain, axis=1)
    up_to = np.count_nonzero(outside <= result + grain, axis=1)
    rank = (below + up_to + 1) / 2  # from 1; the average of the ranks that ties share
    logits = np.log(rank / (outside.shape[1] + 1 - rank))
    return Choices(logits, best[:, 0], result[:, 0])


def _scores(
    half: FloatArray, sums: FloatArray, squares: FloatArray, length: int, metric: Metric
) -> FloatArray:
    """(combination, trial): mean return or bar Sharpe (sample deviation) over the blocks of each
    half.
    """
    bars = length * len(sums) // 2
    total = half @ sums
    mean = total / bars
    if metric == "mean":
        return mean
    square = half @ squares
    spread = square - total * mean
    varies = spread > FLAT * square
    return np.where(varies, mean / np.sqrt(np.where(varies, spread, 1.0) / (bars - 1)), 0.0)


def _grain(scores: FloatArray) -> FloatArray:
    """(combination, 1): differences up to this are rounding, as between trials that differ only in
    scale.
    """
    largest: FloatArray = np.max(np.abs(scores), axis=1, keepdims=True)
    return EQUAL * largest


def _fit_line(inside: FloatArray, outside: FloatArray) -> Line:
    """The least-squares line of `outside` on `inside`, with r²."""
    x, y = inside - np.mean(inside), outside - np.mean(outside)
    if np.ptp(inside) <= EQUAL * np.max(np.abs(inside)):
        return Line(math.nan, math.nan, math.nan)
    slope = float(x @ y / (x @ x))
    level = np.ptp(outside) <= EQUAL * np.max(np.abs(outside))
    r2 = math.nan if level else float((x @ y) ** 2 / ((x @ x) * (y @ y)))
    return Line(slope, float(np.mean(outside) - slope * np.mean(inside)), r2)
