"""Policies that need no training. Whatever is trained must beat them.

A baseline turns what was known at the close of bar t into an order per asset, as a signed share of
the equity (the market's `trade` action with `trade_size` 1), for a batch of accounts at once. It
sees closes up to and including t and nothing later.
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


def priced_assets(moment: Moment) -> NDArray[np.bool_]:
    """Assets that have a price."""
    return np.isfinite(moment.closes[-1])


def spread_equally(chosen: NDArray[np.bool_]) -> Floats:
    """Equal weights of the chosen assets."""
    return chosen / max(int(chosen.sum()), 1)


def is_rebalancing_due(moment: Moment, seconds: int) -> bool:
    """Whether a rebalancing of this period is due, the first one at once."""
    return moment.age % max(seconds // moment.bar_seconds, 1) == 0


@dataclass(frozen=True)
class Cash:
    """A policy that never trades: all money stays in cash."""

    def __call__(self, moment: Moment) -> Floats:
        return np.zeros_like(moment.weights)


@dataclass(frozen=True)
class BuyAndHold:
    """Spends everything equally on the assets that exist, and holds; what volume did not allow is
    bought all day.
    """

    def __call__(self, moment: Moment) -> Floats:
        if moment.age >= max(DAY // moment.bar_seconds, 1):
            return np.zeros_like(moment.weights)
        return np.maximum(spread_equally(priced_assets(moment)) - moment.weights, 0.0)


@dataclass(frozen=True)
class EqualWeight:
    """Holds all assets equally, rebalanced once a period."""

    period_seconds: int = DAY

    def __call__(self, moment: Moment) -> Floats:
        if not is_rebalancing_due(moment, self.period_seconds):
            return np.zeros_like(moment.weights)
        return spread_equally(priced_assets(moment)) - moment.weights


@dataclass(frozen=True)
class Momentum:
    """Holds, equally, the better half of the assets among those that rose over the past; cash when
    none did.
    """

    past_seconds: int = 30 * DAY
    period_seconds: int = DAY

    def __call__(self, moment: Moment) -> Floats:
        if not is_rebalancing_due(moment, self.period_seconds):
            return np.zeros_like(moment.weights)
        past = min(self.past_seconds // moment.bar_seconds, len(moment.closes) - 1)
        with np.errstate(invalid="ignore"):
            gain = moment.closes[-1] / moment.closes[-1 - past] - 1
        gain = np.where(np.isfinite(gain), gain, -np.inf)
        best = gain >= np.sort(gain)[-max(len(gain) // 2, 1)]
        return spread_equally(best & (gain > 0)) - moment.weights


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
            target * priced_assets(moment) - moment.weights
        )


BASELINES: dict[str, Policy] = {
    "cash": Cash(),
    "buy_and_hold": BuyAndHold(),
    "equal_weight": EqualWeight(),
    "momentum": Momentum(),
    "random": RandomTrader(),
}
