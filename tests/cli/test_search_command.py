"""What `flatout search` says of a study whose name is no ordinary file name."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flatout.cli.main import main
from flatout.cli.search import tell_results
from flatout.errors import RunError
from flatout.search import run_study
from flatout.search.report_file import fit_report
from flatout.search.run import make_folder
from flatout.search.run_study import AskedStudy, StudyResult
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


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[AskedStudy]:
    """The studies that a command asks for; nothing of them is prepared."""
    found: list[AskedStudy] = []

    def stop(studies: list[AskedStudy], *_: object) -> None:
        found.extend(studies)
        raise RunError("enough")

    monkeypatch.setattr(run_study, "prepare_studies", stop)
    return found


@pytest.mark.parametrize("words", ["s.toml -c s.toml", "s.toml ./s.toml", "-c s.toml -c s.toml"])
def test_a_settings_file_that_is_given_twice_is_one_study(
    words: str, asked: list[AskedStudy], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("s.toml").write_text("[train]\nn_envs = 4\n")
    CliRunner().invoke(main, ["search", *words.split()])
    assert [study.name for study in asked] == ["s"]


def test_the_budget_has_the_options_of_a_training(asked: list[AskedStudy]) -> None:
    words = "search --timesteps 5000 --seeds 2 --hold-out 0.25 --trials 7"
    CliRunner().invoke(main, words.split())
    settings = asked[0].resolved.settings
    assert (settings.train.timesteps, settings.train.seeds) == (5000, 2)
    assert (settings.folds.hold_out, settings.search.trials) == (0.25, 7)
