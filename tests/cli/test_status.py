"""`flatout status`: what it says of studies in every state, and that looking changes nothing.

The study folders here are also those of the tests of `trials`, `stop` and `report`: real files,
without any training.
"""

import contextlib
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from click.testing import Result
from typer.testing import CliRunner

from flatout.bars.read import read_bars
from flatout.bars.synthetic import RandomWalk
from flatout.bars.write import write_bars
from flatout.cli.main import main
from flatout.errors import RunError
from flatout.evaluation.study_folds import make_study_folds
from flatout.folds.seal import open_hold_out
from flatout.runs import write_json
from flatout.search.storage import JOURNAL, close_storage, open_storage, open_study
from flatout.search.study_state import RunningTrial, StudyState, read_state
from flatout.search.trial_files import TrialFile, write_trial
from flatout.settings.loading import Resolved, load_settings
from search.sample_report import sample_report

SPLITS = 6
TOTAL = 20
RATES = [1e-4, 2e-4, 4e-4, 8e-4, 1e-3]
STATES = ["complete", "pruned", "complete", "failed"]  # the fifth trial is still running
PATIENCE = 60.0  # seconds that a process may take to start on a busy machine

RUNNER = """
import sys, time
from pathlib import Path
from flatout.runs import hold_folder
from flatout.search.storage import give_lease_back, open_storage, open_study, take_lease

folder, sweeps = Path(sys.argv[1]), int(sys.argv[2])
with hold_folder(folder):
    study = open_study(open_storage(folder, None), folder.name)
    take_lease(study, folder)
    print("held", flush=True)
    while not (folder / "stop").exists() or sweeps:
        if (folder / "stop").exists():
            (folder / "stop").unlink()
            sweeps -= 1
        time.sleep(0.02)
    give_lease_back(study)
"""


def small_settings(*overrides: str) -> Resolved:
    given = ["features.indicators=['return_1', 'volatility']", f"search.trials={TOTAL}", *overrides]
    return load_settings(overrides=given, environment={})


def scores_of(number: int) -> list[list[float]]:
    """By split and seed; the splits differ, so that none of them is the mean."""
    return [[number / 10 + split] for split in range(SPLITS)]


def mean_of(number: int) -> float:
    return float(np.mean(scores_of(number)))


def make_study(out: Path, name: str = "alpha", url: str | None = None, *overrides: str) -> Path:
    """A study that was stopped with four trials ended and one in its place."""
    folder, resolved = out / name, small_settings(*overrides)
    folder.mkdir(parents=True)
    bars = out / f"{name}.parquet"
    write_bars(RandomWalk(n_bars=500, symbols=("AAA", "BBB")).panel(), bars)
    panel = read_bars(bars)
    request = {"name": name, "bars": str(bars.resolve()), "symbols": None, "bar": None}
    write_json(folder / "settings.json", resolved.model_dump(mode="json"))
    write_json(
        folder / "about.json",
        {"verb": "search", "request": request, "fingerprint": panel.fingerprint, "n_envs": 8},
    )
    storage = open_storage(folder, url)
    study = open_study(storage, name)
    longest = max(group.length for group in make_study_folds(panel, resolved.settings).groups)
    for number, rate in enumerate(RATES):
        add_trial(folder, study, number, rate, longest)
    close_storage(storage)
    state = StudyState(
        (1, SPLITS, 1, 1), asked=len(RATES),
         batches=((RunningTrial(4, 1, {"train.learning_rate": RATES[4]}),), (None,)),
        seconds=60.0, busy_seconds=45.0, worker_seconds=60.0, steps=120_000, finished=[0, 1, 2, 3],
    )  # fmt: skip
    state.save(folder)
    return folder


def add_trial(folder: Path, study: optuna.Study, number: int, rate: float, longest: int) -> None:
    """As `flatout search` tells it; the last one is left running."""
    study.enqueue_trial({"train.learning_rate": rate, "train.epochs": 4})
    trial = study.ask()
    trial.suggest_float("train.learning_rate", 1e-5, 1e-2, log=True)
    trial.suggest_categorical("train.epochs", [4, 8])
    for split, [score] in enumerate(scores_of(number)):
        trial.report(score, split)
    if number == len(STATES):
        return
    state, scores = STATES[number], scores_of(number)
    trial.set_user_attr("flatout:scores", scores if state != "failed" else [[None]] * SPLITS)
    if state == "complete":
        study.tell(trial, mean_of(number))
    else:
        study.tell(
            trial,
            state=optuna.trial.TrialState.PRUNED
            if state == "pruned"
            else optuna.trial.TrialState.FAIL,
        )
    returns = np.random.default_rng(number).normal(0, 0.01, (SPLITS, 1, 2, longest))
    facts = {
        "number": number,
        "params": trial.params,
        "state": state,
        "scores": scores,
        "updates": 12,
    }
    write_trial(folder, TrialFile(returns, np.abs(returns), facts))


def add_report(folder: Path, trials: int = TOTAL) -> dict[str, Any]:
    """report.json of a finished study."""
    report = sample_report(n_bars=300, n_trials=20, n_days=10)
    report["study"] = folder.name
    report["assumptions"]["trials"]["this_study"] = trials
    write_json(folder / "report.json", report)
    return report


@contextlib.contextmanager
def running(folder: Path, sweeps: int = 0) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the study as `flatout search` does, until it is asked to stop; `sweeps`
    requests to stop are swept away before, as a study does that just starts.
    """
    line = [sys.executable, "-c", RUNNER, str(folder), str(sweeps)]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
            yield process
        finally:
            process.kill()


def files_of(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Content and time of all files."""
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*")) if path.is_file()
    }  # fmt: skip


def call(*words: str) -> Result:
    return CliRunner().invoke(main, [*words], env={"COLUMNS": "200"})


def status(out: Path, *words: str) -> Any:
    result = call("status", *words, "--out", str(out), "--json")
    assert result.exit_code == 0, result.exception
    return json.loads(result.output)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "runs"


@pytest.fixture
def folder(out: Path) -> Path:
    return make_study(out)


def test_a_stopped_study(out: Path, folder: Path) -> None:
    assert status(out) == [
        {
            "study": "alpha",
            "folder": str(folder),
            "state": "stopped",
            "pid": None,
            "trials": {
                "total": TOTAL,
                "asked": 5,
                "ended": 4,
                "complete": 2,
                "pruned": 1,
                "failed": 1,
            },
            "best": {"trial": 2, "value": pytest.approx(mean_of(2))},
            "steps_per_s": 2000.0,
            "lanes_busy": 0.75,
            "seconds": 60.0,
            "seconds_left": None,
            "verdict": None,
            "hold_out_openings": 0,
        }
    ]


def test_a_running_study_is_named_with_its_process_and_the_time_left(
    out: Path, folder: Path
) -> None:
    with running(folder) as process:
        [facts] = status(out)
        assert (facts["state"], facts["pid"]) == ("running", process.pid)
        assert facts["seconds_left"] == 60.0 / 4 * (TOTAL - 4)
        output = call("status", str(folder)).output
        assert f"running, process {process.pid}" in output
        assert "4 min 0 s" in output


def test_looking_changes_nothing_and_lets_the_study_run(out: Path, folder: Path) -> None:
    with running(folder) as process:
        before = files_of(folder)
        for _ in range(3):
            status(out, "alpha")
        assert files_of(folder) == before
        assert process.poll() is None
        assert status(out)[0]["state"] == "running"


def test_looking_at_a_stopped_study_changes_nothing(out: Path, folder: Path) -> None:
    before = files_of(folder)
    assert "lock" not in before  # and none is made
    status(out)
    assert files_of(folder) == before


def test_a_line_that_its_writer_has_not_finished_is_left_alone(out: Path, folder: Path) -> None:
    with (folder / JOURNAL).open("ab") as journal:
        journal.write(b'{"op_code":')
    before = files_of(folder)
    assert status(out)[0]["trials"]["asked"] == 5
    assert files_of(folder) == before


def test_a_killed_study_is_stopped(out: Path, folder: Path) -> None:
    with running(folder) as process:
        process.kill()
        process.wait(PATIENCE)
    [facts] = status(out)
    assert (facts["state"], facts["pid"]) == ("stopped", None)


def test_a_finished_study_has_a_verdict(out: Path, folder: Path) -> None:
    report = add_report(folder)
    open_hold_out(folder, "winner, trial 2", "f" * 64)
    facts = status(out, str(folder))[0]
    assert facts["state"] == "finished"
    assert facts["verdict"] == {"promotable": False, "sentence": report["verdict"]["sentence"]}
    assert facts["hold_out_openings"] == 1
    output = call("status", "--out", str(out)).output
    assert "opened 1x" in output
    assert f"alpha: NOT PROMOTABLE: {report['verdict']['sentence']}" in output


def test_a_study_that_has_grown_since_its_report_is_not_finished(out: Path, folder: Path) -> None:
    add_report(folder, trials=TOTAL - 1)
    assert status(out)[0]["state"] == "stopped"


def test_a_study_that_has_just_begun(out: Path, folder: Path) -> None:
    for name in ("board.json", JOURNAL):
        (folder / name).unlink()
    [facts] = status(out)
    assert facts["trials"] == dict.fromkeys(("complete", "pruned", "failed")) | {
        "total": TOTAL,
        "asked": 0,
        "ended": 0,
    }
    assert facts["steps_per_s"] is None
    assert "0 of 20 done, 0 asked" in call("status", "--out", str(out)).output


def test_all_studies_the_latest_first_and_no_other_runs(out: Path, folder: Path) -> None:
    make_study(out, "beta")
    for name, verb in (("20260101T000000-train-AAA", "train"), ("broken", None)):
        (out / name).mkdir()
        (out / name / "about.json").write_text(json.dumps({"verb": verb}) if verb else "{")
    assert [row["study"] for row in status(out)] == ["beta", "alpha"]
    state = read_state(folder)
    assert state is not None
    replace(state, round=7).save(folder)
    assert [row["study"] for row in status(out)] == ["alpha", "beta"]


def test_a_study_that_cannot_be_read_does_not_hide_the_others(out: Path, folder: Path) -> None:
    broken = make_study(out, "beta")
    (broken / "board.json").write_text("{")
    beta, alpha = sorted(status(out), key=lambda row: row["state"], reverse=True)
    assert (beta["state"], alpha["state"]) == ("unreadable", "stopped")
    assert "board.json: is not JSON" in beta["error"]
    assert "unreadable" in call("status", "--out", str(out)).output
    assert isinstance(call("status", str(broken)).exception, RunError)


def test_a_study_in_another_storage(out: Path, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'study.db'}"
    folder = make_study(out, "gamma", url)
    assert not (folder / JOURNAL).exists()
    assert status(out)[0]["trials"] == {"total": TOTAL, "asked": 5, "ended": 4} | dict.fromkeys(
        ("complete", "pruned", "failed")
    )
    assert status(out, "--storage", url)[0]["trials"]["complete"] == 2
    assert not (folder / JOURNAL).exists()


def test_where_there_is_no_study(out: Path, tmp_path: Path) -> None:
    assert (
        call("status", "--out", str(out)).output
        == f"there is no study under {out}; `flatout search` starts one\n"
    )
    assert status(out) == []
    error = call("status", str(tmp_path)).exception
    assert isinstance(error, RunError)
    assert str(error).startswith(f"{tmp_path} is not the folder of a study")


def test_settings_that_are_gone_are_said(out: Path, folder: Path) -> None:
    shutil.move(folder / "settings.json", out / "elsewhere.json")
    error = call("status", str(folder)).exception
    assert isinstance(error, RunError)
    assert str(error).startswith(
        f"{folder / 'settings.json'}: there is no such file; restore it from a copy"
    )
