"""The oracle: the market's rules for one account, in plain Python floats, `if` and `for`.

Nothing trades with it. The tests hold the array kernel against it, and `flatout bench env` measures
how much faster the kernel is. It shares no arithmetic with execute.py: same rules, other text.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np


def plain_rules(*rules: Any) -> dict[str, Any]:
    """Costs and limits given as arrays, as one dictionary of floats and of lists per asset or
    tier.
    """
    arrays = {name: np.asarray(value) for rule in rules for name, value in rule._asdict().items()}
    return {
        name: value.ravel().tolist() if value.ndim else value.item()
        for name, value in arrays.items()
    }


@dataclass
class Position:
    """One asset's position and what the rules remember of it."""

    units: float = 0.0
    best: float = 1.0
    held: float = 0.0
    cooldown: float = 0.0


class Ledger:
    """One account; `step` carries an order (money per asset) through one bar."""

    def __init__(self, n_assets: int, rules: dict[str, Any], fill: str = "next_open") -> None:
        self.rules, self.fill, self.cash, self.volume = rules, fill, 1.0, 0.0
        self.positions = [Position() for _ in range(n_assets)]

    def fee(self) -> float:
        """The fee rate of the tier reached by the 30-day volume."""
        costs, rate = self.rules, 0.0
        for since, maker, taker in zip(
            costs["tier_volume"], costs["maker_fee"], costs["taker_fee"], strict=True
        ):
            if self.volume >= since:
                rate = costs["maker_share"] * maker + (1 - costs["maker_share"]) * taker
        return rate

    def slip(self, i: int, size: float, impact_rate: float) -> float:
        """Half spread plus impact, as a fraction of the price."""
        return min(
            0.5,
            self.rules["half_spread"][i] + self.rules["impact"][i] * impact_rate * math.sqrt(size),
        )

    def whole(self, i: int, size: float, price: float) -> float:
        """Round toward zero to lots (a thousandth may be missing); drop what is below the minimum
        notional.
        """
        step = self.rules["lot_step"][i]
        if step > 0:
            size = min(size, math.floor(size / step + 1e-3) * step)
        return size if size * price >= max(1e-6, self.rules["min_notional"][i]) else 0.0

    def worth(self, prices: list[float]) -> float:
        """Equity at these prices."""
        return self.cash + sum(
            p.units * price for p, price in zip(self.positions, prices, strict=True)
        )

    def close_some(
        self, i: int, size: float, price: float, impact_rate: float, fee: float
    ) -> float:
        """Close up to `size` of position i; returns the size closed."""
        position, held = self.positions[i], abs(self.positions[i].units)
        size = held if size >= held else self.whole(i, size, price)
        slip = self.slip(i, size, impact_rate)
        if position.units >= 0:
            self.cash += size * price * (1 - slip - fee)
            position.units -= size
        else:
            self.cash -= size * price * (1 + slip + fee)
            position.units += size
        self.volume += size * price
        return size

    def trade(
        self,
        wanted: list[float],
        prices: list[float],
        rooms: list[float],
        rates: list[float],
        fee: float,
    ) -> list[float]:
        """Reductions, then openings under one budget; returns the traded size per asset."""
        closed, opening, heading = [], [], []
        for i, position in enumerate(self.positions):
            side = -1 if position.units < 0 else 1
            size, along = abs(position.units), wanted[i] * side
            overdue = position.held >= self.rules["max_held_bars"][i]
            along = min(along, -self.rules["forced_share"][i] * size) if overdue else along
            along = max(-rooms[i], min(rooms[i], along))
            done = (
                self.close_some(i, min(-along, size), prices[i], rates[i], fee)
                if along < 0
                else 0.0
            )
            if position.units == 0 or (overdue and done > 0):
                position.held = 0.0
            closed.append(done)
            opening.append(along if along > 0 else max(0.0, -along - size))
            heading.append(side if along > 0 else -side)

        worth, free, gross, needed, asked = self.worth(prices), self.cash, 0.0, 0.0, 0.0
        for i, position in enumerate(self.positions):
            value = abs(position.units) * prices[i]
            gross += value
            free -= value if position.units < 0 else 0.0
            cap = (
                self.rules["max_weight"][i] if heading[i] > 0 else self.rules["max_short_weight"][i]
            )
            most = max(0.0, cap * worth / prices[i] - abs(position.units))
            opening[i] = 0.0 if position.cooldown > 0 else min(opening[i], most)
            slip = self.slip(i, closed[i] + opening[i], rates[i])
            needed += opening[i] * prices[i] * (slip + fee + (1 if heading[i] > 0 else 0))
            asked += opening[i] * prices[i]
        free = max(0.0, free - self.rules["reserve"] * worth)
        room = max(0.0, self.rules["gross_limit"] * worth - gross)
        scale = min(1.0, free / needed if needed > 0 else 1.0, room / asked if asked > 0 else 1.0)

        for i, position in enumerate(self.positions):
            if position.units == 0:
                position.best = prices[i]
            size = self.whole(i, opening[i] * scale, prices[i])
            slip = self.slip(i, closed[i] + size, rates[i])
            self.cash -= size * prices[i] * (heading[i] + slip + fee)
            self.volume += size * prices[i]
            position.units += heading[i] * size
            closed[i] += size
        return closed

    def stop(self, bar: list[list[float]], rooms: list[float], fee: float) -> list[float]:
        """Trailing stops against the worst case; returns the traded size per asset."""
        sizes, (opens, highs, lows, _, _, rates) = [], bar
        for i, position in enumerate(self.positions):
            long, distance, size = position.units >= 0, self.rules["trailing_stop"][i], 0.0
            level = position.best * (1 - distance if long else 1 + distance)
            if position.units != 0 and (lows[i] <= level if long else highs[i] >= level):
                gapped = opens[i] <= level if long else opens[i] >= level
                size = self.close_some(i, rooms[i], opens[i] if gapped else level, rates[i], fee)
            position.cooldown = (
                self.rules["cooldown_bars"][i] if size > 0 else max(0.0, position.cooldown - 1)
            )
            position.best = max(position.best, highs[i]) if long else min(position.best, lows[i])
            position.held = position.held + 1 if position.units != 0 else 0.0
            sizes.append(size)
        return sizes

    def step(self, order: list[float], marks: list[float], bar: list[list[float]]) -> float:
        """One bar, as (open, high, low, close, volume, impact_rate) lists; returns the equity at
        its close.
        """
        opens, _, _, closes, volumes, rates = bar
        fee = self.fee()
        self.volume *= self.rules["volume_memory"]  # the fee is that of the volume before
        wanted = [money / mark for money, mark in zip(order, marks, strict=True)]
        rooms = [
            share * volume
            for share, volume in zip(self.rules["participation"], volumes, strict=True)
        ]
        if self.fill == "next_close":
            done = self.stop(bar, rooms, fee)
            self.trade(
                wanted, closes, [room - d for room, d in zip(rooms, done, strict=True)], rates, fee
            )
        else:
            done = self.trade(
                wanted, opens if self.fill == "next_open" else marks, rooms, rates, fee
            )
            self.stop(bar, [room - d for room, d in zip(rooms, done, strict=True)], fee)
        shorts = sum(
            max(0.0, -p.units * close) for p, close in zip(self.positions, closes, strict=True)
        )
        self.cash -= self.rules["borrow"] * (shorts + max(0.0, -self.cash))
        return self.worth(closes)
