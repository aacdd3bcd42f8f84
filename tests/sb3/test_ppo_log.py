"""What a training says: a table, TensorBoard's curves, and records of callbacks."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from flatout import PPO
from flatout.errors import SettingsError
from flatout.sb3.logger import Logger, format_table, new_logger

SMALL: dict[str, Any] = {"n_steps": 32, "batch_size": 16, "n_epochs": 2, "seed": 3}
TAGS = {
    "rollout/ep_rew_mean", "rollout/ep_len_mean", "time/fps", "train/approx_kl",
    "train/clip_fraction",
    "train/clip_range", "train/entropy_loss", "train/explained_variance", "train/learning_rate",
    "train/loss",
    "train/policy_gradient_loss", "train/value_loss",
}  # fmt: skip


def curves(folder: Path) -> dict[str, list[tuple[int, float]]]:
    read = EventAccumulator(str(folder)).Reload()
    return {
        tag: [(one.step, one.value) for one in read.Scalars(tag)] for tag in read.Tags()["scalars"]
    }


def test_tensorboard_has_their_tags(tmp_path: Path) -> None:
    model = PPO(
        "MlpPolicy",
        "CartPole-v1",
        tensorboard_log=str(tmp_path),
        learning_rate=lambda left: left,
        **SMALL,
    )
    model.learn(64, tb_log_name="run")
    first = curves(tmp_path / "run_1")
    assert set(first) >= TAGS and "train/std" not in first
    assert first["train/learning_rate"] == [(32, 0.5), (64, 0.0)]
    model.learn(32, tb_log_name="run", reset_num_timesteps=False)
    assert [step for step, _ in curves(tmp_path / "run_1")["train/loss"]] == [32, 64, 96]
    model.learn(32, tb_log_name="run")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run_1", "run_2"]


def test_a_table_is_printed_every_so_often(capsys: pytest.CaptureFixture[str]) -> None:
    PPO("MlpPolicy", "Pendulum-v1", verbose=1, **SMALL).learn(128, log_interval=2)
    out = capsys.readouterr().out
    assert out.startswith("Using cpu device") and out.count("total_timesteps") == 2
    assert "| train/ " in out and "|     std " in out
    PPO("MlpPolicy", "Pendulum-v1", **SMALL).learn(32)
    assert capsys.readouterr().out == ""


def test_the_table() -> None:
    assert format_table({"b/two": 2.5, "b/one": 1, "alone": "x"}) == "\n".join([
        "-----------------",
        "| alone   | x   |",
        "| b/      |     |",
        "|     one | 1   |",
        "|     two | 2.5 |",
        "-----------------",
    ])  # fmt: skip


def test_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logger = new_logger(1, str(tmp_path), "x", True)
    for value in (1.0, 2.0, 6.0):
        logger.record_mean("a/mean", value)
    logger.record("a/hidden", 4, exclude=("stdout",))
    logger.record("a/shown", np.float32(5), exclude="tensorboard")
    assert logger.name_to_value["a/mean"] == 3
    logger.dump(7)
    logger.close()
    assert logger.name_to_value == {}
    out = capsys.readouterr().out
    assert "shown" in out and "hidden" not in out
    assert curves(tmp_path / "x_1") == {"a/mean": [(7, 3.0)], "a/hidden": [(7, 4.0)]}
    logger.record("picture", object())
    with pytest.raises(
        SettingsError, match="picture is a object; this logger writes numbers and texts"
    ):
        logger.dump(8)
    logger.close()


def test_there_is_none_before_learning() -> None:
    model = PPO("MlpPolicy", "CartPole-v1")
    with pytest.raises(SettingsError, match="no logger before"):
        model.logger.record("a", 1)
    model.set_logger(Logger())
    model.logger.record("a", 1)
