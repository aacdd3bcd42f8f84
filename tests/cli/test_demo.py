"""`flatout demo`: works offline and without arguments, gives an answer for each of two markets, and
says what to do next.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from click.testing import Result
from typer.testing import CliRunner

from flatout.cli import demo
from flatout.cli.main import main
from flatout.evaluation import audit
from flatout.evaluation.backtest import backtest
from flatout.evaluation.baselines import Moment
from flatout.features.recipe import fit
from flatout.market.market import build_market, recipe_of
from flatout.search import demonstration, run
from flatout.search.demonstration import PatientRule, make_market
from flatout.settings.tables import Settings

TABLES = {
    "features": {"indicators": ["return_1", "extra:signal"]},
    "train": {"n_envs": 4, "n_steps": 16, "hidden": [4, 4], "timesteps": 256},
    "folds": {"kind": "cpcv", "groups": 3, "test_groups": 1},
    "search": {
        "trials": 2, "finalists": 1, "final_seeds": 2,
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
        patch.setattr(demonstration, "BARS", 1000)
        patch.setattr(demonstration, "TABLES", TABLES)
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


@pytest.mark.long
def test_people_see_both_verdicts_and_the_next_step(ran: Ran) -> None:
    """After so little training the edge is not found, which the demo says is wrong."""
    assert ran.shown.exit_code == 0, ran.shown.output
    for words in (
        "✓",
        "walk: nothing can be earned here",
        "VERDICT: NOT PROMOTABLE",
        "This is the right answer: nothing can be earned on this market",
        "edge: a weak edge is planted here",
        "of what could be earned (knows the signal)",
        "This is the wrong answer: the edge is real",
        "report.html",
        "next: flatout init",
    ):
        assert words in ran.shown.output


@pytest.mark.long
def test_the_folders_hold_all_that_was_found(ran: Ran) -> None:
    edge, walk = sorted(ran.out.iterdir())
    assert (edge.name[-5:], walk.name[-5:]) == ("-edge", "-walk")
    for folder, report in zip((walk, edge), ran.reports, strict=True):
        assert {
            "report.html", "report.json", "days.csv", "ledger.csv", "policy", "study.journal"
        } <= {path.name for path in folder.iterdir()}  # fmt: skip
        assert not (folder / "scratch").exists()
        assert json.loads((folder / "report.json").read_text()) == report.facts()


@pytest.mark.long
def test_trials_on_one_market_are_no_trials_on_the_other(ran: Ran) -> None:
    for report in ran.reports:
        assert report.facts()["assumptions"]["trials"]["ever"] == 2
        assert len(report.facts()["assumptions"]["hold_out"]["openings"]) == 1


@pytest.mark.long
def test_what_could_be_earned_stands_beside_the_winner(ran: Ran) -> None:
    walk, edge = (report.facts() for report in ran.reports)
    assert walk["winner"].get("share_of_rule") is None
    assert "knows_the_signal" not in walk["baselines"]
    rule = edge["baselines"]["knows_the_signal"]["total_return"]
    paths = [path["total_return"] for path in edge["winner"]["paths"]]
    share = np.median(np.log1p(paths)) / np.log1p(rule)
    assert edge["winner"]["share_of_rule"] == pytest.approx(share, rel=1e-6)
    assert "of what could be earned" in (next(ran.out.glob("*-edge")) / "report.html").read_text()


@pytest.mark.long
def test_json_tells_the_same(ran: Ran, small: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of the run above: only the last step is taken once more."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(audit, "audit", lambda *_: ran.findings)
        patch.setattr(run, "run_studies", lambda *_, **__: ran.reports)
        result = CliRunner().invoke(main, ["demo", "--json", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)
    assert set(said) == {"checks", "walk", "edge"}
    assert len(said["checks"]) == 11
    assert all(check["passed"] for check in said["checks"])
    assert said["walk"]["assumptions"]["bars"]["symbols"][0] == "ALFA"
    for market in ("walk", "edge"):
        assert said[market]["verdict"]["promotable"] is False
        assert Path(said[market]["folder"]).parent == tmp_path


def test_the_signal_says_nothing_on_the_walk() -> None:
    """Of both markets' signals, only the edge's correlates with the next bar's move."""
    found = {}
    for market in ("walk", "edge"):
        panel = make_market(market, seed=3)  # type: ignore[arg-type]
        moves = np.diff(np.log(panel.close), axis=0)
        found[market] = np.corrcoef(panel.extras["signal"][:-1].ravel(), moves.ravel())[0, 1]
    errors = 1 / np.sqrt(moves.size)
    assert abs(found["walk"]) < 4 * errors
    assert abs(found["edge"] ** 2 - 0.017) < 2 * 0.13 * 4 * errors  # 0.13: the correlation


def test_the_rule_that_knows_the_signal_earns_and_knows_no_more() -> None:
    panel = make_market("edge", seed=0, n_bars=1500)
    settings = Settings(features={"indicators": ["return_1"]})
    fitted = fit(recipe_of(settings.features), panel, np.arange(1000))
    market = build_market(panel, settings, fitted)
    rule = PatientRule(panel.extras["signal"])
    history = backtest(market, rule, first=100, stop=1500)
    assert np.log1p(history.returns).mean() > 4e-4
    moment = Moment(0, panel.close[:500], np.zeros((1, 5)), panel.bar_seconds)
    told = rule(moment)
    lied = PatientRule(np.where(np.arange(1500)[:, None] > 499, np.nan, panel.extras["signal"]))
    np.testing.assert_array_equal(told, lied(moment))
    assert (told >= 0).all()
    assert told.sum() <= 1
