"""What policies would have earned: the market kernel, bar by bar, in double precision, for many
accounts at once.

The same functions of `market/episode.py` that train an agent run the backtest. Flat at the first
bar; the last bar's equity is marked, not sold.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from flatout.errors import RulesError
from flatout.evaluation.accounts import Accounts, Floats, known_tape
from flatout.evaluation.baselines import Moment, Policy
from flatout.evaluation.metrics import summarise
from flatout.foreign import shorten_repr
from flatout.market import episode
from flatout.market.episode import Episode, Outcome
from flatout.market.execute import trade_cost
from flatout.market.market import Market
from flatout.market.rewards import LEAST_EQUITY
from flatout.market.tape import meet
from flatout.settings.fields import read_whole

Progress = Callable[[int], None]


@dataclass(frozen=True)
class History:
    """What happened to each account, bar by bar; the first axis is the bar that was traded in."""

    bars: NDArray[np.int64]  # (bar,) rows of the panel
    equity: Floats  # (bar + 1, account), the first row is the start
    turnover: Floats  # (bar, account) traded notional per equity
    exposure: Floats  # (bar, account) gross weight at the close
    cost: Floats  # (bar, account) costs per equity
    fills: "tuple[Fills, ...]"
    weights: Floats | None = None  # (bar, account, asset) at the closes, where they were recorded

    @property
    def returns(self) -> Floats:
        """Simple returns per bar, net of costs, as fractions: (bar, account); 0 after ruin."""
        before = self.equity[:-1]
        return np.where(before > 0, self.equity[1:] / np.where(before > 0, before, 1.0) - 1, 0.0)

    def accounts(self, chosen: slice) -> "History":
        """The history of some of the accounts; the fills are those of the first one only."""
        names = ("equity", "turnover", "exposure", "cost")
        fills = self.fills if chosen.start in (None, 0) else ()  # they are the first account's
        weights = None if self.weights is None else self.weights[:, chosen]
        parts = {name: getattr(self, name)[:, chosen] for name in names}
        return replace(self, fills=fills, weights=weights, **parts)

    def metrics(self, bars_per_year: float) -> dict[str, float | None]:
        """The figures of the first account, as `evaluation.metrics` defines them, annual ones for a
        year of `bars_per_year` bars; None where a figure does not exist (a ratio to no risk).
        """
        figures = summarise(
            self.returns[:, 0],
            bars_per_year,
            turnover=self.turnover[:, 0],
            exposure=self.exposure[:, 0],
            costs=self.cost[:, 0],
        )
        return {name: float(v) if np.isfinite(v) else None for name, v in figures.as_dict().items()}


class Fills(NamedTuple):
    """What one account traded in one bar; units and money are per unit of starting capital."""

    bar: int
    kind: str  # order or stop
    units: Floats  # (asset,)
    price: Floats
    cost: Floats
    equity: float


@runtime_checkable
class InMoney(Protocol):
    """A policy that states itself which money it orders: as shares of the equity its orders would
    lose their last digit, and that digit may decide whether a position is closed whole.
    """

    def money(self, moment: Moment) -> Floats: ...


def order_in_money(policy: Policy, moment: Moment) -> Floats:
    """A policy's (account, asset) order in money, in units of the starting capital."""
    if isinstance(policy, InMoney):
        return policy.money(moment)
    shares = check_shares(policy(moment), moment.weights.shape)
    return moment.require_accounts().order_shares(shares)


def check_policy(given: object) -> None:
    """Refuse what decides nothing."""
    if not callable(given) and not isinstance(given, InMoney):
        raise RulesError(
            f"the policy is {shorten_repr(given)}: give a baseline, a saved policy, or a function "
            "from a moment to the order"
        )


def check_shares(given: object, shape: tuple[int, ...]) -> Floats:
    """What a policy gave as an (account, asset) array, or a refusal of what is none."""
    try:
        shares = np.asarray(given, np.float64)
    except (TypeError, ValueError):
        shares = np.empty(())
    if shares.ndim == 2 and all(a in (1, b) for a, b in zip(shares.shape, shape, strict=True)):
        return shares
    raise RulesError(
        f"the policy gave {shorten_repr(given)}: give the order as signed shares of the equity, "
        f"an array of {shape[0]} accounts x {shape[1]} assets"
    )


def backtest(
    market: Market,
    policy: Policy,
    accounts: int = 1,
    first: int | None = None,
    stop: int | None = None,
    record_fills: bool = False,
    record_weights: bool = False,
    progress: Progress = lambda bar: None,
) -> History:
    """Run a policy from a decision at the close of bar `first` to the close of bar `stop - 1`.

    market          bars with their rules, as `flatout.build_market` makes them
    policy          what decides at each close: a baseline, a saved policy, or your own function
    accounts        how many accounts follow it side by side
    first, stop     rows of the panel; by default from the first bar with features to the end
    record_fills    keeps the trades of the first account
    record_weights  keeps the weights of all accounts at each close
    progress        is called with each bar

    Equity begins at 1, the starting capital; all figures of the history are per bar and nothing is
    annualised. A ruined account stops trading and keeps what it has.

    >>> from flatout.bars.synthetic import built_in_market
    >>> from flatout.evaluation.baselines import BuyAndHold
    >>> from flatout.market.market import build_market
    >>> history = backtest(build_market(built_in_market(n_bars=300)), BuyAndHold())
    >>> float(history.equity[0, 0])
    1.0
    """
    if not isinstance(market, Market):
        raise RulesError(
            f"the market is of type {type(market).__name__}: give what flatout.build_market makes "
            "of bars"
        )
    check_policy(policy)
    accounts = read_whole(accounts, "accounts", RulesError)
    first, stop = decision_range(market, first, stop)
    tape, rules = market.between(first, stop).arrays(np.float64)
    state = episode.reset(np.zeros(accounts), market.shape, rules, np)
    alive = np.ones(accounts, bool)
    equity, bars, fills, weights = [state.marks.equity], [], [], []
    for t in range(first, stop - 1):
        met, before = meet(tape, state.t, np), state
        seen = Accounts(
            state=state,
            mark=met.mark,
            tape=known_tape(tape, t),
            rules=rules,
            shape=market.shape,
            fitted=market.fitted,
        )
        order = order_in_money(policy, moment_of(market, seen, t, t - first))
        state, outcome = episode.trade(
            state, order.T, met=met, fill=market.shape.fill, rules=rules, xp=np
        )
        equity.append(np.where(alive, np.maximum(state.marks.equity, 0.0), equity[-1]))
        bars.append(np.where(alive, bar_figures(before, state, outcome), 0.0))
        if record_weights:
            weights.append(np.where(alive[:, None], episode.weights_of(state, np).T, 0.0))
        if record_fills and alive[0]:
            fills += fills_of(t + 1, outcome, state)
        alive = alive & ~outcome.terminated
        progress(t + 1)
    turnover, exposure, cost = np.moveaxis(np.array(bars), 1, 0)
    return History(
        bars=np.arange(first + 1, stop),
        equity=np.array(equity),
        turnover=turnover,
        exposure=exposure,
        cost=cost,
        fills=tuple(fills),
        weights=np.array(weights) if record_weights else None,
    )


def bar_figures(before: Episode, after: Episode, outcome: Outcome) -> Floats:
    """Turnover, exposure and cost of a bar as fractions of equity: (3, account), in this order."""
    exposure = np.sum(np.abs(after.account.units * after.close), axis=0) / np.maximum(
        after.marks.equity, LEAST_EQUITY
    )
    cost = np.sum(
        trade_cost(outcome.executed.traded) + trade_cost(outcome.executed.stopped), axis=0
    )
    return np.stack(
        [-outcome.terms.turnover, exposure, cost / np.maximum(before.marks.equity, LEAST_EQUITY)]
    )


def decision_range(market: Market, first: int | None, stop: int | None) -> tuple[int, int]:
    """First bar and stop, as rows of the panel; by default all bars that have warm features."""
    warm = int(market.rules.segments.first[0])
    for name, bar in (("first", first), ("stop", stop)):
        if bar is not None and not isinstance(bar, int | np.integer):
            raise RulesError(f"{name} is {shorten_repr(bar)}: give a row of the panel, or None")
    first, stop = warm if first is None else first, market.panel.n_bars if stop is None else stop
    if not warm <= first < stop - 1 < market.panel.n_bars:
        raise RulesError(
            f"cannot run bars {first}..{stop}: the features are warm from bar {warm}, the panel "
            f"has {market.panel.n_bars} bars, and at least two are needed"
        )
    return first, stop


def moment_of(market: Market, accounts: Accounts, t: int, age: int) -> Moment:
    """What is known at the close of bar t; later bars are not in it."""
    panel, state = market.panel, accounts.state
    year = panel.trading_year
    weights = state.account.units * state.close / state.marks.equity
    return Moment(
        age=age,
        closes=panel.close[: t + 1],
        weights=weights.T,
        bar_seconds=panel.bar_seconds,
        accounts=accounts,
        alive=panel.alive[t],
        bars_per_day=None if year.always_open else year.bars_per_day,
    )


def fills_of(bar: int, outcome: Outcome, state: Episode) -> list[Fills]:
    """The trades of the first account in this bar."""
    kinds = (("order", outcome.executed.traded), ("stop", outcome.executed.stopped))
    worth = float(state.marks.equity[0])
    return [
        Fills(
            bar=bar,
            kind=kind,
            units=trade.units[:, 0],
            price=trade.price[:, 0],
            cost=trade_cost(trade)[:, 0],
            equity=worth,
        )
        for kind, trade in kinds
        if np.any(trade.units[:, 0] != 0)
    ]


@dataclass(frozen=True)
class SideBySide:
    """Several policies in one backtest: each drives its own accounts, in order."""

    policies: tuple[Policy, ...]
    sizes: tuple[int, ...]  # accounts per policy

    def __call__(self, moment: Moment) -> Floats:
        return np.concatenate([policy(own) for policy, own in self.split(moment)])

    def money(self, moment: Moment) -> Floats:
        """The orders of all policies in money, (account, asset)."""
        return np.concatenate([order_in_money(policy, own) for policy, own in self.split(moment)])

    def split(self, moment: Moment) -> list[tuple[Policy, Moment]]:
        """Each policy with the moment of its own accounts."""
        ends = np.cumsum(self.sizes)
        parts = [slice(end - size, end) for end, size in zip(ends, self.sizes, strict=True)]
        return [
            (policy, part_of(moment, part))
            for policy, part in zip(self.policies, parts, strict=True)
        ]


def part_of(moment: Moment, chosen: slice) -> Moment:
    """What a rule sees at a moment, of some of the accounts only."""
    accounts = moment.accounts and moment.accounts.part(chosen)
    return moment._replace(weights=moment.weights[chosen], accounts=accounts)
