"""`flatout report`: the verdict, the page, and the browser."""

import json
import webbrowser
from pathlib import Path
from typing import Any

import pytest
from test_status import add_report, call, make_study

from flatout.errors import RunError
from flatout.search.report_file import fit_report
from flatout.search.report_page import render_report


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_study(tmp_path / "runs")


@pytest.fixture
def report(folder: Path) -> dict[str, Any]:
    return add_report(folder)


def test_the_verdict_and_the_page(folder: Path, report: dict[str, Any]) -> None:
    result = call("report", str(folder))
    assert result.exit_code == 0, result.exception
    lines = result.output.splitlines()
    assert lines[-1] == f"report: {folder / 'report.html'}"
    assert f"VERDICT: NOT PROMOTABLE: {report['verdict']['sentence']}" in result.output
    assert all(gate["name"] in result.output for gate in report["verdict"]["gates"])
    assert (folder / "report.html").read_text() == render_report(fit_report(report).report)


def test_a_page_that_is_there_is_kept(folder: Path, report: dict[str, Any]) -> None:
    (folder / "report.html").write_text("mine")
    assert call("report", "alpha", "--out", str(folder.parent)).exit_code == 0
    assert (folder / "report.html").read_text() == "mine"


def test_json_is_the_whole_report(folder: Path, report: dict[str, Any]) -> None:
    result = call("report", "--out", str(folder.parent), "--json")
    assert json.loads(result.output) == report | {
        "folder": str(folder),
        "page": str(folder / "report.html"),
    }


@pytest.mark.usefixtures("report")
def test_open_shows_the_page_in_the_browser(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda address: opened.append(address) is None)
    call("report", str(folder))
    assert opened == []
    assert call("report", str(folder), "--open").exit_code == 0
    assert opened == [(folder / "report.html").resolve().as_uri()]


@pytest.mark.usefixtures("report")
def test_without_a_browser_the_page_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webbrowser, "open", lambda _: False)
    error = call("report", str(folder), "--open").exception
    assert isinstance(error, RunError)
    assert (
        str(error)
        == f"no browser could be started: open {(folder / 'report.html').resolve()} yourself"
    )


def test_a_study_without_a_report_says_so(folder: Path) -> None:
    error = call("report", str(folder)).exception
    assert isinstance(error, RunError)
    assert str(error).startswith(f"{folder} has no report yet")
    assert not (folder / "report.html").exists()


def test_a_damaged_report_is_refused(folder: Path) -> None:
    (folder / "report.json").write_text("{")
    error = call("report", str(folder)).exception
    assert isinstance(error, RunError)
    assert "report.json: is not JSON" in str(error)
