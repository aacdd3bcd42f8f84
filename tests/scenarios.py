"""Random markets for the tests: bars with gaps and missing rows, and rules that all bite."""

from typing import Any, NamedTuple

import numpy as np

from flatout.arrays import map_leaves
from flatout.bars.panel import Panel
from flatout.market.rules import OFF, Costs, Limits, RewardWeights, Rules, Segments

# operations of a bar along the longest chain: the order, its cuts, the fills, the stop, the mark
BAR_ROUNDINGS = 100


class Path(NamedTuple):
    """A random market for a batch of accounts: (step, asset, account) each."""

    mark: np.ndarray
    bars: np.ndarray  # (step, 6, asset, account)
    orders: np.ndarray


def random_path(
    rng: np.random.Generator, steps: int, accounts: int, assets: int, order_size: float = 0.4
) -> Path:
    """Independent prices, 1 % of the bars not tradable, thin volume, orders up to `order_size` of
    the starting capital.
    """
    shape = (steps + 1, assets, accounts)
    close = np.exp(np.cumsum(rng.normal(0, 0.02, shape), axis=0)) * rng.uniform(
        0.1, 50_000, (assets, accounts)
    )
    open_ = np.concatenate([close[:1], close[:-1]]) * np.exp(rng.normal(0, 0.01, shape))
    high = np.maximum(open_, close) * np.exp(np.abs(rng.normal(0, 0.01, shape)))
    low = np.minimum(open_, close) * np.exp(-np.abs(rng.normal(0, 0.01, shape)))
    volume = np.exp(rng.normal(0.5, 1.5, shape)) / close * (rng.random(shape) > 0.01)
    impact = 0.02 / np.sqrt(np.where(volume > 0, volume, 1.0)) * (volume > 0)
    bars = np.stack([x[1:] for x in (open_, high, low, close, volume, impact)], axis=1)
    orders = rng.uniform(-order_size, order_size, (steps, assets, accounts)) * (
        rng.random((steps, assets, accounts)) > 0.3
    )
    return Path(close[:-1], bars, orders)


def all_rules(
    assets: int, prices: np.ndarray, shorts: float = 0.3, **changes: Any
) -> tuple[Costs, Limits]:
    """Costs and limits with every rule switched on; `prices` (asset,) scale the lots."""
    each = np.ones((assets, 1))
    costs = Costs(
        tier_volume=np.array([0.0, 2.0, 5.0, 20.0]),
        maker_fee=np.array([0.0060, 0.0040, 0.0025, 0.00125]),
        taker_fee=np.array([0.0120, 0.0080, 0.0050, 0.0025]),
        maker_share=np.asarray(0.2),
        volume_memory=np.asarray(0.98),
        half_spread=2e-4 * each,
        impact=0.5 * each,
        borrow=np.asarray(1e-5),
    )
    limits = Limits(
        min_notional=0.01 * each,
        lot_step=0.002 / prices.reshape(-1, 1),
        max_weight=np.linspace(0.25, 0.5, assets)[:, None],
        max_short_weight=shorts * each,
        gross_limit=np.asarray(1.2 if shorts else 1.0),
        reserve=np.asarray(0.05),
        participation=0.1 * each,
        trailing_stop=np.linspace(0.03, 0.08, assets)[:, None],
        cooldown_bars=np.linspace(2, 5, assets).round()[:, None],
        max_held_bars=np.linspace(5, 12, assets).round()[:, None],
        forced_share=0.1 * each,
        trade_size=np.asarray(0.3),
        ruin=np.asarray(0.05),
    )
    return costs._replace(
        **{k: v for k, v in changes.items() if k in Costs._fields}
    ), limits._replace(**{k: v for k, v in changes.items() if k in Limits._fields})


def free_market(assets: int) -> tuple[Costs, Limits]:
    """No costs and no limits: what remains is arithmetic."""
    each, none = np.ones((assets, 1)), np.zeros((assets, 1))
    zero = np.asarray(0.0)
    costs = Costs(np.zeros(1), np.zeros(1), np.zeros(1), zero, np.asarray(0.99), none, none, zero)
    limits = Limits(
        none,
        none,
        OFF * each,
        none,
        np.asarray(OFF),
        zero,
        OFF * each,
        OFF * each,
        none,
        OFF * each,
        none,
        np.asarray(1.0),
        zero,
    )
    return costs, limits


def reward_weights() -> RewardWeights:
    """Every term counts."""
    return RewardWeights(*(np.asarray(w) for w in (1.0, 0.5, 0.1, 0.2, 0.05, 0.2, 2.0, 0.98, 0.1)))


def whole_tape(n_bars: int, first: int = 0, length: float = OFF) -> Segments:
    """One segment over all bars."""
    return Segments(
        np.array([first], np.int32), np.array([n_bars], np.int32), np.asarray(length, np.int32)
    )


def rules_of(
    assets: int, prices: np.ndarray, n_bars: int, length: float = OFF, shorts: float = 0.3
) -> Rules:
    """All rules on, over the whole tape."""
    return Rules(
        *all_rules(assets, prices, shorts), reward_weights(), whole_tape(n_bars, length=length)
    )


def cast(tree: Any, dtype: Any) -> Any:
    """The floating leaves of a tree of NumPy arrays in another precision."""
    return map_leaves(lambda x: x.astype(dtype) if np.issubdtype(x.dtype, np.floating) else x, tree)


def random_panel(seed: int, n_bars: int = 300, assets: int = 3, gaps: bool = True) -> Panel:
    """A panel with gaps between bars and, on request, bars that are missing."""
    rng = np.random.default_rng(seed)
    shape = (n_bars, assets)
    close = np.exp(np.cumsum(rng.normal(0, 0.01, shape), axis=0)) * rng.uniform(1, 1000, assets)
    open_ = np.concatenate([close[:1], close[:-1]]) * np.exp(rng.normal(0, 0.002, shape))
    high = np.maximum(open_, close) * np.exp(np.abs(rng.normal(0, 0.004, shape)))
    low = np.minimum(open_, close) * np.exp(-np.abs(rng.normal(0, 0.004, shape)))
    volume = rng.uniform(1e3, 1e5, shape)
    tradable = np.ones(shape, bool)
    if gaps:
        for row, asset in zip(
            rng.integers(1, n_bars, n_bars // 20),
            rng.integers(0, assets, n_bars // 20),
            strict=True,
        ):
            tradable[row, asset] = False
            volume[row, asset] = 0.0
    time = np.datetime64("2021-01-01", "us") + np.arange(n_bars) * np.timedelta64(3600, "s")
    symbols = tuple(f"S{i:02d}" for i in range(assets))
    return Panel(symbols, time, 3600, open_, high, low, close, volume, tradable)
