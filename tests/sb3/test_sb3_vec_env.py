"""Environments that wait in Stable-Baselines3: its own vectors are the oracle."""

import asyncio
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from scripted_envs import Corridor, Scripted
from stable_baselines3 import PPO
from stable_baselines3.common.env_checker import check_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import (
    DummyVecEnv,
    SubprocVecEnv,
    VecCheckNan,
    VecEnv,
    VecNormalize,
)

from flatout.sb3.vec_env import AsyncioVecEnv
from flatout.slow_envs.blocking import Blocking

CART = partial(gymnasium.make, "CartPole-v1", max_episode_steps=25)


class Waits:
    """Any plain environment, awaited."""

    def __init__(self, env: Any) -> None:
        self.env, self.observation_space, self.action_space = (
            env,
            env.observation_space,
            env.action_space,
        )

    async def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        await asyncio.sleep(0)
        return self.env.reset(seed=seed, options=options)

    async def step(self, action: Any) -> Any:
        await asyncio.sleep(0)
        return self.env.step(action)

    async def close(self) -> None:
        self.env.close()


def waiting_cart() -> Waits:
    return Waits(CART())


class Two(Corridor):
    """Observations by name, and what the options say."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Dict(place=self.observation_space, wish=spaces.Discrete(9))
        self.wish = 0

    def look(self) -> Any:
        return {"place": super().look(), "wish": np.int64(self.wish)}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.wish = (options or {}).get("wish", 0)
        return super().reset(seed=seed)[0], {"seed": seed}


@pytest.mark.parametrize(
    ("maker", "ours"),
    [(CART, waiting_cart), (CART, CART), (lambda: Scripted(4), lambda: Waits(Scripted(4)))],
)
def test_answers_equal_those_of_their_vector(maker: Any, ours: Any) -> None:
    theirs, env = DummyVecEnv([maker] * 3), AsyncioVecEnv([ours] * 3, kind="inline")
    assert isinstance(env, VecEnv) and env.num_envs == 3
    theirs.seed(5), env.seed(5)
    np.testing.assert_array_equal(theirs.reset(), env.reset())
    env.action_space.seed(0)
    ended, cut = 0, 0
    for _ in range(90):
        actions = np.array([env.action_space.sample() for _ in range(3)])
        left, right = theirs.step(actions), env.step(actions)
        for a, b in zip(left[:3], right[:3], strict=True):
            assert a.dtype == b.dtype and (a == b).all()
        for own, info, done in zip(left[3], right[3], right[2], strict=True):
            assert done == ("terminal_observation" in info)
            if done:
                np.testing.assert_array_equal(
                    own["terminal_observation"], info["terminal_observation"]
                )
                assert (
                    own["TimeLimit.truncated"] == info["TimeLimit.truncated"]
                    and info["episode"]["l"] > 0
                )
                ended, cut = ended + 1, cut + info["TimeLimit.truncated"]
            assert own.get("t") == info.get("t")
    assert ended > cut > 0
    theirs.close(), env.close()


def test_their_ppo_learns_on_it() -> None:
    env = AsyncioVecEnv([waiting_cart] * 4)
    model = PPO(
        "MlpPolicy", env, n_steps=64, batch_size=256, n_epochs=1, seed=1, device="cpu"
    ).learn(512)
    assert model.num_timesteps == 512 and model.get_env() is env and len(model.ep_info_buffer) > 5
    mean, _ = evaluate_policy(model, env, n_eval_episodes=4)
    assert 5 < mean <= 25
    env.close()


def test_equal_seeds_learn_what_their_vector_teaches() -> None:
    """The whole of PPO on both: the same weights at the end."""
    found = []
    for env in (AsyncioVecEnv([waiting_cart] * 2), DummyVecEnv([CART] * 2)):
        model = PPO(
            "MlpPolicy", env, n_steps=32, batch_size=32, n_epochs=2, seed=7, device="cpu"
        ).learn(128)
        found.append(
            np.concatenate([one.detach().numpy().ravel() for one in model.policy.parameters()])
        )
        env.close()
    assert (found[0] == found[1]).all()


def test_observations_by_name_options_and_seeds() -> None:
    env = AsyncioVecEnv([lambda: Waits(Two())] * 2)
    env.set_options([{"wish": 3}, {}])
    assert env.seed(4) == [4, 5]
    seen = env.reset()
    assert seen["wish"].tolist() == [3, 0] and seen["place"].shape == (2, 5)
    assert [info["seed"] for info in env.reset_infos] == [4, 5]
    for _ in range(4):
        seen, _, dones, infos = env.step(np.zeros(2, int))
    assert (
        dones.all() and seen["place"][:, 0].tolist() == [1, 1] and seen["wish"].tolist() == [0, 0]
    )
    assert infos[0]["terminal_observation"]["place"].tolist() == [0, 0, 0, 0, 1]
    assert env.reset()["wish"].tolist() == [0, 0]  # options hold for one reset
    PPO("MultiInputPolicy", env, n_steps=8, batch_size=16, n_epochs=1, device="cpu").learn(32)
    env.close()


def test_attributes_methods_and_wrappers() -> None:
    env = AsyncioVecEnv([CART] * 3, kind="inline")
    env.set_attr("gravity", 5.0, indices=[1])
    assert env.get_attr("gravity") == [9.8, 5.0, 9.8] and env.get_attr("gravity", 1) == [5.0]
    assert env.has_attr("gravity") and not env.has_attr("levity")
    assert len(env.env_method("reset", indices=[0, 2], seed=3)) == 2
    assert env.env_is_wrapped(gymnasium.wrappers.TimeLimit) == [True] * 3
    assert env.env_is_wrapped(gymnasium.wrappers.ClipReward, 0) == [False]
    assert env.env_is_wrapped(Monitor) == [True] * 3
    assert env.reset().shape == (3, 4)  # a missing attribute closed nothing
    env.close()
    env.close()


def test_their_wrappers_take_it() -> None:
    env = VecNormalize(VecCheckNan(AsyncioVecEnv([waiting_cart] * 2), raise_exception=True))
    env.seed(1)
    assert env.reset().shape == (2, 4)
    lengths = [
        info["episode"]["l"]
        for _ in range(60)
        for info in env.step(np.array([0, 1]))[3]
        if "episode" in info
    ]
    assert len(lengths) > 4 and all(length < 15 for length in lengths)
    env.close()


def test_pictures() -> None:
    class Draws(Corridor):
        metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012 (as Gymnasium has it)
        render_mode = "rgb_array"

        def render(self) -> Any:
            return np.full((4, 6, 3), self.place, np.uint8)

    env = AsyncioVecEnv([Draws] * 4, kind="inline")
    env.reset()
    env.step(np.zeros(4, int))
    assert [image.shape for image in env.get_images()] == [(4, 6, 3)] * 4
    picture = env.render()
    assert picture.shape == (8, 12, 3) and (picture == 1).all()
    env.close()


def blocking_cart() -> Blocking:
    return Blocking(waiting_cart)


def test_their_checker_takes_the_blocking_face() -> None:
    env = Blocking(waiting_cart)
    check_env(env, skip_render_check=True)
    env.close()


@pytest.mark.slow
def test_their_processes_take_the_blocking_face() -> None:
    both = [
        SubprocVecEnv([blocking_cart] * 2, start_method="forkserver"),
        AsyncioVecEnv([waiting_cart] * 2),
    ]
    for one in both:
        one.seed(2)
    seen = [one.reset() for one in both]
    for _ in range(20):
        assert (seen[0] == seen[1]).all()
        seen = [one.step(np.array([1, 0]))[0] for one in both]
    for one in both:
        one.close()
