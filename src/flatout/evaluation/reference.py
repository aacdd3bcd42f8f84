"""What a study's result stands beside: the baselines, on the same blocks, flat at each start."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from flatout.bars.panel import FloatArray
from flatout.evaluation.backtest import Progress, SideBySide, backtest
from flatout.evaluation.baselines import Policy
from flatout.evaluation.skill import make_timeline, skill_returns, sum_by_part
from flatout.folds.blocks import Block
from flatout.market.market import Market


class Reference(NamedTuple):
    """What a baseline earned in every bar of the blocks, one after another: (bar,) each."""

    returns: FloatArray  # simple
    skill: FloatArray  # in excess of its own average weights, held


def run_baselines(
    market: Market,
    blocks: Sequence[Block],
    baselines: Mapping[str, Policy],
    progress: Progress = lambda bar: None,
) -> dict[str, Reference]:
    """One backtest per block; the first order meets the block's first bar."""
    crowd = SideBySide(tuple(baselines.values()), (1,) * len(baselines))
    returns, sums = [], []
    for block in blocks:
        history = backtest(
            market,
            crowd,
            accounts=len(baselines),
            first=block.first - 1,
            stop=block.stop,
            record_weights=True,
            progress=progress,
        )
        assert history.weights is not None
        returns.append(history.returns.T)
        sums.append(sum_by_part(np.moveaxis(history.weights, 0, -1), block.length))
    earned = np.concatenate(returns, axis=-1)
    skill = skill_returns(
        earned, np.concatenate(sums, axis=-2), make_timeline(market.panel.close, blocks)
    )
    return {name: Reference(earned[k], skill[k]) for k, name in enumerate(baselines)}
