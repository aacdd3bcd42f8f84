"""Saved and loaded, a model learns on as if nothing had happened; files hold no pickle."""

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import stable_baselines3
from scripted_envs import Scripted

from flatout import PPO
from flatout.errors import BundleError, SettingsError
from flatout.sb3.policy import name_weights

SMALL: dict[str, Any] = {"n_steps": 32, "batch_size": 16, "n_epochs": 2, "seed": 3}


def weights(model: PPO) -> np.ndarray:
    return np.concatenate([np.array(x).reshape(-1) for x in name_weights(model.network).values()])


def cartpole(**changes: Any) -> PPO:
    return PPO("MlpPolicy", "CartPole-v1", **SMALL | changes)


def test_a_loaded_model_learns_on_bit_by_bit(tmp_path: Path) -> None:
    first = cartpole().learn(64)
    first.save(tmp_path / "model")
    second = PPO.load(tmp_path / "model", env="CartPole-v1")
    assert (weights(first) == weights(second)).all()
    for model in (first, second):
        model.set_random_seed(9)
        model.learn(96)
    assert (weights(first) == weights(second)).all()
    assert first.num_timesteps == second.num_timesteps == 96
    assert first._n_updates == second._n_updates == 10


def test_the_optimiser_is_in_the_file(tmp_path: Path) -> None:
    """Without it the next update would be another one."""
    first = cartpole().learn(64)
    first.save(tmp_path / "model")
    fresh = cartpole()
    fresh.policy.load_state_dict(first.policy.state_dict())
    for model in (first, fresh):
        model.set_random_seed(9)
        model.learn(32)
    assert np.abs(weights(first) - weights(fresh)).max() > 1e-5


def test_without_an_environment_it_predicts_only(tmp_path: Path) -> None:
    model = PPO("MlpPolicy", Scripted(), **SMALL).learn(32)
    model.save(tmp_path / "a.zip")
    loaded = PPO.load(tmp_path / "a.zip")
    seen = np.ones((4, 3), np.float32)
    assert (
        loaded.predict(seen, deterministic=True)[0] == model.predict(seen, deterministic=True)[0]
    ).all()
    assert loaded.get_env() is None and loaded.num_timesteps == 32
    with pytest.raises(SettingsError, match="has no environment"):
        loaded.learn(10)
    loaded.save(tmp_path / "b.zip")
    again = PPO.load(tmp_path / "b.zip", env=Scripted())
    assert (
        weights(again) == weights(model)
    ).all() and again.learner_state.descents == model.learner_state.descents
    loaded.set_env(Scripted())
    assert loaded.learn(32).num_timesteps == 32


def test_what_a_file_holds(tmp_path: Path) -> None:
    cartpole().save(tmp_path / "model")
    with zipfile.ZipFile(tmp_path / "model.zip") as archive:
        assert sorted(archive.namelist()) == ["model.json", "tensors.safetensors"]
    assert [path.name for path in tmp_path.iterdir()] == ["model.zip"]


def test_open_files() -> None:
    model, file = cartpole(), io.BytesIO()
    model.save(file)
    file.seek(0)
    assert (weights(PPO.load(file)) == weights(model)).all()


def test_arguments_come_back_and_may_be_changed(tmp_path: Path) -> None:
    cartpole(gamma=0.9, ent_coef=np.float64(0.1), policy_kwargs={"net_arch": [8]}).save(
        tmp_path / "model"
    )
    model = PPO.load(
        tmp_path / "model",
        env="CartPole-v1",
        learning_rate=1e-5,
        custom_objects={"clip_range": 0.1},
    )
    assert (model.gamma, model.ent_coef, model.learning_rate, model.clip_range) == (
        0.9,
        0.1,
        1e-5,
        0.1,
    )
    assert model.architecture.hidden == (8,) and model.seed == 3
    with pytest.raises(SettingsError, match="'gama' is no argument of PPO"):
        PPO.load(tmp_path / "model", gama=1)
    with pytest.raises(SettingsError, match="policy_kwargs are not those of the file"):
        PPO.load(tmp_path / "model", policy_kwargs={"net_arch": [9]})
    with pytest.raises(SettingsError, match="force_reset is False"):
        PPO.load(tmp_path / "model", force_reset=False)


def test_functions_must_be_given_again(tmp_path: Path) -> None:
    cartpole(learning_rate=lambda left: 1e-3 * left).save(tmp_path / "model")
    with pytest.raises(SettingsError, match="learning_rate was a function"):
        PPO.load(tmp_path / "model", env="CartPole-v1").learn(32)
    model = PPO.load(
        tmp_path / "model", env="CartPole-v1", custom_objects={"lr_schedule": lambda left: 1e-3}
    )
    assert model.learn(32).num_timesteps == 32


def test_spaces_are_checked(tmp_path: Path) -> None:
    model = cartpole()
    model.save(tmp_path / "model")
    with pytest.raises(SettingsError, match="observation space is Box"):
        PPO.load(tmp_path / "model", env="Acrobot-v1")
    with pytest.raises(SettingsError, match="observation space is Box"):
        model.set_env("Acrobot-v1")
    vector = stable_baselines3.common.env_util.make_vec_env("CartPole-v1", 2)
    with pytest.raises(SettingsError, match="2 environments were given, this model has 1"):
        model.set_env(vector)
    assert PPO.load(tmp_path / "model", env=vector).n_envs == 2


def test_other_files_are_refused(tmp_path: Path) -> None:
    stable_baselines3.PPO("MlpPolicy", "CartPole-v1", device="cpu").save(tmp_path / "theirs")
    with pytest.raises(BundleError, match="saved by Stable-Baselines3; it holds pickles"):
        PPO.load(tmp_path / "theirs")
    cartpole().save(tmp_path / "ours")
    content = (tmp_path / "ours.zip").read_bytes()
    for name, damaged in (
        ("cut", content[: len(content) // 2]),
        ("changed", content.replace(b"network", b"netwurk")),
    ):
        (tmp_path / f"{name}.zip").write_bytes(damaged)
        with pytest.raises(BundleError, match=r"cut off|damaged"):
            PPO.load(tmp_path / name)
    with pytest.raises(
        BundleError, match=r"nothing\.zip: there is no such file; give a file that `save`"
    ):
        PPO.load(tmp_path / "nothing")


def test_weights_travel_between_the_two_libraries(tmp_path: Path) -> None:
    theirs = stable_baselines3.PPO("MlpPolicy", "CartPole-v1", device="cpu", seed=1)
    ours = cartpole()
    ours.set_parameters({"policy": theirs.get_parameters()["policy"]})
    seen = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    assert (
        ours.predict(seen, deterministic=True)[0] == theirs.predict(seen, deterministic=True)[0]
    ).all()
    with pytest.raises(SettingsError, match="the optimiser begins anew"):
        ours.set_parameters(theirs.get_parameters())
    with pytest.raises(SettingsError, match="missing"):
        ours.set_parameters({"policy": {}})
    ours.save(tmp_path / "a")
    other = cartpole(seed=8)
    other.set_parameters(tmp_path / "a")
    assert (weights(other) == weights(ours)).all()
    with pytest.raises(SettingsError, match="the file's network has shapes"):
        cartpole(policy_kwargs={"net_arch": [8]}).set_parameters(tmp_path / "a")


def test_the_folder_for_logs_that_a_file_names_is_used_only_if_it_lies_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file from somebody else does not decide where something is written."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for name, given in (
        ("inner", "logs"),
        ("outer", "../logs"),
        ("absolute", str(tmp_path / "logs")),
    ):
        cartpole(tensorboard_log=given).save(f"{name}.zip")
    for name in ("outer", "absolute"):
        model = PPO.load(name, env="CartPole-v1")
        with pytest.warns(
            UserWarning, match="tensorboard_log is .*not in the current folder.*give it again"
        ):
            model.learn(32)
        assert not (tmp_path / "logs").exists()
    PPO.load("inner", env="CartPole-v1").learn(32)
    assert (tmp_path / "here" / "logs" / "PPO_1").is_dir()
    PPO.load("outer", env="CartPole-v1", tensorboard_log="../logs").learn(32)
    assert (tmp_path / "logs" / "PPO_1").is_dir()
