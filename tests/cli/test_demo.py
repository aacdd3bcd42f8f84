"""`flatout demo`: works offline and without arguments, refuses its own winner, and says what to do next."""

import json
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flatout.bars.synthetic import built_in_market
from flatout.cli import demo
from flatout.cli.main import main


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo on fewer bars, with fewer and shorter trials."""
    monkeypatch.setattr(demo, "built_in_market", partial(built_in_market, 2000))
    tables = {
        "train": {"n_envs": 8, "n_steps": 16, "hidden": [8, 8]},
        "search": {
            "trials": 2, "timesteps": 512, "finalists": 1, "final_seeds": 2,
            "space": {"train.learning_rate": {"low": 1e-4, "high": 1e-2, "log": True}},
        },
    }  # fmt: skip
    monkeypatch.setattr(demo, "TABLES", tables)


@pytest.mark.usefixtures("short")
def test_the_whole_demo_as_json(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["demo", "--json", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)
    assert said["assumptions"]["bars"]["symbols"] == ["ALFA", "BETA", "DELTA", "GAMMA", "OMEGA"]
    assert all(check["passed"] for check in said["checks"])
    assert said["verdict"]["promotable"] is False
    assert [trial["state"] for trial in said["trials"]] == ["complete", "complete"]
    assert said["assumptions"]["trials"]["ever"] == 2
    assert len(said["assumptions"]["hold_out"]["openings"]) == 1
    folder = Path(said["folder"])
    assert {"report.html", "report.json", "days.csv", "ledger.csv", "policy", "study.journal"} <= {
        path.name for path in folder.iterdir()
    }
    assert not (folder / "scratch").exists()


@pytest.mark.usefixtures("short")
def test_people_see_the_verdict_and_the_next_step(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["demo", "--out", str(tmp_path)], env={"COLUMNS": "160"})
    assert result.exit_code == 0, result.output
    for words in ("✓", "VERDICT: NOT PROMOTABLE", "This is the right answer", "report.html", "next: flatout init"):
        assert words in result.output
