"""Training a crawler: it goes on where it was killed, and keeps its policy in a checked file."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from flatout.errors import BundleError, RunError, SettingsError
from flatout.runs import hold_folder
from flatout.slow_envs.model import flatten_weights
from flatout.slow_envs.overlap import Overlap
from flatout_crawl.choosers.environment import FocusedCrawl
from flatout_crawl.choosers.policy import CrawlPolicy
from flatout_crawl.choosers.scorer import LinkScorer
from flatout_crawl.choosers.site_task import site_task
from flatout_crawl.choosers.training import (
    CHECKPOINT,
    METRICS,
    POLICY,
    CrawlTraining,
    read_checkpoint,
    train,
)
from flatout_crawl.sites.site import SiteSettings, generate

pytest.importorskip("torch")
SMALL = CrawlTraining(
    steps=400, envs=4, budget=(20, 60), candidates=8, width=8, batch=64, minibatch=32, epochs=1,
    checkpoint_steps=100,
    overlap=Overlap(segment=8, learner="inline"),
)  # fmt: skip
SMALL_MODEL = LinkScorer(candidates=8, width=8)


def tasks() -> list[Any]:
    """Sites without slow pages: trainings wait for those."""
    return [
        site_task(generate(SiteSettings(seed=seed, pages=100, hazards=False))) for seed in (1, 2)
    ]


@pytest.mark.long
def test_it_trains_and_goes_on_from_the_checkpoint(tmp_path: Path) -> None:
    seen: list[int] = []
    policy = train(tasks(), SMALL, tmp_path, lambda progress: seen.append(progress.steps))
    assert seen[-1] >= 400 and seen == sorted(seen)
    known, steps = read_checkpoint(tmp_path / CHECKPOINT)
    assert known is not None and steps >= 400
    np.testing.assert_array_equal(known.vector, flatten_weights(policy.weights))
    assert (known.vector != flatten_weights(policy.model.new_weights(0))).any()
    rows = [json.loads(line) for line in (tmp_path / METRICS).read_text().splitlines()]
    assert [row["version"] for row in rows] == sorted(row["version"] for row in rows)
    assert list((tmp_path / "tensorboard").iterdir())
    again = train(tasks(), SMALL, tmp_path)  # nothing is left to do
    np.testing.assert_array_equal(flatten_weights(again.weights), known.vector)
    train(tasks(), replace(SMALL, steps=600), tmp_path)
    later, more = read_checkpoint(tmp_path / CHECKPOINT)
    assert later is not None and later.version > known.version and more >= 600
    with pytest.raises(RunError, match=r"begun with gamma=0\.97, and 0\.5 is given now"):
        train(tasks(), replace(SMALL, gamma=0.5), tmp_path)


KILLED = """
import sys
from dataclasses import replace
from pathlib import Path
from test_crawl_training import SMALL, Overlap, tasks, train
train(tasks(), replace(SMALL, steps=10**7, overlap=Overlap(segment=8)), Path(sys.argv[1]))
"""


@pytest.mark.slow
def test_killed_at_any_moment_it_goes_on(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    steps = [0]
    for _ in range(2):
        with subprocess.Popen(
            [sys.executable, "-c", KILLED, str(tmp_path)], env=environment
        ) as driver:
            deadline = time.monotonic() + 600
            while (
                read_checkpoint(tmp_path / CHECKPOINT)[1] <= steps[-1]
                and time.monotonic() < deadline
            ):
                time.sleep(0.02)
            driver.send_signal(signal.SIGKILL)
        steps.append(read_checkpoint(tmp_path / CHECKPOINT)[1])
    assert 0 < steps[1] < steps[2]
    CrawlPolicy.load(tmp_path / POLICY)


def test_a_policy_comes_back_as_it_was_and_chooses_what_is_allowed(tmp_path: Path) -> None:
    model = CrawlPolicy(SMALL_MODEL, SMALL_MODEL.new_weights(3), {"steps": 7})
    model.save(tmp_path / "policy.safetensors")
    again = CrawlPolicy.load(tmp_path / "policy.safetensors")
    np.testing.assert_array_equal(flatten_weights(again.weights), flatten_weights(model.weights))
    assert (again.model, again.notes) == (SMALL_MODEL, {"steps": 7})

    async def crawled() -> int:
        env = FocusedCrawl(tasks(), candidates=8, budget=30)
        seen, _ = await env.reset(seed=0)
        ended, steps = False, 0
        while not ended:
            assert again.act(seen) == model.act(seen)
            seen, _, terminated, truncated, _ = await env.step(again.act(seen))
            ended, steps = terminated or truncated, steps + 1
        return steps

    assert asyncio.run(crawled()) > 0


def spoiled(path: Path, **changes: Any) -> Path:
    """A policy's file with other facts."""
    CrawlPolicy(SMALL_MODEL, SMALL_MODEL.new_weights(3)).save(path)
    with safetensors.safe_open(str(path), "numpy") as file:
        facts, vector = json.loads(file.metadata()["facts"]), file.get_tensor("weights")
    path.write_bytes(
        safetensors.numpy.save({"weights": vector}, {"facts": json.dumps({**facts, **changes})})
    )
    return path


def test_files_that_do_not_fit_are_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "policy.safetensors"
    with pytest.raises(BundleError, match="is not there"):
        CrawlPolicy.load(path)
    with pytest.raises(BundleError, match="version 9"):
        CrawlPolicy.load(spoiled(path, version=9))
    with pytest.raises(BundleError, match=r"other link columns \(.*taste"):
        CrawlPolicy.load(spoiled(path, link_columns=["taste"]))
    with pytest.raises(BundleError, match="damaged"):
        CrawlPolicy.load(spoiled(path, sha256="0"))
    path.write_bytes(b"no such file")
    with pytest.raises(BundleError, match="is not a whole safetensors file"):
        CrawlPolicy.load(path)
    (tmp_path / CHECKPOINT).write_bytes(b"nor this")
    with pytest.raises(RunError, match="is not a whole safetensors file"):
        read_checkpoint(tmp_path / CHECKPOINT)
    with pytest.raises(SettingsError, match="envs=0"):
        CrawlTraining(envs=0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"candidates": 10**12}, "candidates: Input should be less than"),
        ({"width": 10**6}, "width: Input should be less than"),
        ({"width": 16}, r"it has weights of type float32 and shape \(\d+,\), not \d+ of float32"),
        ({"width": "8"}, "width: Input should be a valid integer"),
        ({"global_columns": None}, "global_columns: Input should be a valid array"),
        ({"notes": [1]}, "notes: Input should be an object"),
        ({"format": 7}, "format: Input should be a valid string"),
        ({"link_columns": ["x" * 100_000] * 10}, "other link columns"),
    ],
)
def test_a_forged_policy_is_refused_with_the_place(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(BundleError, match=message) as refusal:
        CrawlPolicy.load(spoiled(tmp_path / "policy.safetensors", **changes))
    assert len(str(refusal.value)) < 2000


def test_a_policy_of_what_is_no_number_is_refused_though_its_sum_fits(tmp_path: Path) -> None:
    path = tmp_path / "policy.safetensors"
    weights = SMALL_MODEL.new_weights(3)
    weights.actor.own[0] = np.nan
    CrawlPolicy(SMALL_MODEL, weights).save(path)
    with pytest.raises(BundleError, match="some of its weights are no numbers"):
        CrawlPolicy.load(path)


@pytest.mark.parametrize("width", [2, 3, 8, 65])
def test_weights_are_counted_without_making_them(width: int) -> None:
    model = LinkScorer(5, 7, 9, width)
    assert model.weights_count == flatten_weights(model.new_weights(0)).size


COUNTS = {"steps": "10", "descents": "4", "version": "2"}


@pytest.mark.parametrize(
    ("names", "dtype", "size", "counts", "message"),
    [
        (("weights", "first"), np.float32, 5, COUNTS, "second is not there"),
        (("weights", "first", "second"), np.float64, 5, COUNTS, "no vector of float32"),
        (("weights", "first", "second"), np.float32, 5, {"steps": "10"}, "descents is missing"),
        (
            ("weights", "first", "second"),
            np.float32,
            5,
            COUNTS | {"steps": "-1"},
            "steps: String should match",
        ),
        (
            ("weights", "first", "second"),
            np.float32,
            5,
            COUNTS | {"steps": "9" * 5000},
            "steps: String should match",
        ),
    ],
)
def test_a_damaged_checkpoint_is_refused_with_the_place(
    tmp_path: Path,
    names: tuple[str, ...],
    dtype: Any,
    size: int,
    counts: dict[str, str],
    message: str,
) -> None:
    path = tmp_path / CHECKPOINT
    path.write_bytes(
        safetensors.numpy.save({name: np.zeros(size, dtype) for name in names}, counts)
    )
    with pytest.raises(RunError, match=message):
        read_checkpoint(path)


def test_a_checkpoint_of_another_network_is_refused(tmp_path: Path) -> None:
    vectors = {name: np.zeros(5, np.float32) for name in ("weights", "first", "second")}
    (tmp_path / CHECKPOINT).write_bytes(safetensors.numpy.save(vectors, COUNTS))
    with pytest.raises(RunError, match="it has 5 weights, and the network"):
        train(tasks(), SMALL, tmp_path)


def test_a_training_writes_through_no_link_and_beside_nobody_else(tmp_path: Path) -> None:
    folder, outside = tmp_path / "run", tmp_path / "outside"
    folder.mkdir()
    outside.write_text("mine")
    (folder / METRICS).symlink_to(outside)
    with pytest.raises(RunError, match="symbolic link"):
        train(tasks(), SMALL, folder)
    (folder / METRICS).unlink()
    with hold_folder(folder), pytest.raises(RunError, match="used by another process"):
        train(tasks(), SMALL, folder)
    assert outside.read_text() == "mine"
