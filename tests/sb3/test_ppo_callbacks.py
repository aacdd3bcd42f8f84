"""Stable-Baselines3's own callbacks run on flatout.PPO; so do functions and lists."""

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from scripted_envs import Scripted
from stable_baselines3.common.callbacks import (
    BaseCallback,
    CallbackList,
    CheckpointCallback,
    EvalCallback,
    EveryNTimesteps,
    LogEveryNTimesteps,
    ProgressBarCallback,
    StopTrainingOnMaxEpisodes,
    StopTrainingOnNoModelImprovement,
    StopTrainingOnRewardThreshold,
)
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.logger import configure
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import VecNormalize

from flatout import PPO
from flatout.errors import SettingsError

SMALL: dict[str, Any] = {"n_steps": 32, "batch_size": 16, "n_epochs": 2, "seed": 3}


class Diary(BaseCallback):
    """Writes down each call, and stops after some steps."""

    def __init__(self, stop_after: int = 10**9) -> None:
        super().__init__()
        self.events: list[str] = []
        self.stop_after = stop_after

    def _on_training_start(self) -> None:
        self.events.append("training start")
        self.logger.record("diary/started", 1)

    def _on_rollout_start(self) -> None:
        self.events.append("rollout start")

    def _on_step(self) -> bool:
        for name in ("actions", "clipped_actions", "new_obs", "rewards", "dones", "infos"):
            assert len(self.locals[name]) == self.training_env.num_envs
        assert self.num_timesteps == self.model.num_timesteps
        self.events.append("step")
        return self.n_calls < self.stop_after

    def _on_rollout_end(self) -> None:
        self.events.append("rollout end")

    def _on_training_end(self) -> None:
        self.events.append("training end")


def cartpole(**changes: Any) -> PPO:
    return PPO("MlpPolicy", "CartPole-v1", **SMALL | changes)


def test_a_callback_hears_of_every_step() -> None:
    diary = Diary()
    model = PPO("MlpPolicy", make_vec_env("CartPole-v1", 2), **SMALL)
    model.learn(128, callback=diary)
    rollout = ["rollout start", *["step"] * 32, "rollout end"]
    assert diary.events == ["training start", *rollout, *rollout, "training end"]
    assert model.num_timesteps == 128


def test_a_callback_stops_amid_a_rollout_and_nothing_is_learned_from_it() -> None:
    diary, model = Diary(40), cartpole()
    model.learn(1000, callback=[diary, lambda _locals, _globals: True])
    assert model.num_timesteps == 40 and model.learner_state.updates == 1
    assert diary.events[-1] == "training end"


def test_functions() -> None:
    seen: list[int] = []

    def watch(names: dict[str, Any], _: dict[str, Any]) -> bool:
        seen.append(names["self"].num_timesteps)
        return len(seen) < 5

    assert cartpole().learn(1000, callback=watch).num_timesteps == 5
    assert seen == [1, 2, 3, 4, 5]
    with pytest.raises(SettingsError, match="callback is 7"):
        cartpole().learn(10, callback=7)


def test_evaluation_saves_the_best_and_stops_at_a_threshold(tmp_path: Path) -> None:
    stop = StopTrainingOnRewardThreshold(reward_threshold=5)
    evaluation = EvalCallback(
        Monitor(gymnasium.make("CartPole-v1")), callback_on_new_best=stop, eval_freq=20,
        n_eval_episodes=2,
        log_path=str(tmp_path), best_model_save_path=str(tmp_path), verbose=0,
    )  # fmt: skip
    model = cartpole().learn(1000, callback=CallbackList([evaluation]))
    assert model.num_timesteps == 20 and evaluation.best_mean_reward > 5
    best = PPO.load(tmp_path / "best_model")
    assert (
        best.predict(np.ones(4), deterministic=True)[0]
        == model.predict(np.ones(4), deterministic=True)[0]
    ).all()
    assert np.load(tmp_path / "evaluations.npz")["timesteps"].tolist() == [20]


def test_evaluation_of_normalised_environments() -> None:
    train, judge = (VecNormalize(make_vec_env("Pendulum-v1", 2), training=k == 0) for k in range(2))
    evaluation = EvalCallback(judge, eval_freq=16, n_eval_episodes=2, verbose=0,
                              callback_after_eval=StopTrainingOnNoModelImprovement(5))  # fmt: skip
    model = PPO("MlpPolicy", train, **SMALL).learn(128, callback=evaluation)
    assert model.get_vec_normalize_env() is train
    np.testing.assert_array_equal(train.obs_rms.mean, judge.obs_rms.mean)
    assert train.obs_rms.count > 100 and evaluation.last_mean_reward < 0


def test_checkpoints(tmp_path: Path) -> None:
    train = VecNormalize(make_vec_env("CartPole-v1", 2))
    saver = CheckpointCallback(16, str(tmp_path), name_prefix="m", save_vecnormalize=True)
    PPO("MlpPolicy", train, **SMALL).learn(64, callback=saver)
    assert {path.name for path in tmp_path.iterdir()} >= {"m_32_steps.zip", "m_64_steps.zip"}
    assert (tmp_path / "m_vecnormalize_64_steps.pkl").exists()  # theirs, not ours
    assert PPO.load(tmp_path / "m_64_steps").num_timesteps == 64


def test_the_rest_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    episodes, every = StopTrainingOnMaxEpisodes(max_episodes=3, verbose=1), Diary()
    model = cartpole(verbose=1)
    model.learn(
        1000,
        callback=[episodes, EveryNTimesteps(8, every), LogEveryNTimesteps(16)],
        tb_log_name="mine",
    )
    assert episodes.n_episodes == 3 and every.events.count("step") == model.num_timesteps // 8
    out = capsys.readouterr().out
    assert "mine model reached max_episodes=3" in out and "ep_rew_mean" in out


@pytest.mark.filterwarnings("ignore::tqdm.TqdmExperimentalWarning")
def test_progress_bars(capsys: pytest.CaptureFixture[str]) -> None:
    cartpole().learn(64, progress_bar=True)
    assert "64/64" in capsys.readouterr().out
    cartpole().learn(64, callback=ProgressBarCallback())
    assert "64/64" in capsys.readouterr().out


def test_their_logger(tmp_path: Path) -> None:
    model = cartpole()
    model.set_logger(configure(str(tmp_path), ["csv"]))
    model.learn(64)
    model.logger.close()
    header, *rows = (tmp_path / "progress.csv").read_text().splitlines()
    assert {"train/loss", "train/approx_kl", "time/fps", "rollout/ep_rew_mean"} <= set(
        header.split(",")
    ) and rows


def test_evaluate_policy_on_the_models_own_environments() -> None:
    model = cartpole().learn(32)
    for env in (
        model.get_env(),
        Monitor(gymnasium.make("CartPole-v1")),
        make_vec_env("CartPole-v1", 3),
    ):
        returns, lengths = evaluate_policy(
            model, env, n_eval_episodes=4, return_episode_rewards=True
        )
        assert len(returns) == 4 and returns == lengths
    mean, _ = evaluate_policy(model.policy, model.get_env(), n_eval_episodes=2)
    assert mean > 5


def test_episodes_are_those_that_a_monitor_counts() -> None:
    kept: dict[str, list[Any]] = {}
    for name, env in (("ours", Scripted(5)), ("theirs", Monitor(Scripted(5)))):
        model = PPO("MlpPolicy", env, **SMALL).learn(64)
        kept[name] = [(episode["r"], episode["l"]) for episode in model.ep_info_buffer]
    assert kept["ours"] == kept["theirs"] and len(kept["ours"]) > 8
