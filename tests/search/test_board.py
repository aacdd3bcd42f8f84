"""The board: what is written is read again, whole, and damage is named."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flatout.errors import RunError
from flatout.search.board import FILE, Board, Decision, Sitting, read_board

numbers = st.floats(allow_nan=False, allow_infinity=False)
params = st.dictionaries(st.text(max_size=5), numbers | st.integers() | st.booleans() | st.text(max_size=5), max_size=3)
sittings = st.builds(Sitting, trial=st.integers(0, 999), rung=st.integers(0, 5), params=params)
decisions = st.builds(
    Decision,
    trial=st.integers(0, 999),
    state=st.sampled_from(["going", "complete", "pruned", "failed"]),
    value=st.none() | numbers,
    scores=st.lists(st.lists(numbers | st.none(), max_size=3), max_size=3),
)
boards = st.builds(
    Board,
    layout=st.tuples(*[st.integers(1, 9)] * 4),
    turn=st.integers(0, 999),
    asked=st.integers(0, 999),
    crews=st.tuples(*[st.lists(st.none() | sittings, max_size=3).map(tuple)] * 2),
    decided=st.none() | st.lists(st.none() | decisions, min_size=1, max_size=3).map(tuple),
    live_knobs=st.booleans(),
    seconds=numbers,
    busy_seconds=numbers,
    worker_seconds=numbers,
    steps=st.integers(0, 2**60),
    finished=st.lists(st.integers(0, 999), max_size=5),
)


@given(board=boards)
def test_a_board_comes_back_as_it_was(tmp_path_factory: pytest.TempPathFactory, board: Board) -> None:
    """To the last bit."""
    folder = tmp_path_factory.getbasetemp()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "fsync", lambda file: None)
        board.save(folder)
    assert read_board(folder) == board


def test_a_new_study_has_none(tmp_path: Path) -> None:
    assert read_board(tmp_path) is None


@pytest.mark.parametrize("content", ["", "{", "[1, 2"])
def test_damage_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / FILE).write_text(content)
    with pytest.raises(RunError, match=rf"{FILE} cannot be read: .*; restore it, or start .* another name"):
        read_board(tmp_path)


def test_it_is_replaced_whole(tmp_path: Path) -> None:
    Board((1, 2, 1, 2), turn=3).save(tmp_path)
    with pytest.raises(ValueError, match="not JSON compliant"):
        Board((1, 2, 1, 2), turn=4, seconds=float("nan")).save(tmp_path)
    found = read_board(tmp_path)
    assert found is not None
    assert found.turn == 3
    assert [path.name for path in tmp_path.iterdir()] == [FILE]
