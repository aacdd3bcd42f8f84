"""Damaged folders of `flatout train` runs: gone on with up to the training, their policies and
their report read.
"""

import json
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from typer.testing import CliRunner

from damage import mutations
from damage.commands import run_json, take_steps, unchanged, without_syncing
from flatout.bars.synthetic import RandomWalk
from flatout.bars.write import write_bars
from flatout.cli.main import main
from flatout.policies.bundle import Bundle
from flatout.runs import hold_folder
from flatout.training.metrics_file import Journal
from flatout.training.prepare import prepare_training, source_of_run
from flatout.training.request import read_request
from flatout.training.train import save_bundles
from flatout.training.training import finished_lanes, make_jobs

COUNT = 500
TINY = [
    "--n-envs",
    "4",
    "--timesteps",
    "128",
    "--evaluations",
    "2",
    "--workers",
    "1",
    "--engine",
    "jax",
]
TINY += ["--device", "cpu"]
for setting in ("train.hidden=[8]", "train.n_steps=8", "features.indicators=['return_1']"):
    TINY += ["--set", setting]
LANES = ("AAA-seed0", "BBB-seed0")
REQUESTED = ("about.json", "settings.json")


def prepare(folder: Path) -> None:
    """A real run of two tiny agents."""
    without_syncing()
    write_bars(RandomWalk(n_bars=300, symbols=("AAA", "BBB")).panel(), folder / "bars.parquet")
    words = ["train", "--bars", str(folder / "bars.parquet"), "--symbols", "AAA", "BBB", *TINY]
    result = CliRunner().invoke(
        main, [*words, "--out", str(folder / "runs"), "--json"], catch_exceptions=False
    )
    assert result.exit_code == 0, result.output
    Path(json.loads(result.stdout)["run"]).rename(folder / "run")
    honest = {
        name: step()
        for name, step in steps_of(folder / "run").items()
        if name in ("request", "policy")
    }
    (folder / "honest.json").write_text(json.dumps(honest, default=str))


def damage(number: int, originals: Path, folder: Path) -> str:
    """One to three damages of the run's files."""
    rng = random.Random(number)
    shutil.copytree(originals / "run", folder / "run")
    (folder / "originals").symlink_to(originals)
    said = []
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        files = mutations.plain_files(folder / "run")
        wanted = [path for path in files if path.suffix in mutations.BY_SUFFIX]
        chosen = wanted if wanted and rng.random() < 0.9 else files
        if numbers := [
            path for path in wanted if rng.random() < 0.05 and path.suffix == ".safetensors"
        ]:
            said.append(reshape(numbers[0], rng))
        else:
            said.append(mutations.damage_folder(folder / "run", rng, folder, chosen))
    return "; ".join(said)


def reshape(path: Path, rng: random.Random) -> str:
    """An array of another shape, and all else as it was."""
    try:
        arrays = safetensors.numpy.load(path.read_bytes())
    except safetensors.SafetensorError:
        return mutations.damage_file(path, rng)
    name = rng.choice(sorted(arrays))
    arrays[name] = arrays[name].reshape(-1)[: rng.choice((0, 1, 3))].copy()
    length = int.from_bytes(path.read_bytes()[:8], "little")
    notes = json.loads(path.read_bytes()[8 : 8 + length]).get("__metadata__")
    path.write_bytes(safetensors.numpy.save(arrays, notes))
    return f"{path.name}: {name} has other numbers"


def steps_of(run: Path) -> dict[str, Any]:
    """What `flatout train --resume` does before its workers start, and what reads a run's
    results.
    """
    return {
        "request": lambda: str(read_request(run)),
        "policy": lambda: [answer(Bundle.load(run / lane / "best")) for lane in LANES],
        "resume": lambda: go_on(run),
        "status": lambda: run_json("status", "--out", run.parent),
    }


def answer(policy: Bundle) -> list[float]:
    """What it does where it sees nothing."""
    return policy.act(np.zeros(policy.observation_size)).tolist()


def attempt(folder: Path) -> str:
    """Look at what the run left, and go on with it. Nobody signed the policies anew: they are
    honest, or refused.
    """
    originals = (folder / "originals").resolve()
    honest = json.loads((originals / "honest.json").read_text())
    if not unchanged(folder / "run", originals / "run", *REQUESTED):
        del honest["request"]
    return take_steps(steps_of(folder / "run"), honest)


def go_on(run: Path) -> str:
    """Up to the moment in which workers would be hired."""
    request, resolved = read_request(run)
    source = source_of_run(request, run, resolved.settings)
    prepared = prepare_training(request, resolved, source)
    made, workers = prepared.made, len(prepared.chosen.slots)
    with hold_folder(run):
        make_jobs(made.training, run, workers)
        (run / "logs").mkdir(exist_ok=True)
        Journal(made.training.program, run).close()
        finished_lanes(made.training, run, workers)
    save_bundles(prepared, run)
    return "went on"
