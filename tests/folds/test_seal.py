"""The sealed hold-out: no permission without a line in the log."""

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from flatout.errors import RunError
from flatout.folds import seal
from flatout.folds.seal import Opening, open_hold_out, openings


def test_a_sealed_hold_out_has_no_openings(tmp_path: Path) -> None:
    assert openings(tmp_path) == ()
    assert list(tmp_path.iterdir()) == []


def test_each_opening_is_logged_and_counted(tmp_path: Path) -> None:
    first = open_hold_out(tmp_path, "flatout search", "abc")
    second = open_hold_out(tmp_path, "flatout report", "abd")
    assert (first.what, first.fingerprint, first.times) == ("flatout search", "abc", 1)
    assert (second.what, second.fingerprint, second.times) == ("flatout report", "abd", 2)
    assert openings(tmp_path) == (first, second)
    assert json.loads((tmp_path / "hold_out.json").read_text()) == [
        first._asdict(),
        second._asdict(),
    ]


def test_the_time_is_utc_and_now(tmp_path: Path) -> None:
    before = datetime.now(UTC)
    time = datetime.fromisoformat(open_hold_out(tmp_path, "a test", "abc").time)
    assert time.utcoffset() == timedelta(0)
    assert before - timedelta(seconds=1) <= time <= datetime.now(UTC)


def test_looking_at_the_log_opens_nothing(tmp_path: Path) -> None:
    open_hold_out(tmp_path, "a test", "abc")
    assert openings(tmp_path) == openings(tmp_path)
    assert openings(tmp_path)[-1].times == 1


def test_without_a_log_there_is_no_permission(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = open_hold_out(tmp_path, "a test", "abc")

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(seal, "write_json", full)
    with pytest.raises(
        RunError,
        match=r"hold_out.json: .*\(No space left on device\), so the hold-out stays sealed",
    ):
        open_hold_out(tmp_path, "a test", "abc")
    assert openings(tmp_path) == (first,)


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        RunError,
        match=r"\(No such file or directory\), so the hold-out stays sealed; make the folder",
    ):
        open_hold_out(tmp_path / "nowhere", "a test", "abc")


@pytest.mark.parametrize("damage", [b"", b"[{", b"null", b'{"time": 1}', b'[{"when": 1}]', b"\xff"])
def test_a_damaged_log_keeps_the_hold_out_sealed_and_is_kept(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "hold_out.json").write_bytes(damage)
    with pytest.raises(RunError, match=r"hold_out.json: .* so it stays sealed; restore the file"):
        open_hold_out(tmp_path, "a test", "abc")
    assert (tmp_path / "hold_out.json").read_bytes() == damage


def test_no_opening_is_lost_when_many_open_at_once(tmp_path: Path) -> None:
    def one(number: int) -> Opening:
        return open_hold_out(tmp_path, f"number {number}", "abc")

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(one, range(24)))
    assert sorted(opening.times for opening in found) == list(range(1, 25))
    assert {opening.what for opening in openings(tmp_path)} == {
        f"number {number}" for number in range(24)
    }
