"""Experiments of an audit: does anything that the agent sees, earns or is scaled by depend on bars
that come later or that judge? Those bars are replaced by garbage, and nothing may change.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from flatout.bars.panel import PRICES, BoolArray, Panel
from flatout.evaluation.audit_accounts import traded_window
from flatout.evaluation.backtest import backtest
from flatout.evaluation.baselines import RandomTrader
from flatout.evaluation.finding import Finding
from flatout.features.recipe import FittedRecipe, Recipe, fit
from flatout.folds.blocks import list_rows
from flatout.folds.splits import Folds
from flatout.market.market import Market, build_market, recipe_of
from flatout.settings.tables import Settings

CUTS = 4  # bars after which the future is replaced
SPLITS = 4  # whose scalers are tried out
# forget within any embargo: what they leak does not come by memory
SHORT_MEMORY = ("return_1", "return_20")


def poison_rows(panel: Panel, rows: BoolArray, seed: int) -> Panel:
    """The same panel with garbage in some rows: valid bars that have nothing to do with the real
    ones. What does not exist stays so, and so does a symbol's first bar, which is its unit of
    money.
    """
    rng = np.random.default_rng(seed)
    exists = np.isfinite(panel.close)
    first = exists & (np.cumsum(exists, axis=0) == 1)
    where = rows[:, None] & exists & ~first
    shape = panel.close.shape
    open_, close = (np.exp(rng.normal(0, 2, shape)) for _ in range(2))
    garbage = {
        "open": open_, "close": close, "high": np.maximum(open_, close) * 1.1,
        "low": np.minimum(open_, close) / 1.1,
        "volume": np.exp(rng.normal(8, 2, shape)),
    }  # fmt: skip
    columns = {
        name: np.where(where, garbage[name], getattr(panel, name)) for name in (*PRICES, "volume")
    }
    extras = {
        name: np.where(rows[:, None], rng.normal(0, 10, shape), x)
        for name, x in panel.extras.items()
    }
    return replace(panel, **columns, extras=extras)  # type: ignore[arg-type]


def same_bits(a: Any, b: Any) -> bool:
    """Whether two arrays hold the same bits, NaN included."""
    return np.ascontiguousarray(a).tobytes() == np.ascontiguousarray(b).tobytes()


def rows_from(panel: Panel, cut: int) -> BoolArray:
    """(bar,) True for the bars from `cut` on."""
    return np.arange(panel.n_bars) >= cut


def check_features(market: Market, settings: Settings, seed: int) -> Finding:
    """Whether what the agent sees of a bar depends on later bars."""
    name, panel, fitted = "features do not see the future", market.panel, market.fitted
    warm = fitted.recipe.count_warmup(panel)
    rng = np.random.default_rng(seed)
    cuts = sorted(
        rng.choice(
            np.arange(warm + 1, panel.n_bars), min(CUTS, panel.n_bars - warm - 1), replace=False
        )
    )
    clean = features_of_tape(market)
    for cut in map(int, cuts):
        dirty_market = build_market(
            poison_rows(panel, rows_from(panel, cut), seed + cut), settings, fitted
        )
        dirty = features_of_tape(dirty_market)
        leaking = [
            n
            for k, n in enumerate(fitted.names)
            if not same_bits(clean[:cut, :, k], dirty[:cut, :, k])
        ]
        if leaking:
            early = np.argwhere((clean[:cut] != dirty[:cut]).any(axis=(1, 2)))
            bars = f", up to {cut - int(early[0, 0])} bars before" if len(early) else ""
            return Finding(
                name,
                False,
                f"{', '.join(leaking)} changed when bars from {cut} on were replaced{bars}",
            )
        # Indicators of larger bars notice whole ones only: the cut with most bars behind it tells.
        if cut == cuts[0] and same_bits(clean[cut:], dirty[cut:]):
            return Finding(
                name,
                False,
                f"no feature noticed that bars from {cut} on were replaced: they see nothing",
            )
        # Entry t of the tape holds the bar t + 1 that an order meets.
        if not same_bits(
            market.tape.columns[:, : cut - 1], dirty_market.tape.columns[:, : cut - 1]
        ):
            return Finding(
                name,
                False,
                f"prices or costs before bar {cut} changed when later bars were replaced",
            )
    return Finding(
        name,
        True,
        f"{len(fitted.names)} features and all costs are the same to the bit when bars after any "
        f"of {len(cuts)} random ones are garbage",
    )


def features_of_tape(market: Market) -> Any:
    """(time, asset, feature) as the tape holds them."""
    return market.tape.features.reshape(market.panel.n_bars, market.panel.n_assets, -1)


def check_accounts_see_no_future(market: Market, settings: Settings, seed: int) -> Finding:
    """Whether what an account earned by some bar depends on later bars."""
    name, (first, stop) = "accounts do not see the future", traded_window(market)
    cut = (first + stop) // 2 + 1
    dirty = build_market(
        poison_rows(market.panel, rows_from(market.panel, cut), seed), settings, market.fitted
    )
    trader = RandomTrader(period_seconds=market.panel.bar_seconds, seed=seed)
    a, b = (backtest(one, trader, first=first, stop=stop) for one in (market, dirty))
    known = cut - first  # rows of the equity up to and including bar cut - 1
    if not same_bits(a.equity[:known], b.equity[:known]):
        return Finding(
            name, False, f"equity before bar {cut} changed when later bars were replaced"
        )
    if same_bits(a.equity, b.equity) and np.any(a.turnover[known - 1 :]):
        return Finding(name, False, f"no equity changed when bars from {cut} on were replaced")
    return Finding(
        name,
        True,
        f"a random trader's equity is the same to the bit up to the bar before garbage ({cut})",
    )


def check_fill(settings: Settings) -> Finding:
    """Whether orders fill at prices that can still be had."""
    fill = settings.market.fill
    if fill == "same_close":
        return Finding(
            "orders fill later",
            False,
            "same_close fills at the price that was just seen: nobody can do so",
        )
    return Finding(
        "orders fill later",
        True,
        f"decided at a bar's close, filled at the {fill.replace('_', ' ')}",
    )


def check_scalers(panel: Panel, settings: Settings, folds: Folds, seed: int) -> Finding:
    """Whether a scaler learns from bars that judge."""
    name, recipe = "scalers learn from training bars only", recipe_of(settings.features)
    short = Recipe(SHORT_MEMORY, 1, recipe.scaler)
    chosen = np.unique(np.linspace(0, len(folds.splits) - 1, SPLITS).astype(int))
    for split in (folds.splits[k] for k in chosen):
        rows = list_rows(split.train)
        judged = np.zeros(panel.n_bars, bool)
        judged[list_rows(split.test)] = True
        later = rows_from(panel, int(rows[-1]) + 1)
        if scaler_moves(short, panel, garbage=judged, rows=rows, seed=seed) or (
            later.any() and scaler_moves(recipe, panel, garbage=later, rows=rows, seed=seed)
        ):
            return Finding(
                name,
                False,
                f"split {split.name}: statistics changed when bars that judge were replaced",
            )
    return Finding(
        name,
        True,
        f"statistics of {len(chosen)} splits are the same to the bit when test bars are garbage",
    )


def scaler_moves(recipe: Recipe, panel: Panel, garbage: BoolArray, rows: Any, seed: int) -> bool:
    """Whether garbage in some bars moves the scaler that is fitted on others."""
    fits: list[FittedRecipe] = [
        fit(recipe, bars, rows) for bars in (panel, poison_rows(panel, garbage, seed))
    ]
    return not same_bits(*(one.scaler.statistics for one in fits))
