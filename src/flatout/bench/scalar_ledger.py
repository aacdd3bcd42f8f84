"""The oracle: the market's rules for one account, in plain Python floats, `if` and `for`.

Nothing trades with it. The tests hold the array kernel against it, and `flatout bench env` measures
how much faster the kernel is. It was written from the contract (docs/market.md), not from
execute.py, and shares no arithmetic with it. Where the contract leaves something open, this is what
it takes as given:

- Money and units are relative to the starting capital. An order of money asks for order / mark
  units.
- All trades of a bar in an asset, order and stop, in the order in which they come, may take
  together `participation` x the bar's volume in units.
- The fee is that of the highest tier whose 30-day volume was reached before the bar, mixed by
  `maker_share`. After the bar the volume is forgotten by `volume_memory`; then its notional is
  added.
- Slippage is half the spread plus impact x impact rate x the root of the size, at most one half.
  What an order opens after it has closed the other side pays for both sizes: the price has moved. A
  stop pays for its own size. A trade costs notional x (slippage + fee).
- Sizes are rounded toward zero to whole lots; what lacks less than a thousandth of a lot is a whole
  one, but never more than was asked for. What is then worth less than the minimum (or 1e-6 of the
  capital) is dropped. The close of a whole position is neither rounded nor dropped.
- A position held for `max_held_bars` is reduced by `forced_share`, by one lot at least. If that
  part, or what it would leave, could not be traded by itself, the whole position goes. A share of
  zero forces nothing. Force overrules an order to buy more, not one to sell more. The bars held
  count anew when something was closed while force was due.
- Openings: none while the asset cools down; cut to the largest weight at the fill price, where an
  account is worth what is left after the reductions and their costs; scaled by one factor so that
  the gross limit holds and that cash, less the value of the shorts and the reserve, pays for buys
  and for all costs (at the slippage of the unscaled size, which is the larger); rounded last, so
  that an opening that is then dropped has taken its part of the budget.
- `held` counts the bars that the position has lived through since its entry or its last forced
  reduction: an order at the open or at the mark counts its own bar, one at the close does not.
  `best` is the fill price on entry into a flat asset and follows the high of a long and the low of
  a short position.
- A stop hangs `trailing_stop` x best away from the best price. It has followed the open before it
  meets the bar's adverse extreme; a gap fills at the open; the favourable extreme comes last. If
  the adverse extreme did not reach the stop, but the close reaches the one that hangs on the
  favourable extreme, the stop was met somewhere on the way: it fills at the adverse extreme, the
  worst price that a path allows. A stop that sold something sets the cooldown; each other bar takes
  one from it, before an order at its close: `cooldown_bars` orders in a row are kept from growing
  the position.
- Borrowing is paid at the close on the value of shorts and on negative cash.
- `next_open`: the order at the open, then stops. `same_close`: the order at the mark, then stops.
  `next_close`: stops, then the order at the close.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

# floats, or lists of them by asset or tier; each rule knows which of them it is
PlainRules = dict[str, Any]
Numbers = Sequence[float] | NDArray[np.float64]  # one for each asset
BarColumns = Sequence[Numbers] | NDArray[np.float64]  # a bar: such numbers of each column

LARGEST_SLIPPAGE = 0.5
LOT_SLACK = 1e-3  # lots
LEAST_NOTIONAL = 1e-6  # of the starting capital


def plain_rules(*rules: NamedTuple) -> PlainRules:
    """Costs and limits given as arrays, as one dictionary of floats and of lists per asset or
    tier.
    """
    arrays = {name: np.asarray(value) for rule in rules for name, value in rule._asdict().items()}
    return {
        name: value.ravel().tolist() if value.ndim else value.item()
        for name, value in arrays.items()
    }


class AssetRules(NamedTuple):
    """The rules of one asset; the fields are those of `Costs` and `Limits`."""

    half_spread: float
    impact: float
    min_notional: float
    lot_step: float
    max_weight: float
    max_short_weight: float
    participation: float
    trailing_stop: float
    cooldown_bars: float
    max_held_bars: float
    forced_share: float


@dataclass
class Position:
    """One asset's position and what the rules remember of it."""

    units: float = 0.0
    best: float = 1.0
    held: float = 0.0
    cooldown: float = 0.0


class Ledger:
    """One account; `step` carries an order (money per asset) through one bar."""

    def __init__(self, n_assets: int, rules: PlainRules, fill: str = "next_open") -> None:
        self.rules, self.fill = rules, fill
        self.cash, self.volume = 1.0, 0.0
        self.positions = [Position() for _ in range(n_assets)]
        self.assets = [
            AssetRules(*(rules[name][i] for name in AssetRules._fields)) for i in range(n_assets)
        ]
        # of the bar under way: the fee, what was traded in money, what may yet be traded in units
        self.fee_rate, self.traded = 0.0, 0.0
        self.rooms: list[float] = []
        self.impact_rates: Numbers = []

    def step(self, order: Numbers, marks: Numbers, bar: BarColumns) -> float:
        """Carry an order through a bar (open, high, low, close, volume, impact rate); returns the
        equity at its close.
        """
        opens, highs, lows, closes, volumes, self.impact_rates = bar
        self.fee_rate, self.traded = self.fee(), 0.0
        self.rooms = [
            rule.participation * volume for rule, volume in zip(self.assets, volumes, strict=True)
        ]
        wanted = [money / mark for money, mark in zip(order, marks, strict=True)]
        if self.fill == "next_close":
            self.live_through(opens, highs, lows, closes)
            self.trade(wanted, closes)
        else:
            self.trade(wanted, opens if self.fill == "next_open" else marks)
            self.live_through(opens, highs, lows, closes)
        self.pay_borrow(closes)
        self.volume = self.volume * self.rules["volume_memory"] + self.traded
        return self.worth(closes)

    def worth(self, prices: Numbers) -> float:
        """Cash and positions at these prices."""
        total = self.cash
        for position, price in zip(self.positions, prices, strict=True):
            total += position.units * price
        return total

    def fee(self) -> float:
        """The rate that the volume traded so far asks for."""
        rules, tier = self.rules, 0
        for k, volume in enumerate(rules["tier_volume"]):
            if self.volume >= volume:
                tier = k
        maker, taker = rules["maker_fee"][tier], rules["taker_fee"][tier]
        return float(rules["maker_share"] * maker + (1 - rules["maker_share"]) * taker)

    def cost_rate(self, i: int, size: float) -> float:
        """What a trade of this size costs, as a share of its notional."""
        rule = self.assets[i]
        slippage = rule.half_spread + rule.impact * self.impact_rates[i] * math.sqrt(size)
        return min(slippage, LARGEST_SLIPPAGE) + self.fee_rate

    def round_size(self, i: int, size: float, price: float) -> float:
        """What may be traded of a size: whole lots, nothing below the minimum."""
        rule = self.assets[i]
        if rule.lot_step > 0:
            size = min(size, math.floor(size / rule.lot_step + LOT_SLACK) * rule.lot_step)
        return size if size * price >= max(rule.min_notional, LEAST_NOTIONAL) else 0.0

    def exchange(self, i: int, units: float, price: float, moved: float = 0.0) -> None:
        """Buy or sell for cash; `moved` is what the same order has traded before."""
        size = abs(units)
        notional = size * price
        self.cash -= units * price + notional * self.cost_rate(i, moved + size)
        self.positions[i].units += units
        self.rooms[i] -= size
        self.traded += notional

    def trade(self, wanted: Sequence[float], prices: Numbers) -> None:
        """Fill an order (units per asset): reductions first, then openings under one budget."""
        openings, closed = [], []
        for i, units in enumerate(wanted):
            before = abs(self.positions[i].units)
            openings.append(self.reduce_position(i, units, prices[i]))
            closed.append(before - abs(self.positions[i].units))
        worth = self.worth(prices)
        openings = [
            self.limit_opening(i, units, prices[i], worth) for i, units in enumerate(openings)
        ]
        scale = self.scale_openings(openings, closed, prices, worth)
        for i, units in enumerate(openings):
            size = self.round_size(i, scale * abs(units), prices[i])
            if size > 0:
                position = self.positions[i]
                if position.units == 0:
                    position.best, position.held = prices[i], 0.0
                self.exchange(i, math.copysign(size, units), prices[i], closed[i])

    def reduce_position(self, i: int, wanted: float, price: float) -> float:
        """Close what the order or force takes from a position; returns the units to open."""
        position = self.positions[i]
        held = abs(position.units)
        forced = self.forced_size(i, price)
        if forced == 0 and wanted * position.units >= 0:
            return wanted
        asked = abs(wanted) if wanted * position.units < 0 else 0.0
        closed = self.close_position(i, min(max(asked, forced), held), price)
        if forced > 0 and closed > 0:
            position.held = 0.0
        return math.copysign(asked - held, wanted) if closed == held < asked else 0.0

    def forced_size(self, i: int, price: float) -> float:
        """What must be closed because the position was held too long."""
        position, rule = self.positions[i], self.assets[i]
        size = abs(position.units)
        if size == 0 or position.held < rule.max_held_bars or rule.forced_share == 0:
            return 0.0
        part = self.round_size(i, max(rule.forced_share * size, rule.lot_step), price)
        if part == 0 or self.round_size(i, size - part, price) == 0:
            return size
        return part

    def close_position(self, i: int, size: float, price: float) -> float:
        """Close up to `size` of a position; returns how much was closed."""
        units = self.positions[i].units
        size = min(size, self.rooms[i])
        if size < abs(units):
            size = self.round_size(i, size, price)
        if size > 0:
            self.exchange(i, -math.copysign(size, units), price)
        if self.positions[i].units == 0:
            self.positions[i].held = 0.0
        return size

    def limit_opening(self, i: int, units: float, price: float, worth: float) -> float:
        """What cooldown, volume and largest weight leave of an opening."""
        position, rule = self.positions[i], self.assets[i]
        if units == 0 or position.cooldown > 0:
            return 0.0
        weight = rule.max_weight if units > 0 else rule.max_short_weight
        growth = weight * worth / price - abs(position.units)
        return math.copysign(max(min(abs(units), self.rooms[i], growth), 0.0), units)

    def scale_openings(
        self, openings: Sequence[float], closed: Sequence[float], prices: Numbers, worth: float
    ) -> float:
        """The factor by which all openings fit into the cash and under the gross limit."""
        gross = locked = opened = spent = 0.0
        for i, (position, units) in enumerate(zip(self.positions, openings, strict=True)):
            value, size = position.units * prices[i], abs(units)
            gross += abs(value)
            locked += max(-value, 0.0)
            if size > 0:
                rate = self.cost_rate(i, closed[i] + size)
                opened += size * prices[i]
                # the proceeds of a short sale are locked: it takes its costs only
                spent += size * prices[i] * (1 + rate if units > 0 else rate)
        scale, free = 1.0, self.cash - locked - self.rules["reserve"] * worth
        space = self.rules["gross_limit"] * worth - gross
        if spent > 0:
            scale = min(scale, free / spent)
        if opened > 0:
            scale = min(scale, space / opened)
        return max(scale, 0.0)

    def live_through(self, opens: Numbers, highs: Numbers, lows: Numbers, closes: Numbers) -> None:
        """What the bar does to the positions that exist in it: stops, best prices, counters."""
        for i, position in enumerate(self.positions):
            position.cooldown = max(position.cooldown - 1, 0.0)
            distance = self.assets[i].trailing_stop
            if position.units > 0:
                touched = max(position.best, opens[i]) * (1 - distance)
                position.best = max(position.best, opens[i], highs[i])
                if lows[i] <= touched:
                    self.stop_position(i, min(touched, opens[i]))
                elif closes[i] <= position.best * (1 - distance):
                    self.stop_position(i, lows[i])
            elif position.units < 0:
                touched = min(position.best, opens[i]) * (1 + distance)
                position.best = min(position.best, opens[i], lows[i])
                if highs[i] >= touched:
                    self.stop_position(i, max(touched, opens[i]))
                elif closes[i] >= position.best * (1 + distance):
                    self.stop_position(i, highs[i])
            if position.units:
                position.held += 1

    def stop_position(self, i: int, price: float) -> None:
        """Close a position at its stop; the asset then cools down."""
        if self.close_position(i, abs(self.positions[i].units), price) > 0:
            self.positions[i].cooldown = self.assets[i].cooldown_bars

    def pay_borrow(self, closes: Numbers) -> None:
        """Pay for a bar of shorts and of negative cash."""
        borrowed = max(-self.cash, 0.0)
        for position, close in zip(self.positions, closes, strict=True):
            borrowed += max(-position.units, 0.0) * close
        self.cash -= self.rules["borrow"] * borrowed
