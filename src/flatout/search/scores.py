"""What trials earned on the bars that judge them, and the figure that their objective makes of
it.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from flatout.evaluation.metrics import sharpe
from flatout.folds.splits import Split
from flatout.learners.jobs import Chunk
from flatout.market.rewards import RewardTerms
from flatout.search.lane_layout import LaneSlot, Layout
from flatout.search.market_study import LOG_RETURN, MarketStudy
from flatout.settings.study import Objective

EXCESS = RewardTerms._fields.index("excess")
Traces = NDArray[np.float32]  # (split, seed, term, block, bar) of one trial


def collect_traces(layout: Layout, place: int, chunks: Sequence[Chunk]) -> Traces:
    """What the lanes of the trial in a place earned, from the answers of all workers."""
    found = []
    for split in range(layout.splits):
        for seed in range(layout.seeds):
            at = layout.lane_of(LaneSlot(place, split, seed))
            found.append(np.asarray(chunks[at.worker].traces[at.lane]))
    return np.stack(found).reshape(layout.splits, layout.seeds, *found[0].shape)


def score_lanes(market: MarketStudy, traces: Traces) -> NDArray[np.float64]:
    """(split, seed): the study's objective in each lane of a trial."""
    objective, per_year = market.settings.search.objective, market.panel.bars_per_year
    found = np.zeros(traces.shape[:2])
    for split, about in enumerate(market.folds.splits):
        for seed in range(traces.shape[1]):
            log_return = join_blocks(traces[split, seed, LOG_RETURN], about)
            excess = join_blocks(traces[split, seed, EXCESS], about)
            found[split, seed] = score_bars(objective, log_return, excess, per_year)
    return found


def join_blocks(trace: NDArray[np.floating], split: Split) -> NDArray[np.float64]:
    """The bars of a split's test blocks one after another, from a (block, bar) trace."""
    parts = [trace[k, : block.stop - block.first] for k, block in enumerate(split.test)]
    return np.concatenate(parts).astype(np.float64)


def score_bars(
    objective: Objective,
    log_return: NDArray[np.floating],
    excess: NDArray[np.floating],
    bars_per_year: float,
) -> float:
    """What an objective says of some bars; NaN where a lane has diverged."""
    if not (np.isfinite(log_return).all() and np.isfinite(excess).all()):
        return float("nan")
    if objective == "log_return":
        return float(np.mean(log_return) * bars_per_year)
    chosen = log_return if objective == "sharpe" else excess
    return float(sharpe(np.expm1(chosen), bars_per_year))
