"""Every account starts somewhere else, by whatever driver, and where it is asked to start."""

from collections.abc import Callable
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv
from hypothesis import given
from hypothesis import strategies as st
from small_markets import biting_market

from flatout.errors import RulesError
from flatout.market import episode, jax_market
from flatout.market.gymnasium_env import MarketEnv, MarketVectorEnv
from flatout.market.market import Market
from flatout.market.rules import Segments
from flatout.market.starts import LONGEST_EPISODE, check_starts, choose_episode_bars
from flatout.market.torch_market import TorchMarket

ACCOUNTS = 64
FIRST, STOP = 11, 600  # the first bar that has all features, and the end
DEFAULT = (STOP - FIRST) // 4


def many_bars() -> Market:
    return biting_market(STOP)


def vector_starts(market: Market, seed: int, start: Any = None) -> np.ndarray:
    options = None if start is None else {"start": start}
    return MarketVectorEnv(market, ACCOUNTS).reset(seed=seed, options=options)[1]["bar"]


def single_starts(market: Market, seed: int, start: Any = None) -> np.ndarray:
    env, found = MarketEnv(market), []
    for k in range(ACCOUNTS):
        asked = start if start is None or np.ndim(start) == 0 else start[k]
        options = None if start is None else {"start": asked}
        found.append(env.reset(seed=seed if k == 0 else None, options=options)[1]["bar"])
    return np.array(found)


def torch_starts(market: Market, seed: int, start: Any = None) -> np.ndarray:
    driver = TorchMarket(market, ACCOUNTS, seed=seed)
    if start is not None:
        driver.reset(options={"start": start})
    return driver.state.t.numpy()


def jax_starts(market: Market, seed: int, start: Any = None) -> np.ndarray:
    _, rules = jax_market.upload(market)
    noise = jax.random.uniform(jax.random.key(seed), (ACCOUNTS,))
    return np.asarray(jax_market.reset(noise, rules, market.shape, start).t)


Starts = Callable[..., np.ndarray]
DRIVERS: dict[str, Starts] = {
    "MarketEnv": single_starts,
    "MarketVectorEnv": vector_starts,
    "TorchMarket": torch_starts,
    "jax_market": jax_starts,
}
each_driver = pytest.mark.parametrize("starts", DRIVERS.values(), ids=DRIVERS)


# --- nobody asks ----------------------------------------------------------------------------------


@each_driver
def test_without_episode_bars_every_account_starts_somewhere_else(starts: Starts) -> None:
    """64 of about 440 bars: some fall together by chance, all of them never."""
    found = starts(many_bars(), seed=0)
    assert len(set(found.tolist())) > ACCOUNTS / 2
    assert found.min() >= FIRST
    assert found.max() + DEFAULT < STOP
    assert np.ptp(found) > (STOP - FIRST) / 2


@each_driver
def test_equal_seeds_start_at_equal_bars(starts: Starts) -> None:
    market = many_bars()
    np.testing.assert_array_equal(starts(market, seed=3), starts(market, seed=3))
    assert not np.array_equal(starts(market, seed=3), starts(market, seed=4))


def test_accounts_of_ppo_start_somewhere_else() -> None:
    """`flatout.PPO` draws its accounts from the rules of the market that it is given."""
    from flatout.sb3.array_envs import read_array_envs

    envs = read_array_envs(many_bars())
    assert envs is not None
    noise = np.random.default_rng(0).random(envs.n_envs, np.float32)
    state = envs.environment.reset(noise, envs.data, envs.rules)
    assert len(set(np.asarray(state.t).tolist())) > envs.n_envs / 2


@pytest.mark.parametrize(
    ("asked", "n_bars", "bars"),
    [(None, 400, 100), (None, 10**6, LONGEST_EPISODE), (None, 3, 2), (50, 400, 50)],
)
def test_episodes_are_short_enough_to_start_in_many_places(
    asked: int | None, n_bars: int, bars: int
) -> None:
    assert choose_episode_bars(asked, n_bars) == bars


def test_an_episode_lasts_as_long_as_the_default_says() -> None:
    env = MarketEnv(many_bars().between(FIRST, STOP))
    _, info = env.reset(seed=0)
    assert env.state is not None
    assert env.state.last[0] - info["bar"] == DEFAULT


# --- somebody asks --------------------------------------------------------------------------------


@each_driver
def test_accounts_start_where_they_are_asked_to(starts: Starts) -> None:
    market = many_bars()
    np.testing.assert_array_equal(starts(market, 0, 77), np.full(ACCOUNTS, 77))
    each = np.arange(ACCOUNTS) * 9 + FIRST
    np.testing.assert_array_equal(starts(market, 0, each), each)


@each_driver
@pytest.mark.parametrize("bad", [FIRST - 1, STOP - 1, -1, 10**6])
def test_bars_in_which_no_episode_may_start_are_refused(starts: Starts, bad: int) -> None:
    with pytest.raises(
        RulesError, match=rf"asks for bar {bad}: .* at the close of bars {FIRST} to {STOP - 2}"
    ):
        starts(many_bars(), 0, bad)


@pytest.mark.parametrize("bad", [2.5, "30", True, [20, 30], np.full((2, 64), 20), {"bar": 20}])
def test_what_is_no_bar_is_refused(bad: Any) -> None:
    env = MarketVectorEnv(many_bars(), ACCOUNTS)
    with pytest.raises(RulesError, match="give the number of a bar, a whole one, or one for each"):
        env.reset(options={"start": bad})
    assert env.state is None


def test_an_episode_that_is_asked_for_lasts_as_any_other() -> None:
    """Its length, or to the end of its segment; the first trade is that of the bar after."""
    env = MarketEnv(biting_market(STOP, episode_bars=20))
    for start, last in ((100, 120), (STOP - 2, STOP - 1)):
        env.reset(seed=0, options={"start": start})
        assert env.state is not None
        assert env.state.last[0] == last
        ends = []
        while not any(ends):
            *_, terminated, truncated, info = env.step(np.zeros(3, np.float32))
            ends = [terminated, truncated]
        assert (ends, info["bar"]) == ([False, True], last)


def test_what_is_asked_for_leaves_later_episodes_to_chance() -> None:
    """Asking draws as much noise as not asking."""
    market = many_bars()
    one, other = MarketEnv(market), MarketEnv(market)
    one.reset(seed=5)
    other.reset(seed=5, options={"start": 50})
    assert one.reset()[1]["bar"] == other.reset()[1]["bar"]


def test_only_accounts_of_the_mask_start_where_they_are_asked_to() -> None:
    env = MarketVectorEnv(many_bars(), 4)
    before = env.reset(seed=0)[1]["bar"]
    mask = np.array([True, False, False, True])
    after = env.reset(options={"start": 40, "reset_mask": mask})[1]["bar"]
    np.testing.assert_array_equal(after, np.where(mask, 40, before))


def test_gymnasium_passes_the_option_on() -> None:
    market = many_bars()
    made = gymnasium.make("flatout/Market-v0", bars=market)
    assert made.reset(options={"start": 44})[1]["bar"] == 44
    several = SyncVectorEnv([lambda: MarketEnv(market)] * 2)
    assert several.reset(options={"start": 45})[1]["bar"].tolist() == [45, 45]


def test_a_compiled_reset_takes_starts() -> None:
    market = many_bars()
    _, rules = jax_market.upload(market)
    compiled = jax.jit(lambda noise, start: jax_market.reset(noise, rules, market.shape, start))
    state = compiled(jnp.zeros(3), jnp.asarray([20, 30, 40], jnp.int32))
    assert state.t.tolist() == [20, 30, 40]
    assert (state.last - state.t).tolist() == [DEFAULT] * 3


def two_segments(length: int) -> Segments:
    """Not in order, with an empty one between."""
    given = ([50, 0, 5], [90, 0, 20], length)
    return Segments(*(np.array(x, np.int32) for x in given))


@given(st.integers(0, 95), st.integers(1, 60))
def test_episodes_end_in_the_segment_in_which_they_start(start: int, length: int) -> None:
    segments = two_segments(length)
    ends = [stop for first, stop in ((50, 90), (5, 20)) if first <= start <= stop - 2]
    if not ends:
        with pytest.raises(RulesError, match="bars 50 to 88, 5 to 18"):
            check_starts(start, 1, segments)
        return
    last = episode.find_last(check_starts(start, 1, segments), segments, np)
    assert last.tolist() == [min(start + length, ends[0] - 1)]
