"""What the best trader of a synthetic market earns: expected log growth per bar, with a stated tolerance.

The trader sees the market's state at each close, trades at that price for a proportional cost, starts in cash and is marked to
market at the end. Weights are long only, or Σ|w| ≤ 1 with `shorts`. The cost and drift of weights are those of
`weight_grid.py`. Random markets give the long-run average; known paths give the growth over the path divided by its bars.

A tolerance is measured, not promised: the change from the next coarser discretisation (weights, noise, state), plus half the
width of the iteration's bounds. This file knows nothing of agents, and nothing of costs that are not proportional.
"""

from collections.abc import Callable
from functools import singledispatch
from itertools import product
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from flatout.bars.panel import FloatArray
from flatout.bars.synthetic import (
    MeanRevertingPair,
    OneJump,
    OracleFeature,
    PlantedSignal,
    RandomWalk,
    Sine,
    SyntheticMarket,
)
from flatout.errors import RulesError
from flatout.evaluation.weight_grid import (
    Chain,
    IntArray,
    WeightGrid,
    corners,
    drift,
    log_after_trade,
    model,
    solve,
    weight_grid,
)

DEFAULT_TOLERANCE = 1e-6  # log growth per bar
MAX_LEVELS = 5  # of fineness; each doubles the grid of weights


class ChainPolicy(NamedTuple):
    """Trade from the nearest grid point to its target; a point that is its own target means hold."""

    states: FloatArray  # (state, asset or 1): signal levels, spread or next return
    points: FloatArray  # (point, asset): weights
    target: IntArray  # (state, point)


class PathPolicy(NamedTuple):
    """Weights to hold over each step of a known path."""

    weights: FloatArray  # (time - 1,)


class Optimum(NamedTuple):
    """The best expected log growth per bar is value_per_bar ± tolerance."""

    value_per_bar: float
    tolerance: float
    policy: ChainPolicy | PathPolicy


class Discretisation(NamedTuple):
    """A market's chain at one fineness, with the grid of weights and the states' meaning."""

    chain: Chain
    grid: WeightGrid
    states: FloatArray


def share_of_optimum(achieved_per_bar: float, best: Optimum) -> float:
    """Which part of the best growth was achieved; 1 is all of it."""
    if best.value_per_bar <= best.tolerance:
        raise RulesError(
            f"the best growth is {best.value_per_bar:g} ± {best.tolerance:g} per bar: there is nothing to have a share of"
        )
    return achieved_per_bar / best.value_per_bar


@singledispatch
def optimum(
    market: SyntheticMarket, cost: float, shorts: bool = False, tolerance: float = DEFAULT_TOLERANCE
) -> Optimum:
    """The best expected log growth per bar in `market`, at `cost` per traded notional (10 bps = 0.001)."""
    raise RulesError(f"no optimum is known for {type(market).__name__}: register one with `optimum.register`")


@optimum.register
def _(market: RandomWalk, cost: float, shorts: bool = False, tolerance: float = DEFAULT_TOLERANCE) -> Optimum:
    """Zero, by Jensen: E log(1 + w·R) ≤ log(1 + w·E R) = 0 for any weights. Hence one asset stands for all."""

    def at(level: int) -> Discretisation:
        nodes, weights = _normal_nodes(5 + 2 * level, 1)
        chain = _noisy_chain(np.array([[market.drift]]), market.sigma, np.ones((1, 1)), nodes, weights)
        return Discretisation(chain, weight_grid(1, 20 * 2**level, shorts), np.zeros((1, 1)))

    return _refine(at, cost, tolerance)


@optimum.register
def _(market: PlantedSignal, cost: float, shorts: bool = False, tolerance: float = DEFAULT_TOLERANCE) -> Optimum:
    """The chain of the signals is the market's own; only noise and weights are discretised."""
    if market.n_assets > 2:
        raise RulesError(f"{market.n_assets} assets: the optimum is computed for one or two, more take too many states")
    levels = np.array(list(product(market.levels, repeat=market.n_assets)))
    transition = market.transition
    if market.n_assets == 2:
        transition = np.kron(transition, transition)

    def at(level: int) -> Discretisation:
        nodes, weights = _normal_nodes(3 + 2 * level, market.n_assets)
        chain = _noisy_chain(market.strength * levels, market.sigma, transition, nodes, weights)
        steps = (20 if market.n_assets == 1 else 10) * 2**level
        return Discretisation(chain, weight_grid(market.n_assets, steps, shorts), levels)

    return _refine(at, cost, tolerance)


@optimum.register
def _(market: MeanRevertingPair, cost: float, shorts: bool = False, tolerance: float = DEFAULT_TOLERANCE) -> Optimum:
    """The spread is put on an even grid, the common factor is integrated over."""

    def at(level: int) -> Discretisation:
        spread, chain = _pair_chain(market, spacing=1.25 * 0.8**level, nodes=3)
        return Discretisation(chain, weight_grid(2, 10 * 2**level, shorts), spread[:, None])

    return _refine(at, cost, tolerance)


@optimum.register
def _(market: OracleFeature, cost: float, shorts: bool = False, tolerance: float = DEFAULT_TOLERANCE) -> Optimum:
    """The state is the next return, drawn anew each bar; each asset's is its own, so one asset only."""
    if market.n_assets > 1:
        raise RulesError(f"{market.n_assets} assets: the optimum of the oracle market is computed for one")

    def at(level: int) -> Discretisation:
        known = market.drift + market.sigma * _normal_cell_means(32 * 2**level)
        n = len(known)
        chain = Chain(np.ones((n, 1)), known[:, None, None], np.full((n, 1, n), 1 / n))
        return Discretisation(chain, weight_grid(1, 10 * 2**level, shorts), known[:, None])

    return _refine(at, cost, tolerance)


@optimum.register(Sine)
@optimum.register(OneJump)
def _(
    market: Sine | OneJump, cost: float, shorts: bool = False, tolerance: float = DEFAULT_TOLERANCE
) -> Optimum:
    """The path is known; all assets move alike, so one stands for all."""
    return optimum_on_path(market.panel().close[:, 0], cost, shorts, tolerance)


def optimum_on_path(
    close: FloatArray, cost: float, shorts: bool = False, tolerance: float = DEFAULT_TOLERANCE
) -> Optimum:
    """The best growth per bar of a trader who knows the whole path of one asset's closes, (time,)."""
    if close.ndim != 1 or len(close) < 2 or not np.all(close > 0):
        raise RulesError(f"a path is two or more positive closes of one asset, not an array of shape {close.shape}")
    log_return = np.diff(np.log(close))
    if not shorts:
        return _all_or_nothing(log_return, cost)
    previous = _path_on_grid(log_return, cost, 20)
    for steps in (40, 80, 160, 320):
        value, weights = _path_on_grid(log_return, cost, steps)
        reached = abs(value - previous[0])
        if reached <= tolerance:
            return Optimum(value, reached, PathPolicy(weights))
        previous = value, weights
    raise _not_reached(tolerance, reached)


def _all_or_nothing(log_return: FloatArray, cost: float) -> Optimum:
    """Exact for long-only weights: what a unit of cash or of stock can become does not depend on the other units, so each goes
    its own best way, and all units of a kind go the same way.
    """
    buy, sell = -np.log1p(cost), np.log1p(-cost)
    cash = stock = 0.0
    invested = np.empty((len(log_return), 2), dtype=np.bool_)  # after the trade, from cash and from stock
    for t in range(len(log_return) - 1, -1, -1):
        stay, ride = cash, stock + log_return[t]
        invested[t] = ride + buy > stay, ride >= stay + sell
        cash, stock = max(stay, ride + buy), max(ride, stay + sell)
    weights = np.zeros(len(log_return))
    for t in range(len(weights)):
        weights[t] = invested[t, int(weights[t - 1]) if t else 0]
    rounding = float(np.finfo(np.float64).eps * (1 + np.sum(np.abs(log_return))))
    return Optimum(float(cash) / len(weights), rounding, PathPolicy(weights))


def _path_on_grid(log_return: FloatArray, cost: float, steps: int) -> tuple[float, FloatArray]:
    """Backward induction over weights in [-1, 1]; a short drifts off its weight, so no few positions suffice."""
    grid = weight_grid(1, steps, shorts=True)
    trade = log_after_trade(grid.points[:, None], grid.points[None], cost)
    growth, drifted = drift(grid.points, log_return[:, None, None], cost)
    index, share = corners(grid, drifted)
    value, target = np.zeros(len(grid.points)), np.empty(growth.shape, dtype=np.int64)
    for t in range(len(log_return) - 1, -1, -1):
        after = trade + growth[t] + np.sum(value[index[t]] * share[t], axis=-1)
        target[t] = np.argmax(after, axis=1)
        value = np.take_along_axis(after, target[t][:, None], axis=1)[:, 0]
    return float(value[grid.cash]) / len(log_return), _follow(grid, target, drifted)


def _follow(grid: WeightGrid, target: IntArray, drifted: FloatArray) -> FloatArray:
    """The weights that the targets lead through, from cash; drifted weights are taken to the nearest point."""
    weights, at = np.empty(len(target)), grid.cash
    for t in range(len(target)):
        at = int(target[t, at])
        weights[t] = grid.points[at, 0]
        at = int(np.argmin(np.abs(grid.points[:, 0] - drifted[t, at, 0])))
    return weights


def _refine(at: Callable[[int], Discretisation], cost: float, tolerance: float) -> Optimum:
    """Ever finer discretisations until two in a row agree."""
    previous = np.inf
    for level in range(MAX_LEVELS):
        chain, grid, states = at(level)
        low, high, target = solve(model(chain, grid, cost), tolerance / 4)
        value = 0.5 * (low + high)
        reached = abs(value - previous) + 0.5 * (high - low)
        if reached <= tolerance:
            return Optimum(value, reached, ChainPolicy(states, grid.points, target))
        previous = value
    raise _not_reached(tolerance, reached)


def _not_reached(asked: float, reached: float) -> RulesError:
    return RulesError(f"tolerance {asked:g} per bar was asked, {reached:g} was reached: ask for that or more")


def _normal_nodes(n: int, dimensions: int) -> tuple[FloatArray, FloatArray]:
    """Gauss-Hermite nodes (node, dimension) and probabilities (node,) of independent standard normals."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(n)
    all_nodes = np.array(list(product(nodes, repeat=dimensions)))
    all_weights = np.prod(np.array(list(product(weights, repeat=dimensions))), axis=1)
    return all_nodes, all_weights / np.sum(all_weights)


def _normal_cell_means(n: int) -> FloatArray:
    """Means of a standard normal in `n` cells of equal probability: unlike nodes, they integrate kinks well."""
    normal = NormalDist()
    edges = [normal.inv_cdf(i / n) for i in range(1, n)]
    density = np.array([0.0, *(normal.pdf(edge) for edge in edges), 0.0])
    return -n * np.diff(density)


def _noisy_chain(
    mean: FloatArray, sigma: float, transition: FloatArray, nodes: FloatArray, weights: FloatArray
) -> Chain:
    """Returns of a mean (state, asset) that the state sets, plus independent noise that does not move the state."""
    n_states, n_branches = len(mean), len(nodes)
    return Chain(
        probability=np.tile(weights, (n_states, 1)),
        log_return=mean[:, None, :] + sigma * nodes,
        next_state=np.repeat(transition[:, None, :], n_branches, axis=1),
    )


def _pair_chain(market: MeanRevertingPair, spacing: float, nodes: int) -> tuple[FloatArray, Chain]:
    """Spread grid (state,) in steps of `spacing` innovations, and the chain on it.

    Even steps and normal densities are the trapezoidal rule, whose error for a normal falls like exp(-2π² / spacing²).
    """
    step = spacing * market.sigma_spread
    half = int(np.ceil(5 * market.stationary_spread / step))
    spread = step * np.arange(-half, half + 1)
    n_near = min(len(spread), 2 * int(np.ceil(5.5 / spacing)) + 1)
    expected = np.searchsorted(spread, market.persistence * spread)
    first = np.clip(expected - n_near // 2, 0, len(spread) - n_near)
    ahead = first[:, None] + np.arange(n_near)  # (state, near): which states can follow
    z = (spread[ahead] - market.persistence * spread[:, None]) / market.sigma_spread
    density = np.exp(-0.5 * z**2)
    density /= np.sum(density, axis=1, keepdims=True)
    factor, weights = _normal_nodes(nodes, 1)
    common = market.drift + market.sigma_common * factor[:, 0]
    half_change = 0.5 * (spread[ahead] - spread[:, None])[:, :, None]
    log_return = np.stack([common + half_change, common - half_change], axis=-1)
    n_states, n_branches = len(spread), n_near * nodes
    return spread, Chain(
        probability=(density[:, :, None] * weights).reshape(n_states, n_branches),
        log_return=log_return.reshape(n_states, n_branches, 2),
        next_state=np.repeat(np.eye(n_states)[ahead], nodes, axis=1),
    )
