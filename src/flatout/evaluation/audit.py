"""What a study on these bars would rest on, tried out before it runs: no leaks, a ledger that adds
up, usable bars.

Every finding comes from an experiment that could go wrong: bars are replaced by garbage, accounts
are traded and added up again. Of the hold-out only gaps and jumps are counted. Nothing is trained:
controls that need agents, a market without edge and one with tomorrow among the features, belong to
every study's end.
"""

import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from flatout.bars.check import SymbolReport, check_bars
from flatout.bars.panel import PRICES, BoolArray, FloatArray, Panel
from flatout.evaluation.accounts import Floats
from flatout.evaluation.backtest import Fills, History, backtest
from flatout.evaluation.baselines import BuyAndHold, Cash, Moment, RandomTrader
from flatout.evaluation.study_folds import FILL_DELAY, REWARD_HORIZON, make_study_folds
from flatout.features.recipe import FittedRecipe, Recipe, fit
from flatout.folds.blocks import list_rows
from flatout.folds.splits import Folds, Split, gap_lines
from flatout.market.execute import MOST_SLIPPAGE
from flatout.market.market import Market, build_market, recipe_of
from flatout.market.tape import VOLATILITY_BARS
from flatout.settings.tables import Settings

CUTS = 4  # bars after which the future is replaced
TRADED_BARS = 400  # on which accounts are tried out
SPLITS = 4  # whose scalers are tried out
SHORT_MEMORY = (
    "return_1",
    "return_20",
)  # forget within any embargo: what they leak does not come by memory
MOST_COMPARED = 100  # splits that are drawn a second time
EXACT = 1e-9  # of the capital
ROUNDING = 1e-12
MOST_MISSING, MOST_EMPTY, MOST_JUMPS = 0.05, 0.5, 1e-3  # shares of a symbol's bars


class Finding(NamedTuple):
    """One thing that was tried."""

    name: str
    passed: bool
    sentence: str
    details: tuple[str, ...] = ()


def audit(panel: Panel, settings: Settings, seed: int = 0) -> Iterator[Finding]:
    """All findings, one by one."""
    folds = make_study_folds(panel, settings)
    known = panel.rows(0, folds.cut)  # a sealed bar must not even reach an audit
    fitted = fit(recipe_of(settings.features), known, list_rows(folds.splits[0].train))
    market = build_market(known, settings, fitted)
    yield check_features(market, settings, seed)
    yield check_accounts_see_no_future(market, settings, seed)
    yield check_fill(settings)
    yield check_scalers(known, settings, folds, seed)
    yield check_folds(folds, settings)
    yield from check_ledger(market, settings, seed)
    yield check_quality(panel)


# --- leaks


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
    return np.ascontiguousarray(a).tobytes() == np.ascontiguousarray(b).tobytes()


def rows_from(panel: Panel, cut: int) -> BoolArray:
    """(bar,) True for the bars from `cut` on."""
    return np.arange(panel.n_bars) >= cut


def check_features(market: Market, settings: Settings, seed: int) -> Finding:
    """Whether what the agent sees of a bar depends on later bars."""
    name, panel, fitted = "features do not see the future", market.panel, market.fitted
    warm = fitted.recipe.warmup
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
        if same_bits(clean[cut:], dirty[cut:]):
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
        name, True, f"{len(fitted.names)} features and all costs are the same to the bit when "
                    f"bars after any of "
        f"{len(cuts)} random ones are garbage",
    )  # fmt: skip


def features_of_tape(market: Market) -> Any:
    """(time, asset, feature) as the tape holds them."""
    return market.tape.features.reshape(market.panel.n_bars, market.panel.n_assets, -1)


def traded_window(market: Market) -> tuple[int, int]:
    """The last bars that an account is tried out on."""
    warm, n_bars = market.fitted.recipe.warmup, market.panel.n_bars
    return max(warm, n_bars - TRADED_BARS), n_bars


def check_accounts_see_no_future(market: Market, settings: Settings, seed: int) -> Finding:
    """Whether what an account earned by some bar depends on later bars."""
    name, (first, stop) = "accounts do not see the future", traded_window(market)
    cut = (first + stop) // 2 + 1
    dirty = build_market(
        poison_rows(market.panel, rows_from(market.panel, cut), seed), settings, market.fitted
    )
    trader = RandomTrader(period_seconds=market.panel.bar_seconds, seed=seed)
    a, b = (backtest(one, trader, 1, first, stop) for one in (market, dirty))
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
        if scaler_moves(short, panel, judged, rows, seed) or (
            later.any() and scaler_moves(recipe, panel, later, rows, seed)
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


# --- folds


def check_folds(folds: Folds, settings: Settings) -> Finding:
    """Whether training stays away from what judges, bar by bar, and whether others draw the same
    splits.
    """
    name, lines = "folds keep their distance", tuple(gap_lines(folds))
    lookback = max(recipe_of(settings.features).warmup, VOLATILITY_BARS)
    if folds.purge < FILL_DELAY + REWARD_HORIZON or folds.embargo < lookback:
        sentence = (
            f"purge {folds.purge} and embargo {folds.embargo} are shorter than what "
            f"reaches across a boundary"
        )
        return Finding(name, False, sentence, lines)
    for split in folds.splits:
        if near := find_too_near(split, folds):
            return Finding(
                name,
                False,
                f"split {split.name} trains on bar {near[0]}, too near to a test",
                lines,
            )
    same = equals_purgedcv(folds)
    if same is False:
        return Finding(name, False, "purgedcv would train on other bars", lines)
    also = "; purgedcv draws the same bars" if same else ""
    sentence = (
        f"{len(folds.splits)} splits, purge {folds.purge}, embargo {folds.embargo} bars, "
        f"no overlap{also}"
    )
    return Finding(name, True, sentence, lines)


def find_too_near(split: Split, folds: Folds) -> list[int]:
    """Training bars within reach of a test, of the hold-out, or before the features are warm."""
    forbidden = np.zeros(folds.n_bars, bool)
    forbidden[: folds.first] = True
    for block in split.test:
        forbidden[max(block.first - folds.purge, 0) : block.stop + folds.embargo] = True
    if folds.hold_out.length:
        forbidden[folds.cut - folds.purge :] = True
    rows = list_rows(split.train)
    return [int(row) for row in rows[forbidden[rows]]]


def equals_purgedcv(folds: Folds) -> bool | None:
    """Whether purgedcv trains on the same bars; None where it is not installed or means something
    else.
    """
    comparable = (
        folds.kind in ("cpcv", "kfold")
        and folds.embargo >= folds.purge
        and len(folds.splits) <= MOST_COMPARED
    )
    if not comparable or importlib.util.find_spec("purgedcv") is None:
        return None
    import purgedcv

    n_bars = folds.cut - folds.first
    minute = np.timedelta64(60, "s")
    time = np.datetime64("2000-01-01", "ns") + np.arange(n_bars) * minute
    theirs = purgedcv.CombinatorialPurgedCV(
        n_splits=len(folds.groups), n_test_groups=len(folds.splits[0].test_groups),
        prediction_times=time,
        evaluation_times=time + (folds.purge + 1) * minute, embargo_observations=folds.embargo,
    )  # fmt: skip
    # purgedcv knows no hold-out
    end = folds.cut - folds.purge if folds.hold_out.length else folds.cut
    for split, (train, test) in zip(folds.splits, theirs.split(np.zeros((n_bars, 1))), strict=True):
        bars = np.asarray(train) + folds.first
        bars = bars[bars < end]
        alone = (np.diff(bars, prepend=-2) > 1) & (np.diff(bars, append=folds.n_bars + 2) > 1)
        if not np.array_equal(
            bars[~alone], list_rows(split.train)
        ):  # a bar alone teaches nothing here
            return False
        if not np.array_equal(np.asarray(test) + folds.first, list_rows(split.test)):
            return False
    return True


# --- accounts


@dataclass(frozen=True)
class RoundTrip:
    """Buys all assets equally and sells them again."""

    sells: int  # bars after the first decision

    def __call__(self, moment: Moment) -> Floats:
        return -moment.weights if moment.age >= self.sells else BuyAndHold()(moment)


class Replay(NamedTuple):
    """An account added up again from its fills and the bars' closes, without the market: (bar + 1,)
    each.
    """

    equity: FloatArray
    cash: FloatArray


def check_ledger(market: Market, settings: Settings, seed: int) -> Iterator[Finding]:
    """Whether money appears or disappears in accounts that idle, hold and trade at random."""
    first, stop = traded_window(market)
    idle = backtest(market, Cash(), 1, first, stop, record_fills=True)
    kept = bool(np.all(idle.equity == 1.0)) and not idle.fills
    said = (
        f"is exactly 1 after {len(idle.bars)} bars"
        if kept
        else f"became {float(idle.equity[-1, 0])!r}"
    )
    yield Finding("an account that does nothing keeps its money", kept, f"its equity {said}")
    trip = backtest(market, RoundTrip((stop - first) // 2), 1, first, stop, record_fills=True)
    yield check_sum("a round trip earns price differences minus costs", market, trip)
    trader = RandomTrader(period_seconds=market.panel.bar_seconds, seed=seed)
    random = backtest(market, trader, 1, first, stop, record_fills=True)
    yield check_sum("random trades earn price differences minus costs", market, random)
    yield check_cash(market, trip, random)
    yield check_fills(market, settings, (*trip.fills, *random.fills))


def replay(market: Market, history: History) -> Replay:
    """Add an account up again."""
    panel, borrow = market.panel, float(market.rules.costs.borrow)
    cash, units = 1.0, np.zeros(panel.n_assets)
    rows = [(1.0, 1.0)]
    fills = iter([*history.fills, None])
    fill = next(fills)
    for bar in history.bars:
        while fill is not None and fill.bar == bar:
            cash -= float(np.sum(fill.units * fill.price + fill.cost))
            units = units + fill.units
            fill = next(fills)
        values = np.where(units != 0, units * panel.close[bar], 0.0)
        cash -= borrow * (float(np.maximum(-values, 0).sum()) + max(-cash, 0.0))
        rows.append((cash + float(values.sum()), cash))
    return Replay(*np.array(rows).T)


def rows_before_ruin(market: Market, history: History) -> int:
    """Rows of the equity until ruin, after which an account is left as it is."""
    ruined = np.flatnonzero(history.equity[:, 0] <= float(market.rules.limits.ruin))
    return int(ruined[0]) if len(ruined) else len(history.equity)


def check_sum(name: str, market: Market, history: History) -> Finding:
    """Whether equity is, at every bar, what fills and closes add up to."""
    rows = rows_before_ruin(market, history)
    if not history.fills:
        return Finding(
            name,
            False,
            f"nothing could be traded in {len(history.bars)} bars: volumes or limits forbid it",
        )
    wrong = np.abs(replay(market, history).equity - history.equity[:, 0])[:rows]
    paid = sum(float(np.sum(fill.cost)) for fill in history.fills)
    gained, worst = float(history.equity[rows - 1, 0]) - 1 + paid, float(wrong.max())
    said = (
        f"{gained:+.2%} by prices, {-paid:+.2%} by costs in {len(history.fills)} bars with "
        f"fills, off by {worst:.0e}"
    )
    at = (
        f", most at bar {int(history.bars[0]) - 1 + int(np.argmax(wrong))}" if worst > EXACT else ""
    )
    return Finding(name, worst <= EXACT, said + at)


def check_cash(market: Market, *histories: History) -> Finding:
    """Whether more is ever spent than there is."""
    least = min(
        float(np.min(replay(market, history).cash[: rows_before_ruin(market, history)]))
        for history in histories
    )
    return Finding(
        "cash never runs out", least >= -ROUNDING, f"the least cash was {least:.2%} of the capital"
    )


def check_fills(market: Market, settings: Settings, fills: tuple[Fills, ...]) -> Finding:
    """Whether fills are at prices and in volumes of their bars, and pay at least fee and half
    spread.
    """
    name, panel, costs, rule = (
        "fills are possible and paid for",
        market.panel,
        market.rules.costs,
        settings.market,
    )
    fees = costs.taker_fee + costs.maker_share * (costs.maker_fee - costs.taker_fee)
    least = float(np.min(fees)) + np.minimum(costs.half_spread[:, 0], MOST_SLIPPAGE)
    price_of = {
        "next_open": panel.open,
        "next_close": panel.close,
        "same_close": np.roll(panel.close, 1, axis=0),
    }
    for fill in fills:
        traded, size = fill.units != 0, np.abs(fill.units)
        low, high = (panel.low, panel.high) if fill.kind == "stop" else (price_of[rule.fill],) * 2
        outside = (fill.price < low[fill.bar]) | (fill.price > high[fill.bar])
        room = rule.limits.participation * panel.volume[fill.bar] / rule.capital
        wrong = {
            "at a price that the bar did not offer": outside,
            "more than the bar's volume allows": size > room * (1 + ROUNDING),
            "for less than fee and half spread": fill.cost < size * fill.price * least - ROUNDING,
        }
        for what, where in wrong.items():
            if np.any(where & traded):
                symbol = panel.symbols[int(np.argmax(where & traded))]
                return Finding(name, False, f"{symbol} was traded in bar {fill.bar} {what}")
    when = rule.fill.replace("_", " ")
    return Finding(
        name,
        True,
        f"{len(fills)} bars with fills: at the {when}, within the volume, never cheaper than fees",
    )


# --- bars


def check_quality(panel: Panel) -> Finding:
    """Whether the bars are there, were traded in and do not jump about."""
    reports = check_bars(panel)
    problems = [said for report in reports for said in problems_of(report)]
    jumps, missing = (
        sum(getattr(report, key) for report in reports) for key in ("jumps", "missing_bars")
    )
    said = (
        f"{panel.n_assets} symbols, {panel.n_bars:,} bars; {missing:,} missing, {jumps:,} "
        f"suspicious jumps"
    )
    return Finding("bars are usable", not problems, "; ".join([said, *problems]))


def problems_of(report: SymbolReport) -> list[str]:
    """What is too much to be ignored."""
    bars = max(report.rows, 1)
    shares = {
        "of its bars are missing": (
            report.missing_bars / (bars + report.missing_bars),
            MOST_MISSING,
        ),
        "of its bars have no volume": (report.zero_volume_bars / bars, MOST_EMPTY),
        "of its bars jump suspiciously": (report.jumps / bars, MOST_JUMPS),
    }
    return [
        f"{report.symbol}: {share:.1%} {what}"
        for what, (share, most) in shares.items()
        if share > most
    ]
