"""Dynamic programming over portfolio weights: the best long-run log growth in a finite market.

The market has one or two assets. A trader sees the state, pays proportional costs to move to new
weights, earns the branch's returns and starts the next bar with the weights that these left.
Weights live on a lattice; between its points the value is interpolated linearly. This file does not
know where a chain comes from (`chains.py`), nor how fine chain and lattice ought to be
(`optimum.py`).

Costs. A trade from weights w of equity E to weights w' of equity E' costs `cost` per traded
notional, paid from equity: E' = E - cost · Σ|w'E' - wE|. With σ the signs of the trades this is
linear, E' = E (1 + cost σ·w) / (1 + cost σ·w'), and the right signs are those that give the
smallest E'. For one asset: (1 + cost w) / (1 + cost w') when buying, (1 - cost w) / (1 - cost w')
when selling.

Shorts. Σ|w| may not exceed 1. What drifts beyond it is scaled back pro rata at the bar's close, at
cost.
"""

from itertools import product
from typing import NamedTuple

import numpy as np

from flatout.bars.panel import FloatArray
from flatout.errors import RulesError
from oracles.chains import Chain, IntArray

EVALUATION_SWEEPS = 20  # cheap sweeps under one policy between two searches for a better one
MAX_SEARCHES = 5_000


class WeightGrid(NamedTuple):
    """Lattice of portfolio weights with Σ|w| ≤ 1."""

    points: FloatArray  # (point, asset)
    steps: int  # lattice steps between 0 and 1
    number: (
        IntArray  # (2 steps + 1, 2 steps + 1): which point it is; one asset uses the middle column
    )

    @property
    def cash(self) -> int:
        """The point without any position."""
        return int(self.number[self.steps, self.steps])


class Solution(NamedTuple):
    """The best growth per bar lies in [low, high] for this chain on this grid."""

    low: float
    high: float
    target: IntArray  # (state, point): the point to trade to


class Model(NamedTuple):
    """A chain on a grid, with all that does not change from sweep to sweep."""

    reward: FloatArray  # (state, point): expected log growth of holding the point for a bar
    next_state: FloatArray  # (state, branch, state)
    corner: IntArray  # (state, branch, point · corner): where the drifted weights lie
    # (state, branch, point, corner): probability of the branch x interpolation weight
    share: FloatArray
    trade: FloatArray  # (point, point): log growth of trading from row to column


def weight_grid(n_assets: int, steps: int, shorts: bool) -> WeightGrid:
    """All weights that are multiples of 1 / steps and obey the limits."""
    axis = np.arange(-steps, steps + 1)
    i, j = np.meshgrid(axis, axis, indexing="ij")
    allowed = np.abs(i) + np.abs(j) <= steps
    if not shorts:
        allowed &= (i >= 0) & (j >= 0)
    if n_assets == 1:
        allowed &= j == 0
    index = np.where(allowed, np.cumsum(allowed).reshape(allowed.shape) - 1, 0)
    points = np.stack([i[allowed], j[allowed]], axis=-1)[:, :n_assets] / steps
    return WeightGrid(points, steps, index)


def corners(grid: WeightGrid, weights: FloatArray) -> tuple[IntArray, FloatArray]:
    """Points around `weights` (..., asset) and their interpolation weights, both (..., asset + 1).

    Lattice squares are cut along lines of equal gross weight, so that no triangle crosses the edge
    Σ|w| = 1.
    """
    n_assets = weights.shape[-1]
    padded = np.concatenate([weights, np.zeros((*weights.shape[:-1], 2 - n_assets))], axis=-1)
    sign = np.where(padded < 0, -1, 1)
    scaled = np.abs(padded) * grid.steps
    base = np.floor(scaled).astype(np.int64)
    x, y = np.moveaxis(scaled - base, -1, 0)
    upper = x + y > 1
    share = [np.abs(1 - x - y), np.where(upper, 1 - y, x), np.where(upper, 1 - x, y)]
    offset = [(upper, upper), (1, 0), (0, 1)]
    steps_x, steps_y = np.moveaxis(base, -1, 0)
    sign_x, sign_y = np.moveaxis(sign, -1, 0)
    index = [_lookup(grid, sign_x * (steps_x + dx), sign_y * (steps_y + dy)) for dx, dy in offset]
    return np.stack(index[: n_assets + 1], axis=-1), np.stack(share[: n_assets + 1], axis=-1)


def _lookup(grid: WeightGrid, i: IntArray, j: IntArray) -> IntArray:
    """Corners beyond the lattice carry no weight; any valid point may stand for them."""
    inside = [np.clip(k, -grid.steps, grid.steps) + grid.steps for k in (i, j)]
    found: IntArray = grid.number[inside[0], inside[1]]
    return found


def check_cost(cost: float) -> None:
    """Refuse costs that are not a fraction of the traded notional."""
    if not 0 <= cost <= 0.5:
        raise RulesError(
            f"cost is {cost!r}; it is a fraction of the traded notional, from 0 to 0.5 (10 "
            f"bps = 0.001)"
        )


def log_after_trade(before: FloatArray, after: FloatArray, cost: float) -> FloatArray:
    """log(E' / E) of trading from weights `before` to `after`, both (..., asset)."""
    growth = [
        np.log1p(cost * (before @ np.array(signs))) - np.log1p(cost * (after @ np.array(signs)))
        for signs in product((-1.0, 1.0), repeat=before.shape[-1])
    ]
    smallest: FloatArray = np.min(np.stack(growth), axis=0)
    return smallest


def drift(
    weights: FloatArray, log_return: FloatArray, cost: float
) -> tuple[FloatArray, FloatArray]:
    """Log growth over a bar (...) and the weights after it (..., asset), scaled back to Σ|w| ≤
    1.
    """
    factor = 1 + np.sum(weights * np.expm1(log_return), axis=-1)
    if np.any(factor <= 0):
        raise RulesError(
            "a short can lose all equity within one bar: forbid shorts or lower the market's sigma"
        )
    drifted = weights * np.exp(log_return) / factor[..., None]
    inside = drifted / np.maximum(1.0, np.sum(np.abs(drifted), axis=-1, keepdims=True))
    return np.log(factor) + log_after_trade(drifted, inside, cost), inside


def prepare(chain: Chain, grid: WeightGrid, cost: float) -> Model:
    """Everything that value iteration needs, computed once."""
    growth, drifted = drift(grid.points, chain.log_return[:, :, None, :], cost)
    index, share = corners(grid, drifted)
    weighted = share * chain.probability[:, :, None, None]
    reward = np.einsum("kq,kqw->kw", chain.probability, growth)
    trade = log_after_trade(grid.points[:, None, :], grid.points[None, :, :], cost)
    return Model(reward, chain.next_state, index.reshape(*index.shape[:2], -1), weighted, trade)


def solve(model: Model, precision: float) -> Solution:
    """Modified policy iteration; stops when the bounds on the best growth per bar are `precision`
    apart.

    For any values v and their Bellman update Tv the best growth lies between min(Tv - v) and max(Tv
    - v), no matter how v was found.
    """
    value = np.zeros_like(model.reward)
    for _ in range(MAX_SEARCHES):
        better, target = _search(model, _holding_value(model, value))
        low, high = float(np.min(better - value)), float(np.max(better - value))
        if high - low <= precision:
            return Solution(low, high, target)
        value = _evaluate(model, better, target)
    raise RulesError(
        f"after {MAX_SEARCHES} searches the best growth is only known to lie in [{low:g}, "
        f"{high:g}]: ask for a larger tolerance"
    )


def _holding_value(model: Model, value: FloatArray) -> FloatArray:
    """(state, point): reward of a bar with these weights plus the expected value of where it
    leads.
    """
    ahead = model.next_state @ value  # (state, branch, point)
    reached = np.take_along_axis(ahead, model.corner, axis=2).reshape(model.share.shape)
    holding: FloatArray = model.reward + np.einsum("kqwc,kqwc->kw", reached, model.share)
    return holding


def _search(model: Model, holding: FloatArray) -> tuple[FloatArray, IntArray]:
    """The best trade of each (state, point): its value and the point it leads to."""
    value, target = np.empty_like(holding), np.empty(holding.shape, dtype=np.int64)
    for state, held in enumerate(holding):  # state by state: the matrix of all trades is large
        after = model.trade + held
        target[state] = np.argmax(after, axis=1)
        value[state] = np.take_along_axis(after, target[state][:, None], axis=1)[:, 0]
    return value, target


def _evaluate(model: Model, value: FloatArray, target: IntArray) -> FloatArray:
    """Some sweeps under a fixed policy, kept near zero by subtracting a common constant."""
    paid = np.take_along_axis(model.trade, target.T, axis=1).T
    for _ in range(EVALUATION_SWEEPS):
        value = paid + np.take_along_axis(_holding_value(model, value), target, axis=1)
        value = value - value[0, 0]
    return value
