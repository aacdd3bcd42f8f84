"""The scalar ledger over a whole path, and how often each rule took effect on it.

A rule took effect in a step if the same step without it leaves another account. So nothing here
knows how a rule works, and a rule that a path never meets is found: it would be compared to
nothing.
"""

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np

from flatout.bench.scalar_ledger import BarColumns, Ledger, Numbers, PlainRules, plain_rules
from flatout.market.account import Account
from flatout.market.rules import OFF, Costs, Limits
from flatout.settings.tables import Fill
from scenarios import Path

ENOUGH = 30  # steps; a rule is not counted further
# the least difference, as a share of the capital, that is an effect and not a rounding
EFFECT = 1e-9


class BlindToOpen(Ledger):
    """Stops do not follow the open."""

    def live_through(self, opens: Numbers, highs: Numbers, lows: Numbers, closes: Numbers) -> None:
        seen = [
            min(price, p.best) if p.units > 0 else max(price, p.best)
            for p, price in zip(self.positions, opens, strict=True)
        ]
        super().live_through(seen, highs, lows, closes)


class FilledAtTheStop(Ledger):
    """A gap fills at the stop's own price."""

    def live_through(self, opens: Numbers, highs: Numbers, lows: Numbers, closes: Numbers) -> None:
        seen = [
            max(price, p.best * (1 - rule.trailing_stop))
            if p.units > 0
            else min(price, p.best * (1 + rule.trailing_stop))
            for p, price, rule in zip(self.positions, opens, self.assets, strict=True)
        ]
        super().live_through(seen, highs, lows, closes)


class BlindToClose(Ledger):
    """A close beyond the stop of the bar's best price tells nothing: it might have come last."""

    def live_through(self, opens: Numbers, highs: Numbers, lows: Numbers, closes: Numbers) -> None:
        seen = [
            high if p.units > 0 else low
            for p, high, low in zip(self.positions, highs, lows, strict=True)
        ]
        super().live_through(opens, highs, lows, seen)


class NeverWarm(Ledger):
    """No asset cools down."""

    def limit_opening(self, i: int, units: float, price: float, worth: float) -> float:
        self.positions[i].cooldown = 0.0
        return super().limit_opening(i, units, price, worth)


class ForcedPartOnly(Ledger):
    """Force asks for its share where one lot is more than that."""

    whole = False

    def forced_size(self, i: int, price: float) -> float:
        size, held = super().forced_size(i, price), abs(self.positions[i].units)
        share = self.assets[i].forced_share * held
        return min(size, share) if (size == held) == self.whole else size


class ForcedNeverWhole(ForcedPartOnly):
    """Force asks for its share where that is too little, or would leave too little, to trade."""

    whole = True


class WholeIsRounded(Ledger):
    """Lots and minimum hold for the close of a whole position too."""

    def close_position(self, i: int, size: float, price: float) -> float:
        return super().close_position(i, self.round_size(i, size, price), price)


class UnmovedPrice(Ledger):
    """What an order opens does not pay for what it has closed."""

    def exchange(self, i: int, units: float, price: float, moved: float = 0.0) -> None:
        super().exchange(i, units, price)


class BoundlessSlippage(Ledger):
    """Slippage may take more than half the price."""

    def cost_rate(self, i: int, size: float) -> float:
        rule = self.assets[i]
        slippage = rule.half_spread + rule.impact * self.impact_rates[i] * size**0.5
        return max(super().cost_rate(i, size), slippage + self.fee_rate)


class RoomForEach(Ledger):
    """Order and stop may each take the largest share of the volume."""

    def step(self, order: Numbers, marks: Numbers, bar: BarColumns) -> float:
        self.volumes = bar[4]
        return super().step(order, marks, bar)

    def renew_rooms(self) -> None:
        self.rooms = [r.participation * v for r, v in zip(self.assets, self.volumes, strict=True)]

    def trade(self, wanted: Any, prices: Numbers) -> None:
        self.renew_rooms()
        super().trade(wanted, prices)

    def live_through(self, opens: Numbers, highs: Numbers, lows: Numbers, closes: Numbers) -> None:
        self.renew_rooms()
        super().live_through(opens, highs, lows, closes)


class AlwaysTradable(Ledger):
    """A bar without volume trades."""

    def step(self, order: Numbers, marks: Numbers, bar: BarColumns) -> float:
        columns = list(bar)
        columns[4] = [volume or 1.0 for volume in bar[4]]
        return super().step(order, marks, columns)


WITHOUT_RULE: dict[str, type[Ledger]] = {
    "stop follows the open": BlindToOpen,
    "gap fills at the open": FilledAtTheStop,
    "close beyond the stop of the best price": BlindToClose,
    "cooldown": NeverWarm,
    "forced: one lot at least": ForcedPartOnly,
    "forced: the whole position": ForcedNeverWhole,
    "whole position is not rounded": WholeIsRounded,
    "impact of what was closed": UnmovedPrice,
    "largest slippage": BoundlessSlippage,
    "order and stop share the volume": RoomForEach,
    "bar that is not tradable": AlwaysTradable,
}
# values at which a rule does nothing; each holds for all assets
WITHOUT_VALUE = {
    "maker_fee": 0.0,
    "taker_fee": 0.0,
    "maker_share": 0.0,
    "volume_memory": 1.0,
    "half_spread": 0.0,
    "impact": 0.0,
    "borrow": 0.0,
    "min_notional": 0.0,
    "lot_step": 0.0,
    "max_weight": OFF,
    "max_short_weight": OFF,
    "gross_limit": OFF,
    "reserve": 0.0,
    "participation": OFF,
    "trailing_stop": OFF,
    "max_held_bars": OFF,
    "forced_share": 1.0,
}
# fields of Costs and Limits that are counted by another name or in another way; trade_size makes
# the order, ruin ends the episode
COUNTED_ELSEWHERE = {"tier_volume", "cooldown_bars", "trade_size", "ruin"}
# in which accounts that are long or flat have no part
SHORTS_ONLY = {"borrow", "impact of what was closed"}


def all_rule_names(shorts: bool) -> set[str]:
    """The names of all rules that must have taken effect."""
    names = {*WITHOUT_RULE, *WITHOUT_VALUE, "tier_volume"}
    return names if shorts else names - SHORTS_ONLY


def variants_of(rules: PlainRules) -> dict[str, tuple[type[Ledger], PlainRules]]:
    """For each rule a ledger and rules without it."""
    changed: dict[str, PlainRules] = {
        name: {name: [value] * len(rules[name]) if isinstance(rules[name], list) else value}
        for name, value in WITHOUT_VALUE.items()
    }
    changed["tier_volume"] = {"tier_volume": [0.0] + [OFF] * (len(rules["tier_volume"]) - 1)}
    return {name: (kind, rules) for name, kind in WITHOUT_RULE.items()} | {
        name: (Ledger, rules | change) for name, change in changed.items()
    }


def branch_off(ledger: Ledger, kind: type[Ledger], rules: PlainRules) -> Ledger:
    """Another ledger in the same state."""
    other = kind(len(ledger.positions), rules, ledger.fill)
    other.cash, other.volume = ledger.cash, ledger.volume
    other.positions = [replace(position) for position in ledger.positions]
    return other


def differ(one: Ledger, other: Ledger, prices: Numbers) -> bool:
    """Whether two ledgers own or have traded something else."""
    money = abs(one.cash - other.cash) + abs(one.volume - other.volume)
    for a, b, price in zip(one.positions, other.positions, prices, strict=True):
        money += abs(a.units - b.units) * price
    return bool(money > EFFECT)


def ledger_path(path: Path, costs: Costs, limits: Limits, fill: Fill) -> list[Account]:
    """The accounts after every step, by the ledger."""
    steps, assets, accounts = path.orders.shape
    ledgers = [Ledger(assets, plain_rules(costs, limits), fill) for _ in range(accounts)]
    history = []
    for k in range(steps):
        for i, ledger in enumerate(ledgers):
            ledger.step(*inputs_of(path, k, i))
        history.append(account_of(ledgers))
    return history


def count_effects(path: Path, costs: Costs, limits: Limits, fill: Fill) -> Counter[str]:
    """In how many steps of the path each rule took effect, up to ENOUGH."""
    steps, assets, accounts = path.orders.shape
    rules = plain_rules(costs, limits)
    variants, effects = variants_of(rules), Counter[str]()
    for i in range(accounts):
        ledger = Ledger(assets, rules, fill)
        for k in range(steps):
            inputs = inputs_of(path, k, i)
            rare = [name for name in variants if effects[name] < ENOUGH]
            others = {name: branch_off(ledger, *variants[name]) for name in rare}
            ledger.step(*inputs)
            for name, other in others.items():
                other.step(*inputs)
                effects[name] += differ(ledger, other, inputs[1])
    return effects


def inputs_of(path: Path, k: int, i: int) -> Any:
    """Order, marks and bar of the k-th step of the i-th account."""
    return [x[k, ..., i].tolist() for x in (path.orders, path.mark, path.bars)]


def account_of(ledgers: list[Ledger]) -> Account:
    """The ledgers' accounts as arrays."""
    columns = [
        np.array([[getattr(p, name) for p in x.positions] for x in ledgers]).T
        for name in ("units", "best", "held", "cooldown")
    ]
    return Account(
        np.array([x.cash for x in ledgers]), *columns, np.array([x.volume for x in ledgers])
    )
