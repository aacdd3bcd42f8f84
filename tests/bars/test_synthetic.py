"""Synthetic markets: bars are well formed, the seed decides everything, each process is what it
says.
"""

from dataclasses import replace

import numpy as np
import pytest

from flatout.bars.synthetic import (
    MeanRevertingPair,
    OneJump,
    OracleFeature,
    PlantedSignal,
    RandomWalk,
    Sine,
    SyntheticMarket,
)
from flatout.errors import BarsError
from rounding import close_to

MARKETS: list[SyntheticMarket] = [
    RandomWalk(n_bars=500),
    PlantedSignal(n_bars=500, symbols=("A", "B")),
    MeanRevertingPair(n_bars=500),
    Sine(n_bars=500),
    OneJump(n_bars=500),
    OracleFeature(n_bars=500),
]
RANDOM = [m for m in MARKETS if not isinstance(m, Sine)]


def name(market: SyntheticMarket) -> str:
    return type(market).__name__


def next_log_return(market: SyntheticMarket) -> np.ndarray:
    return np.diff(np.log(market.panel().close), axis=0)


@pytest.mark.parametrize("market", MARKETS, ids=name)
def test_bars_are_well_formed(market: SyntheticMarket) -> None:
    panel = market.panel()
    shape = (500, market.n_assets)
    for array in (panel.open, panel.high, panel.low, panel.close, panel.volume, panel.tradable):
        assert array.shape == shape
        assert np.all(np.isfinite(array))
    assert all(extra.shape == shape for extra in panel.extras.values())
    assert np.all(panel.high >= np.maximum(panel.open, panel.close))
    assert np.all(panel.low <= np.minimum(panel.open, panel.close))
    assert np.all(panel.low > 0)
    assert np.all(panel.volume > 0)
    assert np.all(panel.tradable)


@pytest.mark.parametrize("market", MARKETS, ids=name)
def test_there_is_no_gap_between_bars(market: SyntheticMarket) -> None:
    panel = market.panel()
    np.testing.assert_array_equal(panel.open[1:], panel.close[:-1])
    assert np.all(panel.open[0] == market.start_price)


@pytest.mark.parametrize("market", MARKETS, ids=name)
def test_time_runs_evenly_from_2021(market: SyntheticMarket) -> None:
    panel = replace(market, bar_seconds=900).panel()
    assert panel.time.dtype == np.dtype("datetime64[us]")
    assert panel.time[0] == np.datetime64("2021-01-01")
    assert np.all(np.diff(panel.time) == np.timedelta64(900, "s"))
    assert panel.bar_seconds == 900


@pytest.mark.parametrize("market", MARKETS, ids=name)
def test_equal_fields_give_equal_bars(market: SyntheticMarket) -> None:
    first = market.panel().fingerprint
    np.random.seed(1)  # global state must not matter
    np.random.random(10)
    assert replace(market).panel().fingerprint == first


@pytest.mark.parametrize("market", RANDOM, ids=name)
def test_another_seed_gives_another_path(market: SyntheticMarket) -> None:
    assert not np.array_equal(replace(market, seed=7).panel().close, market.panel().close)


@pytest.mark.parametrize("market", MARKETS, ids=name)
def test_wicks_and_volume_do_not_touch_the_path(market: SyntheticMarket) -> None:
    other = replace(market, wick_bps=50.0, typical_volume=10.0).panel()
    np.testing.assert_array_equal(other.close, market.panel().close)
    assert not np.array_equal(other.high, market.panel().high)


def test_random_walk_has_no_mean_and_the_stated_correlation() -> None:
    market = RandomWalk(n_bars=100_000, correlation=0.5, sigma=0.02)
    log_return = next_log_return(market)
    assert np.all(np.abs(np.mean(np.expm1(log_return), axis=0)) < 4 * 0.02 / np.sqrt(100_000))
    np.testing.assert_allclose(np.std(log_return, axis=0), 0.02, rtol=0.01)
    np.testing.assert_allclose(np.corrcoef(log_return.T)[np.triu_indices(3, 1)], 0.5, atol=0.02)
    assert np.exp(market.drift + 0.5 * market.sigma**2) == close_to(1.0, roundings=32)


def test_planted_signal_predicts_the_next_bar_and_only_that() -> None:
    market = PlantedSignal(n_bars=100_000, strength_bps=30.0)
    signal, log_return = market.panel().extras["signal"][:-1, 0], next_log_return(market)[:, 0]
    slope = np.cov(signal, log_return)[0, 1] / np.var(signal)
    assert slope == pytest.approx(0.003, abs=4 * 0.01 / np.sqrt(100_000 * np.var(signal)))
    assert np.corrcoef(signal, log_return)[0, 1] == pytest.approx(
        market.information_coefficient, abs=0.013
    )
    # What the signal does not explain is unrelated to the signal one bar earlier or later.
    noise = log_return - 0.003 * signal
    assert abs(np.corrcoef(signal[1:], noise[:-1])[0, 1]) < 0.013
    assert abs(np.corrcoef(signal[:-1], noise[1:])[0, 1]) < 0.013


def test_planted_signal_moves_as_its_transition_matrix_says() -> None:
    market = PlantedSignal(n_bars=100_000, levels=(-1.0, 0.0, 2.0), persistence=0.8)
    signal = market.panel().extras["signal"][:, 0]
    for row, level in enumerate(market.levels):
        after = signal[1:][signal[:-1] == level]
        found = [np.mean(after == other) for other in market.levels]
        np.testing.assert_allclose(found, market.transition[row], atol=0.01)


def test_without_noise_the_signal_is_the_return() -> None:
    market = PlantedSignal(n_bars=300, sigma=0.0, symbols=("A", "B"))
    signal = market.panel().extras["signal"]
    np.testing.assert_allclose(next_log_return(market), 0.002 * signal[:-1], atol=1e-12)
    assert not np.array_equal(signal[:, 0], signal[:, 1])


def test_pair_spread_is_the_prices_ratio_and_reverts() -> None:
    market = MeanRevertingPair(n_bars=100_000, persistence=0.95)
    panel = market.panel()
    spread = panel.extras["spread"][:, 0]
    np.testing.assert_allclose(np.log(panel.close[:, 0] / panel.close[:, 1]), spread, atol=1e-9)
    assert np.corrcoef(spread[1:], spread[:-1])[0, 1] == pytest.approx(0.95, abs=0.01)
    assert np.std(spread) == pytest.approx(market.stationary_spread, rel=0.05)
    at_zero = np.exp(market.drift + 0.5 * (market.sigma_common**2 + 0.25 * market.sigma_spread**2))
    assert at_zero == close_to(1.0, roundings=32)


def test_sine_is_a_sine() -> None:
    close = Sine(n_bars=96, amplitude=0.1, period_bars=24).panel().close[:, 0]
    expected = 100 * np.exp(0.1 * np.sin(2 * np.pi * np.arange(1, 97) / 24))
    np.testing.assert_allclose(close, expected, rtol=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_one_jump_jumps_once_and_is_announced(seed: int) -> None:
    market = OneJump(n_bars=10, seed=seed, size=-0.2)
    panel = market.panel()
    change = panel.close[1:, 0] / panel.close[:-1, 0] - 1
    assert np.count_nonzero(np.abs(change) > 1e-12) == 1
    assert change[market.bar - 1] == pytest.approx(-0.2)
    assert panel.extras["jump_next"][:, 0].tolist() == [
        float(t == market.bar - 1) for t in range(10)
    ]


def test_oracle_shows_the_next_return() -> None:
    market = OracleFeature(n_bars=200)
    np.testing.assert_allclose(
        next_log_return(market), market.panel().extras["oracle"][:-1], rtol=0, atol=1e-12
    )


@pytest.mark.parametrize(
    ("market", "fields"),
    [
        (RandomWalk, {"n_bars": 1}),
        (RandomWalk, {"symbols": ("A", "A")}),
        (RandomWalk, {"correlation": 1.5}),
        (PlantedSignal, {"persistence": 1.0}),
        (PlantedSignal, {"levels": ()}),
        (MeanRevertingPair, {"symbols": ("A",)}),
        (Sine, {"period_bars": 0.0}),
        (OneJump, {"jump_bar": 0}),
        (OneJump, {"size": -1.0}),
        (OracleFeature, {"sigma": 0.0}),
    ],
)
def test_impossible_markets_are_refused(
    market: type[SyntheticMarket], fields: dict[str, object]
) -> None:
    with pytest.raises(BarsError, match=next(iter(fields))):
        market(**fields)  # type: ignore[arg-type]
