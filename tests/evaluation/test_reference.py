"""What a result stands beside: baselines on the same blocks, each begun in cash."""

from functools import cache

import numpy as np

from flatout.evaluation.backtest import backtest
from flatout.evaluation.baselines import BASELINES, Policy
from flatout.evaluation.reference import Reference, run_baselines
from flatout.folds.blocks import Block
from flatout.market.market import Market, build_market
from flatout.settings.tables import Settings
from rounding import assert_close
from scenarios import random_panel

BLOCKS = (Block(60, 150), Block(150, 230), Block(260, 300))
CHOSEN: dict[str, Policy] = {name: BASELINES[name] for name in ("cash", "buy_and_hold", "momentum")}


@cache
def market() -> Market:
    return build_market(
        random_panel(0, 300, 3), Settings.model_validate({"features": {"indicators": ["roc"]}})
    )


@cache
def found() -> dict[str, Reference]:
    return run_baselines(market(), BLOCKS, CHOSEN)


def test_baselines_are_backtests_of_each_block_one_after_another() -> None:
    """Each in cash at its start; the first order meets the block's first bar."""
    result = found()
    assert list(result) == list(CHOSEN)
    for name, policy in CHOSEN.items():
        expected = []
        for block in BLOCKS:
            history = backtest(market(), policy, 1, block.first - 1, block.stop)
            assert (history.bars[0], history.bars[-1]) == (block.first, block.stop - 1)
            expected.append(history.returns[:, 0])
        assert_close(result[name].returns, np.concatenate(expected), roundings=100 * 100, size=1.0)
    assert (result["cash"].returns == 0).all() and (result["cash"].skill == 0).all()
    assert np.std(result["buy_and_hold"].returns) > 1e-3
    for start in np.cumsum([0, *(block.length for block in BLOCKS[:-1])]):
        assert result["buy_and_hold"].returns[start] != 0


def test_all_bars_of_the_blocks_are_run_and_no_others() -> None:
    seen: list[int] = []
    run_baselines(market(), BLOCKS, CHOSEN, progress=seen.append)
    assert seen == [bar for block in BLOCKS for bar in range(*block)]


def test_what_is_beside_does_not_depend_on_who_else_is() -> None:
    alone = run_baselines(market(), BLOCKS, {"momentum": BASELINES["momentum"]})
    for ours, theirs in zip(alone["momentum"], found()["momentum"], strict=True):
        assert_close(ours, theirs, roundings=300 * 100, size=1.0)
