"""The JAX market: the NumPy market inside one compiled program."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_markets import bars_of, biting_market, float32_bars, random_actions, reward_size, walk

from flatout.market import jax_market
from flatout.market.episode import OBSERVATION_LIMIT
from flatout.market.market import Market
from rounding import assert_close
from scenarios import BAR_ROUNDINGS

# Orders are made from actions before they are filled: four pairs show all of both.
KINDS = [
    ("trade", "next_open"),
    ("weights", "next_close"),
    ("direction_amount", "same_close"),
    ("discrete", "next_open"),
]
EPISODE = 15  # bars
# over an episode; ten times, for what was cut or averaged may have grown
CHAIN = 10 * EPISODE * BAR_ROUNDINGS


@pytest.fixture(autouse=True)
def ranks_are_given() -> Iterator[None]:
    """Broadcasting a (asset,) array against an (asset, account) one is a mistake here: JAX shall
    say so.
    """
    with jax.numpy_rank_promotion("raise"):
        yield


@partial(jax.jit, static_argnums=4)
def scanned(actions: Any, noise: Any, tape: Any, rules: Any, shape: Any) -> Any:
    """Observations before and after restarts, rewards and ends of every step, in one program."""

    def body(state: Any, inputs: Any) -> Any:
        state, result = jax_market.step(state, *inputs, tape, rules, shape)
        views = [jax_market.observe(x, tape, rules, shape) for x in (result.arrived, state)]
        outcome = result.outcome
        return state, (*views, outcome.reward, outcome.terminated, outcome.truncated)

    return jax.lax.scan(body, jax_market.reset(noise[0], rules, shape), (actions, noise[1:]))[1]


def compare(market: Market, steps: int) -> np.ndarray:
    """Two implementations in float64, one trajectory; returns where it was truncated."""
    actions, noise = (
        random_actions(market, steps, 6),
        np.random.default_rng(0).random((steps + 1, 6), np.float32),
    )
    tape, rules = jax_market.upload(market)
    inputs = (jnp.asarray(x.astype(np.float64)) for x in (actions, noise))
    found = scanned(*inputs, tape, rules, market.shape)
    final, first, rewards, terminated, truncated = map(np.asarray, found)
    assert final.dtype == rewards.dtype == np.float64
    expected = walk(market, actions, noise)
    np.testing.assert_array_equal(terminated, expected.terminated)
    np.testing.assert_array_equal(truncated, expected.truncated)
    assert_close(final, expected.observations, roundings=CHAIN, size=OBSERVATION_LIMIT)
    sizes = np.max([reward_size(state, market.rules) for state in expected.states])
    assert_close(rewards, expected.rewards, roundings=CHAIN, size=sizes)
    going = ~(terminated | truncated)
    # One account seen twice in one program: the compiler may still round two copies of an
    # expression differently.
    assert_close(final[going], first[going], roundings=BAR_ROUNDINGS, size=OBSERVATION_LIMIT)
    assert (first[~going][:, 12:] != final[~going][:, 12:]).any(axis=1).all()
    return truncated


@pytest.mark.long
@pytest.mark.parametrize(("action", "fill"), KINDS)
def test_equals_numpy_in_double_precision(action: str, fill: str) -> None:
    with jax.enable_x64(True):
        truncated = compare(biting_market(60, action=action, fill=fill, episode_bars=EPISODE), 60)
    assert truncated.sum() > 10


def test_upload_keeps_precision_and_whole_numbers() -> None:
    market = biting_market(60)
    tape, rules = jax_market.upload(market)
    assert {x.dtype for x in (*tape, *rules.costs, *rules.limits)} == {jnp.dtype("float32")}
    assert {x.dtype for x in rules.segments} == {jnp.dtype("int32")}
    with jax.enable_x64(True):
        assert jax_market.upload(market)[0].columns.dtype == jnp.float64


@pytest.mark.long
@pytest.mark.parametrize(("action", "fill"), KINDS)
def test_populations_of_rules_by_vmap_equal_numpy_in_single_precision(
    action: str, fill: str
) -> None:
    """Lanes with different rules in one program, bar by bar: see `float32_bars`."""
    market = biting_market(60, action=action, fill=fill, episode_bars=EPISODE)
    state, actions = float32_bars(market)[:2]
    costs = market.rules.costs
    lanes = [
        replace(
            market,
            rules=market.rules._replace(costs=costs._replace(taker_fee=costs.taker_fee * times)),
        )
        for times in (0.5, 1.0, 4.0)
    ]
    tape, _ = jax_market.upload(market)
    rules = jax.tree.map(
        lambda *leaves: jnp.stack(leaves), *(jax_market.upload(lane)[1] for lane in lanes)
    )

    @jax.jit
    @partial(jax.vmap, in_axes=(None, None, None, 0))
    def one_bar(state: Any, action: Any, tape: Any, rules: Any) -> Any:
        _, (outcome, arrived) = jax_market.step(
            state, action, jnp.zeros(len(action)), tape, rules, market.shape
        )
        observation = jax_market.observe(arrived, tape, rules, market.shape)
        return observation, outcome.reward, outcome.terminated, outcome.truncated

    found = one_bar(state, actions, tape, rules)
    for k, lane in enumerate(lanes):
        bars_of(lane, state, actions).check(*(x[k] for x in found))
    assert np.median(np.abs(found[1][0] - found[1][2])) > 1e-3
