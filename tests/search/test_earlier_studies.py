"""Studies that the version of November 2026 began: one it had to leave goes on, one it finished is
read.

Their folders are as that version left them, without pages, logs and locks.
"""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from flatout.bars.read import read_bars
from flatout.cli.main import main
from flatout.errors import RunError
from flatout.search.run import StudyRequest, prepare, run_studies
from flatout.settings.loading import Resolved

pytestmark = pytest.mark.long  # workers that compile

EARLIER = Path(__file__).parents[1] / "fixtures" / "before_rooms" / "studies"
# what reports have said since


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of both studies and of their bars, which they name by a relative path."""
    shutil.copytree(EARLIER, tmp_path / "runs")
    monkeypatch.chdir(tmp_path / "runs")
    monkeypatch.setenv("FLATOUT_REGISTRY", str(tmp_path / "registry"))
    yield tmp_path / "runs"


def call_json(*arguments: str) -> Any:
    result = CliRunner().invoke(main, [*arguments, "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def trial_files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "trials").iterdir()}


def names_in(value: Any, place: str = "") -> Iterator[str]:
    """The keys in a report in their order, of lists those of the first entry."""
    if isinstance(value, dict):
        for key, part in value.items():
            if place == ".importance":  # ordered by what they are worth
                continue
            yield f"{place}.{key}"
            yield from names_in(part, f"{place}.{key}")
    elif isinstance(value, list) and value:
        yield from names_in(value[0], place)


@pytest.mark.parametrize("name", ["unfinished", "finished"])
def test_a_study_that_kept_no_weights_is_refused_by_name(runs: Path, name: str) -> None:
    """It was judged by raw returns, and what tells skill from direction is not in its files."""
    settings = json.loads((runs / name / "settings.json").read_text())
    made = prepare(
        StudyRequest(name, "bars.parquet"),
        Resolved.model_validate(settings),
        read_bars(Path("bars.parquet")),
        workers=1,
        out=runs,
    )
    before = {path: path.read_bytes() for path in (runs / name).rglob("*") if path.is_file()}
    with pytest.raises(RunError, match=f"{name}: an earlier version .* under another name"):
        run_studies([made], [], runs, None, lambda *_: None, lambda *_: None)
    kept = {path: path.read_bytes() for path in before}
    assert kept == before


def test_the_status_of_both(runs: Path) -> None:
    rows = {row["study"]: row for row in call_json("status", "--out", str(runs))}
    finished, unfinished = rows["finished"], rows["unfinished"]
    assert (finished["state"], unfinished["state"]) == ("finished", "stopped")
    assert finished["trials"] == {
        "total": 3, "asked": 3, "ended": 3, "complete": 2, "pruned": 1, "failed": 0,
    }  # fmt: skip
    assert unfinished["trials"]["ended"] == 1
    assert finished["best"]["trial"] == 1
    assert finished["verdict"]["promotable"] is False
    assert finished["hold_out_openings"] == 1


def test_the_trials_of_the_finished_one(runs: Path) -> None:
    listed = call_json("trials", "list", "--study", str(runs / "finished"), "--sort", "number")
    assert [row["state"] for row in listed["trials"]] == ["complete", "complete", "pruned"]
    shown = call_json("trials", "show", "2", "--study", str(runs / "finished"))
    assert len(shown["scores"]) == len(shown["splits"]) == 3
    assert [row["rung"] for row in shown["reports"]] == [1, 2]
    assert len(shown["paths"]) == 1
    assert shown["note"] is None


def test_the_report_of_the_finished_one(runs: Path) -> None:
    written = json.loads((runs / "finished" / "report.json").read_text())
    shown = call_json("report", str(runs / "finished"))
    assert {key: shown[key] for key in written} == written
    assert (runs / "finished" / "report.html").exists()
