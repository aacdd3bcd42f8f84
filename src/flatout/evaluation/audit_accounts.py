"""Experiments of an audit: accounts that idle, hold and trade at random are added up again from
their fills.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from flatout.bars.panel import FloatArray
from flatout.evaluation.accounts import Floats
from flatout.evaluation.backtest import Fills, History, backtest
from flatout.evaluation.baselines import BuyAndHold, Cash, Moment, RandomTrader
from flatout.evaluation.finding import Finding
from flatout.market.execute import MOST_SLIPPAGE
from flatout.market.market import Market
from flatout.settings.tables import Settings

TRADED_BARS = 400  # on which accounts are tried out
EXACT = 1e-9  # of the capital
ROUNDING = 1e-12  # of the capital, too: what sums of a few figures lose


def traded_window(market: Market) -> tuple[int, int]:
    """The last bars that an account is tried out on."""
    warm = market.fitted.recipe.count_warmup(market.panel)
    n_bars = market.panel.n_bars
    return max(warm, n_bars - TRADED_BARS), n_bars


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
    idle = backtest(market, Cash(), first=first, stop=stop, record_fills=True)
    kept = bool(np.all(idle.equity == 1.0)) and not idle.fills
    outcome = (
        f"is exactly 1 after {len(idle.bars)} bars"
        if kept
        else f"became {float(idle.equity[-1, 0])!r}"
    )
    yield Finding("an account that does nothing keeps its money", kept, f"its equity {outcome}")
    trip = backtest(
        market, RoundTrip((stop - first) // 2), first=first, stop=stop, record_fills=True
    )
    yield check_sum("a round trip earns price differences minus costs", market, trip)
    trader = RandomTrader(period_seconds=market.panel.bar_seconds, seed=seed)
    random = backtest(market, trader, first=first, stop=stop, record_fills=True)
    yield check_sum("random trades earn price differences minus costs", market, random)
    yield check_cash(market, trip, random)
    yield check_fills(market, settings, (*trip.fills, *random.fills))


def replay(market: Market, history: History) -> Replay:
    """Add an account up again from its fills and the closes of its bars."""
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
    sentence = (
        f"{gained:+.2%} by prices, {-paid:+.2%} by costs in {len(history.fills)} bars with "
        f"fills, off by {worst:.0e}"
    )
    at = (
        f", most at bar {int(history.bars[0]) - 1 + int(np.argmax(wrong))}" if worst > EXACT else ""
    )
    return Finding(name, worst <= EXACT, sentence + at)


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
