"""What the best trader of a synthetic market earns: expected log growth per bar, with a stated
tolerance.

The trader sees the market's state at each close, trades at that price for a proportional cost,
starts in cash and is marked to market at the end. Weights are long only, or Σ|w| ≤ 1 with `shorts`;
how trades are paid and weights drift stands in `weight_grid.py`. Random markets give the long-run
average per bar; a known path gives its best growth divided by its steps, one fewer than its bars:
nothing can be held over the first.

The tolerance is measured, not promised: three discretisations or more, ever finer in weights, noise
and state, and from them twice the larger of the last change and half the one before, plus half the
width of the iteration's bounds. If errors only halve each time, that is twice the error; if two
values agree by accident, the third tells. This file knows nothing of agents, and of no other costs.
"""

from collections.abc import Callable
from functools import singledispatch
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
from oracles.chains import Chain, IntArray, oracle_chain, pair_chain, signal_chain, walk_chain
from oracles.weight_grid import (
    WeightGrid,
    check_cost,
    corners,
    drift,
    log_after_trade,
    prepare,
    solve,
    weight_grid,
)

TOLERANCE = 1e-6  # log growth per bar
PAIR_TOLERANCE = 5e-6  # the pair's states are many: finer costs minutes
SAFETY = 2.0  # tolerance over estimated error


class ChainPolicy(NamedTuple):
    """Trade from the nearest grid point to its target; a point that is its own target means
    hold.
    """

    states: FloatArray  # (state, feature): signal levels, spread or next return
    points: FloatArray  # (point, asset): weights
    target: IntArray  # (state, point)


class PathPolicy(NamedTuple):
    """Weights to trade to before each step of a known path."""

    weights: FloatArray  # (time - 1,)


class Optimum(NamedTuple):
    """The best expected log growth per bar is value_per_bar ± tolerance."""

    value_per_bar: float
    tolerance: float
    policy: ChainPolicy | PathPolicy


def share_of_optimum(achieved_per_bar: float, best: Optimum) -> float:
    """Which part of the best growth was achieved; 1 is all of it."""
    if best.value_per_bar <= best.tolerance:
        raise RulesError(
            f"the best growth is {best.value_per_bar:g} ± {best.tolerance:g} per bar, which may "
            "as well be zero: there is nothing to have a share of"
        )
    return achieved_per_bar / best.value_per_bar


@singledispatch
def optimum(
    market: SyntheticMarket, cost: float, shorts: bool = False, tolerance: float = TOLERANCE
) -> Optimum:
    """The best expected log growth per bar in `market`, at `cost` per traded notional (10 bps =
    0.001).
    """
    raise RulesError(
        f"no optimum is known for {type(market).__name__}: add one with `optimum.register`"
    )


@optimum.register
def _(
    market: RandomWalk, cost: float, shorts: bool = False, tolerance: float = TOLERANCE
) -> Optimum:
    # E log(1 + w·R) ≤ log(1 + w·E R) = 0 for any weights of any number of assets: one asset stands
    # for all.
    def at(level: int) -> Optimum:
        grid = weight_grid(1, 20 * 2**level, shorts)
        return _on_grid(walk_chain(market, 5 + 2 * level), grid, cost, tolerance / 4)

    return _refine(at, tolerance, levels=5)


@optimum.register
def _(
    market: PlantedSignal, cost: float, shorts: bool = False, tolerance: float = TOLERANCE
) -> Optimum:
    if market.n_assets > 2:
        raise RulesError(
            f"{market.n_assets} assets have too many states: the optimum is for one or two"
        )
    coarsest, levels = (20, 6) if market.n_assets == 1 else (5, 4)

    def at(level: int) -> Optimum:
        grid = weight_grid(market.n_assets, coarsest * 2**level, shorts)
        return _on_grid(signal_chain(market, 3 + 2 * level), grid, cost, tolerance / 4)

    return _refine(at, tolerance, levels)


@optimum.register
def _(
    market: MeanRevertingPair, cost: float, shorts: bool = False, tolerance: float = PAIR_TOLERANCE
) -> Optimum:
    # Kinks in the value ask for a step that is small against the spread's long-run deviation, and
    # the trapezoidal rule for one that is small against its shocks.
    step = min(0.25 * market.stationary_spread / market.sigma_spread, 0.8)

    def at(level: int) -> Optimum:
        grid = weight_grid(2, 3 * 2**level, shorts)
        return _on_grid(pair_chain(market, step * 0.7**level, n_nodes=3), grid, cost, tolerance / 4)

    return _refine(at, tolerance, levels=3)


@optimum.register
def _(
    market: OracleFeature, cost: float, shorts: bool = False, tolerance: float = TOLERANCE
) -> Optimum:
    if market.n_assets > 1:
        raise RulesError(
            f"{market.n_assets} assets have too many states: the oracle's optimum is for one"
        )

    def at(level: int) -> Optimum:
        grid = weight_grid(1, 10 * 2**level, shorts)
        return _on_grid(oracle_chain(market, 32 * 2**level), grid, cost, tolerance / 4)

    return _refine(at, tolerance, levels=5)


@optimum.register(Sine)
@optimum.register(OneJump)
def _(
    market: Sine | OneJump, cost: float, shorts: bool = False, tolerance: float = TOLERANCE
) -> Optimum:
    # All assets of these markets move alike, so one stands for all.
    return optimum_on_path(market.panel().close[:, 0], cost, shorts, tolerance)


def optimum_on_path(
    close: FloatArray, cost: float, shorts: bool = False, tolerance: float = TOLERANCE
) -> Optimum:
    """The best growth per step of a trader who knows all closes (time,) of one asset beforehand."""
    if close.ndim != 1 or len(close) < 2 or not np.all((close > 0) & (close < np.inf)):
        raise RulesError(
            f"a path is two or more positive closes of one asset; shape {close.shape} was given"
        )
    check_cost(cost)
    log_return = np.diff(np.log(close))
    if not shorts:
        return _all_or_nothing(log_return, cost)
    return _refine(
        lambda level: _path_on_grid(log_return, cost, 20 * 2**level), tolerance, levels=5
    )


def _all_or_nothing(log_return: FloatArray, cost: float) -> Optimum:
    """The exact long-only optimum: always all in or all out.

    What a unit of cash, or of stock, can become does not depend on the other units held. So each
    goes its own best way, and units of a kind go the same way.
    """
    buy, sell = -np.log1p(cost), np.log1p(-cost)
    cash = stock = 0.0
    invest = np.empty(
        (len(log_return), 2), dtype=np.bool_
    )  # whether to be in stock, from cash and from stock
    for t in reversed(range(len(log_return))):
        out, ride = cash, stock + float(log_return[t])
        invest[t] = ride + buy > out, ride > out + sell
        cash, stock = max(out, ride + buy), max(ride, out + sell)
    weights = np.zeros(len(log_return))
    for t in range(len(weights)):
        weights[t] = invest[t, int(weights[t - 1]) if t else 0]
    return Optimum(cash / len(weights), _rounding(log_return), PathPolicy(weights))


def _rounding(log_return: FloatArray) -> float:
    return float(np.finfo(np.float64).eps * (1 + np.sum(np.abs(log_return))))


def _path_on_grid(log_return: FloatArray, cost: float, steps: int) -> Optimum:
    """Backward induction over weights in [-1, 1]: shorts drift, so a few positions do not
    suffice.
    """
    grid = weight_grid(1, steps, shorts=True)
    trade = log_after_trade(grid.points[:, None], grid.points[None], cost)
    growth, drifted = drift(grid.points, log_return[:, None, None], cost)
    index, share = corners(grid, drifted)
    value, target = np.zeros(len(grid.points)), np.empty(growth.shape, dtype=np.int64)
    for t in reversed(range(len(log_return))):
        after = trade + growth[t] + np.sum(value[index[t]] * share[t], axis=-1)
        target[t] = np.argmax(after, axis=1)
        value = np.take_along_axis(after, target[t][:, None], axis=1)[:, 0]
    policy = PathPolicy(_follow(grid, target, drifted))
    return Optimum(float(value[grid.cash]) / len(log_return), _rounding(log_return), policy)


def _follow(grid: WeightGrid, target: IntArray, drifted: FloatArray) -> FloatArray:
    """The weights that the targets lead through from cash; drifted weights are taken to the nearest
    point.
    """
    weights, at = np.empty(len(target)), grid.cash
    for t in range(len(target)):
        at = int(target[t, at])
        weights[t] = grid.points[at, 0]
        at = int(np.argmin(np.abs(grid.points[:, 0] - drifted[t, at, 0])))
    return weights


def _on_grid(chain: Chain, grid: WeightGrid, cost: float, precision: float) -> Optimum:
    """The chain's optimum on this grid; its tolerance knows nothing of discretisation."""
    check_cost(cost)
    low, high, target = solve(prepare(chain, grid, cost), precision)
    return Optimum(
        0.5 * (low + high), 0.5 * (high - low), ChainPolicy(chain.states, grid.points, target)
    )


def _refine(at: Callable[[int], Optimum], tolerance: float, levels: int) -> Optimum:
    """Ever finer discretisations until the tolerance is reached."""
    values: list[float] = []
    for level in range(levels):
        value, own_error, policy = at(level)
        values.append(value)
        reached = SAFETY * _discretisation_error(values) + own_error
        if reached <= tolerance:
            return Optimum(value, reached, policy)
    raise RulesError(
        f"tolerance {tolerance:g} per bar was asked, {reached:g} was reached: ask for that or more"
    )


def _discretisation_error(values: list[float]) -> float:
    if len(values) < 3:
        return np.inf
    return max(abs(values[-1] - values[-2]), 0.5 * abs(values[-2] - values[-3]))
