"""Out-of-sample paths of a study's agents: returns of each bar from agents that had not learned
from it.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flatout.bars.panel import FloatArray
from flatout.evaluation import metrics
from flatout.evaluation.skill import Timeline, skill_returns
from flatout.folds.splits import Folds
from flatout.folds.stitch import stitch


def path_values(folds: Folds, traces: NDArray[np.floating]) -> FloatArray:
    """(seed, path, bar) from (split, seed, block, bar) traces, whose bars after a block's end are
    not looked at.
    """
    cells = {
        (s, group): traces[s, :, k, : block.length].astype(np.float64)
        for s, split in enumerate(folds.splits)
        for k, (group, block) in enumerate(zip(split.test_groups, split.test, strict=True))
    }
    joined: FloatArray = stitch(folds, cells)
    return joined


def path_returns(folds: Folds, log_return: NDArray[np.floating]) -> FloatArray:
    """Simple returns, (seed, path, bar)."""
    return np.expm1(path_values(folds, log_return))


def path_sums(folds: Folds, sums: NDArray[np.floating]) -> FloatArray:
    """(seed, path, part, asset): the sums of each path's weights over the parts of its blocks, from
    (split, seed, block, part, asset) sums.
    """
    place = {
        (s, group): (s, k)
        for s, split in enumerate(folds.splits)
        for k, group in enumerate(split.test_groups)
    }
    paths = []
    for path in folds.paths:
        cells = [place[split, group] for group, split in path]
        paths.append(np.concatenate([sums[s, :, k] for s, k in cells], axis=1))
    return np.stack(paths, axis=1).astype(np.float64)


def path_skill(
    folds: Folds,
    log_return: NDArray[np.floating],
    sums: NDArray[np.floating],
    timeline: Timeline,
) -> FloatArray:
    """(seed, path, bar): simple returns in excess of each path's average weights, held. `timeline`
    is that of the judged groups.
    """
    return skill_returns(path_returns(folds, log_return), path_sums(folds, sums), timeline)


class PathFigures(NamedTuple):
    """Figures of each path; seeds one after another."""

    sharpe: FloatArray
    sortino: FloatArray
    total_return: FloatArray
    annual_return: FloatArray
    max_drawdown: FloatArray

    @property
    def median_sharpe(self) -> float:
        return float(np.median(self.sharpe))

    def rows(self) -> list[dict[str, float | None]]:
        """One dictionary per path; None where a figure does not exist."""
        return [
            {name: finite(float(column[k])) for name, column in self._asdict().items()}
            for k in range(len(self.sharpe))
        ]


def path_figures(returns: FloatArray, bars_per_year: float) -> PathFigures:
    """The figures of (seed, path, bar) returns."""
    flat = returns.reshape(-1, returns.shape[-1])
    found = metrics.summarise(flat, bars_per_year)
    return PathFigures(
        sharpe=found.sharpe,
        sortino=found.sortino,
        total_return=found.total_return,
        annual_return=found.annual_return,
        max_drawdown=found.max_drawdown,
    )


def median_path(returns: FloatArray, bars_per_year: float) -> int:
    """Which of the flattened (seed, path) has the median Sharpe ratio, the lower one of two."""
    sharpe = path_figures(returns, bars_per_year).sharpe
    return int(np.argsort(sharpe, kind="stable")[(len(sharpe) - 1) // 2])


def finite(value: float | None) -> float | None:
    """The number, or None where JSON has none."""
    return value if value is not None and np.isfinite(value) else None
