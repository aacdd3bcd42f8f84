"""Chains have the moments of the markets they stand for."""

import numpy as np
import pytest

from flatout.bars.synthetic import MeanRevertingPair, OracleFeature, PlantedSignal, RandomWalk
from oracles.chains import Chain, oracle_chain, pair_chain, signal_chain, walk_chain
from rounding import assert_close

CHAINS = [
    walk_chain(RandomWalk(), 5),
    signal_chain(PlantedSignal(symbols=("A", "B")), 3),
    oracle_chain(OracleFeature(), 16),
    pair_chain(MeanRevertingPair(), 0.8, 3),
    pair_chain(MeanRevertingPair(persistence=0.0), 0.8, 3),
]


def mean(chain: Chain, values: np.ndarray) -> np.ndarray:
    """Expectation over branches of (state, branch, ...)."""
    return np.einsum("kq,kq...->k...", chain.probability, values)


@pytest.mark.parametrize("chain", CHAINS)
def test_probabilities_are_probabilities(chain: Chain) -> None:
    assert np.all(chain.probability >= 0)
    assert np.all(chain.next_state >= 0)
    np.testing.assert_allclose(chain.probability.sum(axis=1), 1.0)
    np.testing.assert_allclose(chain.next_state.sum(axis=2), 1.0)


def test_walk_has_zero_expected_simple_return() -> None:
    chain = walk_chain(RandomWalk(sigma=0.02), 7)
    assert_close(mean(chain, np.expm1(chain.log_return)), np.zeros((1, 1)), roundings=64, size=0.1)


def test_signal_states_are_all_combinations_with_their_own_means() -> None:
    market = PlantedSignal(symbols=("A", "B"), levels=(-1.0, 1.0), persistence=0.5)
    chain = signal_chain(market, 3)
    assert_close(
        mean(chain, chain.log_return), market.strength * chain.states, roundings=64, size=0.1
    )
    np.testing.assert_allclose(mean(chain, chain.next_state)[0], [9 / 16, 3 / 16, 3 / 16, 1 / 16])
    expected = mean(chain, chain.next_state) @ chain.states
    assert_close(expected, 0.5 * chain.states, roundings=32, size=1.0)


def test_oracle_cells_have_the_mean_of_the_normal() -> None:
    market = OracleFeature(sigma=0.02)
    known = oracle_chain(market, 400).states[:, 0]
    assert np.mean(known) == pytest.approx(market.drift)
    assert np.std(known) == pytest.approx(0.02, rel=0.01)
    assert np.all(np.diff(known) > 0)


@pytest.mark.parametrize("persistence", [0.3, 0.9])
def test_pair_spread_reverts_with_the_right_mean_and_variance(persistence: float) -> None:
    market = MeanRevertingPair(persistence=persistence)
    chain = pair_chain(market, 0.7, 3)
    spread = chain.states[:, 0]
    inner = np.abs(spread) < 0.5 * spread[-1]  # the grid's ends are cut off
    after = chain.next_state @ spread
    np.testing.assert_allclose(mean(chain, after)[inner], persistence * spread[inner], atol=1e-6)
    variance = mean(chain, (after - persistence * spread[:, None]) ** 2)
    np.testing.assert_allclose(variance[inner], market.sigma_spread**2, rtol=1e-3)
    change = chain.log_return[..., 0] - chain.log_return[..., 1]
    assert_close(change, after - spread[:, None], roundings=4 * len(spread), size=spread[-1])
    middle = len(spread) // 2
    assert mean(chain, np.expm1(chain.log_return))[middle] == pytest.approx([0.0, 0.0], abs=1e-9)
