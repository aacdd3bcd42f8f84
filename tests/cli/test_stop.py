"""`flatout stop`: a real process that holds the real lock is asked to end, and nobody else."""

import json
from pathlib import Path

import pytest
from test_status import PATIENCE, call, files_of, make_study, running

from flatout.errors import RunError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_study(tmp_path / "runs")


def test_a_running_study_is_stopped_and_waited_for(folder: Path) -> None:
    with running(folder) as process:
        result = call("stop", str(folder))
        assert process.wait(PATIENCE) == 0
    assert result.exit_code == 0, result.exception
    assert result.stdout == (
        "alpha has stopped after 4 of 20 trials; the same `flatout search` command goes on from "
        "there\n"
    )
    assert "alpha was asked to stop" in result.stderr
    assert not (folder / "stop").exists()


def test_a_study_that_was_just_starting_is_asked_again(folder: Path) -> None:
    """It sweeps old requests away when it starts, and a new one with them."""
    with running(folder, sweeps=2) as process:
        call("stop", str(folder))
        assert process.wait(PATIENCE) == 0


def test_without_waiting_the_request_is_left(folder: Path) -> None:
    with running(folder, sweeps=0) as process:
        result = call("stop", str(folder), "--no-wait")
        assert result.output == "alpha stops after its current round\n"
        assert process.wait(PATIENCE) == 0
    assert (folder / "stop").exists()  # the study sweeps it away when it goes on


def test_a_study_that_does_not_run_is_left_alone(folder: Path) -> None:
    before = files_of(folder)
    result = call("stop", str(folder))
    assert (result.exit_code, result.output) == (
        0,
        "alpha is not running: there is nothing to stop\n",
    )
    assert files_of(folder) == before
    assert json.loads(call("stop", str(folder), "--json").output) == {
        "study": "alpha",
        "state": "not running",
    }


def test_the_running_one_needs_no_name(folder: Path) -> None:
    out = folder.parent
    make_study(out, "beta")  # worked on later, but not running
    with running(folder) as process:
        result = call("stop", "--out", str(out), "--json")
        assert process.wait(PATIENCE) == 0
    found = json.loads(result.stdout)
    assert (found["study"], found["state"], found["trials"]["ended"]) == ("alpha", "stopped", 4)
    assert call("stop", "--out", str(out)).output == f"no study under {out} is running\n"


def test_one_of_several_must_be_named(folder: Path) -> None:
    out = folder.parent
    with running(folder) as alpha, running(make_study(out, "beta")) as beta:
        error = call("stop", "--out", str(out)).exception
        assert isinstance(error, RunError)
        assert str(error) == "several studies are running: alpha, beta; name the one to stop"
        call("stop", "beta", "--out", str(out))
        assert beta.wait(PATIENCE) == 0
        assert alpha.poll() is None


def test_what_is_no_study_is_refused(tmp_path: Path) -> None:
    assert isinstance(call("stop", str(tmp_path)).exception, RunError)
    assert list(tmp_path.iterdir()) == []
