"""`flatout.run_study`: a study from Python, to its verdict, and on after an interruption."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from small_studies import USUAL, small_panel

import flatout
from flatout.bars.source import IN_MEMORY
from flatout.bars.write import write_bars
from flatout.errors import RunError
from flatout.search.run_study import StudyResult

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
def test_other_settings_under_one_name_are_refused(study: StudyResult, out: Path) -> None:
    with pytest.raises(RunError, match=r"begun with other settings: train\.timesteps differ"):
        flatout.run_study(
            small_panel(), name="tiny", settings=TINY, timesteps=512, out=out, progress=False
        )


@pytest.mark.long
def test_where_the_bars_came_from_stands_in_the_report(study: StudyResult) -> None:
    assert IN_MEMORY in study.page.read_text()
