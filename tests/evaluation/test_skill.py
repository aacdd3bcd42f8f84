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


def naive_skill(
    weights: Floats, returns: Floats, earned: Floats, place: NDArray[np.int64]
) -> Floats:
    """The definition in words, for one block whose bars lie in these parts. The benchmark of a part
    is the mean of the weights before it, and what went beyond that in each part, spread evenly over
    the bars after that part. Nothing is judged in the first part, and in the last one only the
    repayment is.
    """
    parts = sorted(set(place.tolist()))
    average, repaid = np.zeros_like(weights), np.zeros_like(weights)
    for part in parts[1:]:
        average[place == part] = weights[place < part].mean(axis=0)
    for part in parts[1:-1]:
        beyond = (weights - average)[place == part].sum(axis=0)
        repaid[place > part] += beyond / np.sum(place > part)
    skill = earned - np.sum((average + repaid) * returns, axis=1)
    skill[place == parts[0]] = 0.0
    last = place == parts[-1]
    skill[last] = -np.sum(repaid * returns, axis=1)[last]
    return skill


@given(st.integers(0, 1000))
def test_skill_is_beyond_the_average_of_before_and_the_repayment(seed: int) -> None:
    blocks = (Block(3, 63), Block(63, 130), Block(140, 200))
    rng = np.random.default_rng(seed)
    closes, weights = walk(seed, bars=200), rng.normal(size=(60 + 67 + 60, 3))
    timeline = make_timeline(closes, blocks)
    rows = np.concatenate([np.arange(*block) for block in blocks])
    returns = closes[rows] / closes[rows - 1] - 1
    np.testing.assert_allclose(timeline.asset_returns, returns, rtol=1e-12)
    earned, expected, first = rng.normal(size=187), [], 0
    for block in blocks:
        here = slice(first, first + block.length)
        parts = np.arange(block.length) * PARTS // block.length
        expected.append(naive_skill(weights[here], returns[here], earned[here], parts))
        first += block.length
    sums = [sum_by_part(w.T, len(w)) for w in np.split(weights, [60, 127])]
    found = skill_returns(earned, np.concatenate(sums), timeline)
    np.testing.assert_allclose(found, np.concatenate(expected), rtol=0, atol=1e-12)


@given(st.integers(0, 1000), st.integers(0, 719))
def test_the_benchmark_knows_nothing_of_what_comes(seed: int, bar: int) -> None:
    """Other weights from a part on leave the benchmark of that part, and of all before, alone."""
    rng = np.random.default_rng(seed)
    closes, weights = walk(seed), rng.random((720, 3))
    timeline, earned = make_timeline(closes, BLOCKS), np.zeros(720)
    changed = np.where(timeline.part[:, None] >= timeline.part[bar], 9.0, weights)
    sums = [
        np.concatenate([sum_by_part(w.T, 240) for w in np.split(given, 3)])
        for given in (weights, changed)
    ]
    first, second = (held_returns(earned, one, timeline) for one in sums)
    known = timeline.part <= timeline.part[bar]
    np.testing.assert_array_equal(first[known], second[known])


@pytest.mark.parametrize("drift", [-0.002, 0.0, 0.002])
def test_weights_that_never_change_have_no_skill_whatever_the_market_does(drift: float) -> None:
    weights = np.tile([0.5, 0.2, -0.1], (720, 1))
    np.testing.assert_allclose(skill_of(weights, walk(0, drift)), 0.0, atol=1e-15)


@pytest.mark.parametrize("blocks", [(Block(1, 721),), BLOCKS])
def test_a_constant_drift_cancels(blocks: tuple[Block, ...]) -> None:
    """Weights that rise with time earn more of a drift than their average did before; what they
    hold beyond it is paid back.
    """
    growing = np.exp(0.001 * np.arange(721))[:, None] * np.ones(3)
    ramp = np.linspace(0, 1, 720)[:, None] * np.ones(3) / 3
    found = skill_of(ramp, growing, blocks)
    assert np.ptp(found) > 1e-4
    assert found.sum() == pytest.approx(0.0, abs=1e-12)


def lessons_of(returns: Floats, sign: int, seed: int) -> Floats:
    """(bar, asset) weights of the agents of a path: in each of four blocks what rose (or fell) in
    two others, and a little noise.
    """
    rng, quarters = np.random.default_rng(seed), np.split(returns, 4)
    weights = []
    for k in range(4):
        taught = [quarters[j] for j in range(4) if j not in (k, 0 if k else 1)]
        gain = np.mean(np.concatenate(taught), axis=0) / 0.01 * np.sqrt(BARS // 2)
        weights.append(np.clip(0.25 * (1 + sign * gain / 2), 0, 0.5))
    held = np.repeat(weights, BARS // 4, axis=0)
    return np.clip(held + rng.normal(0, 0.03, held.shape), 0, 0.6)


@pytest.mark.parametrize("sign", [-1, 1])
def test_agents_taught_on_the_bars_of_other_blocks_have_no_skill(sign: int) -> None:
    """A benchmark of the blocks before would know, by the agents of those, what comes."""
    blocks = [Block(1 + n * BARS // 4, 1 + (n + 1) * BARS // 4) for n in range(4)]
    found, joined = [], []
    for k in range(WALKS):
        returns = np.random.default_rng([5, k]).normal(0, 0.01, (BARS, 2))
        closes = np.vstack([np.ones(2), np.cumprod(1 + returns, axis=0)])
        weights = lessons_of(returns, sign, k)
        found.append(skill_of(weights, closes, tuple(blocks)))
        joined.append(skill_of(weights, closes, (Block(1, BARS + 1),)))
    t = np.mean(found, axis=1) / np.std(found, axis=1) * np.sqrt(BARS)
    assert abs(t.mean()) < 5 / np.sqrt(WALKS)
    assert passes(np.array(found)) < 0.05 + 5 * np.sqrt(0.05 * 0.95 / WALKS)
    assert passes(np.array(joined)) > 0.1 if sign < 0 else passes(np.array(joined)) < 0.03


def test_foresight_is_skill_in_rising_and_falling_markets() -> None:
    for drift in (-0.002, 0.002):
        closes = walk(1, drift)
        tomorrow = np.diff(np.log(closes), axis=0)
        found = skill_of((tomorrow > 0) / 3, closes)
        assert found.mean() / found.std() * np.sqrt(720) > 10


WALKS, BARS = 600, 1440
FOREVER = 0


def weights_of_rules(drift: float, past: int, sign: int, seed: int) -> tuple[Floats, Floats]:
    """(walk, bar, asset) weights that follow what rose (or fell) over some bars, or since the first
    one, and the returns that they met: walks without an edge.
    """
    rng = np.random.default_rng(seed)
    returns = drift + 0.01 * rng.normal(size=(WALKS, 2 * BARS, 2))
    prices = np.cumsum(np.concatenate([np.zeros((WALKS, 1, 2)), returns], axis=1), axis=1)
    now, span = np.arange(BARS, 2 * BARS), past or BARS // 4
    before = now - past if past else np.full(BARS, BARS)
    gain = (prices[:, now] - prices[:, before]) / (0.01 * np.sqrt(span))
    return np.clip(0.5 + sign * gain / 2, 0, 1) / 2, returns[:, now]


def sums_of(weights: Floats) -> Floats:
    """(walk, part, asset) of four blocks."""
    blocks = np.split(np.swapaxes(weights, 1, 2), 4, axis=-1)
    return np.concatenate([sum_by_part(block, BARS // 4) for block in blocks], axis=1)


def passes(skill: Floats) -> float:
    """The share of walks that pass a t-test at 5 %."""
    t = skill.mean(axis=1) / skill.std(axis=1) * np.sqrt(skill.shape[1])
    return float(np.mean(t > 1.645))


@pytest.mark.parametrize("drift", [-6e-4, 0.0, 6e-4])
@pytest.mark.parametrize(
    ("past", "sign"), [(8, -1), (40, 1), (400, -1), (FOREVER, -1), (FOREVER, 1)]
)
def test_following_prices_is_no_skill(past: int, sign: int, drift: float) -> None:
    """However long a rule remembers: a t-test passes as many as it says, within five errors."""
    weights, returns = weights_of_rules(drift, past, sign, seed=1)
    sums, found = sums_of(weights), []
    for k in range(WALKS):
        closes = np.vstack([np.ones(2), np.cumprod(1 + returns[k], axis=0)])
        blocks = [Block(1 + n * BARS // 4, 1 + (n + 1) * BARS // 4) for n in range(4)]
        earned = np.sum(weights[k] * returns[k], axis=1)
        found.append(skill_returns(earned, sums[k], make_timeline(closes, blocks)))
    assert passes(np.array(found)) < 0.05 + 5 * np.sqrt(0.05 * 0.95 / WALKS)


def test_an_average_over_all_times_calls_a_grid_trader_skilled() -> None:
    """Which is why the benchmark knows only what was before."""
    weights, returns = weights_of_rules(0.0, FOREVER, -1, seed=1)
    beyond = weights - weights.mean(axis=1, keepdims=True)
    assert passes(np.sum(beyond * returns, axis=2)) > 0.25


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
