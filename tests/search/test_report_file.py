"""`report.json`: written and read without a change, whole or in parts, and refused where a terminal
would show what is wrong.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from sample_report import sample_report

from flatout.cli.verdict_box import show_verdict
from flatout.errors import RunError
from flatout.search.report_file import FILE, fit_report, read_report, write_report
from flatout.search.report_model import StudyReport
from flatout.search.report_page import render_report

EARLIER = Path(__file__).parents[1] / "fixtures" / "before_rooms" / "studies" / "finished"


def small_report() -> dict[str, Any]:
    return sample_report(n_bars=60, n_trials=6, n_days=5, halves=9)


def put(report: Any, place: tuple[str | int, ...], value: object) -> None:
    for part in place[:-1]:
        report = report[part]
    report[place[-1]] = value


def read_back(folder: Path, report: dict[str, Any]) -> StudyReport:
    (folder / FILE).write_text(json.dumps(report))
    found = read_report(folder)
    assert found is not None
    return found


def box(report: StudyReport) -> str:
    console = Console(width=200, record=True, quiet=False, file=None)
    with console.capture() as captured:
        show_verdict(report, console)
    return captured.get()


def test_a_report_of_the_version_before_is_read_and_written_byte_for_byte(tmp_path: Path) -> None:
    shutil.copy(EARLIER / FILE, tmp_path / FILE)
    report = read_report(tmp_path)
    assert report is not None
    write_report(tmp_path, report)
    assert (tmp_path / FILE).read_bytes() == (EARLIER / FILE).read_bytes()
    assert report.judged_trials == 3
    assert report.deflated is not None
    assert report.deflated.trials == 3
    assert report.assumptions is not None
    assert report.assumptions.bars is not None
    assert report.assumptions.bars.first == "2021-01-01T00:00:00.000000"


def test_a_folder_may_have_none(tmp_path: Path) -> None:
    assert read_report(tmp_path) is None


def test_keys_of_other_versions_stay(tmp_path: Path) -> None:
    written = small_report() | {"later": {"more": [1, None]}}
    written["winner"]["mood"] = "good"
    assert read_back(tmp_path, written).facts() == written


@pytest.mark.parametrize("missing", sorted(sample_report(60, 5, 6, 5, 9)))
def test_any_part_may_be_missing(tmp_path: Path, missing: str) -> None:
    """On the page and on a terminal."""
    written = small_report()
    del written[missing]
    report = read_back(tmp_path, written)
    assert getattr(report, missing) is None
    assert report.facts() == written
    assert "VERDICT: " in box(report)
    assert render_report(report)


def test_a_report_of_nothing_is_no_verdict(tmp_path: Path) -> None:
    report = read_back(tmp_path, {})
    assert not report.promotable
    assert report.judged_trials is None
    assert "VERDICT: NONE: not computed" in box(report)


@pytest.mark.parametrize(
    ("place", "value", "problem"),
    [
        (("verdict", "promotable"), 1, r"verdict\.promotable: Input should be a valid boolean"),
        (("verdict", "gates", 0), "a", r"verdict\.gates\.0: Input should be"),
        (
            ("winner", "median_sharpe"),
            "1",
            r"winner\.median_sharpe: Input should be a valid number",
        ),
        (("baselines", "cash"), [], r"baselines\.cash: Input should be"),
        (("costs", 0, "sharpe"), 1e301, r"costs\.0\.sharpe: Input should be less than"),
        (("controls", "noise"), 3, r"controls\.noise"),
        (("assumptions", "trials", "this_study"), -1, r"this_study: Input should be greater"),
        (("deflated",), [], r"deflated: Input should be"),
    ],
)
def test_what_a_terminal_shows_is_refused_if_it_is_wrong(
    tmp_path: Path, place: tuple[str | int, ...], value: object, problem: str
) -> None:
    written = small_report()
    put(written, place, value)
    with pytest.raises(RunError, match=rf"{FILE}: .*{problem}.*; remove it, and the same search"):
        read_back(tmp_path, written)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("throughput", "seconds"), "long"),
        (("curves", "paths"), {"a": 1}),
        (("trials", 2, "number"), 1.5),
        (("assumptions", "folds", "gaps"), 7),
        (("files",), "x"),
    ],
)
def test_what_only_the_page_shows_counts_as_missing_if_it_is_wrong(
    tmp_path: Path, place: tuple[str | int, ...], value: object
) -> None:
    written, without = small_report(), small_report()
    put(written, place, value)
    put(without, place, None)
    report = read_back(tmp_path, written)
    assert report.facts() == without
    assert render_report(report) == render_report(fit_report(without).report)


def test_what_is_no_row_is_left_out_and_what_is_no_number_is_a_gap() -> None:
    written = small_report()
    written["trials"] = [1, *written["trials"][:2], "x", [], None]
    written["curves"]["paths"][0][3:5] = ["a", {}]
    fitted = fit_report(written)
    assert [row.number for row in fitted.report.trials or ()] == [0, 1]
    curves = fitted.report.curves
    assert curves is not None
    assert curves.paths is not None
    assert [k for k, value in enumerate(curves.paths[0]) if value is None] == [3, 4]
    assert written["trials"][0] == 1  # what was given stays as it is
