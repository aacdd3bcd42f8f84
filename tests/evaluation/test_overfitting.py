"""PBO against the paper's definition written plainly, purgedcv and ffn; then what it must say of
noise and of skill.
"""

import math
import warnings
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from flatout.errors import FlatoutError
from flatout.evaluation import overfitting as module
from flatout.evaluation.overfitting import Overfitting, overfitting
from rounding import assert_close

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import ffn
    import pandas as pd
    import purgedcv

seeds = st.integers(0, 2**32 - 1)


def noise(seed: int, bars: int = 96, trials: int = 6) -> np.ndarray:
    return np.random.default_rng(seed).normal(0.0, 0.01, size=(bars, trials))


# A Sharpe ratio is a mean of returns as large as their deviation: near zero it is as exact as near
# 1. A slope of many of them, and its share of the variance, are too, but for their sums.
PER_BAR = {"roundings": 10_000, "size": 1.0}


def plain(returns: np.ndarray, blocks: int) -> tuple[list[float], list[float], list[float]]:
    """Step by step as the paper says: logits, and the Sharpe ratios of the chosen in sample and out
    of sample.
    """
    parts = np.split(returns, blocks)
    logits, inside, outside = [], [], []
    for chosen in combinations(range(blocks), blocks // 2):
        training = np.concatenate([parts[i] for i in chosen])
        testing = np.concatenate([parts[i] for i in range(blocks) if i not in chosen])
        sharpe_in = [
            training[:, k].mean() / training[:, k].std(ddof=1) for k in range(returns.shape[1])
        ]
        sharpe_out = [
            testing[:, k].mean() / testing[:, k].std(ddof=1) for k in range(returns.shape[1])
        ]
        best = int(np.argmax(sharpe_in))
        omega = stats.rankdata(sharpe_out)[best] / (returns.shape[1] + 1)
        logits.append(math.log(omega / (1 - omega)))
        inside.append(sharpe_in[best])
        outside.append(sharpe_out[best])
    return logits, inside, outside


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("blocks", "trials"), [(2, 2), (4, 5), (6, 3), (8, 12)])
def test_equal_to_the_papers_definition(seed: int, blocks: int, trials: int) -> None:
    returns = noise(seed, trials=trials)
    found = overfitting(returns, blocks)
    logits, inside, outside = plain(returns, blocks)
    np.testing.assert_allclose(found.logits, logits, rtol=0, atol=1e-12)
    assert_close(found.in_sample, inside, **PER_BAR)
    assert_close(found.out_of_sample, outside, **PER_BAR)
    assert found.pbo == np.mean(np.array(logits) <= 0)
    assert found.probability_of_loss == np.mean(np.array(outside) < 0)
    assert (found.combinations, found.blocks) == (math.comb(blocks, blocks // 2), blocks)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("trials", [7, 8])
def test_equal_to_purgedcv_but_for_logits_of_zero(seed: int, trials: int) -> None:
    """It names the blocks that judge first, and counts only logits below 0: none is 0 for an even
    number of trials.
    """
    returns = noise(seed, trials=trials)
    found = overfitting(returns, 8)
    theirs = purgedcv.probability_of_backtest_overfitting(returns.T, 8)
    np.testing.assert_allclose(found.logits, theirs.logits[::-1], rtol=0, atol=1e-9)
    assert_close(found.in_sample, theirs.is_oos_performance[::-1, 0], **PER_BAR)
    assert_close(found.out_of_sample, theirs.is_oos_performance[::-1, 1], **PER_BAR)
    assert found.slope == pytest.approx(theirs.slope, rel=1e-9)
    assert found.pbo - theirs.pbo == pytest.approx(np.mean(found.logits == 0), abs=1e-12)
    if trials % 2 == 0:
        assert found.pbo == theirs.pbo


@pytest.mark.parametrize("trials", [7, 8])
def test_equal_to_ffn(trials: int) -> None:
    returns = noise(9, trials=trials)
    theirs = ffn.core.calc_prob_backtest_overfitting(pd.DataFrame(returns), 6, full_output=True)
    found = overfitting(returns, 6)
    np.testing.assert_allclose(found.logits, theirs["logits"], rtol=0, atol=1e-9)
    assert found.pbo == theirs["pbo"]


def test_sixteen_blocks_by_default_and_chunks_change_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    returns = noise(0, bars=64, trials=3)
    whole = overfitting(returns)
    assert (whole.combinations, len(whole.logits), whole.blocks) == (12_870, 12_870, 16)
    monkeypatch.setattr(module, "CHUNK", 3 * 1000)
    chunked = overfitting(returns)
    for name, value in whole._asdict().items():
        assert_close(getattr(chunked, name), value, **PER_BAR, name=name)


@pytest.mark.parametrize("seed", range(3))
def test_degradation_is_the_least_squares_line(seed: int) -> None:
    found = overfitting(noise(seed), 8)
    line = stats.linregress(found.in_sample, found.out_of_sample)
    assert found.slope == pytest.approx(line.slope, rel=1e-9)
    assert found.intercept == pytest.approx(line.intercept, rel=1e-9)
    assert found.r2 == pytest.approx(line.rvalue**2, rel=1e-9)


@settings(deadline=None, max_examples=30)
@given(seed=seeds, trials=st.integers(2, 9), order=seeds)
def test_the_order_of_trials_does_not_matter(seed: int, trials: int, order: int) -> None:
    returns = noise(seed, trials=trials)
    shuffled = returns[:, np.random.default_rng(order).permutation(trials)]
    same(overfitting(returns, 6), overfitting(shuffled, 6))


@settings(deadline=None, max_examples=30)
@given(seed=seeds, column=st.integers(0, 5), factor=st.floats(1e-6, 10))
def test_the_scale_of_a_trial_does_not_matter(seed: int, column: int, factor: float) -> None:
    returns = noise(seed)
    scaled = returns.copy()
    scaled[:, column] *= factor
    same(overfitting(returns, 6), overfitting(scaled, 6))


@settings(deadline=None, max_examples=30)
@given(seed=seeds, order=seeds)
def test_ties_do_not_depend_on_the_order_either(seed: int, order: int) -> None:
    """Returns of -1 %, 0 and 1 % on few bars tie often, in sample and out of sample."""
    returns = np.random.default_rng(seed).integers(-1, 2, size=(12, 6)) * 0.01
    shuffled = returns[:, np.random.default_rng(order).permutation(6)]
    same(overfitting(returns, 4), overfitting(shuffled, 4))


def same(one: Overfitting, other: Overfitting) -> None:
    for name, value in one._asdict().items():
        np.testing.assert_allclose(getattr(other, name), value, rtol=1e-6, atol=1e-9, err_msg=name)


def test_noise_is_a_coin_toss() -> None:
    found = [overfitting(noise(seed, bars=400, trials=20), 8) for seed in range(60)]
    assert np.mean([one.pbo for one in found]) == pytest.approx(0.5, abs=0.08)
    assert np.mean([one.probability_of_loss for one in found]) == pytest.approx(0.5, abs=0.08)
    # the same sum of all bars: what one half has, the other lacks
    assert np.mean([one.slope for one in found]) < 0


def test_real_edge_is_kept() -> None:
    returns = noise(1, bars=2000, trials=20)
    returns[:, 7] += 0.003
    found = overfitting(returns, 10)
    assert found.pbo < 0.01
    assert found.probability_of_loss < 0.01
    assert np.all(found.logits > 0)
    assert np.mean(found.out_of_sample) == pytest.approx(0.3, abs=0.05)


def test_a_trial_that_wins_one_half_by_losing_the_other_is_caught() -> None:
    """Each trial has one good block and is bad elsewhere: whoever has it in sample is chosen, and
    fails.
    """
    returns = noise(2, bars=80, trials=8)
    for block in range(8):
        returns[:, block] -= 0.002
        returns[10 * block : 10 * (block + 1), block] += 0.05
    found = overfitting(returns, 8)
    assert found.pbo > 0.95
    assert found.probability_of_loss > 0.9


def test_the_first_bars_are_dropped() -> None:
    returns = noise(3, bars=67)
    poisoned = returns.copy()
    poisoned[:3] = 0.9
    same(overfitting(returns, 8), overfitting(poisoned, 8))
    same(overfitting(returns, 8), overfitting(returns[3:], 8))


def test_the_median_counts_as_overfitted() -> None:
    one = noise(4, trials=1)
    found = overfitting(np.repeat(one, 5, axis=1), 6)
    assert np.all(found.logits == 0)
    assert found.pbo == 1


def test_trials_that_differ_in_scale_only_are_tied() -> None:
    found = overfitting(noise(4, trials=1) * np.array([1.0, 0.3, 1.7, 0.11]), 6)
    assert np.all(found.logits == 0)


def test_ties_share_their_average_rank() -> None:
    """Three copies of the winner hold ranks 2 to 4 of 4: 3 of 5, and the logit of 3/5."""
    returns = np.repeat(noise(5, bars=400, trials=2), [1, 3], axis=1)
    returns[:, 1:] += 0.02
    np.testing.assert_allclose(overfitting(returns, 4).logits, math.log(3 / 2), rtol=1e-12)


def test_no_risk_is_no_merit() -> None:
    """A constant gain does not win by an infinite Sharpe ratio, nor does a half without trades
    divide by nothing.
    """
    returns = noise(6, bars=120, trials=4) + 0.01
    returns[:, 1] = 0.001
    returns[:60, 2] = 0.0
    found = overfitting(returns, 4)
    assert np.all(np.isfinite(found.in_sample))
    assert np.all(found.in_sample > 0.3)
    assert np.all(np.isfinite(found.out_of_sample))
    assert np.max(np.abs(found.out_of_sample)) < 10


@pytest.mark.parametrize("gain", [0.1, 0.0007, 0.3, 1e-9])
def test_rounding_of_a_constant_gain_is_no_risk(gain: float) -> None:
    returns = noise(6, bars=700, trials=3)
    returns[:, 0] += 0.01
    returns[:, 1] = gain
    assert overfitting(returns, 10).in_sample.max() < 2


def test_nobody_ever_traded() -> None:
    found = overfitting(np.zeros((64, 3)), 8)
    assert found.pbo == 1
    assert found.probability_of_loss == 0
    assert math.isnan(found.slope)
    assert math.isnan(found.r2)


def test_choosing_by_the_mean() -> None:
    """A wild trial of higher mean and lower Sharpe ratio is chosen by the one, not by the other."""
    returns = noise(7, bars=400, trials=2)
    returns[:, 0] = returns[:, 0] * 0.1 + 0.001
    returns[:, 1] = returns[:, 1] * 3 + 0.02
    mean = overfitting(returns, 4, metric="mean")
    assert mean.in_sample.min() > 0.01
    assert np.mean(mean.in_sample) == pytest.approx(returns[:, 1].mean(), rel=1e-9)
    assert np.all(mean.logits > 0)
    sharpe = overfitting(returns, 4)
    assert sharpe.in_sample.max() > 0.8


def test_input_is_left_alone_and_single_precision_is_taken() -> None:
    returns = noise(8).astype(np.float32)
    before = returns.copy()
    found = overfitting(returns, 6)
    assert np.array_equal(returns, before)
    same(found, overfitting(returns.astype(np.float64), 6))


@pytest.mark.parametrize(
    ("returns", "blocks", "metric", "words"),
    [
        (noise(0, trials=1), 8, "sharpe", "nothing to choose"),
        (noise(0)[:, 0], 8, "sharpe", "nothing to choose"),
        (noise(0, bars=15), 8, "sharpe", "15 bars are too few for 8 blocks"),
        (noise(0), 7, "sharpe", "blocks is 7"),
        (noise(0), 0, "sharpe", "blocks is 0"),
        (noise(0), 40, "sharpe", "blocks is 40"),
        (np.full((64, 2), np.nan), 8, "sharpe", "NaN"),
        (np.full((64, 2), np.inf), 8, "sharpe", "infinite"),
        (noise(0) - 2, 8, "sharpe", "more than everything"),
        (noise(0), 8, "sortino", "sharpe, mean"),
    ],
)
def test_nonsense_is_refused_in_a_sentence(
    returns: np.ndarray, blocks: int, metric: str, words: str
) -> None:
    with pytest.raises(FlatoutError, match=words):
        overfitting(returns, blocks, metric)  # type: ignore[arg-type]


def test_two_bars_per_block_are_enough() -> None:
    assert overfitting(noise(0, bars=16), 8).combinations == 70
