"""An episode: one account on one stretch of the tape, from a random bar to the end of its segment
or to ruin.

Pure functions of (state, action, tape, rules, xp); noise is an argument. The end of a stretch is
*truncated* (the tape knows the next bar, so the value may be bootstrapped); ruin is *terminated*.
Drivers decide when to restart; none of them holds market logic.
"""

from typing import NamedTuple

from flatout.arrays import Array, Namespace, first_axis_last, square_root, take_rows
from flatout.market.account import Account, equity, open_account
from flatout.market.execute import Executed, execute, fee_rate, gate
from flatout.market.orders import order_from
from flatout.market.rewards import (
    LEAST_EQUITY,
    Marks,
    RewardTerms,
    first_marks,
    reward_terms,
    weigh_terms,
)
from flatout.market.rules import Rules, Segments
from flatout.market.tape import Meeting, Tape, meet
from flatout.settings.tables import ActionKind, Fill

# What the agent sees of its own account: all that the rules and rewards depend on, so that the
# state is Markov. Equity and volume appear as shares that stay below 1 however long an account
# trades: a policy that learned in short episodes would otherwise meet numbers it has never seen.
ACCOUNT_FEATURES = (
    "cash",
    "ruin_share",
    "drawdown",
    "mean_return",
    "rms_return",
    "fee",
    "volume_share",
)
POSITION_FEATURES = (
    "weight",
    "from_best",
    "held",
    "cooldown",
)  # per asset; the last two as shares of their limits
# no component is larger: scalers clip features there, `observe` clips the rest
OBSERVATION_LIMIT = 10.0


class Shape(NamedTuple):
    """What fixes the program rather than being data in it."""

    n_assets: int
    n_features: int  # per asset and bar
    lookback: int  # bars in the observation, newest first
    action: ActionKind
    fill: Fill
    levels: tuple[float, ...] = ()  # among which `discrete` actions choose, shares of the equity

    @property
    def observation_size(self) -> int:
        """Width of an observation."""
        market = self.lookback * self.n_assets * self.n_features
        return market + len(ACCOUNT_FEATURES) + len(POSITION_FEATURES) * self.n_assets


class Episode(NamedTuple):
    """The state of an episode; all that changes from bar to bar."""

    account: Account
    marks: Marks
    close: Array  # (asset, ...) prices of the last mark
    t: Array  # (...) the bar at whose close the agent decides
    last: Array  # (...) the bar at which the episode is truncated


class Outcome(NamedTuple):
    """What a step tells; (...) each."""

    reward: Array
    terminated: Array
    truncated: Array
    terms: RewardTerms
    executed: Executed


def choose_start(noise: Array, segments: Segments, xp: Namespace) -> tuple[Array, Array]:
    """First and last bar of an episode from uniform noise in [0, 1): every possible start is
    equally likely.
    """
    first, stop = segments.first, segments.stop
    possible = xp.clip(
        stop - segments.length - first, 1, None
    )  # a segment shorter than the episode is used whole
    possible = xp.where(
        stop > first, possible, xp.zeros_like(possible)
    )  # an empty one, which must not be first, never
    total = xp.sum(possible)
    draw = xp.astype(xp.floor(noise * xp.astype(total, noise.dtype)), total.dtype)
    draw = xp.minimum(draw, total - 1)
    start, end = first[0] + draw, stop[0] + xp.zeros_like(draw)
    for k in range(1, first.shape[0]):
        before = xp.sum(possible[:k])
        start = xp.where(draw >= before, first[k] + draw - before, start)
        end = xp.where(draw >= before, stop[k], end)
    return start, xp.minimum(start + segments.length, end - 1)


def find_last(start: Array, segments: Segments, xp: Namespace) -> Array:
    """The last bars of episodes that start at these bars, each of which lies in a segment."""
    first, stop = segments.first, segments.stop
    end = stop[0] + xp.zeros_like(start)
    for k in range(1, first.shape[0]):
        end = xp.where((start >= first[k]) & (start < stop[k]), stop[k], end)
    return xp.minimum(start + segments.length, end - 1)


def reset(
    noise: Array, shape: Shape, rules: Rules, xp: Namespace, start: Array | None = None
) -> Episode:
    """Fresh episodes, one for each element of the uniform noise, which says where they start unless
    `start` does.
    """
    if start is None:
        start, last = choose_start(noise, rules.segments, xp)
    else:
        last = find_last(start, rules.segments, xp)
    prices = xp.stack([xp.ones_like(noise)] * shape.n_assets, axis=0)
    account = open_account(prices, xp)
    return Episode(
        account=account, marks=first_marks(account.cash, xp), close=prices, t=start, last=last
    )


def restart(state: Episode, ended: Array, noise: Array, rules: Rules, xp: Namespace) -> Episode:
    """The same episodes, but fresh where they have ended.

    A flat account's best prices and last closes have no meaning, so they may stay: entry sets the
    one, the next bar the other.
    """
    start, last = choose_start(noise, rules.segments, xp)
    account, marks = state.account, state.marks
    new = xp.astype(ended, noise.dtype)
    going = 1 - new
    return Episode(
        account=account._replace(
            cash=account.cash * going + new,
            units=account.units * going[None],
            held=account.held * going[None],
            cooldown=account.cooldown * going[None],
            volume=account.volume * going,
        ),
        marks=Marks(
            marks.equity * going + new,
            marks.peak * going + new,
            marks.mean * going,
            marks.mean_square * going,
        ),
        close=state.close,
        t=xp.where(ended, start, state.t),
        last=xp.where(ended, last, state.last),
    )


def step(
    state: Episode, action: Array, tape: Tape, shape: Shape, rules: Rules, xp: Namespace
) -> tuple[Episode, Outcome]:
    """One bar: the (action, ...) order made at the close of bar t meets bar t + 1. No restart
    happens here.
    """
    met = meet(tape, state.t, xp)
    order = order_from(
        shape.action,
        action,
        account=state.account,
        worth=state.marks.equity,
        mark=met.mark,
        limits=rules.limits,
        xp=xp,
        levels=shape.levels,
    )
    return trade(state, order, met=met, fill=shape.fill, rules=rules, xp=xp)


def trade(
    state: Episode, order: Array, met: Meeting, fill: Fill, rules: Rules, xp: Namespace
) -> tuple[Episode, Outcome]:
    """One bar for an (asset, ...) order in money, whatever it was made from."""
    mark, bar, benchmark = met
    account, executed = execute(
        state.account,
        order,
        mark=mark,
        bar=bar,
        costs=rules.costs,
        limits=rules.limits,
        fill=fill,
        xp=xp,
    )
    worth, values = equity(account, bar.close, xp), account.units * bar.close
    marks, terms = reward_terms(
        state.marks,
        worth,
        values=values,
        moves=bar.close / bar.open - 1,
        traded=executed.notional,
        benchmark=benchmark,
        weights=rules.reward,
        xp=xp,
    )
    arrived = Episode(account=account, marks=marks, close=bar.close, t=state.t + 1, last=state.last)
    terminated = worth <= rules.limits.ruin
    truncated = (arrived.t >= state.last) & ~terminated
    return arrived, Outcome(
        reward=weigh_terms(terms, rules.reward),
        terminated=terminated,
        truncated=truncated,
        terms=terms,
        executed=executed,
    )


def observe(state: Episode, tape: Tape, shape: Shape, rules: Rules, xp: Namespace) -> Array:
    """What the agent sees, (..., feature): the market of the last `lookback` bars, newest first,
    then itself.
    """
    return join(
        state.t,
        first_axis_last(private_features(state, rules, xp), xp),
        tape=tape,
        shape=shape,
        xp=xp,
    )


def join(t: Array, private: Array, tape: Tape, shape: Shape, xp: Namespace) -> Array:
    """The observation at bars t of accounts whose (..., feature) private features are known
    already.
    """
    market = [
        take_rows(tape.features, xp.clip(t - lag, 0, None), xp) for lag in range(shape.lookback)
    ]
    return xp.concat([*market, private], axis=-1)


def weights_of(state: Episode, xp: Namespace) -> Array:
    """The positions as shares of the equity, at the last close: (asset, ...)."""
    worth = xp.clip(state.marks.equity, LEAST_EQUITY, None)
    return state.account.units * (state.close / worth[None])


def private_features(state: Episode, rules: Rules, xp: Namespace) -> Array:
    """The account's features, then each position feature of all assets: (feature, ...)."""
    account, marks = state.account, state.marks
    worth = xp.clip(marks.equity, LEAST_EQUITY, None)
    weights = weights_of(state, xp)
    single = [
        1 - xp.sum(weights, axis=0),
        rules.limits.ruin / worth,
        marks.equity / marks.peak - 1,
        100 * marks.mean,
        100 * square_root(marks.mean_square, xp),
        100 * fee_rate(account, rules.costs, xp),
        account.volume / (1 + account.volume),
    ]
    from_best = gate(state.close / account.best - 1, account.units != 0, xp)
    held = account.held / rules.limits.max_held_bars
    cooldown = account.cooldown / xp.clip(rules.limits.cooldown_bars, 1.0, None)
    private = xp.concat([xp.stack(single, axis=0), weights, from_best, held, cooldown], axis=0)
    return xp.clip(private, -OBSERVATION_LIMIT, OBSERVATION_LIMIT)
