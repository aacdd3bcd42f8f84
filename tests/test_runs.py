"""Run directories: whole files or none, and no two runs in one folder."""

import errno
import json
import os
import platform
import re
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from flatout import runs
from flatout.errors import RunError
from flatout.runs import (
    PACKAGES,
    create_run,
    hold_folder,
    installed_version,
    is_held,
    runs_folder,
    sweep,
    versions,
    write_bytes,
    write_json,
)
from flatout.settings.loading import Resolved, load_settings


@pytest.fixture
def resolved() -> Resolved:
    return load_settings(None, ["market.capital=5000"], {})


class FrozenClock:
    """A clock that stands still."""

    @staticmethod
    def now(zone: Any) -> datetime:
        return datetime(2024, 5, 6, 7, 8, 9, tzinfo=zone)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def fail(*_: Any) -> None:
    raise OSError("disk full")


def test_a_file_is_written_and_replaced_without_leftovers(tmp_path: Path) -> None:
    path = tmp_path / "metrics.bin"
    write_bytes(path, b"old, and longer")
    write_bytes(path, b"new")
    assert path.read_bytes() == b"new"
    assert names(tmp_path) == ["metrics.bin"]


def test_everybody_may_read_what_was_written(tmp_path: Path) -> None:
    write_bytes(tmp_path / "file", b"x")
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_the_old_file_stays_when_writing_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    path = tmp_path / "metrics.bin"
    write_bytes(path, b"old")
    monkeypatch.setattr(*((os, "fsync") if step == "fsync" else (Path, "replace")), fail)
    with pytest.raises(OSError, match="disk full"):
        write_bytes(path, b"new")
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["metrics.bin"]


def test_a_new_file_is_absent_when_writing_is_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_bytes(tmp_path / "metrics.bin", b"new")
    assert names(tmp_path) == []


def test_the_content_is_on_disk_before_it_is_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    fsync, replace = os.fsync, Path.replace
    monkeypatch.setattr(os, "fsync", lambda handle: (order.append("flushed"), fsync(handle)))
    monkeypatch.setattr(
        Path, "replace", lambda path, target: (order.append("moved"), replace(path, target))
    )
    write_bytes(tmp_path / "file", b"x")
    assert order == ["flushed", "moved"]


def test_json_is_readable_and_ends_with_a_newline(tmp_path: Path) -> None:
    path = tmp_path / "metrics.json"
    write_json(path, {"sharpe": 1.5, "calmar": None})
    assert json.loads(path.read_text()) == {"sharpe": 1.5, "calmar": None}
    assert path.read_text().endswith("}\n")


def test_json_that_others_cannot_read_is_not_written(tmp_path: Path) -> None:
    """NaN is not JSON; the file before it stays."""
    path = tmp_path / "metrics.json"
    write_json(path, {"sharpe": 1.5})
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(path, {"sharpe": float("nan")})
    assert json.loads(path.read_text()) == {"sharpe": 1.5}


def test_a_run_holds_its_settings_and_what_made_it(tmp_path: Path, resolved: Resolved) -> None:
    run = create_run(tmp_path / "deep" / "runs", "backtest-cash", resolved, {"seed": 7})
    assert run.parent == tmp_path / "deep" / "runs"
    settings, about = (
        json.loads((run / name).read_text()) for name in ("settings.json", "about.json")
    )
    assert settings["settings"]["market"]["capital"] == 5000
    assert settings["origin"] == {"market.capital": "--set market.capital=5000"}
    assert about["seed"] == 7
    assert about["python"] == platform.python_version()
    assert about["versions"] == versions()
    assert names(run) == ["about.json", "settings.json"]


def test_a_run_is_named_by_utc_time_and_purpose(tmp_path: Path, resolved: Resolved) -> None:
    before = datetime.now(UTC).replace(microsecond=0)
    run = create_run(tmp_path, "backtest-cash", resolved, {})
    found = re.fullmatch(r"(\d{8}T\d{6})-backtest-cash", run.name)
    assert found
    started = datetime.strptime(found[1], "%Y%m%dT%H%M%S").replace(tzinfo=UTC)
    assert before <= started <= datetime.now(UTC)
    assert json.loads((run / "about.json").read_text())["started"] == found[1]


def test_runs_of_one_second_get_folders_of_their_own(
    tmp_path: Path, resolved: Resolved, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "datetime", FrozenClock)
    made = [create_run(tmp_path, "demo", resolved, {"number": k}) for k in range(3)]
    assert [run.name for run in made] == [f"20240506T070809-demo{end}" for end in ("", "-1", "-2")]
    assert [json.loads((run / "about.json").read_text())["number"] for run in made] == [0, 1, 2]


def test_more_runs_than_a_second_can_name_are_refused(
    tmp_path: Path, resolved: Resolved, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "datetime", FrozenClock)
    for end in ("", *(f"-{k}" for k in range(1, 100))):
        (tmp_path / f"20240506T070809-demo{end}").mkdir()
    with pytest.raises(RunError, match="give `out` a fresh folder"):
        create_run(tmp_path, "demo", resolved, {})


def test_a_file_in_the_place_of_the_folder_is_refused_by_name(
    tmp_path: Path, resolved: Resolved
) -> None:
    place = tmp_path / "runs"
    place.write_text("I am a file")
    with pytest.raises(RunError, match=re.escape(str(place))):
        create_run(place, "demo", resolved, {})


def test_versions_are_those_that_are_installed() -> None:
    found = versions()
    assert tuple(found) == PACKAGES
    assert {"flatout", "numpy", "jax", "torch"} <= set(found)
    assert (found["numpy"], found["jax"]) == (version("numpy"), version("jax"))


def test_an_absent_package_has_no_version() -> None:
    assert installed_version("there-is-no-such-package") is None


def test_leftovers_of_killed_writers_are_swept_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that is killed leaves its temporary file; other files that are hidden are not
    ours.
    """
    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", lambda *_, **__: None)  # as if it had been killed before
        patched.setattr(Path, "replace", fail)
        with pytest.raises(OSError, match="disk full"):
            write_bytes(tmp_path / "worker-0.safetensors", b"half")
    assert len(names(tmp_path)) == 1
    for name in (".bashrc", ".git", ".env.local"):
        (tmp_path / name).touch()
    write_bytes(tmp_path / "worker-0.safetensors", b"whole")
    sweep(tmp_path)
    assert names(tmp_path) == [".bashrc", ".env.local", ".git", "worker-0.safetensors"]


# --- folders that somebody else made --------------------------------------------------------------


def test_a_folder_has_one_driver_at_a_time(tmp_path: Path) -> None:
    """The second one is refused, and the lock ends with the first."""
    assert not is_held(tmp_path)
    with hold_folder(tmp_path):
        assert is_held(tmp_path)
        with pytest.raises(RunError, match="another process"), hold_folder(tmp_path):
            pass
    assert not is_held(tmp_path)
    with hold_folder(tmp_path):
        pass


@pytest.mark.parametrize(
    "place", ["lock", "checkpoints", "scratch", "logs/worker-0.log", "deep/er/link"]
)
def test_a_folder_with_a_link_in_it_is_refused_and_nothing_outside_is_touched(
    tmp_path: Path, place: str
) -> None:
    outside, run = tmp_path / "outside", tmp_path / "run"
    outside.mkdir()
    (outside / ".bashrc").write_text("precious")
    (run / place).parent.mkdir(parents=True, exist_ok=True)
    (run / place).symlink_to(outside if place == "checkpoints" else outside / ".bashrc")
    with pytest.raises(RunError, match=f"{place} is a symbolic link to"), hold_folder(run):
        pass
    assert not is_held(run)
    assert (outside / ".bashrc").read_text() == "precious"
    assert names(outside) == [".bashrc"]


def test_a_folder_may_itself_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "real")
    with hold_folder(tmp_path / "run"):
        assert is_held(tmp_path / "real")


def test_what_lies_where_the_lock_shall_be_is_not_truncated(tmp_path: Path) -> None:
    """A hard link cannot be seen: nothing may be written through the lock's name."""
    (tmp_path / "precious").write_text("precious")
    run = tmp_path / "run"
    run.mkdir()
    (run / "lock").hardlink_to(tmp_path / "precious")
    with hold_folder(run):
        pass
    assert (tmp_path / "precious").read_text() == "precious"


def test_a_lock_that_cannot_be_held_is_said(tmp_path: Path) -> None:
    (tmp_path / "lock").mkdir()
    with pytest.raises(RunError, match="lock cannot be held"), hold_folder(tmp_path):
        pass


def test_a_pipe_in_the_place_of_the_lock_does_not_wait(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "lock")
    assert not is_held(tmp_path)


def test_a_folder_that_cannot_be_written_is_said_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (
        tmp_path / "file",
        tmp_path / "file" / "below",
        Path("/proc/flatout"),
        tmp_path / ("x" * 300),
    ):
        with pytest.raises(
            RunError, match=r"cannot be used for runs: .*; give `out` another folder"
        ):
            runs_folder(folder)


@pytest.mark.parametrize(
    "name", ["train-../../up", "train-BTC/USDT", "x" * 500, "/" * 500, "贵" * 500, "a\nb"]
)
def test_a_run_of_any_name_lies_in_its_root(tmp_path: Path, resolved: Resolved, name: str) -> None:
    run = create_run(tmp_path / "runs", name, resolved, {})
    assert run.parent == tmp_path / "runs"
    assert names(tmp_path) == ["runs"]


def test_a_file_to_be_appended_to_with_a_second_name_is_refused(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("precious")
    run = tmp_path / "run"
    (run / "logs").mkdir(parents=True)
    for name in ("study.journal", "metrics.jsonl", "logs/worker-0.log"):
        (run / name).hardlink_to(tmp_path / "precious")
        with pytest.raises(RunError, match=f"{name} is one file with another"), hold_folder(run):
            pass
        (run / name).unlink()
    (run / "about.json").hardlink_to(tmp_path / "precious")  # replaced, not written to
    with hold_folder(run):
        write_bytes(run / "about.json", b"other")
    assert (tmp_path / "precious").read_text() == "precious"


def test_a_folder_that_cannot_be_looked_through_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may hold links, and may be written to all the same."""
    (tmp_path / "scratch").mkdir()
    look = os.scandir

    def refuse(path: Any) -> Any:
        if Path(path).name == "scratch":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return look(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with (
        pytest.raises(RunError, match="scratch: cannot be looked through: Permission denied"),
        hold_folder(tmp_path),
    ):
        pass
