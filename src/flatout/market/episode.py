"""An episode: one account on one stretch of the tape, from a random bar to the end of its segment or to ruin.

Pure functions of (state, action, tape, rules, xp); noise is an argument. The end of a stretch is *truncated* (the tape knows the
next bar, so the value may be bootstrapped); ruin is *terminated*. Drivers decide when to restart; none of them holds market logic.
"""

from typing import NamedTuple

from flatout.arrays import Array, Namespace, batch_contiguous, take_rows
from flatout.market.account import Account, equity, open_account
from flatout.market.execute import Fill, Trade, execute, fee_rate
from flatout.market.orders import ActionKind, order_from
from flatout.market.rewards import LEAST_EQUITY, Marks, RewardTerms, first_marks, reward_terms, weighted
from flatout.market.rules import Rules, Segments
from flatout.market.tape import Tape, next_bar

ACCOUNT_FEATURES = 3  # cash weight, drawdown, fee in percent
POSITION_FEATURES = 4  # per asset: weight, distance from the best price, share of the longest holding, share of the cooldown

OBSERVATION_LIMIT = 10.0  # no component is larger: scalers clip features there, `observe` clips the rest


class Shape(NamedTuple):
    """What fixes the program rather than being data in it."""

    n_assets: int
    n_features: int  # per asset and bar
    lookback: int  # bars in the observation, newest first
    action: ActionKind
    fill: Fill

    @property
    def observation_size(self) -> int:
        """Width of an observation."""
        market = self.lookback * self.n_assets * self.n_features
        return market + ACCOUNT_FEATURES + POSITION_FEATURES * self.n_assets


class Episode(NamedTuple):
    """The state of an episode; all that changes from bar to bar."""

    account: Account
    marks: Marks
    close: Array  # (..., asset) prices of the last mark
    t: Array  # (...) the bar at whose close the agent decides
    last: Array  # (...) the bar at which the episode is truncated


class Outcome(NamedTuple):
    """What a step tells: (...) each, trades (..., asset)."""

    reward: Array
    terminated: Array
    truncated: Array
    terms: RewardTerms
    traded: Trade
    stopped: Trade


def choose_start(noise: Array, segments: Segments, xp: Namespace) -> tuple[Array, Array]:
    """First and last bar of an episode from uniform noise in [0, 1): every possible start is equally likely."""
    possible = segments.stop - segments.length - segments.first
    possible = xp.clip(possible, 1, None)  # a segment shorter than the episode is used whole
    upto = xp.cumulative_sum(possible)
    draw = xp.astype(xp.floor(noise * xp.astype(upto[-1], noise.dtype)), upto.dtype)
    draw = xp.minimum(draw, upto[-1] - 1)
    segment = xp.sum(xp.astype(draw[..., None] >= upto, upto.dtype), axis=-1)
    flat = xp.reshape(segment, (-1,))
    stop, offset = (
        xp.reshape(xp.take(values, flat, axis=0), segment.shape)
        for values in (segments.stop, segments.first - (upto - possible))
    )
    start = draw + offset
    return start, xp.minimum(start + segments.length, stop - 1)


def reset(noise: Array, shape: Shape, rules: Rules, xp: Namespace) -> Episode:
    """Fresh episodes, one for each element of the uniform noise."""
    start, last = choose_start(noise, rules.segments, xp)
    prices = batch_contiguous(xp.stack([xp.ones_like(noise)] * shape.n_assets, axis=-1))
    account = open_account(prices, xp)
    return Episode(account, first_marks(account.cash, xp), prices, start, last)


def step(
    state: Episode, action: Array, tape: Tape, shape: Shape, rules: Rules, xp: Namespace
) -> tuple[Episode, Outcome]:
    """One bar: the order made at the close of bar t meets bar t + 1. No restart happens here."""
    mark, bar = next_bar(tape, state.t, xp)
    order = order_from(shape.action, action, state.account, state.marks.equity, mark, rules.limits, xp)
    account, trades = execute(state.account, order, mark, bar, rules.costs, rules.limits, shape.fill, xp)
    worth = equity(account, bar.close, xp)
    traded = xp.sum(sum(xp.abs(trade.units) * trade.price for trade in trades), axis=-1)
    flat = xp.reshape(state.t, (-1,))
    benchmark = xp.reshape(xp.take(tape.benchmark, flat, axis=0), state.t.shape)
    values = account.units * bar.close
    marks, terms = reward_terms(state.marks, worth, values, traded, benchmark, rules.reward, xp)
    arrived = Episode(account, marks, bar.close, state.t + 1, state.last)
    terminated = worth <= rules.limits.ruin
    truncated = (arrived.t >= state.last) & ~terminated
    return arrived, Outcome(weighted(terms, rules.reward), terminated, truncated, terms, *trades)


def observe(state: Episode, tape: Tape, shape: Shape, rules: Rules, xp: Namespace) -> Array:
    """What the agent sees: market features of the last `lookback` bars, newest first, then its own account: (..., feature)."""
    market = [market_features(tape, state.t - lag, xp) for lag in range(shape.lookback)]
    private = xp.concat(private_features(state, rules, xp), axis=-1)
    return xp.concat([*market, xp.clip(private, -OBSERVATION_LIMIT, OBSERVATION_LIMIT)], axis=-1)


def market_features(tape: Tape, t: Array, xp: Namespace) -> Array:
    """The features of bar t; before the first bar those of the first."""
    flat = xp.reshape(xp.clip(t, 0, None), (-1,))
    return xp.reshape(xp.take(tape.features, flat, axis=0), (*t.shape, tape.features.shape[-1]))


def private_features(state: Episode, rules: Rules, xp: Namespace) -> list[Array]:
    """The account as the agent sees it: all that the rules and rewards depend on, so that the state is Markov."""
    account, worth = state.account, state.marks.equity
    weights = account.units * (state.close / xp.clip(worth, LEAST_EQUITY, None)[..., None])
    owned = xp.astype(account.units != 0, worth.dtype)
    fee = 100 * fee_rate(account, rules.costs, xp)
    single = xp.stack([1 - xp.sum(weights, axis=-1), worth / state.marks.peak - 1, fee], axis=-1)
    return [
        single,
        weights,
        owned * (state.close / account.best - 1),
        account.held / rules.limits.max_held_bars,
        account.cooldown / xp.clip(rules.limits.cooldown_bars, 1.0, None),
    ]
