"""Damaged folders of studies, beside a healthy one: looked at, shown, compared, and gone on with up
to the training.
"""

import json
import os
import random
import shutil
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import safetensors.numpy

sys.path.append(
    str(Path(__file__).parents[1] / "search")
)  # its modules know each other by their bare names

from fake_workers import play

from damage import mutations
from damage.commands import run_command, run_json, take_steps, unchanged, without_syncing
from damage.harness import SilentlyWrong
from flatout.bars.read import read_bars
from flatout.bars.synthetic import RandomWalk
from flatout.bars.write import write_bars
from flatout.errors import FlatoutError
from flatout.evaluation.fingerprint_counts import count_noted_before
from flatout.evaluation.seen_bars import span_of
from flatout.evaluation.trial_registry import (
    ENVIRONMENT_VARIABLE,
    StudyEntry,
    StudyRecord,
    read_records,
)
from flatout.folds.blocks import Block
from flatout.folds.seal import open_hold_out, openings
from flatout.market.rewards import RewardTerms
from flatout.runs import write_json
from flatout.search.finalist_results import FILE as FINALIST_RESULTS
from flatout.search.finalist_results import conditions_of, read_finalist_results
from flatout.search.finalists import choose_finalists
from flatout.search.run import PreparedStudy, StudyRequest, open_study_folder, write_missing_report
from flatout.search.run import prepare as prepare_study
from flatout.search.study_orders import make_orders
from flatout.settings.loading import Resolved
from flatout.settings.tables import Settings
from search.sample_report import sample_report

COUNT = 1000
SETTINGS = {
    "features": {"indicators": ["return_1", "roc"], "scaler": "zscore"},
    "train": {"n_envs": 4, "n_steps": 16, "minibatches": 2, "epochs": 2, "hidden": [8, 8]},
    "folds": {"kind": "kfold", "groups": 2},
    "search": {
        "trials": 6, "timesteps": 256, "batch": 2, "finalists": 2, "final_seeds": 2,
        "space": {
            "train.learning_rate": {"low": 1e-4, "high": 1e-2, "log": True},
            "train.epochs": {"low": 1, "high": 4, "whole": True},
            "market.limits.reserve": {"choices": [0.05, 0.1, 0.3]},
        },
    },
}  # fmt: skip
READS = {
    "status": (
        "about.json",
        "settings.json",
        "board.json",
        "study.journal",
        "report.json",
        "hold_out.json",
    ),
    "list": ("about.json", "settings.json", "study.journal"),
    "report": ("about.json", "report.json"),
    "openings": ("hold_out.json",),
}


def prepare(folder: Path) -> None:
    """A study whose trials are done and whose report is written, one that was interrupted, and
    their bars.
    """
    without_syncing()
    os.environ[ENVIRONMENT_VARIABLE] = str(folder.parent / "tmp" / "registry")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    write_bars(RandomWalk(n_bars=400, symbols=("ONE", "TWO")).panel(), folder / "bars.parquet")
    for name, trials in (("alpha", 6), ("beta", 6), ("gamma", 20)):
        make_study(folder, name, trials)
    honest = {name: outcomes(folder / "runs", name) for name in ("alpha", "beta", "gamma")}
    (folder / "honest.json").write_text(json.dumps(honest))


def make_study(originals: Path, name: str, trials: int) -> None:
    """A study that fake workers have played; gamma is stopped in the middle."""
    made = prepared(originals, originals / "runs", name, trials)
    study = originals / "runs" / name
    study.parent.mkdir(exist_ok=True)
    on_round = stop_after(6) if name == "gamma" else (lambda *_: None)
    try:
        played = play(study, made, on_round=on_round)
    except Stopped:
        return
    shapes = (len(RewardTerms._fields), made.market.test_blocks, made.market.test_bars)
    numbers = choose_finalists(played.study)
    kinds = len(conditions_of(played.study))
    arrays = {
        "finalists": np.asarray(numbers, np.int32),
        "finalist_terms": np.zeros((len(numbers), kinds, 2, 2, *shapes), np.float32),
        "controls": np.zeros((4, *shapes), np.float32),
    }
    (study / FINALIST_RESULTS).write_bytes(safetensors.numpy.save(arrays))
    report = sample_report(n_bars=60, n_trials=6, n_days=5, halves=40) | {"study": name}
    report["assumptions"]["trials"]["this_study"] = trials
    write_json(study / "report.json", report)
    open_hold_out(study, "winner, trial 1", made.panel.fingerprint)


class Stopped(Exception):  # noqa: N818
    """A study is left where it is."""


def stop_after(rounds: int) -> Any:
    """A callback that has enough after so many rounds."""
    rounds_seen: list[int] = []

    def count_round(*_: Any) -> None:
        rounds_seen.append(1)
        if len(rounds_seen) == rounds:
            raise Stopped

    return count_round


@cache
def bars_of(path: Path) -> Any:
    return read_bars(path)


def prepared(originals: Path, out: Path, name: str, trials: int) -> PreparedStudy:
    """The study as `flatout search` prepares it."""
    sampler = "cmaes" if name == "gamma" else "tpe"  # the one that reads again what it drew
    search = {**SETTINGS["search"], "trials": trials, "sampler": sampler}
    resolved = Resolved(settings=Settings.model_validate({**SETTINGS, "search": search}), origin={})
    bars = originals / "bars.parquet"
    return prepare_study(StudyRequest(name, str(bars)), resolved, bars_of(bars), 2, out)


def damage(number: int, originals: Path, folder: Path) -> str:
    """One to three damages in one of two studies, or in the registry of trials."""
    rng = random.Random(number)
    shutil.copytree(originals / "runs", folder / "runs")
    (folder / "originals").symlink_to(originals)
    name = rng.choice(("alpha", "alpha", "gamma"))
    (folder / "name").write_text(name)
    write_registry(folder / "registry", bars_of(originals / "bars.parquet"))
    study = folder / "runs" / name
    damages = []
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        files = mutations.plain_files(folder / "registry" if rng.random() < 0.05 else study)
        plain = [p for p in files if p.suffix in mutations.BY_SUFFIX]
        damages.append(
            mutations.damage_folder(
                study, rng, folder, plain if plain and rng.random() < 0.9 else files
            )
        )
    return f"{name}: {'; '.join(damages)}"


def write_registry(folder: Path, panel: Any) -> None:
    """The registry of trials, of this version and of earlier ones, of which a copy is damaged."""
    span = span_of(panel, Block(0, panel.n_bars))
    known = StudyRecord(
        id="0" * 32,
        folder="some",
        fingerprint=panel.fingerprint,
        symbols=panel.symbols,
        bar_seconds=panel.bar_seconds,
        judged=span,
        hold_out=None,
        begun=span.end,
    )
    StudyEntry(folder, known).note_trials(6)
    counts = {"fingerprint": panel.fingerprint, "studies": {"some": 6}}
    write_json(folder / f"{panel.fingerprint}.json", counts)


def count_trials(registry: Path, fingerprint: str) -> int:
    """All trials of a registry."""
    noted = sum(record.trials for record in read_records(registry))
    return noted + count_noted_before(fingerprint, registry)


def attempt(folder: Path) -> str:
    """All that people do with studies but train."""
    out, name, originals = (
        folder / "runs",
        (folder / "name").read_text(),
        (folder / "originals").resolve(),
    )
    steps = looks(out, name)
    honest = json.loads((originals / "honest.json").read_text())
    study, original = out / name, originals / "runs" / name
    same = {
        step: honest[name][step]
        for step, files in READS.items()
        if unchanged(study, original, *files)
    }
    neighbour = run_json("status", "beta", "--out", out)[0] | {"folder": ""}
    if neighbour != honest["beta"]["status"]:
        raise SilentlyWrong("the healthy study is shown as another")
    every = {row["study"]: row for row in run_json("status", "--out", out)}
    if every["beta"]["state"] == "unreadable":
        raise SilentlyWrong("the damaged study hides the healthy one")
    fingerprint = bars_of(originals / "bars.parquet").fingerprint
    steps["registry"] = lambda: count_trials(folder / "registry", fingerprint)
    steps["resume"] = lambda: go_on(originals, out, name)
    return take_steps(steps, same)


def looks(out: Path, name: str) -> dict[str, Any]:
    """What only reads."""
    study = out / name
    return {
        "status": lambda: run_json("status", name, "--out", out)[0] | {"folder": ""},
        "all": lambda: run_command("status", "--out", out),
        "list": lambda: run_json("trials", "list", "--study", study)["trials"],
        "table": lambda: run_command("trials", "list", "--study", study),
        "show": lambda: run_json("trials", "show", "0", "--study", study),
        "tell": lambda: run_command("trials", "show", "1", "--study", study),
        "diff": lambda: run_command("trials", "diff", "0", "2", "--study", study),
        "report": lambda: run_json("report", study)["verdict"],
        "page": lambda: run_command("report", study),
        "openings": lambda: len(openings(study)),
    }


def outcomes(out: Path, name: str) -> dict[str, Any]:
    """What an honest study shows."""
    found = {}
    for step in READS:
        try:
            found[step] = looks(out, name)[step]()
        except FlatoutError:
            found[step] = "refused"
    return found


def go_on(originals: Path, out: Path, name: str) -> str:
    """Resume a study, as far as it comes before workers are started; the finalists and the report
    are read, too.
    """
    made = prepared(originals, out, name, 6 if name == "alpha" else 20)
    with open_study_folder(made, out / name, None) as study:
        study.begin()
        if study.done:
            read_finalist_results(study)
            finish_known(study, made)
        else:
            make_orders(study, study.state.round)
    return "went on"


def finish_known(study: Any, made: PreparedStudy) -> None:
    """The report that is there; a new one would be computed from policies, which this study has
    not.
    """
    if (study.folder / "report.json").exists():
        write_missing_report(study, made, lambda *_: None, lambda bar: None)
