"""The registry of trials: counts only grow, two processes lose nothing, kills damage nothing, and
damage is never taken for zero.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from study_records import enter, record

from flatout.errors import RunError
from flatout.evaluation.trial_registry import (
    StudyEntry,
    lock_registry,
    read_records,
    record_file,
    registry_folder,
)

HERE = str(Path(__file__).parent)
NOTE_MANY = """
import sys
from pathlib import Path
sys.path.append(sys.argv[1])
from study_records import enter

name, folder = sys.argv[2], Path(sys.argv[3])
print("ready", flush=True)
sys.stdin.readline()
for study in range(20):
    for count in (1, 2, 3):
        enter(folder, f"{name}-{study}", count)
        enter(folder, "shared", 3 * study + count).note_opening(name)
"""
KILL_WRITERS = """
import os, random, select, signal, sys, time
from pathlib import Path
sys.path.append(sys.argv[1])
from study_records import record
from flatout.evaluation.trial_registry import StudyEntry, read_records

entry = StudyEntry(Path(sys.argv[2]), record("killed"))
rng, promised = random.Random(7), 0
for kill in range(40):
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        for count in range(promised + 1, promised + 100_000):
            entry.note_trials(count)
            os.write(writer, b".")
    os.close(writer)
    select.select([reader], [], [])
    time.sleep(rng.random() * 0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    while noted := os.read(reader, 65536):
        promised += len(noted)
    os.close(reader)
    [found] = read_records(entry.registry)
    assert found.trials in (promised, promised + 1), (found.trials, promised)
    promised = found.trials
print(promised)
entry.check_registry()
"""


def counts(registry: Path) -> dict[str, int]:
    return {Path(found.folder).name: found.trials for found in read_records(registry)}


def test_a_study_only_grows(tmp_path: Path) -> None:
    for count, expected in ((10, 10), (10, 10), (4, 10), (25, 25), (0, 25)):
        enter(tmp_path, "study", count)
        assert counts(tmp_path) == {"study": expected}


def test_a_record_comes_back_as_it_was_noted(tmp_path: Path) -> None:
    entry = enter(tmp_path, "study", 3, counted_as="/runs/old", hold_out=None)
    look = entry.note_opening("winner, trial 2")
    [found] = read_records(tmp_path)
    assert found == record(
        "study", counted_as="/runs/old", hold_out=None, trials=3, openings=(look,)
    )


def test_a_study_without_trials_is_noted_too(tmp_path: Path) -> None:
    enter(tmp_path, "study", 0)
    assert counts(tmp_path) == {"study": 0}


def test_what_is_known_of_a_study_stays_when_it_is_opened_again(tmp_path: Path) -> None:
    enter(tmp_path, "study", 7).note_opening("winner, trial 2")
    again = enter(tmp_path, "study", 5)
    again.note_opening("winner, trial 3")
    [found] = read_records(tmp_path)
    assert found.trials == 7
    assert [look.what for look in found.openings] == ["winner, trial 2", "winner, trial 3"]


def test_reading_makes_no_folder(tmp_path: Path) -> None:
    assert read_records(tmp_path / "none") == []
    assert not (tmp_path / "none").exists()
    enter(tmp_path / "none" / "yet", "study", 3)
    assert counts(tmp_path / "none" / "yet") == {"study": 3}


@pytest.mark.long
def test_two_processes_lose_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-c", NOTE_MANY, HERE]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
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
    expected = {f"{name}-{study}": 3 for name in ("one", "two") for study in range(20)}
    assert counts(tmp_path) == {**expected, "shared": 60}
    [shared] = [found for found in read_records(tmp_path) if found.folder == "/runs/shared"]
    whose = [look.what for look in shared.openings]
    assert (whose.count("one"), whose.count("two")) == (60, 60)
    assert {path.name for path in tmp_path.iterdir()} == {"studies", "studies.lock"}


@pytest.mark.long
def test_killed_writers_lose_nothing_and_damage_nothing(tmp_path: Path) -> None:
    """Forty real processes, each killed while it writes: all that was noted is there."""
    run = subprocess.run(
        [sys.executable, "-c", KILL_WRITERS, HERE, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) >= 40
    assert [path.suffix for path in (tmp_path / "studies").iterdir()] == [".json"]  # swept


def damaged(**changes: Any) -> bytes:
    facts = {
        "id": record("study").id, "folder": "/runs/study", "fingerprint": "0f3a",
        "symbols": ["BTC"], "bar_seconds": 60,
        "judged": {"first": "2024-01-01T00:00:00Z", "end": "2024-02-01T00:00:00Z"},
        "hold_out": None, "begun": "2024-02-01T00:00:00Z", "counted_as": None, "trials": 1,
        "openings": [], **changes,
    }  # fmt: skip
    return json.dumps(facts).encode()


def test_the_undamaged_file_is_read(tmp_path: Path) -> None:
    path = record_file(tmp_path, record("study").id)
    path.parent.mkdir()
    path.write_bytes(damaged())
    assert counts(tmp_path) == {"study": 1}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b'{"id": "',
        b"\xff\xfe",
        b"[]",
        b"{}",
        damaged(trials=-1),
        damaged(trials=1.5),
        damaged(trials=True),
        damaged(symbols=[]),
        damaged(id="0" * 32),
        damaged(id="../../etc/passwd"),
        damaged(judged={"first": "2024-01-01T00:00:00Z", "end": "2023-01-01T00:00:00Z"}),
        damaged(judged={"first": "2024-01-01T00:00:00", "end": "2024-02-01T00:00:00"}),
        damaged(openings=[{"time": "yesterday", "what": "winner"}]),
    ],
)
def test_a_damaged_file_is_named_and_left_alone(tmp_path: Path, content: bytes) -> None:
    entry = StudyEntry(tmp_path, record("study"))
    path = record_file(tmp_path, entry.record.id)
    path.parent.mkdir()
    path.write_bytes(content)
    for step in (
        lambda: read_records(tmp_path),
        lambda: entry.note_trials(5),
        lambda: entry.note_opening("winner"),
        entry.check_registry,
    ):
        with pytest.raises(RunError, match=f"{path}: .* damaged"):
            step()
    assert path.read_bytes() == content


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    record_file(tmp_path, record("study").id).mkdir(parents=True)
    with pytest.raises(RunError, match="json: is a folder, where a file is wanted"):
        read_records(tmp_path)


def test_a_folder_that_is_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    wanted = r"file: cannot hold .* search.registry or FLATOUT_REGISTRY"
    with pytest.raises(RunError, match=wanted), lock_registry(tmp_path / "file"):
        pass


@pytest.mark.parametrize("count", [-1, 1.5, True, "3"])
def test_only_whole_counts(tmp_path: Path, count: Any) -> None:
    with pytest.raises(RunError, match="whole number"):
        enter(tmp_path, "study", count)
    assert list(tmp_path.iterdir()) == []


def test_where_the_registry_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FLATOUT_REGISTRY", raising=False)
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.setenv("HOME", "/home/someone")
    assert registry_folder() == Path("/home/someone/.local/share/flatout/trials")
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    assert registry_folder() == Path("/home/someone/.local/share/flatout/trials")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert registry_folder() == tmp_path / "data" / "flatout" / "trials"
    assert registry_folder("~/luck") == Path("/home/someone/luck")
    monkeypatch.setenv("FLATOUT_REGISTRY", str(tmp_path / "mine"))
    assert registry_folder() == registry_folder("~/luck") == tmp_path / "mine"
