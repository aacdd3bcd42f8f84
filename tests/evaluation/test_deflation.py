"""Deflation against purgedcv and ffn, published figures, simulation, and its own laws.

The formulas are theirs to 1e-9, given the same moments. The moments differ: purgedcv divides the
Sharpe ratio by the population deviation, ffn by the sample deviation as we do; both correct skew
and kurtosis for bias, we do not. The probabilities differ by less than 1 / bars for it.
"""

import math
import warnings
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats
from threadpoolctl import threadpool_limits

from flatout.errors import FlatoutError
from flatout.evaluation import metrics
from flatout.evaluation.deflation import (
    Track,
    deflated_sharpe,
    effective_trials,
    expected_best_sharpe,
    minimum_backtest_length,
    minimum_track_length,
    probabilistic_sharpe,
    track,
)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import ffn
    import pandas as pd
    import purgedcv

TRIAL_SHARPES = np.array([0.02, -0.05, 0.11, 0.04, -0.01, 0.07])

# Annual Sharpe ratios that the best of so many trials without skill shows after 1, 2, 3 and 5
# years.
PUBLISHED = {
    10: (1.57, 1.11, 0.91, 0.70),
    50: (2.28, 1.61, 1.31, 1.02),
    100: (2.53, 1.79, 1.46, 1.13),
    200: (2.77, 1.96, 1.60, 1.24),
    500: (3.05, 2.16, 1.76, 1.37),
    1000: (3.26, 2.30, 1.88, 1.46),
}

seeds = st.integers(0, 2**32 - 1)


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Threads of a BLAS wait for each other in busy loops: where the cores are taken, that is all
    they do.
    """
    with threadpool_limits(1):
        yield


def path(seed: int, bars: int = 500, mean: float = 0.0005) -> np.ndarray:
    """Fat tails and a skew."""
    random = np.random.default_rng(seed)
    return mean + 0.01 * (random.standard_t(5, size=bars) + 0.3 * random.exponential(size=bars))


def noise(seed: int, bars: int, trials: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(0.0, 0.01, size=(bars, trials))


def track_without_bias(returns: np.ndarray, ddof: int) -> Track:
    """The moments as the libraries take them."""
    sharpe = returns.mean() / returns.std(ddof=ddof)
    kurtosis = stats.kurtosis(returns, bias=False, fisher=False)
    return Track(
        len(returns), float(sharpe), float(stats.skew(returns, bias=False)), float(kurtosis)
    )


def by_ffn(returns: np.ndarray) -> float:
    return float(
        ffn.core.calc_deflated_sharpe_ratio(
            pd.Series(returns), TRIAL_SHARPES, nperiods=1, annualized_trials=False
        )
    )


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("benchmark", [-0.05, 0.0, 0.03])
def test_probability_is_purgedcvs_given_its_moments(seed: int, benchmark: float) -> None:
    returns = path(seed)
    expected = purgedcv.probabilistic_sharpe_ratio(returns, benchmark)
    assert track_without_bias(returns, ddof=0).probability_above(benchmark) == pytest.approx(
        expected, abs=1e-9
    )


@pytest.mark.parametrize("seed", range(8))
def test_deflation_is_purgedcvs_and_ffns_given_their_moments(seed: int) -> None:
    returns, deviation = path(seed), float(TRIAL_SHARPES.std(ddof=1))
    best = expected_best_sharpe(len(TRIAL_SHARPES), deviation)
    expected = purgedcv.deflated_sharpe_ratio(returns, len(TRIAL_SHARPES), deviation**2)
    assert track_without_bias(returns, ddof=0).probability_above(best) == pytest.approx(
        expected, abs=1e-9
    )
    assert track_without_bias(returns, ddof=1).probability_above(best) == pytest.approx(
        by_ffn(returns), abs=1e-9
    )


@pytest.mark.parametrize("bars", [100, 1_000, 10_000])
@pytest.mark.parametrize("seed", range(4))
def test_other_moments_change_little(seed: int, bars: int) -> None:
    returns, deviation = path(seed, bars, mean=0.0), float(TRIAL_SHARPES.std(ddof=1))
    found = deflated_sharpe(returns, len(TRIAL_SHARPES), max(deviation, 1 / math.sqrt(bars)))
    expected = purgedcv.deflated_sharpe_ratio(
        returns, len(TRIAL_SHARPES), max(deviation**2, 1 / bars)
    )
    assert found == pytest.approx(expected, abs=1 / bars)
    if deviation > 1 / math.sqrt(bars):  # ffn knows no floor
        assert found == pytest.approx(by_ffn(returns), abs=1 / bars)
    assert probabilistic_sharpe(returns) == pytest.approx(
        purgedcv.probabilistic_sharpe_ratio(returns, 0.0), abs=1 / bars
    )


def test_moments_are_those_of_metrics() -> None:
    returns = path(0)
    found = track(returns)
    assert found.bars == 500
    assert found.sharpe == metrics.bar_sharpe(returns)
    assert found.skew == metrics.skew(returns)
    assert found.kurtosis == pytest.approx(stats.kurtosis(returns, fisher=False), rel=1e-12)


@settings(deadline=None)
@given(
    steps=st.lists(st.integers(-900, 900), min_size=2, max_size=12), shift=st.floats(-0.09, 0.09)
)
def test_variance_is_never_negative(steps: list[int], shift: float) -> None:
    """Short paths of few values are where moments corrected for bias fail."""
    returns = np.array(steps) * 1e-3 + shift
    assert track(returns).variance > 0
    assert 0 <= probabilistic_sharpe(returns) <= 1


def test_moments_corrected_for_bias_do_fail_where_ours_do_not() -> None:
    returns = np.array([0.01, 0.01, 0.02, 0.02])
    with pytest.raises(ValueError, match="non-positive"):
        purgedcv.probabilistic_sharpe_ratio(returns, 0.0)
    assert 0.99 < probabilistic_sharpe(returns) < 1


def test_two_values_can_leave_no_variance_at_all() -> None:
    """Kurtosis is 1 + skew² for two values; with a Sharpe ratio of 2 / skew the variance is 0 but
    for rounding.
    """
    high = 0.01
    low = (4 / 3 * 0.4 * math.sqrt(5 / 4) - 0.2) * high
    found = track(np.array([low, low, low, low, low + high]))
    assert found.sharpe * found.skew == pytest.approx(2)
    assert found.variance == metrics.ROUNDING
    assert found.probability_above(0.0) == 1
    assert found.probability_above(found.sharpe) == 0.5


@given(seed=seeds)
def test_own_sharpe_as_benchmark_is_a_coin_toss(seed: int) -> None:
    returns = path(seed, bars=50)
    assert probabilistic_sharpe(returns, float(metrics.bar_sharpe(returns))) == 0.5


@given(seed=seeds, low=st.floats(-0.5, 0.5), step=st.floats(0.001, 0.5))
def test_a_higher_benchmark_is_less_probable(seed: int, low: float, step: float) -> None:
    returns = path(seed, bars=50)
    high = probabilistic_sharpe(returns, low + step)
    assert high <= probabilistic_sharpe(returns, low)


def test_probability_is_right_as_often_as_it_says() -> None:
    """Without skill it exceeds 0.95 once in twenty paths: 2000 of them, four standard errors."""
    found = np.array([probabilistic_sharpe(noise(seed, 250, 1)[:, 0]) for seed in range(2000)])
    assert np.mean(found > 0.95) == pytest.approx(0.05, abs=0.02)
    assert np.mean(found) == pytest.approx(0.5, abs=0.03)


def test_the_lucky_best_of_many_is_not_believed() -> None:
    believed = deflated = 0
    for seed in range(200):
        returns = noise(seed, 300, 50)
        sharpes = metrics.bar_sharpe(returns.T)
        best = returns[:, np.argmax(sharpes)]
        believed += probabilistic_sharpe(best) > 0.95
        deflated += deflated_sharpe(best, 50, float(np.std(sharpes, ddof=1))) > 0.95
    assert believed > 150  # what a look at the winner alone would say
    assert deflated <= 10  # 0.95 and no more than one in twenty is wrong


def test_returns_that_never_vary_are_no_evidence() -> None:
    for constant in (0.0, 0.001, -0.001):
        assert probabilistic_sharpe(np.full(1000, constant)) == 0.5
        assert deflated_sharpe(np.full(1000, constant), 10, 0.0) < 0.1
        assert minimum_track_length(np.full(1000, constant)) == math.inf


@pytest.mark.parametrize(("trials", "years", "expected"), [
    (trials, years, figure)
    for trials, row in PUBLISHED.items() for years, figure in zip((1, 2, 3, 5), row, strict=True)
])  # fmt: skip
def test_expected_best_is_the_published_one(trials: int, years: int, expected: float) -> None:
    assert expected_best_sharpe(trials, 1 / math.sqrt(years)) == pytest.approx(expected, abs=0.0051)


@pytest.mark.parametrize("trials", [1, 2, 3, 10, 1000, 1_000_000])
def test_expected_best_is_ffns(trials: int) -> None:
    expected = ffn.core.calc_expected_max_sharpe(trials, 0.3)
    assert expected_best_sharpe(trials, 0.3) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("trials", [5, 50, 500])
def test_expected_best_is_near_the_simulated_one(trials: int) -> None:
    simulated = np.random.default_rng(0).standard_normal((4000, trials)).max(axis=1).mean()
    assert expected_best_sharpe(trials, 1.0) == pytest.approx(simulated, rel=0.05)


@given(trials=st.floats(1, 1e6), more=st.floats(1e-3, 1e3))
def test_more_trials_expect_a_better_best(trials: float, more: float) -> None:
    """Between whole numbers, and below two, too."""
    assert 0 <= expected_best_sharpe(trials, 1.0) < expected_best_sharpe(trials + more, 1.0)


def test_one_trial_expects_nothing() -> None:
    assert expected_best_sharpe(1, 7.0) == 0
    returns = path(1)
    assert deflated_sharpe(returns, 1, 0.1) == probabilistic_sharpe(returns)


@given(seed=seeds, trials=st.integers(1, 10_000), more=st.integers(1, 10_000))
def test_deflated_sharpe_falls_with_trials(seed: int, trials: int, more: int) -> None:
    returns = path(seed, bars=200)
    assert deflated_sharpe(returns, trials + more, 0.05) < deflated_sharpe(returns, trials, 0.05)


def test_deviation_has_a_floor() -> None:
    returns = path(2)
    floor = 1 / math.sqrt(len(returns))
    assert deflated_sharpe(returns, 100, 0.0) == deflated_sharpe(returns, 100, floor)
    assert deflated_sharpe(returns, 100, 0.0) < probabilistic_sharpe(returns)
    assert deflated_sharpe(returns, 100, 2 * floor) < deflated_sharpe(returns, 100, floor)
    expected = probabilistic_sharpe(returns, expected_best_sharpe(100, floor))
    assert deflated_sharpe(returns, 100, 0.0) == expected


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("confidence", [0.3, 0.6, 0.95, 0.999])
def test_track_length_is_purgedcvs_before_it_is_rounded_up(seed: int, confidence: float) -> None:
    returns = path(seed)
    found, known = minimum_track_length(returns, 0.01, confidence), track(returns)
    expected = purgedcv.min_track_record_length(
        known.sharpe, 0.01, 1 - confidence, known.skew, known.kurtosis
    )
    assert math.ceil(found - 1e-9) == expected or found == expected == math.inf


@given(seed=seeds, confidence=st.floats(0.6, 0.999))
def test_track_length_gives_the_confidence_asked_for(seed: int, confidence: float) -> None:
    returns = path(seed)
    found = minimum_track_length(returns, 0.0, confidence)
    assume(2 < found < math.inf)
    wanted = track(returns)
    psr = stats.norm.cdf(wanted.sharpe * math.sqrt((found - 1) / wanted.variance))
    assert psr == pytest.approx(confidence, abs=1e-9)


def test_track_length_does_not_exist_without_a_lead() -> None:
    returns = path(0)
    assert minimum_track_length(returns, float(metrics.bar_sharpe(returns))) == math.inf
    assert minimum_track_length(-np.abs(returns)) == math.inf


@pytest.mark.parametrize("trials", [1, 2, 10, 500])
@pytest.mark.parametrize("target", [0.02, 1.0, 3.0])
def test_backtest_length_is_purgedcvs(trials: int, target: float) -> None:
    expected = purgedcv.minimum_backtest_length(trials, target)
    assert minimum_backtest_length(trials, target) == pytest.approx(expected, rel=1e-9)


def test_backtest_length_is_where_luck_shows_the_target() -> None:
    bars = minimum_backtest_length(200, 0.05)
    assert expected_best_sharpe(200, 1 / math.sqrt(bars)) == pytest.approx(0.05, rel=1e-12)
    assert minimum_backtest_length(200, 0.0) == minimum_backtest_length(200, -1.0) == math.inf


def test_equal_trials_are_one() -> None:
    one = noise(0, 500, 1)
    assert effective_trials(one) == 1
    assert effective_trials(np.repeat(one, 30, axis=1)) == pytest.approx(1, abs=1e-6)
    assert effective_trials(one * np.array([1.0, 0.3, 2.0])) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize(("bars", "trials"), [(5000, 2), (5000, 20), (10_000, 200), (300, 100)])
def test_independent_trials_all_count(bars: int, trials: int) -> None:
    assert 0.93 * trials <= effective_trials(noise(3, bars, trials)) <= trials


def test_trials_that_never_traded_are_one_together() -> None:
    cash = np.zeros((5000, 7))
    cash[:, 3] = 0.001
    assert effective_trials(cash) == effective_trials(cash[:, :1]) == 1
    found = effective_trials(np.hstack([noise(4, 5000, 20), cash]))
    assert found == pytest.approx(21, rel=0.03)


def test_copies_do_not_hide_the_rest() -> None:
    """400 copies of one trial and 100 others, as a sampler that converges leaves them."""
    random = noise(5, 2000, 101)
    matrix = np.hstack([np.repeat(random[:, :1], 400, axis=1), random[:, 1:]])
    assert effective_trials(matrix) == pytest.approx(101, rel=0.05)
    share = np.clip(np.linalg.eigvalsh(np.corrcoef(matrix.T)) / 500, 1e-300, 1)
    assert np.exp(-np.sum(share * np.log(share))) < 5  # the simpler figures of the docstring
    assert 1 / np.sum(share**2) < 2


@pytest.mark.parametrize("correlation", [0.3, 0.5, 0.9])
def test_equally_correlated_trials_have_a_known_best(correlation: float) -> None:
    """The common part cancels in the best: sqrt(1 - c) of the expected best is left."""
    random = noise(6, 20_000, 101)
    matrix = math.sqrt(correlation) * random[:, :1] + math.sqrt(1 - correlation) * random[:, 1:]
    found = expected_best_sharpe(effective_trials(matrix), 1.0)
    assert found == pytest.approx(
        math.sqrt(1 - correlation) * expected_best_sharpe(100, 1.0), rel=0.02
    )


def test_effective_trials_predict_the_best_of_correlated_trials() -> None:
    """Three families of trials without skill: the mean best Sharpe of 400 studies is the one of
    N_eff.
    """
    mixing = np.repeat(np.eye(3), 10, axis=1)

    def study(seed: int, bars: int) -> np.ndarray:
        random = noise(seed, bars, 33)
        return math.sqrt(0.8) * random[:, :3] @ mixing + math.sqrt(0.2) * random[:, 3:]

    best = np.mean([metrics.bar_sharpe(study(seed, 200).T).max() for seed in range(400)])
    count = effective_trials(study(999, 20_000))
    assert 3 < count < 15
    assert best == pytest.approx(expected_best_sharpe(count, 1 / math.sqrt(200)), rel=0.1)


@settings(deadline=None, max_examples=30)
@given(seed=seeds, bars=st.integers(2, 40), trials=st.integers(1, 12), copies=st.integers(1, 3))
def test_effective_trials_lie_between_one_and_all(
    seed: int, bars: int, trials: int, copies: int
) -> None:
    matrix = np.tile(noise(seed, bars, trials), (1, copies))
    assert 1 <= effective_trials(matrix) <= trials * copies
    assert effective_trials(matrix) == effective_trials(matrix)


def test_opposite_trials_are_not_more_than_there_are() -> None:
    one = noise(7, 100, 1)
    assert effective_trials(np.hstack([one, -one])) == 2


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: probabilistic_sharpe(np.array([0.1])), "two bars"),
        (lambda: probabilistic_sharpe(np.zeros((2, 3))), "one path"),
        (lambda: probabilistic_sharpe(np.array([0.1, np.nan])), "NaN"),
        (lambda: probabilistic_sharpe(np.array([0.1, 0.2]), math.nan), "benchmark"),
        (lambda: expected_best_sharpe(0.5, 1.0), "trials"),
        (lambda: expected_best_sharpe(math.nan, 1.0), "trials"),
        (lambda: expected_best_sharpe(2, -1.0), "deviation"),
        (lambda: deflated_sharpe(np.array([0.1, 0.2]), 2, math.nan), "deviation"),
        (lambda: deflated_sharpe(np.array([0.1, 0.2]), 2, -1.0), "deviation"),
        (lambda: minimum_track_length(np.array([0.1, 0.2]), 0.0, 1.0), "confidence"),
        (lambda: minimum_backtest_length(10, math.inf), "target_sharpe"),
        (lambda: effective_trials(np.zeros(5)), "bar, trial"),
        (lambda: effective_trials(np.zeros((1, 5))), "two bars"),
        (lambda: effective_trials(np.full((3, 2), np.nan)), "NaN"),
    ],
)
def test_nonsense_is_refused_in_a_sentence(call: object, words: str) -> None:
    assert callable(call)
    with pytest.raises(FlatoutError, match=words):
        call()
