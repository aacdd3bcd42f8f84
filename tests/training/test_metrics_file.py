"""What a training reports: rows and TensorBoard curves, under the names that Stable-Baselines3
uses, and after a kill neither lost nor twice.
"""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from flatout.errors import RunError
from flatout.file_names import decode_file_name
from flatout.learners.checkpoint import write_checkpoint
from flatout.learners.jobs import Chunk, Job
from flatout.learners.metrics import metric_names
from flatout.training.metrics_file import Journal, progress_in
from flatout.training.training import checkpoint_path, make_jobs
from tiny_training import tiny_training

TRAINING = tiny_training()
NAMES = metric_names(TRAINING.program)
OURS = {"train/grad_norm", "rollout/reward_mean", "reward/steady", "reward/miss"}
THEIRS = {
    "rollout/ep_rew_mean", "rollout/ep_len_mean", "train/approx_kl", "train/clip_fraction",
    "train/entropy_loss",
    "train/explained_variance", "train/learning_rate", "train/loss", "train/policy_gradient_loss",
    "train/std",
    "train/value_loss", "train/n_updates", "time/fps", "eval/mean_reward", "eval/mean_ep_length",
}  # fmt: skip


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return make_jobs(TRAINING, tmp_path, 1)[0]


def chunk_of(updates: int, **changes: float) -> Chunk:
    """Two lanes with a different number in every place."""
    metrics = np.arange(2 * len(NAMES), dtype=np.float32).reshape(2, -1) + updates
    for name, value in changes.items():
        metrics[:, NAMES.index(name)] = value
    scores = np.array([[5.0, 6.0, 7.0, 8.0]] * 2, np.float32) + updates
    return Chunk(
        np.full(2, updates, np.int32),
        metrics,
        scores,
        steps=640,
        busy=2.0,
        seconds=3.0,
        peak_bytes=1,
    )


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def curves(folder: Path, lane: str) -> dict[str, list[tuple[int, float]]]:
    """All scalars as TensorBoard shows them."""
    events = EventAccumulator(str(folder / "tensorboard" / lane))
    events.Reload()
    return {
        tag: [(point.step, point.value) for point in events.Scalars(tag)]
        for tag in events.Tags()["scalars"]
    }


def save_progress(folder: Path, updates: int) -> None:
    """A checkpoint that knows this many updates."""
    names = [lane.name for lane in TRAINING.lanes]
    write_checkpoint(
        checkpoint_path(folder, 0),
        {"lanes/updates": np.full(2, updates, np.int32)},
        {"lanes": names},
    )


def test_each_lane_gets_a_row(tmp_path: Path, job: Job) -> None:
    journal = Journal(TRAINING.program, tmp_path)
    rows = journal.note(job, chunk_of(3))
    journal.close()
    assert [row.lane for row in rows] == ["lane0", "lane1"]
    assert lines(tmp_path) == [row._asdict() for row in rows]
    first, second = lines(tmp_path)
    assert (first["updates"], first["steps"], first["steps_per_s"]) == (3, 3 * 4 * 8, 320.0)
    assert first["metrics"] == {name: 3.0 + k for k, name in enumerate(NAMES)}
    assert second["metrics"] == {name: 3.0 + len(NAMES) + k for k, name in enumerate(NAMES)}
    assert first["scores"] == {"reward": 8.0, "length": 9.0, "steady": 10.0, "miss": 11.0}


def test_what_was_noted_is_not_noted_again(tmp_path: Path, job: Job) -> None:
    journal = Journal(TRAINING.program, tmp_path)
    assert journal.note(job, chunk_of(0)) == []  # a fresh worker has nothing to tell
    assert len(journal.note(job, chunk_of(3))) == 2
    # a replaced worker says what its checkpoint ended with
    assert journal.note(job, chunk_of(3)) == []
    assert len(journal.note(job, chunk_of(6))) == 2
    journal.close()
    assert [(row["lane"], row["updates"]) for row in lines(tmp_path)] == [
        ("lane0", 3), ("lane1", 3), ("lane0", 6), ("lane1", 6),
    ]  # fmt: skip


def test_rows_are_on_disk_when_they_are_told(tmp_path: Path, job: Job) -> None:
    journal = Journal(TRAINING.program, tmp_path)
    journal.note(job, chunk_of(3))
    assert len(lines(tmp_path)) == 2
    journal.close()


def test_what_is_not_finite_becomes_null(tmp_path: Path, job: Job) -> None:
    journal = Journal(TRAINING.program, tmp_path)
    rows = journal.note(job, chunk_of(3, explained_variance=math.nan, loss=math.inf))
    journal.close()
    assert math.isnan(rows[0].metrics["explained_variance"])
    found = lines(tmp_path)[0]["metrics"]
    assert (found["explained_variance"], found["loss"], found["std"]) == (
        None,
        None,
        3.0 + NAMES.index("std"),
    )


def test_curves_have_the_values_at_the_lanes_own_steps(tmp_path: Path, job: Job) -> None:
    journal = Journal(TRAINING.program, tmp_path)
    for updates in (3, 6):
        journal.note(job, chunk_of(updates))
    journal.close()
    found = curves(tmp_path, "lane1")
    assert set(found) == THEIRS | OURS
    rows = [row for row in lines(tmp_path) if row["lane"] == "lane1"]
    for tag, values in {
        "train/approx_kl": [row["metrics"]["approx_kl"] for row in rows],
        "train/entropy_loss": [-row["metrics"]["entropy"] for row in rows],
        "rollout/ep_rew_mean": [row["metrics"]["episode_return"] for row in rows],
        "eval/mean_reward": [8.0, 11.0],
        "eval/mean_ep_length": [9.0, 12.0],
        "reward/miss": [row["metrics"]["terms/miss"] for row in rows],
        "train/n_updates": [3.0, 6.0],
        "time/fps": [320.0, 320.0],
    }.items():
        assert found[tag] == [(96, values[0]), (192, values[1])], tag


def test_without_an_ended_episode_its_curves_have_no_point(tmp_path: Path, job: Job) -> None:
    journal = Journal(TRAINING.program, tmp_path)
    journal.note(job, chunk_of(3, episodes=0.0))
    journal.close()
    assert set(curves(tmp_path, "lane0")) == (THEIRS | OURS) - {
        "rollout/ep_rew_mean",
        "rollout/ep_len_mean",
    }


def test_stable_baselines3_logs_the_same_names(tmp_path: Path) -> None:
    """Its own PPO is asked, so that a tool made for its logs reads ours."""
    sb3 = pytest.importorskip("stable_baselines3")
    from stable_baselines3.common.callbacks import EvalCallback
    from stable_baselines3.common.logger import configure
    from stable_baselines3.common.monitor import Monitor

    env, judged = (Monitor(gymnasium.make("Pendulum-v1", max_episode_steps=4)) for _ in range(2))
    model = sb3.PPO("MlpPolicy", env, n_steps=8, batch_size=8, n_epochs=1, device="cpu")
    model.set_logger(configure(str(tmp_path), ["json"]))
    model.learn(24, callback=EvalCallback(judged, n_eval_episodes=1, eval_freq=8, verbose=0))
    model.logger.close()
    for each in (env, judged):
        each.close()
    told = {
        name
        for line in (tmp_path / "progress.json").read_text().splitlines()
        for name in json.loads(line)
    }
    assert told >= THEIRS


def test_rows_that_no_checkpoint_knows_are_dropped(tmp_path: Path, job: Job) -> None:
    journal = Journal(TRAINING.program, tmp_path)
    for updates in (3, 6, 9):
        journal.note(job, chunk_of(updates))
    journal.close()
    save_progress(tmp_path, 6)
    again = Journal(TRAINING.program, tmp_path)
    assert [row["updates"] for row in lines(tmp_path)] == [3, 3, 6, 6]
    assert again.note(job, chunk_of(6)) == []
    again.note(job, chunk_of(9, approx_kl=0.5))
    again.close()
    assert [row["updates"] for row in lines(tmp_path)] == [3, 3, 6, 6, 9, 9]
    points = curves(tmp_path, "lane0")["train/approx_kl"]
    assert [step for step, _ in points] == [96, 192, 288]
    assert points[-1][1] == 0.5


def test_without_a_checkpoint_no_row_stays(tmp_path: Path, job: Job) -> None:
    journal = Journal(TRAINING.program, tmp_path)
    journal.note(job, chunk_of(3))
    journal.close()
    Journal(TRAINING.program, tmp_path).close()
    assert lines(tmp_path) == []


@pytest.mark.parametrize("cut", [1, 30, 200])
def test_a_half_written_line_is_survived(tmp_path: Path, job: Job, cut: int) -> None:
    """The checkpoint knows the chunk, and the worker tells it once more."""
    journal = Journal(TRAINING.program, tmp_path)
    for updates in (3, 6):
        journal.note(job, chunk_of(updates))
    journal.close()
    whole = lines(tmp_path)
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(path.read_bytes()[: -1 - cut])
    save_progress(tmp_path, 6)
    again = Journal(TRAINING.program, tmp_path)
    assert lines(tmp_path) == whole[:3]
    assert [row.lane for row in again.note(job, chunk_of(6))] == ["lane1"]
    again.close()
    assert lines(tmp_path) == whole


@pytest.mark.parametrize("name", ["BTC/USDT-seed0", "../../up-seed0", "/abs/path", "."])
def test_curves_of_a_lane_stay_in_their_folder_whatever_it_is_called(
    tmp_path: Path, job: Job, name: str
) -> None:
    run = tmp_path / "deep" / "run"
    run.mkdir(parents=True)
    before = {path for path in tmp_path.rglob("*") if run not in path.parents}
    journal = Journal(TRAINING.program, run)
    journal.note(replace(job, names=[name, "lane1"]), chunk_of(3))
    journal.close()
    folders = [path.name for path in (run / "tensorboard").iterdir()]
    assert sorted(map(decode_file_name, folders)) == sorted([name, "lane1"])
    assert all(path.is_dir() for path in (run / "tensorboard").iterdir())
    assert {path for path in tmp_path.rglob("*") if run not in path.parents} == before


@pytest.mark.parametrize(
    "line",
    [
        "[]",
        "3",
        '{"lane": "a"}',
        '{"lane": 1, "updates": 1}',
        '{"lane": "a", "updates": "1"}',
        "[" * 99_999,
        "",
    ],
)
def test_a_damaged_line_is_named_and_not_dropped(tmp_path: Path, job: Job, line: str) -> None:
    journal = Journal(TRAINING.program, tmp_path)
    journal.note(job, chunk_of(3))
    journal.close()
    save_progress(tmp_path, 3)
    path = tmp_path / "metrics.jsonl"
    first, second = path.read_text().splitlines()
    path.write_text(f"{first}\n{line}\n{second}\n")
    with pytest.raises(
        RunError, match=r"metrics\.jsonl: line 2: .*remove that line, or restore the file"
    ):
        Journal(TRAINING.program, tmp_path)


@pytest.mark.parametrize(
    ("arrays", "facts", "message"),
    [
        (
            {"lanes/updates": np.zeros(2, np.int32)},
            {},
            "lanes: it: Input should be a valid list, given None",
        ),
        (
            {"lanes/updates": np.zeros(2, np.int32)},
            {"lanes": [1, 2]},
            "lanes: 0: Input should be a valid string",
        ),
        (
            {"lanes/updates": np.zeros(3, np.int32)},
            {"lanes": ["a", "b"]},
            "is no array of 2 whole numbers",
        ),
        ({"lanes/updates": np.zeros(2)}, {"lanes": ["a", "b"]}, "is no array of 2 whole numbers"),
        ({}, {"lanes": ["a"]}, "is no array of 1 whole numbers"),
    ],
)
def test_a_checkpoint_without_progress_is_named(
    tmp_path: Path, arrays: dict[str, np.ndarray], facts: dict[str, Any], message: str
) -> None:
    write_checkpoint(tmp_path / "worker-0.safetensors", arrays, facts)
    with pytest.raises(RunError, match=rf"worker-0\.safetensors: .*{message}"):
        progress_in(tmp_path / "worker-0.safetensors")
