"""`flatout.run_study`: a study from Python, to its verdict, and on after an interruption."""

import shutil
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from sample_report import sample_report
from small_studies import USUAL, small_panel

import flatout
from flatout.bars.panel import FloatArray, Panel
from flatout.bars.source import IN_MEMORY
from flatout.bars.write import write_bars
from flatout.errors import BarsError, RunError
from flatout.features import indicators
from flatout.features.indicators import compute_indicators
from flatout.search.report_model import StudyReport
from flatout.search.run_study import StudyResult
from flatout.training.prepare import KEPT_BARS

TINY: dict[str, Any] = {**USUAL, "search": {**USUAL["search"], "trials": 2, "finalists": 1}}
TINY["train"] = {**USUAL["train"], "timesteps": TINY["search"].pop("timesteps", 256)}


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:  # the registry of all trials ever is the user's
        patch.setenv("XDG_DATA_HOME", str(folder / "registry"))
        yield folder


@pytest.fixture(scope="module")
def study(out: Path) -> StudyResult:
    return flatout.run_study(small_panel(), name="tiny", settings=TINY, out=out, progress=False)


def test_a_study_is_one_line() -> None:
    report = StudyReport.model_validate(sample_report())
    result = StudyResult("tiny", Path("runs/tiny"), report)
    assert repr(result) == f"StudyResult('runs/tiny': {result.sentence})"
    assert len(repr(result)) < 400
    stopped = StudyResult("tiny", Path("runs/tiny"), None)
    assert repr(stopped) == (
        "StudyResult('runs/tiny': stopped before its verdict; the same call goes on)"
    )


@pytest.mark.long
def test_a_study_comes_to_a_verdict(study: StudyResult, out: Path) -> None:
    assert study.finished
    assert study.folder == out / "tiny"
    assert study.page.exists()
    assert study.sentence
    policy = study.load_policy()
    result = policy.backtest(small_panel(), progress=False)
    assert "seed-0" in result.metrics


@pytest.mark.long
def test_a_study_along_the_path_on_pytorch_comes_to_a_verdict(out: Path) -> None:
    settings = {
        **TINY,
        "train": {
            "engine": "torch", "algorithm": "pathwise", "n_envs": 4, "n_steps": 8, "hidden": [8],
            "timesteps": 64,
        },
        "search": {
            **TINY["search"], "space": {"train.feature_noise": {"low": 0.1, "high": 1.0}},
        },
    }  # fmt: skip
    found = flatout.run_study(
        small_panel(), name="path", settings=settings, workers=1, out=out, progress=False
    )
    assert found.finished
    result = found.load_policy().backtest(small_panel(), progress=False)
    assert "seed-0" in result.metrics


@pytest.mark.long
def test_the_same_call_runs_nothing_again(study: StudyResult, out: Path) -> None:
    before = (out / "tiny" / "report.json").stat().st_mtime_ns
    again = flatout.run_study(small_panel(), name="tiny", settings=TINY, out=out, progress=False)
    assert (again.sentence, again.promotable) == (study.sentence, study.promotable)
    assert (out / "tiny" / "report.json").stat().st_mtime_ns == before


@pytest.mark.long
def test_the_same_bars_from_a_file_are_the_same_study(
    study: StudyResult, out: Path, tmp_path: Path
) -> None:
    write_bars(small_panel(), tmp_path / "bars.parquet")
    for bars in (tmp_path / "bars.parquet", pl.read_parquet(tmp_path / "bars.parquet")):
        again = flatout.run_study(bars, name="tiny", settings=TINY, out=out, progress=False)
        assert again.sentence == study.sentence


@pytest.mark.long
def test_a_study_of_few_trials_warns_of_nothing(out: Path) -> None:
    """Optuna does, where fewer trials come to their end than it measures importances of."""
    few = {**TINY, "search": {**TINY["search"], "trials": 4, "pruner": "halving"}}
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        found = flatout.run_study(
            small_panel(), name="few", settings=few, workers=1, out=out, progress=False
        )
    assert found.finished


@pytest.mark.long
def test_indicators_are_computed_once_for_each_panel(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the first trial to the verdict: for the bars before the hold-out, for those without an
    edge, and for all when the hold-out is opened.
    """
    seen: list[str] = []

    def compute(panel: Panel, names: Sequence[str]) -> FloatArray:
        seen.append(panel.fingerprint)
        return compute_indicators(panel, names)

    monkeypatch.setattr(indicators, "compute_indicators", compute)
    flatout.run_study(small_panel(), name="once", settings=TINY, workers=1, out=out, progress=False)
    assert len(seen) == len(set(seen)) == 3


@pytest.mark.long
def test_bars_in_memory_are_kept_in_the_folder(study: StudyResult, out: Path) -> None:
    """The study goes on without them, and only with them."""
    again = flatout.run_study(name="tiny", settings=TINY, out=out, progress=False)
    assert again.sentence == study.sentence
    other = small_panel(seed=1)
    with pytest.raises(RunError, match="give those bars or none, as it has kept them, or another"):
        flatout.run_study(other, name="tiny", settings=TINY, out=out, progress=False)


@pytest.mark.long
def test_bars_that_were_not_kept_are_asked_for(
    study: StudyResult, out: Path, tmp_path: Path
) -> None:
    shutil.copytree(study.folder, tmp_path / "tiny")
    (tmp_path / "tiny" / KEPT_BARS).unlink()
    with pytest.raises(BarsError, match="give the same Panel or frame again"):
        flatout.run_study(name="tiny", settings=TINY, out=tmp_path, progress=False)
    flatout.run_study(small_panel(), name="tiny", settings=TINY, out=tmp_path, progress=False)
    assert (tmp_path / "tiny" / KEPT_BARS).exists()


@pytest.mark.long
def test_other_settings_under_one_name_are_refused(study: StudyResult, out: Path) -> None:
    with pytest.raises(RunError, match=r"begun with other settings: train\.timesteps differ"):
        flatout.run_study(
            small_panel(), name="tiny", settings=TINY, timesteps=512, out=out, progress=False
        )


@pytest.mark.long
def test_where_the_bars_came_from_stands_in_the_report(study: StudyResult) -> None:
    assert IN_MEMORY in study.page.read_text()


@pytest.mark.long
def test_how_many_bars_a_year_has_stands_in_the_report(study: StudyResult) -> None:
    assert study.report is not None
    found = study.report.assumptions
    assert found is not None
    assert found.bars is not None
    assert found.bars.bars_per_year == 8760
    assert found.bars.trading_year == "8,760 (bars around the clock)"
    assert "bars per year: 8,760 (bars around the clock)" in study.page.read_text()
