"""Where episodes start and end, and what the agent sees of them."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_markets import WARMUP, WHOLE, biting_market, column, random_actions, settings, walk

from flatout.market import episode
from flatout.market.episode import OBSERVATION_LIMIT, Episode, choose_start
from flatout.market.market import Market, build_market
from flatout.market.rules import Segments
from scenarios import random_panel

near = pytest.approx


def segments(bounds: list[tuple[int, int]], length: int) -> Segments:
    first, stop = np.array(bounds, np.int32).T
    return Segments(first, stop, np.asarray(length, np.int32))


# --- starts ---------------------------------------------------------------------------------------


def possible_episodes(bounds: list[tuple[int, int]], length: int) -> list[tuple[int, int]]:
    """All (start, last) pairs; a segment that is too short is used whole."""
    found = []
    for first, stop in bounds:
        whole = [(start, start + length) for start in range(first, stop - length)]
        found += whole or [(first, stop - 1)]
    return found


@st.composite
def bounds(draw: Any) -> list[tuple[int, int]]:
    """One to five segments of 2 to 30 bars with gaps between them."""
    found, at = [], 0
    for gap, size in draw(
        st.lists(st.tuples(st.integers(0, 9), st.integers(2, 30)), min_size=1, max_size=5)
    ):
        found.append((at + gap, at + gap + size))
        at += gap + size
    return found


@given(bounds(), st.integers(1, 40))
def test_every_possible_episode_is_equally_likely(
    bounds: list[tuple[int, int]], length: int
) -> None:
    """Noise in the middle of n equal intervals finds each of the n episodes once, in order."""
    expected = possible_episodes(bounds, length)
    noise = (np.arange(len(expected)) + 0.5) / len(expected)
    for typed in (noise, noise.astype(np.float32)):
        start, last = choose_start(typed, segments(bounds, length), np)
        assert list(zip(start.tolist(), last.tolist(), strict=True)) == expected


@given(bounds(), st.integers(1, 40), st.floats(0, 1, exclude_max=True, width=32))
def test_no_episode_leaves_its_segment(
    bounds: list[tuple[int, int]], length: int, noise: float
) -> None:
    start, last = choose_start(np.array([noise], np.float32), segments(bounds, length), np)
    assert (start[0], last[0]) in possible_episodes(bounds, length)


def test_starts_are_whole_numbers_and_keep_their_type() -> None:
    market = biting_market(episode_bars=5)
    states = walk(
        market, random_actions(market, 20, 4), np.random.default_rng(0).random((21, 4)), np.float32
    ).states
    assert np.issubdtype(states[0].t.dtype, np.integer)
    assert {(s.t.dtype, s.last.dtype) for s in states} == {
        (states[0].t.dtype, states[0].last.dtype)
    }
    assert {leaf.dtype for s in states for leaf in (*s.account, *s.marks, s.close)} == {
        np.dtype(np.float32)
    }


def test_noise_of_one_is_the_last_start() -> None:
    """Uniform noise is below 1, but what rounds up to it must not start beyond the last segment."""
    start, last = choose_start(np.array([1.0], np.float32), segments([(0, 9), (20, 50)], 5), np)
    assert (start[0], last[0]) == (44, 49)


# --- ends -----------------------------------------------------------------------------------------


def crashing_market(bar: int, n_bars: int = 40, ruin: float = 0.5) -> Market:
    """One asset whose price falls by 90 % in a bar."""
    panel = random_panel(0, n_bars, 1, gaps=False)
    level = np.where(np.arange(n_bars) < bar, 100.0, 10.0)[:, None]
    panel = replace(
        panel, open=level, high=level, low=level, close=level, volume=np.full((n_bars, 1), 1e9)
    )
    limits = {"min_notional": 0.0, "participation": 1.0, "ruin": ruin}
    rules = {"limits": limits, "costs": {}, "episode_bars": WHOLE}
    return build_market(panel, settings(action="weights", capital=1.0, **rules))


def fully_invested(market: Market, steps: int) -> Any:
    actions = np.tile(np.array([1.0, -1.0]), (steps, 1, 1))
    return walk(market, actions, np.zeros((steps + 1, 1)))


def test_truncated_at_the_last_bar_of_the_segment() -> None:
    """The first decision is made at the close of the bar after the warm-up; the last bar is only
    arrived at.
    """
    found = fully_invested(crashing_market(bar=99), 2 * (39 - 11))
    ends = np.flatnonzero(found.truncated[:, 0])
    assert ends.tolist() == [39 - 11 - 1, 2 * (39 - 11) - 1]
    assert found.states[ends[0]].t[0] == 39
    assert found.states[ends[0] + 1].t[0] == 12  # after the restart
    assert not found.terminated.any()


def test_ruin_terminates_and_is_not_truncated() -> None:
    found = fully_invested(crashing_market(bar=20), 20 - 11)
    assert found.terminated[:, 0].tolist() == [False] * 8 + [True]
    assert not found.truncated.any()
    assert found.states[-1].marks.equity[0] == near(0.1, rel=0.01)
    spared = fully_invested(crashing_market(bar=20, ruin=0.05), 20 - 11)
    assert not spared.terminated.any()


def test_ruin_at_the_last_bar_is_not_truncated_either() -> None:
    found = fully_invested(crashing_market(bar=39), 39 - 11)
    assert found.terminated[-1, 0]
    assert not found.truncated.any()


def test_nothing_ends_before_its_last_bar() -> None:
    market = biting_market(episode_bars=7)
    found = walk(market, random_actions(market, 60, 8), np.random.default_rng(1).random((61, 8)))
    t, last = (np.stack([getattr(s, name) for s in found.states]) for name in ("t", "last"))
    np.testing.assert_array_equal(
        found.truncated | found.terminated, (t == last) | found.terminated
    )
    assert (t <= last).all()
    assert found.truncated.sum() > 40


# --- restarts -------------------------------------------------------------------------------------


def worn(market: Market, accounts: int = 8) -> Episode:
    """States in the middle of their episodes, with positions, cooldowns and volume."""
    noise = np.random.default_rng(2).random((41, accounts))
    state = walk(market, random_actions(market, 40, accounts), noise).states[-1]
    assert all(
        (x != 0).any() for x in (state.account.units, state.account.cooldown, state.account.volume)
    )
    assert (state.account.units < 0).any()
    return state


def onward(market: Market, state: Episode, steps: int = 30) -> list[np.ndarray]:
    """Observations, rewards, ends and accounts from here on."""
    tape, rules = market.arrays(np.float64)
    seen = [episode.observe(state, tape, market.shape, rules, np)]
    for action in random_actions(market, steps, len(state.t), seed=9).astype(float):
        state, outcome = episode.step(state, action.T, tape, market.shape, rules, np)
        account = state.account
        seen += [
            episode.observe(state, tape, market.shape, rules, np),
            outcome.reward,
            outcome.terminated,
        ]
        seen += [
            account.cash,
            account.units,
            account.held,
            account.cooldown,
            account.volume,
            outcome.truncated,
        ]
    return seen


@pytest.mark.parametrize("fill", ["next_open", "next_close", "same_close"])
def test_restart_equals_a_fresh_start(fill: str) -> None:
    market = biting_market(episode_bars=40, fill=fill)
    noise, rules = np.random.default_rng(3).random(8), market.rules
    again = episode.restart(worn(market), np.ones(8, bool), noise, rules, np)
    fresh = episode.reset(noise, market.shape, rules, np)
    for a, b in zip(onward(market, again), onward(market, fresh), strict=True):
        np.testing.assert_array_equal(a, b)


def test_restart_leaves_the_others_alone() -> None:
    market = biting_market(episode_bars=40)
    state, ended = worn(market), np.arange(8) < 3
    again = episode.restart(state, ended, np.zeros(8), market.rules, np)
    for a, b in zip(
        (*again.account, *again.marks, again.t),
        (*state.account, *state.marks, state.t),
        strict=True,
    ):
        np.testing.assert_array_equal(a[..., ~ended], b[..., ~ended])
    assert (again.t[ended] == WARMUP + 1).all()
    assert (again.account.cash[ended] == 1).all()


# --- observations ---------------------------------------------------------------------------------


def hand_made(market: Market) -> Episode:
    """Equity 1.25 under a peak of 2 at prices 100, 50, 10; weights 0.4, -0.2 and 0."""
    state = episode.reset(np.zeros(1), market.shape, market.rules, np)
    account = state.account._replace(
        cash=np.array([1.0]),
        units=column([0.005, -0.005, 0.0]),
        best=column([125, 40, 77]),
        held=column([4, 6, 0]),
        cooldown=column([0, 1.5, 3]),
        volume=np.array([6.0]),
    )
    marks = state.marks._replace(equity=np.array([1.25]), peak=np.array([2.0]))
    return state._replace(account=account, marks=marks, close=column([100, 50, 10]))


def observed(market: Market, state: Episode) -> np.ndarray:
    """The observation of one account."""
    return episode.observe(state, market.tape, market.shape, market.rules, np)[0]


def test_private_part_of_the_observation() -> None:
    """The account's numbers, then weight, distance from the best price, holding and cooldown per
    asset.
    """
    market = biting_market()
    state = hand_made(market)
    state = state._replace(
        marks=state.marks._replace(mean=np.array([0.002]), mean_square=np.array([0.0009]))
    )
    private = observed(market, state)[2 * 3 * 2 :]
    account = dict(zip(episode.ACCOUNT_FEATURES, private, strict=False))
    assert account["cash"] == near(1 - 0.4 + 0.2)
    assert account["ruin_share"] == near(market.rules.limits.ruin / 1.25)
    assert account["drawdown"] == near(1.25 / 2 - 1)
    assert (account["mean_return"], account["rms_return"]) == near((0.2, 3.0))  # percent
    assert account["fee"] == near(0.2 * 0.04 + 0.8 * 0.08)  # percent; the second tier begins at 5
    assert account["volume_share"] == near(1 - 1 / (1 + state.account.volume[0]))
    weights, drop, held, cooldown = private[len(account) :].reshape(4, 3)
    assert weights == near([0.4, -0.2, 0])
    assert drop == near([100 / 125 - 1, 50 / 40 - 1, 0])  # nothing owned, nothing to drop
    assert held == near([4 / 8, 6 / 8, 0])
    assert cooldown == near([0, 1.5 / 3, 1])


def test_market_part_of_the_observation_is_newest_first() -> None:
    market = biting_market()
    state = hand_made(market)._replace(t=np.array([33]))
    features = market.fitted.transform(market.panel)
    found = observed(market, state)[:12].reshape(2, 3, 2)
    np.testing.assert_array_equal(found, features[[33, 32]])
    at_first_bar = observed(market, state._replace(t=np.array([0])))[:12].reshape(2, 3, 2)
    np.testing.assert_array_equal(at_first_bar, features[[0, 0]])


@pytest.mark.parametrize("assets", [1, 4])
def test_width_of_the_observation(assets: int) -> None:
    market = biting_market(assets=assets)
    width = 2 * assets * 2 + 7 + 4 * assets
    assert market.observation_size == width
    state = episode.reset(np.zeros(5), market.shape, market.rules, np)
    assert episode.observe(state, market.tape, market.shape, market.rules, np).shape == (5, width)


def test_observation_is_bounded() -> None:
    """A nearly ruined account with a large position, far from its best price, long overdue."""
    market = biting_market()
    state = hand_made(market)
    account = state.account._replace(
        units=column([5, -7, 1]), best=column([0.1, 1e6, 3]), held=column([500, 1, 0])
    )
    marks = state.marks._replace(equity=np.array([-3.0]))
    found = observed(market, state._replace(account=account, marks=marks))
    assert np.isfinite(found).all()
    assert np.max(found) == OBSERVATION_LIMIT
    assert np.min(found) == -OBSERVATION_LIMIT


@pytest.mark.parametrize("name", ["units", "best", "held", "cooldown", "volume"])
def test_what_the_rules_depend_on_is_seen(name: str) -> None:
    """Halving a field of the account shows; for the volume it is another tier."""
    market = biting_market()
    state = hand_made(market)
    account = state.account._replace(**{name: getattr(state.account, name) / 2})
    assert not np.array_equal(
        observed(market, state._replace(account=account)), observed(market, state)
    )


def test_what_has_no_meaning_is_not_seen() -> None:
    """The best and last price of an asset that is not owned."""
    market = biting_market()
    state = hand_made(market)
    account = state.account._replace(best=column([125, 40, 1e-3]))
    other = state._replace(account=account, close=column([100, 50, 999]))
    np.testing.assert_array_equal(observed(market, other), observed(market, state))


def test_money_is_relative() -> None:
    """Twice the equity in twice the positions looks the same, but for the level of the equity."""
    market = biting_market()
    state = hand_made(market)
    account = state.account._replace(cash=2 * state.account.cash, units=2 * state.account.units)
    marks = state.marks._replace(equity=2 * state.marks.equity, peak=2 * state.marks.peak)
    difference = observed(market, state._replace(account=account, marks=marks)) - observed(
        market, state
    )
    level = 2 * 3 * 2 + episode.ACCOUNT_FEATURES.index("ruin_share")
    assert difference[level] == near(-market.rules.limits.ruin / 1.25 / 2)
    assert np.delete(difference, level) == near(0)
