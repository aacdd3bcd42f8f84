"""Policies that need no training. Whatever is trained must beat them.

A baseline turns what was known at the close of bar t into an order per asset, as a signed share of
the equity (the market's `trade` action with `trade_size` 1), for a batch of accounts at once. It
sees closes up to and including t and nothing later.

Dead assets, those that have not traded for some time (`Panel.alive`), are not bought and take no
share of the money; what is stuck in them is sold when they trade again.
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from flatout.bars.panel import DAY
from flatout.errors import RulesError
from flatout.evaluation.accounts import Accounts, Floats


class Moment(NamedTuple):
    """What a policy may know when it decides."""

    age: int  # bars since the backtest's first decision
    closes: Floats  # (time, asset) up to and including now; NaN before a symbol's first bar
    weights: Floats  # (account, asset) current weights
    bar_seconds: int
    # the same accounts as the market keeps them; every backtest gives them
    accounts: Accounts | None = None
    # (asset,) as far as is known now; without it, every asset that has a price is alive
    alive: NDArray[np.bool_] | None = None
    # bars of a session, where the exchange closes; None = the market never does
    bars_per_day: float | None = None

    def require_accounts(self) -> Accounts:
        """The accounts, by policies that cannot do without."""
        if self.accounts is None:
            raise RulesError(
                "this policy must see the accounts it drives: run it by backtest(), or set "
                "Moment.accounts"
            )
        return self.accounts


class Policy(Protocol):
    """Gives the (account, asset) order for a moment."""

    def __call__(self, moment: Moment) -> Floats: ...


def find_alive_assets(moment: Moment) -> NDArray[np.bool_]:
    """Assets that have a price and have traded lately: (asset,)."""
    priced = np.isfinite(moment.closes[-1])
    return priced if moment.alive is None else priced & moment.alive


def spread_equally(chosen: NDArray[np.bool_]) -> Floats:
    """Equal weights of the chosen assets."""
    return chosen / max(int(chosen.sum()), 1)


def spread_free_money(chosen: NDArray[np.bool_], moment: Moment) -> Floats:
    """Equal weights of the chosen assets, (account, asset), in all that is not stuck in dead
    ones.
    """
    stuck = np.sum(moment.weights * ~find_alive_assets(moment), axis=1, keepdims=True)
    return spread_equally(chosen) * (1 - stuck)


def count_bars(moment: Moment, seconds: int) -> int:
    """How many bars a period spans, at least one. Its days are trading days: a day has the bars of
    a session, or of 24 hours where the market never closes. Parts of a day go by the clock and are
    no longer than a session.
    """
    by_clock = seconds // moment.bar_seconds
    if moment.bars_per_day is None:
        return max(by_clock, 1)
    in_sessions = round(max(seconds / DAY, 1.0) * moment.bars_per_day)
    return max(min(by_clock, in_sessions), 1)


def is_rebalancing_due(moment: Moment, seconds: int) -> bool:
    """Whether a rebalancing of this period is due, the first one at once."""
    return moment.age % count_bars(moment, seconds) == 0


@dataclass(frozen=True)
class Cash:
    """A policy that never trades: all money stays in cash."""

    def __call__(self, moment: Moment) -> Floats:
        return np.zeros_like(moment.weights)


@dataclass(frozen=True)
class BuyAndHold:
    """Spends everything equally on the assets that are alive, and holds; what volume did not allow
    is bought all day.
    """

    def __call__(self, moment: Moment) -> Floats:
        if moment.age >= count_bars(moment, DAY):
            return np.zeros_like(moment.weights)
        return np.maximum(spread_equally(find_alive_assets(moment)) - moment.weights, 0.0)


@dataclass(frozen=True)
class EqualWeight:
    """Holds all living assets equally, rebalanced once a period."""

    period_seconds: int = DAY

    def __call__(self, moment: Moment) -> Floats:
        if not is_rebalancing_due(moment, self.period_seconds):
            return np.zeros_like(moment.weights)
        return spread_free_money(find_alive_assets(moment), moment) - moment.weights


@dataclass(frozen=True)
class Momentum:
    """Holds, equally, the better half of the living assets among those that rose over the past;
    cash when none did.
    """

    past_seconds: int = 30 * DAY
    period_seconds: int = DAY

    def __call__(self, moment: Moment) -> Floats:
        if not is_rebalancing_due(moment, self.period_seconds):
            return np.zeros_like(moment.weights)
        past = min(count_bars(moment, self.past_seconds), len(moment.closes) - 1)
        with np.errstate(invalid="ignore"):
            gain = moment.closes[-1] / moment.closes[-1 - past] - 1
        alive = find_alive_assets(moment)
        gain = np.where(np.isfinite(gain) & alive, gain, -np.inf)
        best = gain >= np.sort(gain)[-max(int(alive.sum()) // 2, 1)]
        return spread_free_money(best & (gain > 0), moment) - moment.weights


@dataclass(frozen=True)
class RandomTrader:
    """Moves a share `pace` of the way to fresh random weights once a period: what a trader of equal
    turnover earns by luck.

    `pace` may be an array, one value per account. The weights follow from the seed and the bar
    alone.
    """

    pace: Floats | float = 1.0
    period_seconds: int = DAY
    seed: int = 0

    def __call__(self, moment: Moment) -> Floats:
        if not is_rebalancing_due(moment, self.period_seconds):
            return np.zeros_like(moment.weights)
        accounts, assets = moment.weights.shape
        rng = np.random.default_rng((self.seed, moment.age))
        target = rng.dirichlet(np.ones(assets + 1), accounts)[:, :-1]
        return np.reshape(np.asarray(self.pace), (-1, 1)) * (
            target * find_alive_assets(moment) - moment.weights
        )


BASELINES: dict[str, Policy] = {
    "cash": Cash(),
    "buy_and_hold": BuyAndHold(),
    "equal_weight": EqualWeight(),
    "momentum": Momentum(),
    "random": RandomTrader(),
}
