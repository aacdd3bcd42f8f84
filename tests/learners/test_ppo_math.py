"""PPO's math against Stable-Baselines3: its buffer, the formulas of its training, its running
moments.
"""

from typing import Any, NamedTuple

import gymnasium
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.running_mean_std import RunningMeanStd
from stable_baselines3.common.utils import explained_variance as sb3_explained_variance
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from array_libraries import DIFFERENTIABLE, LIBRARIES, gradient, run
from flatout.learners import ppo_math
from flatout.learners.ppo_math import (
    Moments,
    explained_variance,
    following_values,
    normalise,
    policy_loss,
    value_loss,
)
from flatout.market.rules import OFF
from rounding import assert_close

SPACE = gymnasium.spaces.Box(-1, 1, (1,))
FIRST = Moments(np.float64(0), np.float64(1), np.float64(1e-4))


class Trajectories(NamedTuple):
    """What gae is given, and the values around it: (time, env), but `last` (env,)."""

    reward: np.ndarray
    value: np.ndarray
    last: np.ndarray
    final: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray


def trajectories(steps: int, envs: int, seed: int = 0, ends: float = 0.15) -> Trajectories:
    """Random ones; some steps both terminate and truncate."""
    rng = np.random.default_rng(seed)
    reward, value, final = rng.normal(size=(3, steps, envs))
    terminated, truncated = rng.random((2, steps, envs)) < ends
    return Trajectories(reward, value, rng.normal(size=envs), final, terminated, truncated)


def advantages(path: Trajectories, gamma: Any, lam: Any, xp: Any) -> Any:
    """Advantages and returns."""
    after = following_values(*path[1:], xp)
    return ppo_math.gae(
        path.reward, path.value, after, path.terminated | path.truncated, gamma, lam, xp
    )


def by_sb3(path: Trajectories, gamma: float, lam: float) -> tuple[np.ndarray, np.ndarray]:
    """The buffer's loop; its arrays are replaced so that it counts in float64."""
    steps, envs = path.reward.shape
    buffer = RolloutBuffer(
        steps, SPACE, SPACE, device="cpu", gae_lambda=lam, gamma=gamma, n_envs=envs
    )
    ended = path.terminated | path.truncated
    cut_short = path.truncated & ~path.terminated  # what SB3 calls TimeLimit.truncated
    buffer.rewards = path.reward + gamma * path.final * cut_short
    buffer.values, buffer.advantages = path.value, np.zeros_like(path.value)
    buffer.episode_starts = np.concatenate([np.zeros((1, envs)), ended[:-1]])
    buffer.compute_returns_and_advantage(torch.asarray(path.last), ended[-1])
    return buffer.advantages, buffer.returns


# --- advantages -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("gamma", "lam"), [(0.99, 0.95), (1.0, 1.0), (0.9, 0.0), (0.0, 0.9)])
@pytest.mark.parametrize(
    "shape", [(1, 1), (1, 4), (2, 3), (3, 1), (5, 2), (64, 3), (127, 2), (128, 4), (129, 1)]
)
def test_advantages_equal_those_of_the_sb3_buffer(
    shape: tuple[int, int], gamma: float, lam: float
) -> None:
    path = trajectories(*shape)
    np.testing.assert_allclose(
        advantages(path, gamma, lam, np), by_sb3(path, gamma, lam), rtol=1e-10, atol=1e-12
    )


@pytest.mark.parametrize("shape", [(1, 4), (2, 3), (3, 1), (127, 2), (128, 4)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("library", LIBRARIES)
def test_every_library_gives_the_same_advantages(library: str, dtype: Any, shape: Any) -> None:
    """Sums of as many steps as count, some twenty, with some ten roundings each: of the inputs,
    too.
    """
    path = trajectories(*shape)
    given = Trajectories(*(x if x.dtype == bool else x.astype(dtype) for x in path))
    found = run(library, advantages, given, dtype(0.99), dtype(0.95))
    assert {x.dtype for x in found} == {np.dtype(dtype)}
    assert_close(found, by_sb3(path, 0.99, 0.95), roundings=400, dtype=dtype)


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_value_that_follows_is_the_next_steps_unless_the_episode_ended(library: str) -> None:
    """Env 0 goes on and terminates, env 1 is truncated and goes on, env 2 is both and
    terminates.
    """
    value, last, final = (
        np.array([[1.0, 2, 3], [4, 5, 6]]),
        np.array([7.0, 8, 9]),
        np.array([[10.0, 20, 30]] * 2),
    )
    terminated = np.array([[False, False, True], [True, False, True]])
    truncated = np.array([[False, True, True], [False, False, False]])
    found = run(library, following_values, value, last, final, terminated, truncated)
    np.testing.assert_array_equal(found, [[4, 20, 0], [0, 8, 0]])


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 40), st.integers(1, 3), st.integers(0, 2**32 - 1), st.data())
def test_nothing_flows_backward_over_the_end_of_an_episode(
    steps: int, envs: int, seed: int, data: Any
) -> None:
    path = trajectories(steps + 1, envs, seed)
    end, env = data.draw(st.integers(0, steps - 1)), data.draw(st.integers(0, envs - 1))
    (path.terminated if data.draw(st.booleans()) else path.truncated)[end, env] = True
    changed = path._replace(
        **{name: getattr(path, name).copy() for name in ("reward", "value", "final", "last")}
    )
    for array in (changed.reward, changed.value, changed.final):
        array[end + 1 :, env] += 1000.0
    changed.last[env] -= 1000.0
    before, after = (advantages(x, 0.99, 0.95, np)[0] for x in (path, changed))
    differs = before != after
    assert not differs[: end + 1].any()
    assert not np.delete(differs, env, axis=1).any()


def test_without_an_end_the_future_does_flow_backward() -> None:
    """So that the test above means something."""
    path = trajectories(9, 1, ends=0.0)
    raised = path._replace(reward=path.reward + np.eye(9)[:, 8:])
    before, after = (advantages(x, 0.9, 0.8, np)[0][:, 0] for x in (path, raised))
    np.testing.assert_allclose(after - before, 0.72 ** np.arange(8, -1, -1), atol=1e-12)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 70), st.integers(1, 3), st.integers(0, 2**32 - 1))
def test_decayed_sums_equal_a_plain_loop(steps: int, envs: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, decay = (
        rng.normal(size=(steps, envs)),
        rng.uniform(-1, 1, (steps, envs)) * (rng.random((steps, envs)) < 0.9),
    )
    total, expected = np.zeros(envs), []
    for t in reversed(range(steps)):
        total = x[t] + decay[t] * total
        expected.insert(0, total)
    np.testing.assert_allclose(ppo_math.decayed_sums(x, decay, np), expected, rtol=1e-9, atol=1e-12)


# --- losses ---------------------------------------------------------------------------------------

CLIP, VALUE_CLIP = 0.2, 0.25
LOG_PROB, OLD_LOG_PROB, ADVANTAGE, VALUE, OLD_VALUE, RETURNS = np.random.default_rng(5).normal(
    0, 0.3, (6, 200)
)
OLD_VALUE[:3], VALUE[:3] = (
    1.0,
    (1.0, 0.75, 1.25),
)  # not moved yet, and just as far as the clip lets it


def sb3_policy_loss(log_prob: Any) -> tuple[Any, Any, Any]:
    """Lines of stable_baselines3.PPO.train: loss, KL estimate, share of clipped ratios."""
    advantages, log_ratio = torch.asarray(ADVANTAGE), log_prob - torch.asarray(OLD_LOG_PROB)
    ratio = torch.exp(log_ratio)
    policy_loss_1 = advantages * ratio
    policy_loss_2 = advantages * torch.clamp(ratio, 1 - CLIP, 1 + CLIP)
    clip_fraction = torch.mean((torch.abs(ratio - 1) > CLIP).double())
    approx_kl = torch.mean((torch.exp(log_ratio) - 1) - log_ratio)
    return -torch.min(policy_loss_1, policy_loss_2).mean(), approx_kl, clip_fraction


def sb3_value_loss(values: Any, clip: float | None) -> Any:
    """Likewise."""
    old = torch.asarray(OLD_VALUE)
    predicted = values if clip is None else old + torch.clamp(values - old, -clip, clip)
    return torch.nn.functional.mse_loss(torch.asarray(RETURNS), predicted)


def slope(function: Any, at: np.ndarray) -> np.ndarray:
    """Gradient by PyTorch."""
    return torch.func.grad(function)(torch.asarray(at)).numpy()


@pytest.mark.parametrize("library", LIBRARIES)
def test_policy_loss_and_its_figures_equal_those_of_sb3(library: str) -> None:
    found = run(library, policy_loss, LOG_PROB, OLD_LOG_PROB, ADVANTAGE, CLIP)
    expected = [x.item() for x in sb3_policy_loss(torch.asarray(LOG_PROB))]
    assert 0.3 < expected[2] < 0.7  # both sides of the clip are there
    assert_close(found, expected, roundings=2000, size=1.0)  # means of 200


@pytest.mark.long
@pytest.mark.parametrize("library", DIFFERENTIABLE)
def test_gradient_of_the_policy_loss_equals_that_of_sb3(library: str) -> None:
    found = gradient(
        library, lambda *x: policy_loss(*x).loss, LOG_PROB, OLD_LOG_PROB, ADVANTAGE, CLIP
    )
    np.testing.assert_allclose(
        found, slope(lambda x: sb3_policy_loss(x)[0], LOG_PROB), rtol=1e-10, atol=1e-15
    )
    assert 0.1 < np.mean(found == 0) < 0.5


@pytest.mark.parametrize(("clip", "theirs"), [(VALUE_CLIP, VALUE_CLIP), (OFF, None)])
@pytest.mark.parametrize("library", LIBRARIES)
def test_value_loss_and_its_gradient_equal_those_of_sb3(
    library: str, clip: float, theirs: float | None
) -> None:
    found = run(library, value_loss, VALUE, OLD_VALUE, RETURNS, clip)
    np.testing.assert_allclose(
        found, sb3_value_loss(torch.asarray(VALUE), theirs).item(), rtol=1e-12
    )
    if library in DIFFERENTIABLE:
        found = gradient(library, value_loss, VALUE, OLD_VALUE, RETURNS, clip)
        expected = slope(lambda x: sb3_value_loss(x, theirs), VALUE)
        expected[1:3] = slope(lambda x: sb3_value_loss(x, None), VALUE)[
            1:3
        ]  # at a kink PyTorch's depends on its version
        assert_close(found, expected, roundings=64)


@pytest.mark.parametrize("shape", [(2,), (200,), (16, 5)])
@pytest.mark.parametrize("library", LIBRARIES)
def test_normalised_advantages_equal_those_of_sb3(library: str, shape: tuple[int, ...]) -> None:
    advantage = np.random.default_rng(6).normal(3, 5, shape)
    tensor = torch.asarray(advantage)
    expected = (tensor - tensor.mean()) / (tensor.std() + 1e-8)
    assert_close(run(library, normalise, advantage), expected.numpy(), roundings=2000)
    # equal numbers: what their mean has lost, if anything, is divided by 1e-8
    assert_close(
        run(library, normalise, np.full(shape, 0.25)),
        np.zeros(shape),
        roundings=64,
        size=0.25 / 1e-8,
    )
    assert run(library, normalise, np.array([3.0])) == 3  # one alone stays as it is


@pytest.mark.parametrize("library", LIBRARIES)
def test_explained_variance_equals_that_of_sb3(library: str) -> None:
    for value in (VALUE, RETURNS, RETURNS + 0.2 * VALUE + 7, 2 - RETURNS):
        found = run(library, explained_variance, value, RETURNS)
        assert_close(
            found, sb3_explained_variance(value, RETURNS), roundings=1e5, size=1.0
        )  # variances about a 7
    assert run(library, explained_variance, VALUE, np.full(200, 0.5)) == 0  # SB3 says NaN


# --- scale of rewards -----------------------------------------------------------------------------


@pytest.mark.parametrize("library", LIBRARIES)
def test_merged_moments_equal_those_of_sb3(library: str) -> None:
    theirs, ours = RunningMeanStd(), FIRST
    for size, middle in ((1, 3.0), (7, -2.0), (7, 50.0), (40, 0.0)):
        batch = np.random.default_rng(size).normal(middle, 2, size)
        theirs.update(batch)
        ours = run(library, ppo_math.merge_moments, ours, batch)
        expected = (theirs.mean, theirs.var, theirs.count)
        assert_close(ours, expected, roundings=1000, size=(50.0, 50.0**2, theirs.count))


class Playback(gymnasium.Env):
    """Gives the rewards and ends it was given."""

    observation_space = action_space = SPACE

    def __init__(self, rewards: np.ndarray, ends: np.ndarray) -> None:
        self.script = iter(zip(rewards.tolist(), ends.tolist(), strict=True))

    def reset(self, **_: Any) -> Any:
        return np.zeros(1, np.float32), {}

    def step(self, _: Any) -> Any:
        reward, ended = next(self.script)
        return np.zeros(1, np.float32), reward, ended, False, {}


@pytest.mark.parametrize("library", LIBRARIES)
def test_scaled_rewards_equal_those_of_vecnormalize(library: str) -> None:
    shape, rng = (120, 4), np.random.default_rng(8)
    reward, ended = rng.normal(0.5, 2, shape).astype(np.float32), rng.random(shape) < 0.1
    reward[-3, 0], reward[-1, 1] = 1000, -2000  # beyond ten deviations
    players = [lambda k=k: Playback(reward[:, k], ended[:, k]) for k in range(4)]
    env = VecNormalize(DummyVecEnv(players), norm_obs=False, gamma=0.9)
    env.reset()
    moments, discounted, extremes = FIRST, np.zeros(4), []
    for k in range(120):
        expected = env.step(np.zeros((4, 1), np.float32))[1]
        discounted = discounted * 0.9 + reward[k]
        moments = run(library, ppo_math.merge_moments, moments, discounted)
        found = run(library, ppo_math.scale_reward, reward[k].astype(np.float64), moments)
        assert_close(
            found, expected, roundings=16, size=expected, dtype=np.float32
        )  # theirs are rounded
        discounted[ended[k]] = 0
        extremes += [found.min(), found.max()]
    assert (min(extremes), max(extremes)) == (-10, 10)
