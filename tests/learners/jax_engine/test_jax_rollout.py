"""Trajectories and what is made of them before anything is learned: noise, values, advantages,
scaled rewards.
"""

from itertools import product
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from flatout.learners.jax_engine import population as jax_population
from flatout.learners.jax_engine.noise import draw_normal
from flatout.learners.jax_engine.rollout import run_rollout, scale_rewards
from flatout.learners.metrics import MINIBATCH_METRICS
from flatout.learners.trajectory import Batch, Transition
from flatout.policies.network import actor, critic
from rounding import assert_close
from small_learners import DATA, Population, biting_settings, clock, population, train


class Rolled(NamedTuple):
    """Lanes, the state they were in, and one update of each up to what is learned from: (lane, ...)
    each.
    """

    lanes: Population
    before: Any
    after: Any
    steps: Transition
    scaled: Any  # discounted returns, their moments, rewards
    batch: Batch
    key: Any


pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def rolled() -> list[Rolled]:
    """Of the first update and of the second, in episodes that are truncated, terminated,
    truncated.
    """
    lanes = population([biting_settings()] * 3, [clock(5), clock(5, True), clock(3)])

    def look(rates: Any, state: Any) -> Any:
        given = []

        def learn(*_: Any, key: Any, batch: Any, **others: Any) -> Any:
            given.extend((batch, jax.random.key_data(key)))
            return state.network, state.optimiser, jnp.zeros(len(MINIBATCH_METRICS)), 0

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(jax_population, "_learn", learn)
            after, _ = jax_population._update(lanes.program, DATA, rates, state)
        _, steps, _ = run_rollout(lanes.program, DATA, rates, state)
        return after, steps, scale_rewards(rates, state, steps), *given

    look = jax.jit(jax.vmap(look))
    states = (lanes.state, train(lanes, until=1).state)
    return [
        Rolled(lanes, state, *jax.tree.map(np.asarray, look(lanes.rates, state)))
        for state in states
    ]


def of_lane(tree: Any, k: int) -> Any:
    return jax.tree.map(lambda x: x[k], tree)


def last_targets(one: Rolled) -> np.ndarray:
    """(lane, step, env) targets as seen after each step."""
    return np.concatenate(
        [one.steps.seen[:, 1:, :, 1], one.after.view.target[:, None] * DATA[1]], axis=1
    )


def test_the_last_observation_of_a_truncated_episode_is_valued(rolled: list[Rolled]) -> None:
    """Not the first one of the next episode: its clock shows the full time, and its target is the
    next one's.
    """
    one = rolled[1]
    assert one.steps.truncated[0].sum() == 8 * 3 and not one.steps.truncated[1].any()
    for k in (0, 2):
        targets, truncated = last_targets(one)[k], one.steps.truncated[k]
        seen = np.stack([np.ones_like(targets) * DATA[0], targets], axis=-1)
        expected = critic(of_lane(one.before.network, k), seen, "tanh", jnp)
        assert_close(one.steps.final[k][truncated], expected[truncated], roundings=64, size=1.0)


def test_advantages_and_returns_are_those_of_stable_baselines(rolled: list[Rolled]) -> None:
    """Where an episode was truncated their rewards get the discounted value of its last
    observation.
    """
    space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    for one, k in product(rolled, range(3)):
        steps, rates, network = (
            of_lane(x, k) for x in (one.steps, one.lanes.rates, one.before.network)
        )
        value = np.asarray(critic(network, steps.seen, "tanh", jnp))
        ended = steps.terminated | steps.truncated
        buffer = RolloutBuffer(
            16, space, space, "cpu", float(rates.gae_lambda), float(rates.gamma), n_envs=8
        )
        buffer.values[:] = value
        buffer.rewards[:] = one.scaled[2][k] + float(rates.gamma) * steps.truncated * steps.final
        buffer.episode_starts[1:] = ended[:-1]
        view = jax.tree.map(lambda x, k=k: x[k], one.after.view)
        last = np.array(critic(network, jnp.stack(view, axis=-1) * DATA, "tanh", jnp))
        buffer.compute_returns_and_advantage(torch.as_tensor(last), ended[-1])
        batch = jax.tree.map(lambda x: np.reshape(x, (16, 8, *x.shape[1:])), of_lane(one.batch, k))
        size = 1 + np.max(np.abs(buffer.rewards)) + np.max(np.abs(buffer.returns))
        assert_close(batch.value, value, roundings=64, size=size)
        for name, theirs in (("advantage", buffer.advantages), ("returns", buffer.returns)):
            # a sum of 16 steps with two values of some 20 roundings each, whose weights fall by 6 %
            # a step
            assert_close(getattr(batch, name), theirs, roundings=512, size=size, name=name)
        np.testing.assert_array_equal(batch.seen, steps.seen)  # copied
        policy = torch.distributions.Normal(
            torch.as_tensor(np.array(actor(network, steps.seen, "tanh", jnp))),
            torch.as_tensor(np.exp(np.asarray(network.log_std))),
        )
        expected = policy.log_prob(torch.as_tensor(np.array(steps.raw))).sum(-1)
        # squares of a distance in deviations, which is as exact as the actor's head of 64 roundings
        assert_close(
            batch.log_prob, expected, roundings=256, size=1 + np.max(np.abs(expected.numpy()))
        )


def test_every_rollout_and_every_lane_has_its_own_noise(rolled: list[Rolled]) -> None:
    """Of actions, of the environment, and of minibatches."""
    first, second = rolled  # correlations of 128 pairs and more: their deviation is 0.09
    drawn = [
        (x.steps.raw - x.steps.head) / np.exp(np.asarray(x.before.network.log_std))[:, None, None]
        for x in rolled
    ]
    assert abs(np.mean(drawn)) < 0.1 and abs(np.std(drawn) - 1) < 0.1
    for noise in (drawn, [last_targets(x) for x in rolled]):
        rows = np.reshape(noise, (6, -1))
        assert np.abs(np.corrcoef(rows) - np.eye(6)).max() < 0.4
    assert np.unique(np.reshape([first.key, second.key], (6, -1)), axis=0).shape[0] == 6
    starts = first.steps.seen[:, 0, :, 1]
    assert np.unique(starts).size == starts.size


class Replayed(gymnasium.Env):
    """Plays rewards and ends that are given."""

    observation_space = action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, rewards: np.ndarray, ends: np.ndarray) -> None:
        self.script, self.t = list(zip(rewards, ends, strict=True)), 0

    def reset(self, **_: Any) -> Any:
        return np.zeros(1, np.float32), {}

    def step(self, _: Any) -> Any:
        reward, ended = self.script[self.t]
        self.t += 1
        return np.zeros(1, np.float32), float(reward), bool(ended), False, {}


def test_rewards_are_scaled_as_by_vecnormalize(rolled: list[Rolled]) -> None:
    """Over two rollouts, the moments of the first being carried on; also those in the state after a
    chunk.
    """
    first, second = rolled
    lanes = first.lanes
    later = train(lanes, until=2).state
    for k in range(3):
        parts = [of_lane(x.steps, k) for x in rolled]
        reward = np.concatenate([x.reward for x in parts])
        ends = np.concatenate([x.terminated | x.truncated for x in parts])
        players = [lambda r=r, e=e: Replayed(r, e) for r, e in zip(reward.T, ends.T, strict=True)]
        theirs = VecNormalize(
            DummyVecEnv(players), norm_obs=False, gamma=float(lanes.rates.gamma[k])
        )
        theirs.reset()
        expected = np.stack([theirs.step(np.zeros((8, 1)))[1] for _ in range(len(reward))])
        found = np.concatenate([x.scaled[2][k] for x in rolled])
        # 32 merges of moments in float32, some 30 roundings each; what is divided by the deviation
        # keeps its own size
        assert_close(found, expected, roundings=2048, size=expected)
        assert_close(second.scaled[0][k], theirs.returns, roundings=256, dtype=np.float32)
        rms = theirs.ret_rms
        for mean, var, count in (
            [x[k] for x in moments] for moments in (second.scaled[1], later.moments)
        ):
            assert_close(
                mean,
                rms.mean,
                roundings=2048,
                size=np.sqrt(rms.var) + abs(rms.mean),
                dtype=np.float32,
            )
            assert_close(var, rms.var, roundings=2048, size=rms.var + rms.mean**2, dtype=np.float32)
            assert_close(count, rms.count, roundings=2048, dtype=np.float32)


@pytest.mark.parametrize("shape", [(1,), (3, 5, 7), (200, 500)])
def test_noise_is_standard_normal(shape: tuple[int, ...]) -> None:
    """JAX draws the same bits everywhere; of other seeds the fourth moment would err by 0.03, the
    others by less.
    """
    noise = np.asarray(draw_normal(jax.random.key(1), shape))
    assert noise.shape == shape and np.isfinite(noise).all()
    if noise.size > 1000:
        moments = [np.mean(noise**k) for k in (1, 2, 3, 4)]
        np.testing.assert_allclose(moments, [0, 1, 0, 3], atol=0.06)
        assert abs(np.corrcoef(noise[:100].ravel(), noise[100:].ravel())[0, 1]) < 0.02
        assert abs(np.mean(np.abs(noise) < 0.6745) - 0.5) < 0.01
