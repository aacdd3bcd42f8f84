"""`flatout trials`: all of them, one in detail, two beside each other."""

import json
from pathlib import Path
from typing import Any

import pytest
from test_status import (
    RATES,
    SPLITS,
    call,
    files_of,
    make_study,
    mean_of,
    running,
    scores_of,
    small_settings,
)

from flatout.bars.read import read_bars
from flatout.bars.synthetic import RandomWalk
from flatout.bars.write import write_bars
from flatout.errors import RunError
from flatout.evaluation.paths import path_figures, path_returns
from flatout.evaluation.study_folds import make_study_folds
from flatout.search.storage import JOURNAL
from flatout.search.trial_files import read_trial


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_study(tmp_path / "runs", "alpha", None, "search.pruner=wilcoxon")


def call_json(folder: Path, *words: str) -> Any:
    result = call("trials", *words, "--study", str(folder), "--json")
    assert result.exit_code == 0, result.exception
    return json.loads(result.output)


def refusal(folder: Path, *words: str) -> str:
    error = call("trials", *words, "--study", str(folder)).exception
    assert isinstance(error, RunError), error
    return str(error)


def test_the_best_come_first_and_those_without_a_value_last(folder: Path) -> None:
    trials = call_json(folder, "list")["trials"]
    assert [(trial["number"], trial["state"]) for trial in trials] == [
        (2, "complete"), (1, "pruned"), (0, "complete"), (3, "failed"), (4, "running"),
    ]  # fmt: skip
    assert [trial["value"] for trial in trials] == [
        *map(pytest.approx, map(mean_of, (2, 1, 0))),
        None,
        None,
    ]
    assert trials[0]["params"] == {"train.learning_rate": RATES[2], "train.epochs": 4}


def test_a_pruned_trial_is_worth_the_mean_of_its_splits(folder: Path) -> None:
    """Optuna takes what the last split reported."""
    assert (
        call_json(folder, "show", "1")["value"] == pytest.approx(mean_of(1)) != scores_of(1)[-1][0]
    )


def test_by_number_and_only_some(folder: Path) -> None:
    rows = call_json(folder, "list", "--sort", "number", "--top", "3")["trials"]
    assert [row["number"] for row in rows] == [0, 1, 2]


def test_the_table_has_a_column_per_parameter(folder: Path) -> None:
    lines = call("trials", "list", "--study", str(folder), "--top", "1").output.splitlines()
    assert [cell.strip() for cell in lines[1].strip("┃").split("┃")] == [
        "trial", "state", "value", "learning_rate", "epochs",
    ]  # fmt: skip
    assert [cell.strip() for cell in lines[3].strip("│").split("│")] == [
        "2",
        "complete",
        "2.700",
        "0.0004",
        "4",
    ]
    assert lines[-1] == f"{folder}: the first 1 of 5 trials"


def test_show_has_scores_paths_and_reports(folder: Path) -> None:
    found = call_json(folder, "show", "2")
    assert (found["state"], found["updates"], found["note"]) == ("complete", 12, None)
    assert found["scores"] == scores_of(2)
    assert found["splits"] == [
        "cpcv 0+1",
        "cpcv 0+2",
        "cpcv 0+3",
        "cpcv 1+2",
        "cpcv 1+3",
        "cpcv 2+3",
    ]
    assert found["reports"] == [{"rung": 1, "values": [score for [score] in scores_of(2)]}]
    panel = read_bars(folder.with_suffix(".parquet"))
    folds = make_study_folds(panel, small_settings().settings)
    expected = path_figures(
        path_returns(folds, read_trial(folder, 2).log_return), panel.bars_per_year
    ).rows()
    assert len(expected) == 3
    assert found["paths"] == [{"seed": 0, "path": k, **row} for k, row in enumerate(expected)]


def test_show_for_people(folder: Path) -> None:
    text = call("trials", "show", "2", "--study", str(folder)).output
    assert text.startswith("trial 2: complete, value 2.7, 12 updates\n")
    assert "reported at rung 1: 0.200, 1.200, 2.200, 3.200, 4.200, 5.200" in text
    for word in ("train.learning_rate", "cpcv 1+3", "out-of-sample paths", "max drawdown"):
        assert word in text


def test_a_trial_that_runs_shows_what_was_reported(folder: Path) -> None:
    found = call_json(folder, "show", "4")
    assert (found["scores"], found["paths"], found["note"]) == (None, None, "it has not ended yet")
    assert found["reports"][0]["values"] == [score for [score] in scores_of(4)]
    assert "it has not ended yet" in call("trials", "show", "4", "--study", str(folder)).output


def test_reports_to_a_pruner_that_halves_are_one_per_rung(tmp_path: Path) -> None:
    folder = make_study(tmp_path, "halved", None, "search.pruner=halving")
    assert [row["rung"] for row in call_json(folder, "show", "2")["reports"]] == list(
        range(1, SPLITS + 1)
    )


def test_without_its_bars_a_trial_has_no_paths(folder: Path) -> None:
    bars = folder.with_suffix(".parquet")
    write_bars(RandomWalk(n_bars=500, symbols=("AAA", "BBB"), seed=1).panel(), bars)
    found = call_json(folder, "show", "2")
    assert found["note"] == "no figures of paths: the bars have changed since the study began"
    assert (found["paths"], found["scores"]) == (None, scores_of(2))
    bars.unlink()
    found = call_json(folder, "show", "2")
    assert "there is no such file" in found["note"]
    assert found["splits"][0] == "split 0"
    assert "no figures of paths" in call("trials", "show", "2", "--study", str(folder)).output


def test_diff_shows_what_differs_and_by_how_much(folder: Path) -> None:
    found = call_json(folder, "diff", "0", "2")
    assert found["params"] == [
        {
            "name": "train.learning_rate", "first": RATES[0], "second": RATES[2],
            "difference": pytest.approx(3e-4), "factor": pytest.approx(4.0),
        }
    ]  # fmt: skip
    state, value = found["outcome"]
    assert (state["first"], state["difference"]) == ("complete", None)
    assert value["difference"] == pytest.approx(mean_of(2) - mean_of(0))
    text = call("trials", "diff", "0", "2", "--study", str(folder)).output
    assert "+0.0003 (x 4)" in text
    assert "1 parameters are equal" in text


def test_the_study_last_worked_on_is_the_usual_one(folder: Path) -> None:
    make_study(folder.parent, "beta")
    found = json.loads(call("trials", "list", "--out", str(folder.parent), "--json").output)
    assert found["study"] == "beta"
    found = json.loads(
        call("trials", "list", "--out", str(folder.parent), "--study", "alpha", "--json").output
    )
    assert found["study"] == "alpha"


def test_a_running_study_is_not_disturbed(folder: Path) -> None:
    with running(folder) as process:
        before = files_of(folder)
        call_json(folder, "list")
        call_json(folder, "show", "2")
        assert files_of(folder) == before
        assert process.poll() is None


def test_what_is_not_there_is_refused(folder: Path, tmp_path: Path) -> None:
    assert refusal(folder, "show", "5") == "there is no trial 5: the study has trials 0 to 4"
    assert refusal(folder, "diff", "0", "77") == "there is no trial 77: the study has trials 0 to 4"
    assert "is not the folder of a study" in refusal(tmp_path, "list")
    (folder / JOURNAL).unlink()
    assert (
        refusal(folder, "list")
        == f"{folder} has no trials yet; if it was run with --storage, give the same one"
    )
