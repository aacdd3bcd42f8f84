"""The state of a study: what is written is read again, whole, and damage is named."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flatout.errors import RunError
from flatout.search.study_state import FILE, RunningTrial, StudyState, TrialDecision, read_state

numbers = st.floats(allow_nan=False, allow_infinity=False)
seconds = st.just(0.0) | st.floats(1e-3, 1e9)
params = st.dictionaries(
    st.text(max_size=5), numbers | st.integers() | st.booleans() | st.text(max_size=5), max_size=3
)
running_trials = st.builds(
    RunningTrial, trial=st.integers(0, 999), rung=st.integers(0, 5), params=params
)
decisions = st.builds(
    TrialDecision,
    trial=st.integers(0, 999),
    state=st.sampled_from(["going", "complete", "pruned", "failed"]),
    value=numbers,
    scores=st.lists(st.lists(numbers | st.none(), max_size=3), max_size=3),
)


@st.composite
def states(draw: st.DrawFn) -> StudyState:
    places = draw(st.integers(1, 3))

    def one_per_place(of: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        return st.lists(st.none() | of, min_size=places, max_size=places).map(tuple)

    decisions_made = draw(st.none() | one_per_place(decisions))
    return StudyState(
        layout=(places, *draw(st.tuples(*[st.integers(1, 9)] * 3))),
        round=draw(st.integers(0, 999)),
        asked=draw(st.integers(0, 999)),
        batches=draw(st.tuples(*[one_per_place(running_trials)] * 2)),
        decisions=decisions_made,
        live_knobs=draw(st.booleans()),
        seconds=draw(seconds),
        busy_seconds=draw(seconds),
        worker_seconds=draw(seconds),
        steps=draw(st.integers(0, 2**60)),
        finished=draw(st.lists(st.integers(0, 999), max_size=5)),
    )


@given(state=states())
def test_a_state_comes_back_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, state: StudyState
) -> None:
    """To the last bit."""
    folder = tmp_path_factory.getbasetemp()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "fsync", lambda file: None)
        state.save(folder)
    assert read_state(folder) == state


def test_a_new_study_has_none(tmp_path: Path) -> None:
    assert read_state(tmp_path) is None


@pytest.mark.parametrize("content", ["", "{", "[1, 2"])
def test_damage_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / FILE).write_text(content)
    with pytest.raises(
        RunError, match=rf"{FILE}: is not JSON: .*; restore it .* or start .* another name"
    ):
        read_state(tmp_path)


def test_it_is_replaced_whole(tmp_path: Path) -> None:
    StudyState((1, 2, 1, 2), round=3, batches=((None,), (None,))).save(tmp_path)
    with pytest.raises(ValueError, match="not JSON compliant"):
        StudyState((1, 2, 1, 2), round=4, seconds=float("nan")).save(tmp_path)
    found = read_state(tmp_path)
    assert found is not None
    assert found.round == 3
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"layout": [1, 2, 1]}, "layout has 4 numbers from 1 to 100,000"),
        ({"layout": [0, 2, 1, 2]}, "layout has 4 numbers from 1 to 100,000"),
        ({"layout": [2, 2, 1, 2]}, "crews are 2, of 2 places each"),
        ({"layout": [1, 10**12, 1, 2]}, "layout has 4 numbers from 1 to 100,000"),
        ({"crews": [[None]]}, "crews are 2, of 1 places each"),
        ({"decided": []}, "decided has one entry for each of 1 places"),
        (
            {"decided": [{"trial": 0, "state": "complete", "value": None, "scores": []}]},
            ("complete without a value"),
        ),
        (
            {"decided": [{"trial": 0, "state": "lost", "value": None, "scores": []}]},
            r"decided\.0\.state: Input should",
        ),
        ({"turn": 10**30}, "turn: Input should be less than"),
        ({"turn": -1}, "turn: Input should be greater than"),
        ({"seconds": 5e-324}, "shorter than any clock measures"),
        ({"seconds": "1"}, "seconds: Input should be a valid number, given '1'"),
        ({"asked": True}, "asked: Input should be a valid integer, given True"),
    ],
)
def test_what_cannot_be_is_named(tmp_path: Path, change: dict[str, Any], problem: str) -> None:
    StudyState((1, 2, 1, 2), batches=((None,), (None,))).save(tmp_path)
    facts = json.loads((tmp_path / FILE).read_text()) | change
    (tmp_path / FILE).write_text(json.dumps(facts))
    with pytest.raises(RunError, match=rf"{FILE}: .*{problem}.*; restore it"):
        read_state(tmp_path)
