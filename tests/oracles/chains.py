"""Markets as finite Markov chains: a state that the trader sees, and what can happen from it.

Noise becomes a few nodes with probabilities, chosen so that expectations of what follows are
accurate. This file does not know what a trader does with a chain, nor what trading costs.
"""

from itertools import product
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flatout.bars.panel import FloatArray
from flatout.bars.synthetic import MeanRevertingPair, OracleFeature, PlantedSignal, RandomWalk

IntArray = NDArray[np.int64]

SPREAD_REACH = 5.0  # the spread's grid ends at this many of its long-run standard deviations
SHOCK_REACH = 5.5  # shocks to the spread are followed to this many of theirs


class Chain(NamedTuple):
    """A market with finitely many states; in each, finitely many things can happen."""

    states: FloatArray  # (state, feature): what the trader sees
    probability: FloatArray  # (state, branch)
    log_return: FloatArray  # (state, branch, asset)
    next_state: FloatArray  # (state, branch, state): probabilities


def walk_chain(market: RandomWalk, n_nodes: int) -> Chain:
    """One asset of the walk; there is nothing to see."""
    return _noisy_chain(
        np.zeros((1, 1)), np.array([[market.drift]]), market.sigma, np.ones((1, 1)), n_nodes
    )


def signal_chain(market: PlantedSignal, n_nodes: int) -> Chain:
    """All combinations of the assets' signals: the market's own chain, exact but for the noise."""
    levels = np.array(list(product(market.levels, repeat=market.n_assets)))
    transition: FloatArray = np.ones((1, 1))
    for _ in market.symbols:
        transition = np.kron(transition, market.transition).astype(np.float64)
    return _noisy_chain(levels, market.strength * levels, market.sigma, transition, n_nodes)


def oracle_chain(market: OracleFeature, n_cells: int) -> Chain:
    """The state is the next return, drawn anew each bar; nodes are means of equally likely
    cells.
    """
    known = market.drift + market.sigma * _normal_cell_means(n_cells)
    next_state = np.full((n_cells, 1, n_cells), 1 / n_cells)
    return Chain(known[:, None], np.ones((n_cells, 1)), known[:, None, None], next_state)


def pair_chain(market: MeanRevertingPair, spacing: float, n_nodes: int) -> Chain:
    """The spread on an even grid in steps of `spacing` shocks; the common factor is integrated
    over.
    """
    spread, near, probability = _spread_transitions(market, spacing)
    nodes, weights = _normal_nodes(n_nodes, 1)
    common = market.drift + market.sigma_common * nodes[:, 0]
    half_change = 0.5 * (spread[near] - spread[:, None])[:, :, None]
    log_return = np.stack([common + half_change, common - half_change], axis=-1)
    shape = (len(spread), near.shape[1] * n_nodes)
    return Chain(
        states=spread[:, None],
        probability=(probability[:, :, None] * weights).reshape(shape),
        log_return=log_return.reshape(*shape, 2),
        next_state=np.repeat(np.eye(len(spread))[near], n_nodes, axis=1),
    )


def _spread_transitions(
    market: MeanRevertingPair, spacing: float
) -> tuple[FloatArray, IntArray, FloatArray]:
    """The spread's grid (state,), the states that can follow each (state, near), and their
    probabilities.

    Normal densities on an even grid are the trapezoidal rule: for smooth values its error falls
    like exp(-2π² / spacing²), and at the kinks where the best trade changes like spacing².
    """
    step = spacing * market.sigma_spread
    half = int(np.ceil(SPREAD_REACH * market.stationary_spread / step))
    place = np.arange(-half, half + 1)
    n_near = min(len(place), 2 * int(np.ceil(SHOCK_REACH / spacing)) + 1)
    expected = np.rint(market.persistence * place).astype(np.int64) + half
    first = np.clip(expected - n_near // 2, 0, len(place) - n_near)
    near: IntArray = first[:, None] + np.arange(n_near)
    shock = spacing * (place[near] - market.persistence * place[:, None])
    density = np.exp(-0.5 * shock**2)
    spread: FloatArray = np.asarray(step * place, dtype=np.float64)
    return spread, near, density / np.sum(density, axis=1, keepdims=True)


def _noisy_chain(
    states: FloatArray, mean: FloatArray, sigma: float, transition: FloatArray, n_nodes: int
) -> Chain:
    """Returns with a mean (state, asset) set by the state, plus noise that does not move the
    state.
    """
    nodes, weights = _normal_nodes(n_nodes, mean.shape[1])
    return Chain(
        states=states,
        probability=np.tile(weights, (len(mean), 1)),
        log_return=mean[:, None, :] + sigma * nodes,
        next_state=np.repeat(transition[:, None, :], len(nodes), axis=1),
    )


def _normal_nodes(n: int, dimensions: int) -> tuple[FloatArray, FloatArray]:
    """Gauss-Hermite nodes (node, dimension) and probabilities (node,) of independent standard
    normals.
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(n)
    all_nodes = np.array(list(product(nodes, repeat=dimensions)))
    all_weights = np.prod(np.array(list(product(weights, repeat=dimensions))), axis=1)
    return all_nodes, all_weights / np.sum(all_weights)


def _normal_cell_means(n: int) -> FloatArray:
    """Means of a standard normal in `n` cells of equal probability: unlike Gauss nodes they forgive
    kinks.
    """
    normal = NormalDist()
    density = [normal.pdf(normal.inv_cdf(i / n)) for i in range(1, n)]
    return -n * np.diff([0.0, *density, 0.0])
