"""Controls come first: a study says before its trials whether its agents can learn at all."""

import os
from pathlib import Path

import numpy as np
import optuna
import pytest
from fake_workers import Earned, Lane, earned, fakes, made_study

from flatout.errors import RunError
from flatout.runs import write_arrays
from flatout.search.control_results import (
    FILE,
    earn_by_oracle,
    judge_control,
    split_controls,
    try_controls,
)
from flatout.search.controls import NOISE, ORACLE
from flatout.search.finalist_results import control_shape
from flatout.search.run import open_study_folder
from flatout.search.spare_lanes import SpareLanes
from flatout.search.study_orders import SPARE_BATCH


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda file: None)
    optuna.logging.set_verbosity(optuna.logging.WARNING)


def earn_by_luck(lane: Lane, blocks: int, bars: int) -> np.ndarray:
    """As much as without any skill."""
    traces = earned(lane, blocks, bars)
    traces[0] -= traces[0].mean()
    return traces


def try_once(folder: Path, earned: Earned) -> tuple[list[str], list[str]]:
    """The stages and the notes of a new study whose agents earn so much."""
    stages: list[str] = []
    notes: list[str] = []
    folder.mkdir(exist_ok=True)
    with open_study_folder(made_study(), folder, None) as study, fakes([study], earned) as workers:
        (folder / "checkpoints").mkdir(exist_ok=True)
        for worker in workers:
            worker.answer()  # that it is there
        lanes = SpareLanes(study, workers, SPARE_BATCH)  # type: ignore[arg-type]
        try_controls(lanes, stages.append, lambda study, note: notes.append(note))
        assert study.untried
    return stages, notes


def test_agents_that_learn_from_tomorrow_are_no_news(tmp_path: Path) -> None:
    stages, notes = try_once(tmp_path / "study", earned)
    assert len(stages) == 1
    assert notes == []


def test_agents_that_learn_nothing_from_tomorrow_are_told_before_the_first_trial(
    tmp_path: Path,
) -> None:
    _, [note] = try_once(tmp_path / "study", earn_by_luck)
    assert "could not learn even with tomorrow's prices" in note
    assert "train.timesteps" in note


def test_they_are_trained_once(tmp_path: Path) -> None:
    """A start that was cut off after them says the same again, and trains nobody."""
    first = try_once(tmp_path / "study", earn_by_luck)
    written = (tmp_path / "study" / FILE).read_bytes()
    again = try_once(tmp_path / "study", earned)
    assert (again[0], again[1]) == ([], first[1])
    assert (tmp_path / "study" / FILE).read_bytes() == written


def test_traces_of_another_study_are_refused(tmp_path: Path) -> None:
    (tmp_path / "study").mkdir()
    try_once(tmp_path / "study", earned)
    write_arrays(tmp_path / "study" / FILE, {"controls": np.zeros((2, 3), np.float32)})
    with pytest.raises(RunError, match=r"float32 of shape \(2, 3\), not float32 of shape"):
        try_once(tmp_path / "study", earned)


def test_traces_that_are_no_numbers_are_refused_by_file(tmp_path: Path) -> None:
    try_once(tmp_path / "study", earned)
    with open_study_folder(made_study(), tmp_path / "study", None) as study:
        nothing = np.full(control_shape(study), np.nan, np.float32)
    write_arrays(tmp_path / "study" / FILE, {"controls": nothing})
    with pytest.raises(RunError, match=r"controls\.safetensors: controls holds what is no number"):
        try_once(tmp_path / "study", earned)


def test_who_learned_a_little_has_not_learned(tmp_path: Path) -> None:
    """Beyond doubt more than luck, yet a tenth of what a rule earns that reads tomorrow."""
    (tmp_path / "study").mkdir()
    with open_study_folder(made_study(), tmp_path / "study", None) as study:
        most = earn_by_oracle(study.market)
        assert most > 1e-3
        traces = np.zeros(control_shape(study), np.float32)
        noise = 1e-5 * np.random.default_rng(0).standard_normal(traces[:, 0].shape)
        for share, passes in ((0.1, False), (0.5, True)):
            traces[:, 0] = share * most + noise
            found = judge_control(study.market, ORACLE, split_controls(study, traces)[ORACLE])
            assert found.probability == pytest.approx(1.0)
            assert found.passed is passes
            assert "% of what a rule earns that reads them)" in (found.sentence or "")


def test_an_edge_is_right_where_there_is_one_and_wrong_where_there_is_none(tmp_path: Path) -> None:
    (tmp_path / "study").mkdir()
    with open_study_folder(made_study(), tmp_path / "study", None) as study:
        traces = np.zeros(control_shape(study), np.float32)
        noise = np.random.default_rng(0).standard_normal(traces[:, 0].shape)
        traces[:, 0] = 5e-3 + 1e-2 * noise
        skilled = split_controls(study, traces)
        assert judge_control(study.market, ORACLE, skilled[ORACLE]).passed is True
        assert judge_control(study.market, NOISE, skilled[NOISE]).passed is False
        traces[:, 0] = 1e-2 * (noise - noise.mean())
        lucky = split_controls(study, traces)
        assert judge_control(study.market, ORACLE, lucky[ORACLE]).passed is False
        assert judge_control(study.market, NOISE, lucky[NOISE]).passed is True
