"""Every kind of environment on the host: who restarts when, what is bootstrapped, what is left
out.
"""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.vector import RecordEpisodeStatistics
from scripted_envs import Corridor, Scripted
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import (
    DummyVecEnv,
    SubprocVecEnv,
    VecEnv,
    VecMonitor,
    VecNormalize,
)

from flatout import PPO
from flatout.errors import FlatoutError, SettingsError
from flatout.sb3.vector_adapter import VectorEnvAdapter
from rounding import assert_close

SMALL: dict[str, Any] = {
    "n_steps": 10,
    "batch_size": 20,
    "n_epochs": 1,
    "seed": 3,
    "gamma": 0.9,
    "gae_lambda": 0.0,
}
MODES = list(AutoresetMode)
ROUNDINGS = 256  # of a value: the terms of three products with 64 units each


def corridors(mode: AutoresetMode, n: int = 2) -> SyncVectorEnv:
    return SyncVectorEnv([Corridor] * n, autoreset_mode=mode)


def batch_of(model: PPO) -> Any:
    """The transitions that the last rollout became."""
    learner, kept = model.engine.learner, []
    whole = learner.without_void
    learner.without_void = lambda batch: kept.append(whole(batch)) or kept[-1]
    model.learn(SMALL["n_steps"] * model.n_envs)
    return kept[0]


@pytest.mark.parametrize("mode", MODES)
def test_truncated_episodes_are_worth_what_the_critic_says_of_their_end(
    mode: AutoresetMode,
) -> None:
    """Every step of the corridor earns 1 and leads one place on, the last place included: with a
    lambda of 0 the return of place k is 1 + gamma V(k + 1), whichever way episodes restart.
    """
    model = PPO("MlpPolicy", corridors(mode), **SMALL)
    value = model.policy.predict_values(np.eye(5, dtype=np.float32))[:, 0]
    batch = batch_of(model)
    place = batch.seen.numpy().argmax(axis=1)
    assert_close(
        batch.returns.numpy(),
        1 + 0.9 * value[place + 1],
        roundings=ROUNDINGS,
        size=1 + np.abs(value).max(),
    )
    assert set(place) == {0, 1, 2, 3}  # nobody acts at the last place


def test_a_single_environment_and_their_vector_agree_with_that() -> None:
    for env in (Corridor(), DummyVecEnv([Corridor, Corridor])):
        model = PPO("MlpPolicy", env, **SMALL)
        value = model.policy.predict_values(np.eye(5, dtype=np.float32))[:, 0]
        batch = batch_of(model)
        place = batch.seen.numpy().argmax(axis=1)
        assert_close(
            batch.returns.numpy(),
            1 + 0.9 * value[place + 1],
            roundings=ROUNDINGS,
            size=1 + np.abs(value).max(),
        )


class Ends(Corridor):
    """The same, but the end is the end."""

    def step(self, action: Any) -> Any:
        seen, reward, _, over, info = super().step(action)
        return seen, reward, over, False, info


@pytest.mark.parametrize("mode", MODES)
def test_terminated_episodes_are_worth_nothing_more(mode: AutoresetMode) -> None:
    model = PPO("MlpPolicy", SyncVectorEnv([Ends] * 2, autoreset_mode=mode), **SMALL)
    value = model.policy.predict_values(np.eye(5, dtype=np.float32))[:, 0] * [1, 1, 1, 1, 0]
    batch = batch_of(model)
    place = batch.seen.numpy().argmax(axis=1)
    assert_close(
        batch.returns.numpy(),
        1 + 0.9 * value[place + 1],
        roundings=ROUNDINGS,
        size=1 + np.abs(value).max(),
    )


@pytest.mark.parametrize("mode", MODES)
def test_episodes_and_infos_of_vectors(mode: AutoresetMode) -> None:
    for env in (corridors(mode), RecordEpisodeStatistics(corridors(mode))):
        model = PPO("MlpPolicy", env, **SMALL).learn(40)
        assert {(float(one["r"]), int(one["l"])) for one in model.ep_info_buffer} == {(4.0, 4)}
    adapter = VectorEnvAdapter(SyncVectorEnv([lambda: Scripted(1)] * 2, autoreset_mode=mode))
    adapter.reset()
    ended = 0
    for _ in range(12):
        _, _, dones, infos = adapter.step(np.zeros((2, 2), np.float32))
        for done, info in zip(dones, infos, strict=True):
            assert done == ("terminal_observation" in info) == ("episode" in info)
            assert not done or info["t"] == info["episode"]["l"]
            ended += done
    assert ended >= 2


def test_a_vector_must_say_when_it_restarts() -> None:
    env = corridors(AutoresetMode.NEXT_STEP)
    env.metadata = {}
    with pytest.raises(SettingsError, match="does not say when it restarts"):
        PPO("MlpPolicy", env)
    with pytest.raises(
        SettingsError, match="n_steps is 1, and these environments restart one step late"
    ):
        PPO("MlpPolicy", corridors(AutoresetMode.NEXT_STEP), n_steps=1)


def test_vectors_of_gymnasium_learn() -> None:
    for env in (
        gymnasium.make_vec("CartPole-v1", 3, vectorization_mode="vector_entry_point"),
        gymnasium.make_vec("Pendulum-v1", 3),
        AsyncVectorEnv([lambda: gymnasium.make("CartPole-v1")] * 2, context="forkserver"),
    ):
        model = PPO("MlpPolicy", env, n_steps=16, batch_size=8, n_epochs=1, seed=0)
        assert model.learn(96).num_timesteps >= 96 and model.n_envs == env.num_envs
        env.close()


def test_their_vectors_learn() -> None:
    for env in (
        make_vec_env("CartPole-v1", 3),
        VecMonitor(DummyVecEnv([lambda: gymnasium.make("FrozenLake-v1")])),
        VecNormalize(make_vec_env("Pendulum-v1", 2)),
        make_vec_env("CartPole-v1", 2, vec_env_cls=SubprocVecEnv),
    ):
        model = PPO("MlpPolicy", env, n_steps=16, batch_size=8, n_epochs=1, seed=0)
        assert model.learn(64).get_env() is env and model.n_envs == env.num_envs
        env.close()


def test_equal_seeds_learn_equal_things() -> None:
    seen = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    actions = [
        PPO("MlpPolicy", "Pendulum-v1", n_steps=64, seed=seed)
        .learn(128)
        .predict(seen, deterministic=True)[0]
        for seed in (5, 5, 6)
    ]
    assert (actions[0] == actions[1]).all() and not (actions[0] == actions[2]).all()


def test_the_models_environments_have_their_methods() -> None:
    """As their documentation steps what `get_env` gives."""
    model = PPO("MlpPolicy", "Pendulum-v1", n_steps=64, seed=5)
    env = model.get_env()
    assert isinstance(env, VecEnv) and isinstance(env, DummyVecEnv)
    seen = env.reset()
    assert seen.shape == (1, 3)
    for _ in range(200):
        action, _ = model.predict(seen)
        seen, reward, done, info = env.step(action)
    assert (
        done.tolist() == [True]
        and info[0]["TimeLimit.truncated"]
        and info[0]["episode"]["l"] == 200
    )
    assert reward.shape == (1,) and info[0]["terminal_observation"].shape == (3,)
    env.set_attr("g", 9.0)
    assert env.get_attr("g") == [9.0] and env.env_method("reset")[0][0].shape == (3,)
    assert env.env_is_wrapped(gymnasium.wrappers.TimeLimit) == [True]


def test_what_an_environment_writes_into_its_observation_later_changes_nothing() -> None:
    class Reusing(Corridor):
        def look(self) -> Any:
            self.seen = getattr(self, "seen", np.zeros(5, np.float32))
            self.seen[:] = np.eye(5)[self.place]
            return self.seen

    model = PPO("MlpPolicy", Reusing(), **SMALL)
    place = batch_of(model).seen.numpy().argmax(axis=1)
    assert place.tolist() == [0, 1, 2, 3, 0, 1, 2, 3, 0, 1]


def test_a_face_changes_nothing_of_their_classes() -> None:
    env = make_vec_env("CartPole-v1", 2, vec_env_cls=SubprocVecEnv)
    assert PPO("MlpPolicy", env, n_steps=8).get_env() is env
    assert not isinstance(env, DummyVecEnv) and not isinstance(None, VecEnv)
    env.close()


def test_rewards_that_are_not_finite_stop_the_training() -> None:
    class Broken(Corridor):
        def step(self, action: Any) -> Any:
            seen, _, *rest = super().step(action)
            return seen, float("nan"), *rest

    with pytest.raises(FlatoutError, match="the loss is nan after 10 steps"):
        PPO("MlpPolicy", Broken(), **SMALL).learn(40)
