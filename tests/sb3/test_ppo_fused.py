"""On flatout's market and gymnax's environments PPO runs inside one JAX program."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import gymnax
import numpy as np
import pytest
from small_market_of_ppo import N_ENVS, SETTINGS, SMALL, accounts, market
from stable_baselines3.common.callbacks import (
    CheckpointCallback,
    EvalCallback,
    StopTrainingOnMaxEpisodes,
)
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecMonitor

from flatout import PPO, MarketEnv, MarketVectorEnv, build_market
from flatout.bars.synthetic import RandomWalk
from flatout.errors import BundleError, SettingsError
from flatout.policies.bundle import Bundle
from flatout.sb3.policy import name_weights
from flatout.settings.tables import Settings
from rounding import assert_close
from scenarios import random_panel

pytestmark = pytest.mark.long


def weights(model: PPO) -> np.ndarray:
    return np.concatenate([np.array(x).reshape(-1) for x in name_weights(model.network).values()])


def test_a_market_is_learned_and_traded(tmp_path: Path) -> None:
    model = PPO("MlpPolicy", accounts(), **SMALL)
    before = weights(model)
    model.learn(500)
    assert model.engine.fused and model.num_timesteps == 512 and model.n_envs == N_ENVS
    assert np.abs(weights(model) - before).max() > 1e-4
    assert len(model.ep_info_buffer) > 0 and {one["l"] for one in model.ep_info_buffer} == {20.0}
    env = model.get_env()
    seen = env.reset()
    action, _ = model.predict(seen, deterministic=True)
    model.save_bundle(tmp_path / "policy", SETTINGS)
    bundle = Bundle.load(tmp_path / "policy")
    assert_close(
        bundle.act(seen), action, roundings=256, size=4.0
    )  # the terms of three products, each about so large
    assert bundle.notes["timesteps"] == 512
    _, rewards, dones, infos = env.step(action)
    assert rewards.shape == dones.shape == (N_ENVS,) and "equity" in infos[0]


def test_a_market_of_choices_is_learned_and_traded(tmp_path: Path) -> None:
    settings = Settings.model_validate({"market": {"action": "discrete", "order_sizes": [0.1, 1]}})
    env = MarketVectorEnv(RandomWalk(n_bars=300, seed=0).panel(), N_ENVS, settings)
    model = PPO("MlpPolicy", env, **SMALL)
    before = weights(model)
    model.learn(500)
    assert model.engine.fused and np.abs(weights(model) - before).max() > 1e-4
    seen = env.reset(seed=1)[0]
    action, _ = model.predict(seen, deterministic=True)
    assert action.dtype == np.int64 and action in env.action_space
    model.save_bundle(tmp_path / "policy", settings)
    np.testing.assert_array_equal(Bundle.load(tmp_path / "policy").act(seen), action)
    other = Settings.model_validate({"market": {"action": "discrete", "order_sizes": [1]}})
    with pytest.raises(BundleError, match="order_sizes"):
        Bundle.load(tmp_path / "policy").market(env.market.panel, other.market)


def test_it_improves_on_a_rising_market() -> None:
    """One symbol rises, one falls: holding the first is right. The program is that of the other
    tests.
    """
    panel = random_panel(1, 200, 2)
    prices = np.exp(np.arange(200)[:, None] * [0.01, -0.01])
    panel = replace(panel, **dict.fromkeys(("open", "high", "low", "close"), prices))
    model = PPO(
        "MlpPolicy",
        MarketVectorEnv(build_market(panel, SETTINGS), N_ENVS),
        learning_rate=3e-3,
        **SMALL,
    )
    model.learn(1024)
    first = np.mean([one["r"] for one in model.ep_info_buffer])
    model.learn(15_000)
    # whatever the seed, it gains 14
    assert np.mean([one["r"] for one in model.ep_info_buffer]) > first + 5


def test_what_names_a_market() -> None:
    for env in (market(), MarketEnv(market()), gymnasium.make("flatout/Market-v0", bars=market())):
        model = PPO("MlpPolicy", env, **SMALL | {"batch_size": 64})
        assert model.engine.fused and model.n_envs == 64 and model.market is market()
    limited = gymnasium.wrappers.TimeLimit(MarketEnv(market()), 5)
    for env in (limited, DummyVecEnv([lambda: MarketEnv(market())])):
        model = PPO("MlpPolicy", env, n_steps=16, batch_size=16, n_epochs=1)
        assert not model.engine.fused and model.learn(16).num_timesteps == 16


def test_a_loaded_model_learns_on_bit_by_bit(tmp_path: Path) -> None:
    first = PPO("MlpPolicy", accounts(), **SMALL).learn(256)
    first.save(tmp_path / "model")
    second = PPO.load(tmp_path / "model", env=accounts())
    assert (weights(first) == weights(second)).all()
    for model in (first, second):
        model.learn(256)
    assert (weights(first) == weights(second)).all()


def test_engines_take_over_from_each_other(tmp_path: Path) -> None:
    """One file, both engines: weights and Adam's memory mean the same to both."""
    fused = PPO("MlpPolicy", accounts(), **SMALL).learn(256)
    fused.save(tmp_path / "model")
    host = PPO.load(tmp_path / "model", env=DummyVecEnv([lambda: MarketEnv(market())] * N_ENVS))
    assert not host.engine.fused and host.learner_state.descents == fused.learner_state.descents
    np.testing.assert_array_equal(host.learner_state.first, fused.learner_state.first)
    host.learn(128).save(tmp_path / "model")
    again = PPO.load(tmp_path / "model", env=accounts())
    np.testing.assert_array_equal(again.learner_state.second, host.learner_state.second)
    assert again.learn(128).learner_state.updates == 4


def test_callbacks_are_called_once_per_update(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    steps: list[int] = []

    def watch(names: dict[str, Any], _: dict[str, Any]) -> bool:
        assert names["n_steps"] == 16 and len(names["infos"]) == N_ENVS
        steps.append(names["self"].num_timesteps)
        return len(steps) < 3

    model = PPO("MlpPolicy", accounts(), verbose=1, **SMALL).learn(
        10_000, callback=watch, progress_bar=True
    )
    assert steps == [128, 256, 384] == [128 * (k + 1) for k in range(model.learner_state.updates)]
    assert "turnover" in capsys.readouterr().out
    evaluation = EvalCallback(
        Monitor(MarketEnv(market())),
        eval_freq=1,
        n_eval_episodes=1,
        best_model_save_path=str(tmp_path),
        verbose=0,
    )
    saver, stop = CheckpointCallback(2, str(tmp_path)), StopTrainingOnMaxEpisodes(2)
    model = PPO("MlpPolicy", accounts(), **SMALL).learn(10_000, callback=[evaluation, saver, stop])
    assert {path.name for path in tmp_path.iterdir()} >= {
        "best_model.zip",
        "rl_model_256_steps.zip",
    }
    assert stop.n_episodes >= 2 * N_ENVS and model.num_timesteps < 1000
    assert np.isfinite(
        evaluate_policy(model, VecMonitor(DummyVecEnv([lambda: MarketEnv(market())])), 2)[0]
    )


def test_schedules_and_changed_numbers() -> None:
    asked: list[float] = []
    model = PPO(
        "MlpPolicy",
        accounts(),
        learning_rate=lambda left: asked.append(left) or 1e-3 * left,
        **SMALL,
    )
    model.learn(512)
    assert {0.75, 0.5, 0.25, 0.0} <= set(asked)
    assert float(model.engine.rates.learning_rate[0]) == 0
    model.ent_coef = 0.25
    model.learn(128)
    assert float(model.engine.rates.entropy[0]) == 0.25


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(
        SettingsError, match=r"does not divide n_steps x n_envs = 128.*sizes that work are .*32"
    ):
        PPO("MlpPolicy", accounts(), **SMALL | {"batch_size": 50})
    with pytest.raises(SettingsError, match="device is 'cuda', JAX runs on 'cpu'"):
        PPO("MlpPolicy", accounts(), device="cuda", **SMALL)
    model = PPO("MlpPolicy", accounts(), **SMALL)
    with pytest.raises(BundleError, match="with the settings that the market was built with"):
        model.save_bundle(tmp_path / "a")
    with pytest.raises(BundleError, match="does not learn in a flatout market"):
        PPO("MlpPolicy", "CartPole-v1").save_bundle(tmp_path / "a")


def test_gymnax_environments_learn() -> None:
    env, params = gymnax.make("CartPole-v1")
    model = PPO(
        "MlpPolicy",
        (env, params),
        n_steps=32,
        batch_size=512,
        n_epochs=8,
        learning_rate=3e-3,
        seed=0,
    )
    model.learn(4096)
    first = np.mean([one["l"] for one in model.ep_info_buffer])
    model.learn(60_000)
    assert np.mean([one["l"] for one in model.ep_info_buffer]) > 3 * first
    judged = evaluate_policy(model, Monitor(gymnasium.make("CartPole-v1")), n_eval_episodes=3)
    assert judged[0] > 3 * first
    with pytest.raises(SettingsError, match="cannot be stepped from outside"):
        model.get_env().reset()
