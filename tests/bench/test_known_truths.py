"""Markets whose truth is known are what their names say."""

import numpy as np
import pytest
from scipy import stats

from flatout.bench.known_truths import DRIFT, LUCK, SIGMA, SYMBOLS, KnownMarket, Truth

BARS = 20_000


def moves_of(truth: Truth, strength_bps: float = 0.0, seed: int = 1) -> np.ndarray:
    return KnownMarket(
        n_bars=BARS, seed=seed, symbols=SYMBOLS, truth=truth, strength_bps=strength_bps
    ).log_returns()


@pytest.mark.parametrize("truth", LUCK)
def test_nothing_is_known_of_the_next_bar(truth: Truth) -> None:
    """Moves correlate with no move before them: t values of normal size."""
    moves = moves_of(truth)
    for lag in (1, 2, 10):
        for asset in range(len(SYMBOLS)):
            now, past = moves[lag:, asset], moves[:-lag, asset]
            # signs, as wild markets have wild products
            agree = np.mean(np.sign(now - np.median(now)) * np.sign(past - np.median(past)))
            assert abs(agree) * np.sqrt(len(now)) < 5


@pytest.mark.parametrize(("truth", "drift"), [("flat", 0), ("rising", DRIFT), ("falling", -DRIFT)])
def test_simple_returns_drift_as_they_are_asked_to(truth: Truth, drift: float) -> None:
    simple = np.expm1(moves_of(truth)).mean(axis=0)
    assert np.abs(simple - drift).max() < 5 * SIGMA / np.sqrt(BARS)


def test_tails_clusters_and_company() -> None:
    assert stats.kurtosis(moves_of("fat_tailed")[:, 0]) > 2
    wild = np.abs(moves_of("clustered")[:, 0])
    assert np.corrcoef(wild[1:], wild[:-1])[0, 1] > 0.1
    steps = np.abs(moves_of("switching")[:, 0])
    assert np.corrcoef(steps[1:], steps[:-1])[0, 1] > 0.1
    assert np.corrcoef(moves_of("together").T)[0, 1] > 0.9
    assert 0.4 < np.corrcoef(moves_of("flat").T)[0, 1] < 0.6


def test_a_delisted_asset_stops() -> None:
    panel = KnownMarket(n_bars=500, seed=3, symbols=SYMBOLS, truth="delisted").panel()
    end = int(np.argmin(panel.tradable[:, 0]))
    assert 125 <= end < 500
    assert not panel.tradable[end:, 0].any() and panel.tradable[:, 1:].all()
    assert (panel.close[end:, 0] == panel.close[end - 1, 0]).all()


def test_the_signal_tells_the_next_bar() -> None:
    market = KnownMarket(
        n_bars=BARS, seed=1, symbols=SYMBOLS, truth="planted_flat", strength_bps=10.0
    )
    signal, moves = market.extras()["signal"], market.log_returns()
    slope = np.mean(signal[:-1, 0] * moves[1:, 0]) / np.mean(signal[:-1, 0] ** 2)
    assert slope == pytest.approx(10e-4, abs=5 * SIGMA / np.sqrt(BARS))
