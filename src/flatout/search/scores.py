"""What trials earned on the bars that judge them, and the figure that their objective makes of
it.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flatout.evaluation.metrics import sharpe
from flatout.evaluation.skill import PARTS, Timeline, skill_returns, sum_by_part
from flatout.folds.splits import Split
from flatout.learners.jobs import Chunk
from flatout.market.rewards import RewardTerms
from flatout.search.lane_layout import LaneSlot, Layout
from flatout.search.market_study import LOG_RETURN, TERMS, MarketStudy
from flatout.settings.study import Objective

EXCESS = RewardTerms._fields.index("excess")
Traces = NDArray[np.float32]  # (split, seed, term or weight, block, bar) of one trial


def collect_traces(layout: Layout, place: int, chunks: Sequence[Chunk]) -> Traces:
    """What the lanes of the trial in a place earned, from the answers of all workers."""
    found = []
    for split in range(layout.splits):
        for seed in range(layout.seeds):
            at = layout.lane_of(LaneSlot(place, split, seed))
            found.append(np.asarray(chunks[at.worker].traces[at.lane]))
    return np.stack(found).reshape(layout.splits, layout.seeds, *found[0].shape)


class Scoring(NamedTuple):
    """How lanes are scored: the objective, and the bars that judge each split."""

    objective: Objective
    splits: Sequence[Split]
    timelines: Sequence[Timeline]  # of each split's test blocks
    bars_per_year: float


def score_lanes(market: MarketStudy, traces: Traces) -> NDArray[np.float64]:
    """(split, seed): the study's objective in each lane of a trial."""
    scoring = Scoring(
        objective=market.settings.search.objective,
        splits=market.folds.splits,
        timelines=market.split_timelines,
        bars_per_year=market.panel.bars_per_year,
    )
    return score_traces(scoring, traces)


def score_traces(scoring: Scoring, traces: NDArray[np.floating]) -> NDArray[np.float64]:
    """(split, seed): the objective in each lane of a trial, from (split, seed, term or weight,
    block, bar).
    """
    objective, found = scoring.objective, np.zeros(traces.shape[:2])
    for split, about in enumerate(scoring.splits):
        for seed in range(traces.shape[1]):
            log_return = join_blocks(traces[split, seed, LOG_RETURN], about)
            if objective == "skill_sharpe":
                sums = sum_weights(traces[split, seed, TERMS:], about)
                other = skill_returns(np.expm1(log_return), sums, scoring.timelines[split])
            else:
                other = np.expm1(join_blocks(traces[split, seed, EXCESS], about))
            found[split, seed] = score_bars(objective, log_return, other, scoring.bars_per_year)
    return found


def sum_weights(weights: NDArray[np.floating], split: Split) -> NDArray[np.float64]:
    """(part, asset): sums of (asset, block, bar) weights over the parts of a split's blocks."""
    return np.concatenate(
        [sum_by_part(weights[:, k], block.length) for k, block in enumerate(split.test)]
    )


def sum_trial_weights(market: MarketStudy, traces: Traces) -> NDArray[np.float32]:
    """(split, seed, block, part, asset): what is kept of a trial's weights."""
    weights = traces[:, :, TERMS:]
    found = np.zeros((*traces.shape[:2], market.test_blocks, PARTS, weights.shape[2]), np.float32)
    for s, split in enumerate(market.folds.splits):
        for k, block in enumerate(split.test):
            found[s, :, k] = sum_by_part(weights[s, :, :, k], block.length)
    return found


def join_blocks(trace: NDArray[np.floating], split: Split) -> NDArray[np.float64]:
    """The bars of a split's test blocks one after another, from a (block, bar) trace."""
    parts = [trace[k, : block.stop - block.first] for k, block in enumerate(split.test)]
    return np.concatenate(parts).astype(np.float64)


def score_bars(
    objective: Objective,
    log_return: NDArray[np.floating],
    other: NDArray[np.floating],
    bars_per_year: float,
) -> float:
    """What an objective says of some bars, of which `other` has the returns in excess of the
    objective's benchmark; NaN where a lane has diverged.
    """
    if not (np.isfinite(log_return).all() and np.isfinite(other).all()):
        return float("nan")
    if objective == "log_return":
        return float(np.mean(log_return) * bars_per_year)
    chosen = np.expm1(log_return) if objective == "sharpe" else other
    return float(sharpe(chosen.astype(np.float64), bars_per_year))
