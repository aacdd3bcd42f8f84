"""Returns in excess of the same average weights, held: what direction earns is no skill."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from flatout.evaluation.skill import (
    PARTS,
    average_weights,
    cut_block,
    held_returns,
    make_timeline,
    skill_returns,
    sum_by_part,
)
from flatout.folds.blocks import Block

BLOCKS = (Block(1, 241), Block(241, 481), Block(481, 721))
Floats = NDArray[np.float64]


def walk(seed: int, drift: float = 0.0, bars: int = 721, assets: int = 3) -> Floats:
    moves = np.random.default_rng(seed).normal(drift, 0.01, (bars, assets))
    return np.exp(np.cumsum(moves, axis=0))


def skill_of(weights: Floats, closes: Floats, blocks: tuple[Block, ...] = BLOCKS) -> Floats:
    """Of an account that holds (bar, asset) weights through its bars, free of costs."""
    timeline = make_timeline(closes, blocks)
    ends = np.cumsum([block.length for block in blocks])
    parts = [sum_by_part(part.T, len(part)) for part in np.split(weights, ends[:-1])]
    earned = np.sum(weights * timeline.asset_returns, axis=1)
    return skill_returns(earned, np.concatenate(parts), timeline)


def naive_benchmark(weights: Floats, blocks: tuple[Block, ...]) -> Floats:
    """The definition in words, bar by bar: the mean weights of all bars but those of the sixth of
    the parts that begins with the bar's own, around the end.
    """
    part: list[int] = []
    for k, block in enumerate(blocks):
        part += [k * PARTS + j * PARTS // block.length for j in range(block.length)]
    count = PARTS * len(blocks)
    left_out = round(count / 6)
    found = []
    for own in part:
        away = {(own + k) % count for k in range(left_out)}
        found.append(weights[[p not in away for p in part]].mean(axis=0))
    return np.array(found)


@given(st.integers(0, 1000))
def test_the_benchmark_is_the_average_of_all_other_times(seed: int) -> None:
    blocks = (Block(3, 63), Block(63, 130), Block(140, 200))
    rng = np.random.default_rng(seed)
    closes, weights = walk(seed, bars=200), rng.normal(size=(60 + 67 + 60, 3))
    timeline = make_timeline(closes, blocks)
    rows = np.concatenate([np.arange(*block) for block in blocks])
    returns = closes[rows] / closes[rows - 1] - 1
    np.testing.assert_allclose(timeline.asset_returns, returns, rtol=1e-12)
    expected = np.sum(naive_benchmark(weights, blocks) * returns, axis=1)
    sums = [sum_by_part(w.T, len(w)) for w in np.split(weights, [60, 127])]
    found = held_returns(np.concatenate(sums), timeline)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("drift", [-0.002, 0.0, 0.002])
def test_weights_that_never_change_have_no_skill_whatever_the_market_does(drift: float) -> None:
    weights = np.tile([0.5, 0.2, -0.1], (720, 1))
    np.testing.assert_allclose(skill_of(weights, walk(0, drift)), 0.0, atol=1e-15)


def test_a_constant_drift_cancels_exactly() -> None:
    """Weights that rise with time earn more of a drift than their average did before; the sum of
    what they earn beyond it is nothing all the same.
    """
    growing = np.exp(0.001 * np.arange(721))[:, None] * np.ones(3)
    ramp = np.linspace(0, 1, 720)[:, None] * np.ones(3) / 3
    found = skill_of(ramp, growing)
    assert np.ptp(found) > 1e-4
    assert abs(found.sum()) < 1e-12


def test_foresight_is_skill_in_rising_and_falling_markets() -> None:
    for drift in (-0.002, 0.002):
        closes = walk(1, drift)
        tomorrow = np.diff(np.log(closes), axis=0)
        found = skill_of((tomorrow > 0) / 3, closes)
        assert found.mean() / found.std() * np.sqrt(720) > 10


@pytest.mark.parametrize("sign", [1, -1])
def test_following_prices_is_no_skill(sign: int) -> None:
    """Trend followers and contrarians on walks without an edge: the t values of their skill are
    those of luck. Against the average of all bars contrarians would have t values of +0.5 on
    average, and against that of each block far more.
    """
    found = []
    for seed in range(150):
        closes = walk(seed)
        past = np.log(closes[40:-1] / closes[:-41]) / (0.01 * np.sqrt(40))
        weights = np.vstack([np.full((40, 3), 0.5), np.clip(0.5 + sign * past / 2, 0, 1)]) / 3
        skill = skill_of(weights, closes)
        found.append(skill.mean() / skill.std() * np.sqrt(len(skill)))
    # the mean of 150 t values; the bias of the plain average would be six of its deviations
    assert abs(np.mean(found)) < 4 / np.sqrt(150)
    assert np.mean(np.array(found) > 1.645) < 0.05 + 4 * np.sqrt(0.05 * 0.95 / 150)


def contrarian(seed: int) -> tuple[Floats, Floats]:
    """Returns of a walk without an edge, and weights that follow what fell over 200 of its bars."""
    bars, past, assets = 3000, 200, 4
    rng = np.random.default_rng(seed)
    returns = 0.007 * rng.normal(size=(bars, 1)) + 0.00714 * rng.normal(size=(bars, assets))
    sums = np.vstack([np.zeros(assets), np.cumsum(returns, axis=0)])
    now = np.arange(bars)
    fallen = (sums[np.maximum(now - past, 0)] - sums[now]) / (0.01 * np.sqrt(past))
    return returns, np.clip(0.5 + fallen / 2, 0, 1) / assets


def t_of(skill: Floats) -> float:
    return float(skill.mean() / skill.std() * np.sqrt(len(skill)))


def test_simpler_benchmarks_call_a_contrarian_skilled() -> None:
    """Shares of 200 walks without an edge that pass a t-test at 5 %, by what is held against them:
    the average of all bars, that of each sixth, and ours. The figures in `skill`'s docstring are
    these, and p values of moves within sixths stand in docs/studies.md.
    """
    passed, within = {"all": 0, "sixth": 0, "ours": 0}, {1: 0, -1: 0}
    blocks = [Block(1 + 500 * k, 501 + 500 * k) for k in range(6)]
    for seed in range(200):
        returns, weights = contrarian(seed)
        earned = np.sum(weights * returns, axis=1)
        closes = np.vstack([np.ones(4), np.cumprod(1 + returns, axis=0)])
        sums = [sum_by_part(part.T, 500) for part in np.split(weights, 6)]
        ours = skill_returns(earned, np.concatenate(sums), make_timeline(closes, blocks))
        each = np.repeat(weights.reshape(6, 500, 4).mean(axis=1), 500, axis=0)
        passed["all"] += t_of(earned - returns @ weights.mean(axis=0)) > 1.645
        passed["sixth"] += t_of(earned - np.sum(each * returns, axis=1)) > 1.645
        passed["ours"] += t_of(ours) > 1.645
        moves = np.random.default_rng(seed).integers(1, 500, (200, 6))
        for sign in within:  # a trend follower is the contrarian's mirror image
            moved = sum(moved_sums(sign * weights, returns, k)[moves[:, k]] for k in range(6))
            within[sign] += (1 + np.sum(moved >= sign * earned.sum())) / 201 <= 0.05
    spread = 4 * np.sqrt(0.25 / 200)
    assert abs(passed["all"] / 200 - 0.17) < spread and abs(passed["sixth"] / 200 - 0.75) < spread
    assert passed["ours"] / 200 < 0.05 + 4 * np.sqrt(0.05 * 0.95 / 200)
    assert abs(within[1] / 200 - 0.51) < spread and within[-1] == 0


def moved_sums(weights: Floats, returns: Floats, sixth: int) -> Floats:
    """What a sixth's weights earn when they are moved by 0, 1, ... bars around its end."""
    here = slice(500 * sixth, 500 * (sixth + 1))
    spectrum = np.conj(np.fft.rfft(weights[here], axis=0)) * np.fft.rfft(returns[here], axis=0)
    return np.fft.irfft(spectrum.sum(axis=1), 500)


def test_holding_less_in_a_falling_market_is_no_skill() -> None:
    closes = walk(3, -0.003)
    rng = np.random.default_rng(0)
    half = rng.random((720, 1)) * np.ones(3) / 3
    found = skill_of(half, closes)
    assert np.sum(half * make_timeline(closes, BLOCKS).asset_returns) < -0.5  # it loses
    assert abs(found.mean() / found.std() * np.sqrt(720)) < 4


def test_short_blocks_have_empty_parts() -> None:
    assert cut_block(5).max() < PARTS
    blocks = (Block(1, 4), Block(4, 6))
    weights = np.arange(15.0).reshape(5, 3) / 15
    closes = walk(0, bars=6)
    assert np.isfinite(skill_of(weights, closes, blocks)).all()
    timeline = make_timeline(closes, blocks)
    assert timeline.bars.sum() == 5 and (timeline.bars == 0).any()


def test_an_asset_without_a_price_earns_nothing() -> None:
    closes = walk(0, bars=61)
    closes[:30, 1] = np.nan
    timeline = make_timeline(closes, (Block(1, 61),))
    assert (timeline.asset_returns[:30, 1] == 0).all() and (timeline.asset_returns[:, 0] != 0).all()
    sums = sum_by_part(np.full((3, 60), 0.3), 60)
    assert np.isfinite(average_weights(sums, timeline)).all()
