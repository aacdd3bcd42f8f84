"""`Tape`: bars and features as the arrays that the kernel reads, one entry per decision.

Entry t holds what is known at the close of bar t (`mark`, features) and the bar t + 1 that an order
made then will meet. The last one has no next bar and is never traded. Prices before a symbol's
first bar do not exist; the tape writes 1 there, and zero volume keeps the account from ever owning
such an asset.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flatout.arrays import Array, Namespace
from flatout.bars.panel import BoolArray, FloatArray, Panel
from flatout.errors import RulesError
from flatout.market.execute import Bar

VOLATILITY_BARS = 48


class Tape(NamedTuple):
    """The market's arrays; nothing in it depends on an account."""

    # (7 * asset + 1, time): mark; open high low close volume impact_rate of the next bar; its
    # benchmark
    columns: Array
    features: Array  # (time, asset * feature) of bar t


class Meeting(NamedTuple):
    """What an order made at the close of bar t meets."""

    mark: Array  # (asset, ...) closes of bar t
    bar: Bar  # bar t + 1
    benchmark: Array  # (...) log return of bar t + 1 when all living assets are held equally


def make_tape(panel: Panel, features: NDArray[np.float32], capital: float) -> Tape:
    """The tape of a panel and its (time, asset, feature) features, for accounts that start with
    this capital (quote currency).
    """
    if features.shape[:2] != panel.close.shape:
        raise RulesError(
            f"features are for {features.shape[0]} bars x {features.shape[1]} assets, the panel "
            f"has {panel.n_bars} x {panel.n_assets}: transform this panel with the recipe"
        )
    if not np.isfinite(features).all():
        raise RulesError(
            "features hold NaN or infinite values: transform them with a fitted recipe, which "
            "fills its warm-up"
        )
    volume = np.where(panel.tradable, panel.volume, 0.0) / capital
    volatility = trailing_volatility(panel.close)
    opens, highs, lows, closes = (
        np.where(np.isfinite(p), p, 1.0) for p in (panel.open, panel.high, panel.low, panel.close)
    )
    later_volume = shift_back(volume)
    later = [*(shift_back(prices) for prices in (opens, highs, lows, closes)), later_volume]
    # The impact of bar t + 1 is priced with the volatility known at the close of t.
    impact = np.where(
        later_volume > 0, volatility / np.sqrt(np.where(later_volume > 0, later_volume, 1.0)), 0.0
    )
    benchmark = shift_back(equal_weight_log_return(panel))[:, None]
    columns = np.ascontiguousarray(np.concatenate([closes, *later, impact, benchmark], axis=1).T)
    return Tape(columns, features.reshape(panel.n_bars, -1))


def join_tapes(tapes: Sequence[Tape]) -> tuple[Tape, list[int]]:
    """Tapes one after another as one, and the bar at which each begins: accounts on different tapes
    share an array.

    Segments keep episodes on their own tape.
    """
    lengths = [len(tape.features) for tape in tapes]
    columns, features = (
        np.concatenate(parts, axis=axis)
        for parts, axis in zip(zip(*tapes, strict=True), (1, 0), strict=True)
    )
    return Tape(columns, features), [sum(lengths[:k]) for k in range(len(tapes))]


def shift_back(column: FloatArray) -> FloatArray:
    """Row t shows row t + 1; the last row repeats itself."""
    return np.concatenate([column[1:], column[-1:]])


def log_returns(close: FloatArray) -> FloatArray:
    """Close to close: (time, asset); NaN for a symbol's first bar and before."""
    return np.diff(np.log(close), axis=0, prepend=np.nan)


def trailing_volatility(close: FloatArray) -> FloatArray:
    """Root mean square of the log returns that the last 48 bars hold, known at the close of each
    bar: (time, asset).
    """
    moves = log_returns(close)
    squares = trailing_sum(np.where(np.isfinite(moves), moves, 0.0) ** 2)
    return np.sqrt(np.maximum(squares, 0.0) / np.maximum(trailing_sum(np.isfinite(moves)), 1))


def trailing_sum(values: FloatArray | BoolArray) -> FloatArray:
    """Sum over the last 48 bars, fewer at the start."""
    sums = np.cumsum(values, axis=0, dtype=np.float64)
    earlier = np.concatenate([np.zeros((VOLATILITY_BARS, values.shape[1])), sums])[: len(sums)]
    return sums - earlier


def equal_weight_log_return(panel: Panel) -> FloatArray:
    """Log of the mean simple return of the assets that could be held over the bar: (time,).

    Those are alive at the close before it. An asset that has stopped trading stays for the two
    weeks after which it counts as dead, and its last price earns 0; then the others share what it
    had, which only a benchmark free of costs and of the market can do.
    """
    moves = log_returns(panel.close)
    alive = np.concatenate([panel.alive[:1], panel.alive[:-1]])
    held = np.isfinite(moves) & alive
    simple = np.expm1(np.where(held, moves, 0.0))
    return np.log1p(simple.sum(axis=1) / np.maximum(held.sum(axis=1), 1))


def meet(tape: Tape, t: Array, xp: Namespace) -> Meeting:
    """What orders made at the close of the bars t meet."""
    found = xp.take(tape.columns, xp.reshape(t, (-1,)), axis=1)
    found = xp.reshape(found, (found.shape[0], *t.shape))
    n = found.shape[0] // (1 + len(Bar._fields))
    mark, *bar = (found[k * n : (k + 1) * n, ...] for k in range(1 + len(Bar._fields)))
    return Meeting(mark, Bar(*bar), found[-1, ...])
