"""The JAX market: the NumPy market inside one compiled program."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_markets import biting_market, random_actions, walk

from flatout.market import jax_market
from flatout.market.market import Market

ACTIONS = ["trade", "weights", "direction_amount"]


@pytest.fixture(autouse=True)
def ranks_are_given() -> Iterator[None]:
    """Broadcasting a (asset,) array against an (asset, account) one is a mistake here: JAX shall say so."""
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


def compare(market: Market, steps: int, dtype: Any, tolerance: float) -> np.ndarray:
    """Two implementations, one trajectory; returns where it was truncated."""
    actions, noise = random_actions(market, steps, 6), np.random.default_rng(0).random((steps + 1, 6), np.float32)
    tape, rules = jax_market.upload(market)
    inputs = (jnp.asarray(x.astype(dtype)) for x in (actions, noise))
    found = scanned(*inputs, tape, rules, market.shape)
    final, first, rewards, terminated, truncated = map(np.asarray, found)
    assert final.dtype == rewards.dtype == dtype
    expected = walk(market, actions, noise, dtype)
    np.testing.assert_allclose(final, expected.observations, atol=tolerance, rtol=tolerance)
    np.testing.assert_allclose(rewards, expected.rewards, atol=tolerance, rtol=tolerance)
    np.testing.assert_array_equal(terminated, expected.terminated)
    np.testing.assert_array_equal(truncated, expected.truncated)
    going = ~(terminated | truncated)
    np.testing.assert_array_equal(final[going], first[going])
    assert (first[~going][:, 12:] != final[~going][:, 12:]).any(axis=1).all()
    return truncated


@pytest.mark.parametrize("action", ACTIONS)
def test_equals_numpy_in_double_precision(action: str) -> None:
    with jax.enable_x64(True):
        truncated = compare(biting_market(60, action=action, episode_bars=15), 60, np.float64, 1e-9)
    assert truncated.sum() > 10


@pytest.mark.parametrize("action", ACTIONS)
def test_equals_numpy_in_single_precision(action: str) -> None:
    assert compare(biting_market(60, action=action, episode_bars=15), 60, np.float32, 2e-4).sum() > 10


@pytest.mark.parametrize("fill", ["next_close", "same_close"])
def test_equals_numpy_for_other_fills(fill: str) -> None:
    with jax.enable_x64(True):
        truncated = compare(biting_market(60, fill=fill, episode_bars=15), 60, np.float64, 1e-9)
    assert truncated.sum() > 10


def test_upload_keeps_precision_and_whole_numbers() -> None:
    market = biting_market(60)
    tape, rules = jax_market.upload(market)
    assert {x.dtype for x in (*tape, *rules.costs, *rules.limits)} == {jnp.dtype("float32")}
    assert {x.dtype for x in rules.segments} == {jnp.dtype("int32")}
    with jax.enable_x64(True):
        assert jax_market.upload(market)[0].columns.dtype == jnp.float64


def test_the_timed_scan_counts_and_goes_on() -> None:
    """What the bench times: each call goes on where the last one ended, in one compilation."""
    market = biting_market(60, episode_bars=15)
    actions = np.random.default_rng(0).uniform(-1, 1, (4, 5, market.action_size)).astype(np.float32)
    run = jax_market.timed_scan(market, actions)
    assert [run(), run()] == [20, 20]


def test_populations_of_rules_by_vmap() -> None:
    """Lanes with different rules in one program equal the lanes one by one."""
    market = biting_market(60, episode_bars=15)
    tape, rules = jax_market.upload(market)
    fees = jnp.asarray([0.5, 1.0, 4.0])
    lanes = jax.tree.map(lambda x: jnp.stack([x] * 3), rules)
    lanes = lanes._replace(costs=lanes.costs._replace(taker_fee=lanes.costs.taker_fee * fees[:, None]))
    inputs = jnp.asarray(random_actions(market, 20, 6)), jnp.zeros((21, 6))
    together = jax.vmap(lambda lane: scanned(*inputs, tape, lane, market.shape)[2])(lanes)
    for k in range(3):
        alone = scanned(*inputs, tape, jax.tree.map(lambda x, k=k: x[k], lanes), market.shape)[2]
        np.testing.assert_allclose(together[k], alone, atol=1e-5)
    assert np.abs(together[0] - together[2]).max() > 1e-3
