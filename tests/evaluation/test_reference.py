"""What a result stands beside: baselines and random traders on the same blocks, each begun in
cash.
"""

from functools import cache

import numpy as np
import pytest

from flatout.evaluation import reference
from flatout.evaluation.backtest import backtest
from flatout.evaluation.baselines import BASELINES, Policy, RandomTrader
from flatout.evaluation.reference import Reference, reference_returns, share_as_good
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
def found(turnover: float = 0.01, seed: int = 0, traders: int = 20) -> Reference:
    return reference_returns(market(), BLOCKS, CHOSEN, turnover, traders, seed)


def test_baselines_are_backtests_of_each_block_one_after_another() -> None:
    """Each in cash at its start; the first order meets the block's first bar."""
    result = found()
    assert list(result.baselines) == list(CHOSEN)
    for name, policy in CHOSEN.items():
        expected = []
        for block in BLOCKS:
            history = backtest(market(), policy, 1, block.first - 1, block.stop)
            assert (history.bars[0], history.bars[-1]) == (block.first, block.stop - 1)
            expected.append(history.returns[:, 0])
        assert_close(
            result.baselines[name], np.concatenate(expected), roundings=100 * 100, size=1.0
        )
    assert (result.baselines["cash"] == 0).all()
    assert np.std(result.baselines["buy_and_hold"]) > 1e-3
    for start in np.cumsum([0, *(block.length for block in BLOCKS[:-1])]):
        assert result.baselines["buy_and_hold"][start] != 0


def test_all_bars_of_the_blocks_are_run_and_no_others() -> None:
    seen: list[int] = []
    reference_returns(market(), BLOCKS, CHOSEN, 0.01, 5, progress=seen.append)
    once = [bar for block in BLOCKS for bar in range(*block)]
    assert seen == once * 2  # baselines and paces, then luck


def test_traders_are_many_and_differ() -> None:
    result = found()
    assert result.traders.shape == (sum(block.length for block in BLOCKS), 20)
    assert len({column.tobytes() for column in result.traders.T}) == 20
    again = reference_returns(market(), BLOCKS, {}, 0.01, 20)
    assert_close(result.traders, again.traders, roundings=100 * 100, size=1.0)
    assert (result.traders != found(seed=5).traders).any()


@pytest.mark.parametrize("turnover", [0.003, 0.01, 0.02])
def test_traders_have_the_turnover_that_is_asked_for(
    turnover: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    paces: list[float] = []

    def noted(pace: float, seed: int) -> RandomTrader:
        paces.append(pace)
        return RandomTrader(pace, seed=seed)

    monkeypatch.setattr(reference, "RandomTrader", noted)
    reference_returns(market(), BLOCKS, {}, turnover, 1)
    trader = RandomTrader(paces[-1], seed=1)
    runs = [backtest(market(), trader, 20, block.first - 1, block.stop) for block in BLOCKS]
    np.testing.assert_allclose(
        np.concatenate([run.turnover for run in runs]).mean(), turnover, rtol=0.3
    )


def test_a_turnover_that_nobody_reaches_gives_the_fastest() -> None:
    fast, faster = found(10.0), found(100.0)
    np.testing.assert_array_equal(fast.traders, faster.traders)
    np.testing.assert_array_equal(found(0.0).traders, 0.0)  # and none gives those who never trade


def test_what_is_beside_does_not_depend_on_who_else_is() -> None:
    alone = reference_returns(market(), BLOCKS, {"momentum": BASELINES["momentum"]}, 0.01, 5)
    assert_close(
        alone.baselines["momentum"], found().baselines["momentum"], roundings=300 * 100, size=1.0
    )


def test_the_share_of_traders_that_did_as_well() -> None:
    """Add-one: it is never 0, and 1 when all did."""
    traders = np.expm1(
        np.array([[0.1, 0.2, -0.1, 0.0], [0.1, -0.1, 0.1, 0.0]])
    )  # totals 0.2, 0.1, 0, 0
    assert share_as_good(0.5, traders) == 1 / 5
    assert share_as_good(0.15, traders) == 2 / 5
    assert share_as_good(-0.1, traders) == 1.0
    assert share_as_good(-1e-12, traders) == 1.0  # equals count


def test_who_lost_everything_did_worse() -> None:
    traders = np.array([[-1.0, 0.1], [0.0, 0.1]])
    assert share_as_good(-5.0, traders) == 2 / 3
