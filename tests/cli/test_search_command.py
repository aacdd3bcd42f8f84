"""What `flatout search` says of a study whose name is no ordinary file name."""

import json
from pathlib import Path

import pytest

from flatout.cli.search import tell_results
from flatout.search.report_file import fit_report
from flatout.search.run import make_folder
from flatout.search.run_study import StudyResult
from search.sample_report import sample_report

NAME = "[red]a/b"


@pytest.mark.parametrize("as_json", [True, False])
def test_paths_that_are_printed_exist(
    tmp_path: Path, as_json: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make_folder(tmp_path, NAME)
    report = sample_report(n_bars=60, n_trials=6, n_days=5, halves=40) | {"study": NAME}
    tell_results([StudyResult(NAME, folder, fit_report(report).report)], as_json)
    said = capsys.readouterr().out
    if as_json:
        assert Path(json.loads(said)[0]["folder"]) == folder
    else:
        assert f"report: {folder / 'report.html'}\n" in said
        assert f"policy: {folder / 'policy'}\n" in said
        assert NAME in said
