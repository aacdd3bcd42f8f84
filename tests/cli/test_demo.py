"""`flatout demo`: works offline and without arguments, refuses its own winner, and says what to do
next.
"""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import Result
from typer.testing import CliRunner

from flatout.bars.synthetic import built_in_market
from flatout.cli import demo
from flatout.cli.main import main
from flatout.evaluation import audit
from flatout.search import run

pytestmark = pytest.mark.long

TABLES = {
    "features": {"indicators": ["return_1", "roc"]},
    "train": {"n_envs": 4, "n_steps": 16, "minibatches": 2, "hidden": [4, 4]},
    "folds": {"kind": "cpcv", "groups": 3, "test_groups": 1},
    "search": {
        "trials": 2, "timesteps": 256, "finalists": 1, "final_seeds": 2,
        "space": {"train.learning_rate": {"low": 1e-4, "high": 1e-2, "log": True}},
    },
}  # fmt: skip


class Ran(NamedTuple):
    """What the demo wrote and printed, and what its two long steps told it."""

    out: Path
    shown: Result
    findings: list[Any]
    reports: list[Any]


@pytest.fixture(scope="module")
def small() -> Iterator[pytest.MonkeyPatch]:
    """The demo on fewer bars, with fewer and shorter trials, in one process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "built_in_market", partial(built_in_market, 1000))
        patch.setattr(demo, "TABLES", TABLES)
        patch.setattr(demo, "MANY", 1)
        yield patch


@pytest.fixture(scope="module")
def ran(small: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """The whole demo, as people see it."""
    out, findings, reports = tmp_path_factory.mktemp("demo"), [], []
    check, search = audit.audit, run.run_studies

    def audited(*given: Any) -> Iterator[Any]:
        for finding in check(*given):
            findings.append(finding)
            yield finding

    def searched(*given: Any, **named: Any) -> list[Any]:
        reports.extend(search(*given, **named))
        return reports

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(audit, "audit", audited)
        patch.setattr(run, "run_studies", searched)
        return Ran(
            out,
            CliRunner().invoke(main, ["demo", "--out", str(out)], env={"COLUMNS": "160"}),
            findings,
            reports,
        )


def test_people_see_the_verdict_and_the_next_step(ran: Ran) -> None:
    assert ran.shown.exit_code == 0, ran.shown.output
    for words in (
        "✓",
        "VERDICT: NOT PROMOTABLE",
        "This is the right answer",
        "report.html",
        "next: flatout init",
    ):
        assert words in ran.shown.output


def test_the_folder_holds_all_that_was_found(ran: Ran) -> None:
    [folder] = ran.out.iterdir()
    assert {"report.html", "report.json", "days.csv", "ledger.csv", "policy", "study.journal"} <= {
        path.name for path in folder.iterdir()
    }
    assert not (folder / "scratch").exists()
    assert [json.loads((folder / "report.json").read_text())] == [
        report.facts() for report in ran.reports
    ]


def test_json_tells_the_same(ran: Ran, small: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of the run above: only the last step is taken once more."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(audit, "audit", lambda *_: ran.findings)
        patch.setattr(run, "run_studies", lambda *_, **__: ran.reports)
        result = CliRunner().invoke(main, ["demo", "--json", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)
    assert said["assumptions"]["bars"]["symbols"] == ["ALFA", "BETA", "DELTA", "GAMMA", "OMEGA"]
    assert len(said["checks"]) == 11
    assert all(check["passed"] for check in said["checks"])
    assert said["verdict"]["promotable"] is False
    assert [trial["state"] for trial in said["trials"]] == ["complete", "complete"]
    assert said["assumptions"]["trials"]["ever"] == 2
    assert len(said["assumptions"]["hold_out"]["openings"]) == 1
    assert Path(said["folder"]).parent == tmp_path
