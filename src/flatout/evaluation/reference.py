"""What a study's result stands beside: baselines and random traders, on the same blocks, flat at
each start.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from flatout.bars.panel import FloatArray
from flatout.evaluation.backtest import CALIBRATION_PACES, History, SideBySide, backtest
from flatout.evaluation.baselines import Policy, RandomTrader
from flatout.folds.blocks import Block
from flatout.market.market import Market

Progress = Callable[[int], None]


class Reference(NamedTuple):
    """Simple returns of every bar of the blocks, one after another: (bar,) each, (bar, trader) of
    the traders.
    """

    baselines: dict[str, FloatArray]
    traders: FloatArray


def reference_returns(
    market: Market,
    blocks: Sequence[Block],
    baselines: Mapping[str, Policy],
    turnover: float,
    traders: int = 100,
    seed: int = 0,
    progress: Progress = lambda bar: None,
) -> Reference:
    """Baselines, and random traders whose mean turnover per bar comes nearest to the given one."""
    paces = RandomTrader(CALIBRATION_PACES, seed=seed)
    crowd = SideBySide(
        (*baselines.values(), paces), (1,) * len(baselines) + (CALIBRATION_PACES.size,)
    )
    first = backtest_blocks(
        market, crowd, accounts=sum(crowd.sizes), blocks=blocks, progress=progress
    )
    measured = np.maximum.accumulate(
        np.concatenate([history.turnover for history in first])[:, len(baselines) :].mean(axis=0)
    )
    pace = float(np.interp(turnover, measured, CALIBRATION_PACES))
    luck = backtest_blocks(
        market,
        RandomTrader(pace, seed=seed + 1),
        accounts=traders,
        blocks=blocks,
        progress=progress,
    )
    returns = np.concatenate([history.returns for history in first])
    return Reference(
        {name: returns[:, k] for k, name in enumerate(baselines)},
        np.concatenate([history.returns for history in luck]),
    )


def backtest_blocks(
    market: Market, policy: Policy, accounts: int, blocks: Sequence[Block], progress: Progress
) -> list[History]:
    """One backtest per block; the first order meets the block's first bar."""
    return [
        backtest(
            market,
            policy,
            accounts=accounts,
            first=block.first - 1,
            stop=block.stop,
            progress=progress,
        )
        for block in blocks
    ]


def share_as_good(total_log_return: float, traders: FloatArray) -> float:
    """Share of (bar, trader) traders that earned at least as much (add-one estimate)."""
    earned = np.log1p(np.maximum(traders, -1 + 1e-9)).sum(axis=0)
    return float((1 + np.sum(earned >= total_log_return)) / (1 + earned.size))
