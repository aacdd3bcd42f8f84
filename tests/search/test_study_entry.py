"""The book of luck, by studies whose workers train nobody: what was tried on some bars stays tried,
whatever is done to the bars, to the study or to its folder.
"""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from fake_workers import Lane, earned, made_study, play
from interruptions import writes_to
from small_studies import small_panel

from flatout.bars.panel import Panel
from flatout.bars.resample import resample
from flatout.errors import RunError, SettingsError
from flatout.folds.seal import open_hold_out
from flatout.search.judgement import Judgement
from flatout.search.run import PreparedStudy, open_study_folder
from flatout.settings.loading import load_settings

TRIALS = 6  # of every study here


@pytest.fixture(autouse=True)
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty registry, and no waiting for the disk."""
    monkeypatch.setattr(os, "fsync", lambda file: None)
    monkeypatch.setenv("FLATOUT_REGISTRY", str(tmp_path / "registry"))
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return tmp_path / "registry"


def judge(folder: Path, made: PreparedStudy) -> Judgement:
    """The judgement of a study that was played, as far as the registry goes."""
    with open_study_folder(made, folder, None) as study:
        nothing: Any = None
        found = Judgement(study, nothing, made.panel, "a test", None, nothing, nothing)
        assert found.trials_ever >= len(found.trials)  # noted, as the report does
        return found


def run(folder: Path, panel: Panel | None = None) -> Judgement:
    """Play a study to its end and judge it."""
    made = made_study(panel=small_panel() if panel is None else panel)
    play(folder, made)
    return judge(folder, made)


def records(registry: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(registry.glob("studies/*.json"))]


def rename(panel: Panel, *symbols: str) -> Panel:
    return replace(panel, symbols=symbols)


def take_second_from(panel: Panel, seed: int) -> Panel:
    """The panel, but with another market in the place of its second symbol."""
    other, parts = small_panel(seed=seed), {}
    for name in ("open", "high", "low", "close", "volume"):
        mine, others = getattr(panel, name), getattr(other, name)
        parts[name] = np.column_stack([mine[:, 0], others[:, 1]])
    return replace(panel, symbols=("ONE", "THREE"), **parts)


def round_volume(panel: Panel) -> Panel:
    return replace(panel, volume=panel.volume * (1 + 1e-15))


OTHER_BARS: dict[str, Callable[[Panel], Panel]] = {
    "the same bars": lambda panel: panel,
    "one bar fewer at the end": lambda panel: panel.rows(0, panel.n_bars - 1),
    "one bar fewer at the beginning": lambda panel: panel.rows(1, panel.n_bars),
    "resampled": lambda panel: resample(panel, "2h"),
    "volume in the 15th digit": round_volume,
    "one more column": lambda panel: replace(
        panel, extras={**panel.extras, "more": np.zeros(panel.close.shape)}
    ),
    "another spelling": lambda panel: rename(panel, "one", "BINANCE:TWO"),
    "other names": lambda panel: rename(panel, "ONE_CLEAN", "TWO.P"),
    "half of the symbols": lambda panel: take_second_from(panel, seed=5),
}


@pytest.mark.parametrize("what", OTHER_BARS)
def test_trials_are_found_whatever_was_done_to_the_bars(tmp_path: Path, what: str) -> None:
    assert run(tmp_path / "first").trials_ever == TRIALS
    assert run(tmp_path / "second", OTHER_BARS[what](small_panel())).trials_ever == 2 * TRIALS


def test_other_symbols_and_other_times_are_other_evidence(tmp_path: Path) -> None:
    panel = small_panel()
    run(tmp_path / "first")
    later = replace(panel, time=panel.time + np.timedelta64(5000, "h"))
    for name, other in (
        ("symbols", rename(small_panel(seed=5), "THREE", "FOUR")),
        ("later", later),
    ):
        assert run(tmp_path / name, other).trials_ever == TRIALS


def test_a_folder_of_the_same_name_is_another_study(tmp_path: Path) -> None:
    for times in (1, 2, 3):
        assert run(tmp_path / "study").trials_ever == times * TRIALS
        shutil.rmtree(tmp_path / "study")


def test_a_study_that_goes_on_is_counted_once(tmp_path: Path, registry: Path) -> None:
    for _ in range(2):
        assert run(tmp_path / "study").trials_ever == TRIALS
    grown = made_study(search={"trials": TRIALS + 3})
    play(tmp_path / "study", grown)
    assert judge(tmp_path / "study", grown).trials_ever == TRIALS + 3
    (tmp_path / "study").rename(tmp_path / "moved")
    assert judge(tmp_path / "moved", grown).trials_ever == TRIALS + 3
    assert len(records(registry)) == 1


class Stopped(Exception):  # noqa: N818
    """Somebody pulled the plug."""


def test_a_study_that_was_stopped_counts(tmp_path: Path) -> None:
    def stop(*_: Any) -> None:
        raise Stopped

    long = made_study(search={"trials": 24})
    with pytest.raises(Stopped):
        play(tmp_path / "stopped", long, on_round=stop)
    with open_study_folder(long, tmp_path / "stopped", None) as study:
        started = len(study.optuna_study.get_trials())
    assert 0 < started < 24
    shutil.rmtree(tmp_path / "stopped")
    assert run(tmp_path / "next").trials_ever == started + TRIALS


def test_trials_are_noted_before_they_are_trained(tmp_path: Path, registry: Path) -> None:
    asked: list[int] = []

    def check(lane: Lane, blocks: int, bars: int) -> np.ndarray:
        asked.append(json.loads((tmp_path / "study" / "board.json").read_text())["asked"])
        [record] = records(registry)
        assert record["trials"] >= asked[-1] > 0
        return earned(lane, blocks, bars)

    play(tmp_path / "study", made_study(), check)
    assert max(asked) == TRIALS


@pytest.mark.long
def test_a_death_before_any_write_loses_no_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Study and registry lie in one folder here, so that both are kept as they were together."""
    both = tmp_path / "both"
    both.mkdir()
    monkeypatch.setenv("FLATOUT_REGISTRY", str(both / "registry"))
    with writes_to(both, tmp_path / "kept", lambda *_: True) as writes:
        play(both / "study", made_study())
    assert len(writes.copies) > 30
    for copy in writes.copies:
        board = copy / "study" / "board.json"
        noted = [record["trials"] for record in records(copy / "registry")]
        if board.exists():
            assert sum(noted) >= json.loads(board.read_text())["asked"]
        monkeypatch.setenv("FLATOUT_REGISTRY", str(copy / "registry"))
        assert judge_next(copy / "next", TRIALS) == TRIALS + sum(noted)


def judge_next(folder: Path, trials: int) -> int:
    """All trials ever, by a study of so many that begins now."""
    made = made_study()
    folder.mkdir()
    with open_study_folder(made, folder, None) as study:
        study.entry.note_trials(trials)
        nothing: Any = None
        return Judgement(
            study, nothing, made.panel, "a test", None, nothing, nothing
        ).others.trials_ever


# --- hold-outs ------------------------------------------------------------------------------------


def open_sealed(folder: Path, panel: Panel, what: str) -> Any:
    """What was known of the hold-out when it was opened for somebody."""
    made = made_study(panel=panel)
    folder.mkdir(exist_ok=True)
    with open_study_folder(made, folder, None) as study:
        study.entry.note_trials(TRIALS)
        study.entry.note_opening(what)
        nothing: Any = None
        return Judgement(study, nothing, panel, "a test", None, nothing, nothing).others.sealed


def test_a_hold_out_that_was_opened_before_is_marked(tmp_path: Path) -> None:
    panel = small_panel()
    first = open_sealed(tmp_path / "first", panel, "winner, trial 1")
    assert (first.opened, first.openers, first.last) == (0.0, 0, None)
    shutil.rmtree(tmp_path / "first")
    second = open_sealed(tmp_path / "second", panel, "winner, trial 1")
    assert (second.opened, second.openers) == (1.0, 1)
    assert second.last is not None
    third = open_sealed(tmp_path / "third", resample(panel, "2h"), "winner, trial 1")
    assert third.opened == pytest.approx(1.0, abs=0.05)
    assert third.openers == 2
    half = open_sealed(tmp_path / "half", take_second_from(panel, seed=5), "winner, trial 1")
    assert half.opened == pytest.approx(0.5)


def test_the_same_winner_asked_again_is_told_nothing_new(tmp_path: Path) -> None:
    panel = small_panel()
    open_sealed(tmp_path / "study", panel, "winner, trial 1")
    again = open_sealed(tmp_path / "study", panel, "winner, trial 1")
    assert (again.opened, again.openers) == (0.0, 0)
    other = open_sealed(tmp_path / "study", panel, "winner, trial 4")
    assert (other.opened, other.openers) == (1.0, 1)


def test_sealed_bars_that_judged_others_are_told(tmp_path: Path) -> None:
    panel = small_panel()
    run(tmp_path / "first")
    found = open_sealed(tmp_path / "second", panel.rows(0, 400), "winner, trial 1")
    assert (found.opened, found.judged, found.judges) == (0.0, 1.0, 1)


# --- earlier versions, and damage -----------------------------------------------------------------


def forget_id(folder: Path) -> None:
    about = json.loads((folder / "about.json").read_text())
    del about["id"]
    (folder / "about.json").write_text(json.dumps(about))


def note_as_before(registry: Path, fingerprint: str, **counts: int) -> None:
    """A file as the versions before wrote it."""
    registry.mkdir(exist_ok=True)
    content = {"fingerprint": fingerprint, "studies": counts}
    (registry / f"{fingerprint}.json").write_text(json.dumps(content))


def test_what_earlier_versions_noted_still_counts(tmp_path: Path, registry: Path) -> None:
    note_as_before(registry, small_panel().fingerprint, some=500, other=7)
    assert run(tmp_path / "study").trials_ever == 507 + TRIALS


def test_a_study_of_an_earlier_version_is_counted_once(tmp_path: Path, registry: Path) -> None:
    folder = tmp_path / "study"
    run(folder)
    shutil.rmtree(registry)
    forget_id(folder)
    note_as_before(
        registry, small_panel().fingerprint, **{str(folder.resolve()): TRIALS, "some": 500}
    )
    assert run(folder).trials_ever == 500 + TRIALS
    assert run(folder).trials_ever == 500 + TRIALS
    assert run(tmp_path / "next").trials_ever == 500 + 2 * TRIALS
    versions = json.loads((folder / "about.json").read_text())["versions"]
    assert versions["flatout"]  # what an earlier version wrote stays


def test_openings_that_only_the_folder_knows_are_noted(tmp_path: Path, registry: Path) -> None:
    folder = tmp_path / "study"
    run(folder)
    shutil.rmtree(registry)
    open_hold_out(folder, "winner, trial 2", small_panel().fingerprint)
    run(folder)
    [record] = records(registry)
    assert [look["what"] for look in record["openings"]] == ["winner, trial 2"]
    log = folder / "hold_out.json"
    log.write_text(log.read_text().replace('"time": "2', '"time": "x'))
    with pytest.raises(RunError, match=r"hold_out\.json: .* is no time; .* restore the file"):
        run(folder)


def test_a_damaged_registry_is_refused_before_anything_is_trained(
    tmp_path: Path, registry: Path
) -> None:
    run(tmp_path / "first")
    [path] = registry.glob("studies/*.json")
    path.write_text("{")
    with pytest.raises(RunError, match=f"{path}: .* damaged"):
        run(tmp_path / "second")


def test_the_registry_of_the_settings_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FLATOUT_REGISTRY")
    play(tmp_path / "study", made_study(search={"registry": str(tmp_path / "mine")}))
    assert len(records(tmp_path / "mine")) == 1
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    play(tmp_path / "study", made_study())  # it goes on elsewhere, and is counted there too
    [record] = records(tmp_path / "data" / "flatout" / "trials")
    assert record["trials"] == TRIALS


def test_a_registry_that_moves_with_the_working_folder_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"a path from / or ~, given 'runs/registry'"):
        load_settings(overrides=["search.registry=runs/registry"])
