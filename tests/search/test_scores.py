"""Scores: what the objective says about the bars of test blocks, and about no others."""

import math

import numpy as np
import pytest

from flatout.evaluation import metrics
from flatout.evaluation.skill import make_timeline, skill_returns, sum_by_part
from flatout.folds.blocks import Block
from flatout.folds.splits import Split
from flatout.search.market_study import LOG_RETURN, TERMS
from flatout.search.scores import Scoring, join_blocks, score_bars, score_traces
from flatout.settings.study import Objective

SPLIT = Split("kfold 0+2", (0, 2), (Block(5, 9),), (Block(0, 4), Block(10, 13)))
BARS = np.array([0.01, -0.02, 0.03, 0.005])


def test_blocks_are_joined_without_what_follows_their_ends() -> None:
    trace = np.array([[1, 2, 3, 4, 99], [5, 6, 7, 99, 99]], np.float32)
    joined = join_blocks(trace, SPLIT)
    np.testing.assert_array_equal(joined, [1, 2, 3, 4, 5, 6, 7])
    assert joined.dtype == np.float64


def test_sharpe_is_that_of_simple_returns() -> None:
    expected = np.mean(np.expm1(BARS)) / np.std(np.expm1(BARS), ddof=1) * math.sqrt(8760)
    np.testing.assert_allclose(score_bars("sharpe", BARS, BARS * 0, 8760.0), expected, rtol=1e-12)
    assert score_bars("sharpe", BARS, BARS * 0, 8760.0) == float(
        metrics.sharpe(np.expm1(BARS), 8760.0)
    )


@pytest.mark.parametrize("objective", ["skill_sharpe", "excess_sharpe"])
def test_a_sharpe_ratio_of_an_excess_looks_at_the_excess_alone(objective: Objective) -> None:
    excess = np.expm1(BARS)
    assert score_bars(objective, BARS * 0, excess, 8760.0) == score_bars(
        "sharpe", BARS, BARS * 0, 8760.0
    )
    assert (
        score_bars(objective, BARS, -excess, 8760.0)
        < 0
        < score_bars(objective, -BARS, excess, 8760.0)
    )


def test_log_return_is_growth_per_year() -> None:
    np.testing.assert_allclose(
        score_bars("log_return", BARS, BARS * 0, 8760.0), BARS.sum() / 4 * 8760.0, rtol=1e-12
    )


def test_who_never_trades_has_a_score_of_zero() -> None:
    for objective in ("skill_sharpe", "sharpe", "excess_sharpe", "log_return"):
        assert score_bars(objective, np.zeros(5), np.zeros(5), 8760.0) == 0.0


@pytest.mark.parametrize("objective", ["skill_sharpe", "sharpe", "excess_sharpe", "log_return"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_whoever_diverged_has_none(objective: str, bad: float) -> None:
    spoilt = np.append(BARS, bad)
    fine = np.append(BARS, 0.0)
    assert math.isnan(score_bars(objective, spoilt, fine, 8760.0))  # type: ignore[arg-type]
    assert math.isnan(score_bars(objective, fine, spoilt, 8760.0))  # type: ignore[arg-type]


def test_each_split_is_held_against_its_own_averages() -> None:
    """Not against those of a path that consists of other splits too."""
    rng = np.random.default_rng(4)
    closes = np.exp(np.cumsum(0.01 * rng.standard_normal((90, 2)), axis=0))
    blocks = (Block(1, 31), Block(31, 61), Block(61, 90))
    splits = [
        Split(f"kfold {a}+{b}", (a, b), (), (blocks[a], blocks[b])) for a, b in ((0, 1), (0, 2))
    ]
    traces = np.zeros((2, 1, TERMS + 2, 2, 30))
    traces[:, :, LOG_RETURN] = 0.01 * rng.standard_normal((2, 1, 2, 30))
    traces[:, :, TERMS:] = rng.uniform(0, 0.5, (2, 1, 2, 2, 30))
    timelines = [make_timeline(closes, split.test) for split in splits]
    found = score_traces(Scoring("skill_sharpe", splits, timelines, 8760.0), traces)
    assert found.shape == (2, 1)
    for s, split in enumerate(splits):
        earned, sums = [], []
        for k, block in enumerate(split.test):
            earned.append(np.expm1(traces[s, 0, LOG_RETURN, k, : block.length]))
            sums.append(sum_by_part(traces[s, 0, TERMS:, k], block.length))
        skill = skill_returns(np.concatenate(earned), np.concatenate(sums), timelines[s])
        np.testing.assert_allclose(found[s, 0], metrics.sharpe(skill, 8760.0), rtol=1e-12)
