"""A trial's figure in one split: what its objective says about the test blocks' bars."""

import numpy as np
from numpy.typing import NDArray

from flatout.evaluation.metrics import sharpe
from flatout.folds.splits import Split
from flatout.settings.study import Objective


def joined_blocks(trace: NDArray[np.floating], split: Split) -> NDArray[np.float64]:
    """The bars of a split's test blocks one after another, from a (block, bar) trace."""
    parts = [trace[k, : block.stop - block.first] for k, block in enumerate(split.test)]
    return np.concatenate(parts).astype(np.float64)


def score(
    objective: Objective,
    log_return: NDArray[np.floating],
    excess: NDArray[np.floating],
    bars_per_year: float,
) -> float:
    """The figure of some bars; NaN where a lane has diverged."""
    if not (np.isfinite(log_return).all() and np.isfinite(excess).all()):
        return float("nan")
    if objective == "log_return":
        return float(np.mean(log_return) * bars_per_year)
    chosen = log_return if objective == "sharpe" else excess
    return float(sharpe(np.expm1(chosen), bars_per_year))
