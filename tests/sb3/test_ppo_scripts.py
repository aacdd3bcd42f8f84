"""Scripts as users of Stable-Baselines3 write them, with one line changed: `from flatout import
PPO`.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from stable_baselines3.common.callbacks import BaseCallback, CheckpointCallback, EvalCallback
from stable_baselines3.common.env_checker import check_env
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import VecNormalize

from flatout import PPO

QUICK: dict[str, Any] = {"n_steps": 64, "batch_size": 32, "n_epochs": 2}


def test_train_and_watch() -> None:
    env = gym.make("CartPole-v1", render_mode="rgb_array")
    model = PPO("MlpPolicy", env, verbose=0, **QUICK)
    model.learn(total_timesteps=128)
    vec_env = model.get_env()
    assert vec_env is not None
    obs = vec_env.reset()
    for _ in range(20):
        action, _states = model.predict(obs, deterministic=True)
        obs, reward, done, info = vec_env.step(action)
    assert obs.shape == (1, 4) and reward.shape == done.shape == (1,) and len(info) == 1
    env.close()


def test_in_one_line() -> None:
    model = PPO("MlpPolicy", "CartPole-v1", **QUICK).learn(64)
    assert model.num_timesteps == 64


def test_save_forget_load_and_go_on(tmp_path: Path) -> None:
    vec_env = make_vec_env("CartPole-v1", n_envs=4)
    model = PPO("MlpPolicy", vec_env, **QUICK)
    model.learn(total_timesteps=256)
    model.save(tmp_path / "ppo_cartpole")
    del model
    model = PPO.load(tmp_path / "ppo_cartpole", env=vec_env, print_system_info=True)
    mean_reward, std_reward = evaluate_policy(model, model.get_env(), n_eval_episodes=4)
    assert mean_reward > 5 and std_reward >= 0
    model.learn(total_timesteps=256, reset_num_timesteps=False)
    assert model.num_timesteps == 512


@pytest.mark.long
def test_an_environment_of_ones_own() -> None:
    class GoLeft(gym.Env):
        """A line; the left end is home."""

        def __init__(self, size: int = 6) -> None:
            self.size, self.place = size, size - 1
            self.action_space = gym.spaces.Discrete(2)
            self.observation_space = gym.spaces.Box(0, size, (1,), np.float32)

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            super().reset(seed=seed)
            self.place = self.size - 1
            return np.array([self.place], np.float32), {}

        def step(self, action: Any) -> Any:
            self.place = int(np.clip(self.place + (1 if action else -1), 0, self.size))
            home = self.place == 0
            return np.array([self.place], np.float32), float(home), home, False, {}

    check_env(GoLeft(), warn=True)
    env = make_vec_env(
        GoLeft,
        n_envs=4,
        wrapper_class=gym.wrappers.TimeLimit,
        wrapper_kwargs={"max_episode_steps": 30},
    )
    model = PPO("MlpPolicy", env, n_steps=64, batch_size=64, learning_rate=3e-3, seed=0).learn(
        6_000
    )
    obs, steps = env.reset(), 0
    while steps < 30:
        action, _ = model.predict(obs, deterministic=True)
        obs, _, done, _ = env.step(action)
        steps += 1
        if done[0]:
            break
    assert steps == 5  # straight home


def test_callbacks_networks_schedules_and_logs(tmp_path: Path) -> None:
    class Tally(BaseCallback):
        def _on_step(self) -> bool:
            self.logger.record("tally/first_action", float(self.locals["actions"][0, 0]))
            return True

    train, judge = (
        VecNormalize(make_vec_env("Pendulum-v1", 2)),
        VecNormalize(make_vec_env("Pendulum-v1", 2)),
    )
    model = PPO(
        "MlpPolicy", train, learning_rate=lambda left: left * 1e-3,
        tensorboard_log=str(tmp_path / "tb"), seed=1,
        policy_kwargs={"net_arch": {"pi": [32, 32], "vf": [32, 32]}}, **QUICK,
    )  # fmt: skip
    callbacks = [
        Tally(),
        CheckpointCallback(save_freq=50, save_path=str(tmp_path / "checkpoints")),
        EvalCallback(
            judge, best_model_save_path=str(tmp_path), eval_freq=100, n_eval_episodes=2, verbose=0
        ),
    ]
    model.learn(256, callback=callbacks, tb_log_name="first")
    train.save(str(tmp_path / "statistics.pkl"))
    assert (tmp_path / "best_model.zip").exists() and len(
        list((tmp_path / "checkpoints").iterdir())
    ) == 2
    assert len(list((tmp_path / "tb" / "first_1").iterdir())) == 1
    env = VecNormalize.load(str(tmp_path / "statistics.pkl"), make_vec_env("Pendulum-v1", 2))
    env.training = env.norm_reward = False
    assert (
        evaluate_policy(PPO.load(tmp_path / "best_model", env=env), env, n_eval_episodes=2)[0] < 0
    )


def test_a_monitored_environment_writes_its_file(tmp_path: Path) -> None:
    env = Monitor(gym.make("CartPole-v1"), str(tmp_path))
    PPO("MlpPolicy", env, **QUICK).learn(128)
    env.close()
    assert len((tmp_path / "monitor.csv").read_text().splitlines()) > 3


WITHOUT = """
import sys
for name in {absent}:
    sys.modules[name] = None
from flatout import PPO
from small_market_of_ppo import SMALL, accounts
model = PPO("MlpPolicy", {env}, **SMALL)
model.learn(16, callback=lambda names, _: True, progress_bar=True)
obs = model.get_env().reset()
model.get_env().step(model.predict(obs)[0])
model.save({path!r})
PPO.load({path!r}).predict(obs)
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("env", "absent"),
    [
        ('"CartPole-v1"', ["stable_baselines3", "jax", "tqdm"]),
        ("accounts()", ["stable_baselines3", "torch"]),
    ],
)
def test_only_what_is_needed_must_be_installed(env: str, absent: list[str], tmp_path: Path) -> None:
    script = WITHOUT.format(env=env, absent=absent, path=str(tmp_path / "model.zip"))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
