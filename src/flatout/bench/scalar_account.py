"""One account of a market in plain Python, asset after asset: what most trading environments do at
every step.

The yardstick of the benches. It does all that the kernel does for an account (orders, rules,
rewards, observations) and shares no arithmetic with it.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flatout.bench.scalar_ledger import BarColumns, Ledger, Numbers, PlainRules, plain_rules
from flatout.market.episode import OBSERVATION_LIMIT
from flatout.market.market import Market
from flatout.market.rewards import LEAST_EQUITY, LEAST_VARIANCE


class ScalarBars(NamedTuple):
    """A market as such an account reads it."""

    n_assets: int
    # [t][column][asset]: closes of bar t; open, high, low, close, volume and impact rate of the
    # next bar
    rows: Sequence[BarColumns] | NDArray[np.float64]
    benchmark: Numbers  # [t]: log return of holding all assets equally over the next bar
    features: NDArray[np.float32]  # (time, feature)
    rules: PlainRules
    reward: PlainRules


def scalar_bars(market: Market, lists: bool) -> ScalarBars:
    """The bars as NumPy arrays, from which a loop takes one number at a time, or as lists of
    Python's own floats, which are faster to read and which hardly anybody takes the trouble to
    make.
    """
    tape, rules = market.arrays(np.float64)
    n = market.shape.n_assets
    rows = tape.columns[:-1].T.reshape(len(tape.features), -1, n)
    benchmark = tape.columns[-1]
    return ScalarBars(
        n_assets=n,
        rows=rows.tolist() if lists else np.ascontiguousarray(rows),
        benchmark=benchmark.tolist() if lists else benchmark,
        features=np.asarray(tape.features, np.float32),
        rules=plain_rules(rules.costs, rules.limits),
        reward=plain_rules(rules.reward),
    )


class ScalarAccount:
    """An account that starts at the close of bar t."""

    def __init__(self, bars: ScalarBars, t: int) -> None:
        self.bars, self.t = bars, t
        self.ledger = Ledger(bars.n_assets, bars.rules)
        self.equity, self.peak, self.mean, self.mean_square = 1.0, 1.0, 0.0, 0.0

    @property
    def ruined(self) -> bool:
        """Whether there is too little left to go on."""
        return bool(self.equity <= self.bars.rules["ruin"])

    def step(self, action: Numbers) -> float:
        """Trade a share of the equity in each asset over the next bar; returns the reward."""
        row, ledger, rules = self.bars.rows[self.t], self.ledger, self.bars.rules
        order = [share * rules["trade_size"] * self.equity for share in action]
        before = ledger.volume * rules["volume_memory"]
        worth = ledger.step(order, row[0], row[1:])
        reward = self.reward(worth, ledger.volume - before, row, self.bars.benchmark[self.t])
        self.t += 1
        return reward

    def reward(self, worth: float, traded: float, row: BarColumns, benchmark: float) -> float:
        """The weighted terms of a bar that ends with this equity; remembers it."""
        weights = self.bars.reward
        before, after = max(self.equity, LEAST_EQUITY), max(worth, LEAST_EQUITY)
        gain = math.log(after / before)
        total = weights["log_return"] * gain + weights["excess"] * (gain - benchmark)
        total += weights["differential_sharpe"] * self.sharpe_change(gain)
        lost, self.peak = 1 - self.equity / self.peak, max(self.peak, worth)
        lost_now = 1 - worth / self.peak
        if lost_now > lost:
            total -= weights["drawdown"] * (lost_now - lost)
        for position, start, close in zip(self.ledger.positions, row[1], row[4], strict=True):
            weight = abs(position.units) * close / after
            if weight > weights["concentration_above"]:
                risked = (weight - weights["concentration_above"]) * abs(close - start) / start
                total -= weights["concentration"] * risked
        total -= weights["turnover"] * traded / before
        self.equity = worth
        return float(total * weights["scale"])

    def sharpe_change(self, gain: float) -> float:
        """How fast the averaged Sharpe ratio would move towards a return, in returns; remembers
        it.
        """
        new, new_square = gain - self.mean, gain * gain - self.mean_square
        variance = max(self.mean_square - self.mean * self.mean, LEAST_VARIANCE)
        change = (self.mean_square * new - self.mean * new_square / 2) / variance
        pace = 1 - self.bars.reward["sharpe_memory"]
        self.mean += pace * new
        self.mean_square += pace * new_square
        return float(change)

    def observation(self) -> NDArray[np.float32]:
        """What an agent sees: the market's features, then the account's own."""
        ledger, rules, worth = self.ledger, self.bars.rules, max(self.equity, LEAST_EQUITY)
        closes = self.bars.rows[self.t][0]
        weights, from_best, held, cooldown = [], [], [], []
        for i, (position, close) in enumerate(zip(ledger.positions, closes, strict=True)):
            weights.append(position.units * close / worth)
            from_best.append(close / position.best - 1 if position.units else 0.0)
            held.append(position.held / rules["max_held_bars"][i])
            cooldown.append(position.cooldown / max(1.0, rules["cooldown_bars"][i]))
        own = [
            ledger.cash / worth,
            rules["ruin"] / worth,
            self.equity / self.peak - 1,
            100 * self.mean,
        ]
        own += [
            100 * math.sqrt(self.mean_square),
            100 * ledger.fee(),
            ledger.volume / (1 + ledger.volume),
        ]
        own += [*weights, *from_best, *held, *cooldown]
        seen = np.concatenate([self.bars.features[self.t], own], dtype=np.float32)
        return np.clip(seen, -OBSERVATION_LIMIT, OBSERVATION_LIMIT)
