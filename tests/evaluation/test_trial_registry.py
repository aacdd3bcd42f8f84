"""The registry of trials: counts only grow, two processes lose nothing, damage is never taken for
zero.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from flatout.errors import RunError
from flatout.evaluation.trial_registry import note_trials, registry_folder, trials_ever

BARS = "0f3a" * 16
OTHER = "beef" * 16

NOTE_MANY = """
import sys
from pathlib import Path
from flatout.evaluation.trial_registry import note_trials

name, folder = sys.argv[1], Path(sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
for study in range(40):
    for count in (1, 2, 3):
        note_trials("0f3a", f"{name}-{study}", count, folder)
"""


def test_studies_add_up(tmp_path: Path) -> None:
    assert trials_ever(BARS, tmp_path) == 0
    note_trials(BARS, "first", 100, tmp_path)
    note_trials(BARS, "second", 7, tmp_path)
    note_trials(OTHER, "first", 5, tmp_path)
    assert trials_ever(BARS, tmp_path) == 107
    assert trials_ever(OTHER, tmp_path) == 5
    assert trials_ever(BARS.upper(), tmp_path) == 107


def test_a_study_only_grows(tmp_path: Path) -> None:
    for count, expected in ((10, 10), (10, 10), (4, 10), (25, 25), (0, 25)):
        note_trials(BARS, "study", count, tmp_path)
        assert trials_ever(BARS, tmp_path) == expected


def test_a_study_without_trials_is_noted_too(tmp_path: Path) -> None:
    note_trials(BARS, "study", 0, tmp_path)
    assert json.loads((tmp_path / f"{BARS}.json").read_text()) == {
        "fingerprint": BARS,
        "studies": {"study": 0},
    }


def test_reading_makes_no_folder(tmp_path: Path) -> None:
    assert trials_ever(BARS, tmp_path / "none") == 0
    assert not (tmp_path / "none").exists()
    note_trials(BARS, "study", 3, tmp_path / "none" / "yet")
    assert trials_ever(BARS, tmp_path / "none" / "yet") == 3


def test_two_processes_lose_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-c", NOTE_MANY]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    writers = [
        subprocess.Popen([*command, name, str(tmp_path)], **pipes) for name in ("one", "two")
    ]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"  # both are loaded: they write at the same time
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    for writer in writers:
        writer.communicate(timeout=120)
        assert writer.returncode == 0
    assert trials_ever("0f3a", tmp_path) == 2 * 40 * 3
    assert {path.name for path in tmp_path.iterdir()} == {"0f3a.json", "0f3a.lock"}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b'{"fingerprint": "',
        b"\xff\xfe",
        b"[]",
        b"{}",
        json.dumps({"fingerprint": BARS, "studies": [1]}).encode(),
        json.dumps({"fingerprint": BARS, "studies": {"a": -1}}).encode(),
        json.dumps({"fingerprint": BARS, "studies": {"a": 1.5}}).encode(),
        json.dumps({"fingerprint": BARS, "studies": {"a": True}}).encode(),
        json.dumps({"fingerprint": OTHER, "studies": {"a": 1}}).encode(),
    ],
)
def test_a_damaged_file_is_named_and_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / f"{BARS}.json"
    path.write_bytes(content)
    with pytest.raises(RunError, match=f"{path}: .* damaged"):
        trials_ever(BARS, tmp_path)
    with pytest.raises(RunError, match=f"{path}: .* damaged"):
        note_trials(BARS, "study", 5, tmp_path)
    assert path.read_bytes() == content


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / f"{BARS}.json").mkdir()
    with pytest.raises(RunError, match=f"{BARS}.json: is a folder, where a file is wanted"):
        trials_ever(BARS, tmp_path)


def test_a_folder_that_is_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match=r"file: cannot hold .* FLATOUT_REGISTRY"):
        note_trials(BARS, "study", 1, tmp_path / "file")


@pytest.mark.parametrize("fingerprint", ["", "../../etc/passwd", "xyz", "12 34", "ab\n"])
def test_only_hexadecimal_fingerprints(tmp_path: Path, fingerprint: str) -> None:
    with pytest.raises(RunError, match="hexadecimal"):
        note_trials(fingerprint, "study", 1, tmp_path)
    with pytest.raises(RunError, match="hexadecimal"):
        trials_ever(fingerprint, tmp_path)


@pytest.mark.parametrize("count", [-1, 1.5, True, "3"])
def test_only_whole_counts(tmp_path: Path, count: object) -> None:
    with pytest.raises(RunError, match="whole number"):
        note_trials(BARS, "study", count, tmp_path)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_a_study_has_a_name(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="name"):
        note_trials(BARS, "", 1, tmp_path)


def test_where_the_registry_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FLATOUT_REGISTRY", raising=False)
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.setenv("HOME", "/home/someone")
    assert registry_folder() == Path("/home/someone/.local/share/flatout/trials")
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    assert registry_folder() == Path("/home/someone/.local/share/flatout/trials")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert registry_folder() == tmp_path / "data" / "flatout" / "trials"
    monkeypatch.setenv("FLATOUT_REGISTRY", str(tmp_path / "mine"))
    assert registry_folder() == tmp_path / "mine"
    note_trials(BARS, "study", 2)
    assert trials_ever(BARS) == 2
    assert (tmp_path / "mine" / f"{BARS}.json").is_file()
