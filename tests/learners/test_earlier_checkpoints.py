"""Checkpoints of earlier versions open in this one, and their trainings go on.

`fixtures/before_rooms/lanes.safetensors` was written by the version before fields of the messages
between driver and workers got other names (commit 5298c4d, on JAX): two lanes after two updates of
the training below, ordered with the number 7.
"""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flatout.bars.synthetic import RandomWalk
from flatout.learners.checkpoint import read_checkpoint
from flatout.learners.engines import LaneBatch, choose_batch_maker
from flatout.learners.jobs import Job, WorkOrder
from flatout.settings.tables import Settings
from flatout.training.market_training import make_agent, make_training
from flatout.training.training import make_jobs

pytestmark = pytest.mark.long  # workers that compile

WRITTEN = Path(__file__).parents[1] / "fixtures" / "before_rooms" / "lanes.safetensors"
TABLES: dict[str, Any] = {
    "train": {"n_envs": 4, "n_steps": 8, "minibatches": 2, "epochs": 2, "hidden": [4, 4]},
    "features": {"indicators": ["return_1", "roc"]},
}


def job_in(folder: Path, engine: str) -> Job:
    """The job whose checkpoint was kept."""
    panel = RandomWalk(n_bars=120, seed=1, symbols=("AAA", "BBB")).panel()
    train = {**TABLES["train"], "engine": engine}
    settings = Settings.model_validate({**TABLES, "train": train})
    agent = make_agent("both", panel, settings, 0.2)
    training = make_training([agent], settings, range(2), 4 * 8 * 6, evaluations=3)
    [job] = make_jobs(training.training, folder, 1)
    return job


def batch_of(job: Job) -> LaneBatch:
    maker = choose_batch_maker(job.program.environment)
    return maker.make(job, maker.load_data(job), None)


@pytest.mark.parametrize("engine", ["jax", "torch"])
def test_a_training_goes_on_from_a_checkpoint_of_an_earlier_version(
    tmp_path: Path, engine: str
) -> None:
    if engine == "torch":
        pytest.importorskip("torch")
    job = job_in(tmp_path, engine)
    shutil.copy(WRITTEN, job.checkpoint)
    written, facts = read_checkpoint(WRITTEN)
    batch = batch_of(job)
    assert (batch.state.last.round, batch.state.last.job) == (7, 0)
    assert list(batch.state.last.updates) == list(batch.state.lanes.updates) == [2, 2]
    np.testing.assert_array_equal(batch.state.last.scores, written["last/scores"])
    np.testing.assert_array_equal(batch.state.best.score, written["best/score"])
    chunk = batch.advance(WorkOrder((3, 4), round=9))
    assert (list(chunk.updates), chunk.round) == ([3, 4], 9)
    assert np.isfinite(chunk.metrics).all()
    after, same = read_checkpoint(job.checkpoint)
    assert same == facts == {"lanes": ["both-seed0", "both-seed1"]}
    # what is written now opens in the earlier version: equal names, shapes and kinds
    assert {name: (x.shape, x.dtype) for name, x in after.items()} == {
        name: (x.shape, x.dtype) for name, x in written.items()
    }
    assert int(after["last/turn"]) == 9
    assert int(batch_of(job).state.last.round) == 9


def test_a_fresh_training_writes_the_same_names(tmp_path: Path) -> None:
    job = job_in(tmp_path, "jax")
    batch_of(job).advance(WorkOrder((1, 1), round=3))
    found, written = (read_checkpoint(path)[0] for path in (job.checkpoint, WRITTEN))
    assert {name: (x.shape, x.dtype) for name, x in found.items()} == {
        name: (x.shape, x.dtype) for name, x in written.items()
    }
