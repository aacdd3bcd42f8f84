"""The last door: whatever goes wrong is said in one sentence."""

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flatout.cli.main import app
from flatout.errors import RunError

Run = Callable[..., tuple[int, str]]


@pytest.fixture
def fail(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Run:
    """The command when its inside raises this: exit code, and what it says."""

    def call(error: BaseException, *words: str) -> tuple[int, str]:
        def broken() -> None:
            raise error

        monkeypatch.setattr("flatout.cli.main.main", broken)
        monkeypatch.setattr(sys, "argv", ["flatout", "demo", *words])
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        with pytest.raises(SystemExit) as exit_:
            app()
        return int(exit_.value.code or 0), capsys.readouterr().err

    return call


def test_arguments_are_said_as_options(fail: Run) -> None:
    code, said = fail(RunError("runs: full; give `out` another folder"))
    assert (code, said) == (2, "error: runs: full; give --out another folder\n")


@pytest.mark.parametrize(
    "code", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.ENAMETOOLONG, errno.EMFILE, errno.EIO]
)
def test_what_the_system_refuses_is_said_with_the_file(fail: Run, code: int) -> None:
    exit_code, said = fail(OSError(code, os.strerror(code), "/some/file"))
    assert exit_code == 2
    assert said.startswith(f"error: /some/file: {os.strerror(code)}; ")
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    "error", [OSError("said by a library"), TimeoutError(), MemoryError(), MemoryError("12 GiB")]
)
def test_refusals_without_a_file_are_sentences_too(fail: Run, error: Exception) -> None:
    code, said = fail(error)
    assert code == 2
    assert said.startswith("error: ")
    assert (
        "out of memory" in said
        if isinstance(error, MemoryError)
        else (str(error) or "TimeoutError") in said
    )
    assert str(error) in said


def test_a_surprise_is_one_sentence_and_its_traceback_is_kept(fail: Run, tmp_path: Path) -> None:
    code, said = fail(ZeroDivisionError("by [bold]nothing\x1b[2J"))
    assert code == 1
    assert "ZeroDivisionError: by [bold]nothing\\x1b[2J" in said
    [path] = tmp_path.glob("flatout-traceback-*.txt")
    assert str(path) in said
    kept = path.read_text()
    assert "in broken" in kept and "ZeroDivisionError" in kept and "'demo'" in kept
    assert path.stat().st_mode & 0o077 == 0  # an argument may be a password


def test_a_surprise_is_said_even_where_nothing_can_be_written(
    fail: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "flatout.cli.failures.keep_traceback", lambda error: (_ for _ in ()).throw(OSError("full"))
    )
    code, said = fail(ZeroDivisionError("x"))
    assert code == 1
    assert "no file, as none could be written" in said


def test_debug_shows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        assert "--debug" not in sys.argv
        raise ZeroDivisionError

    monkeypatch.setattr("flatout.cli.main.main", broken)
    for words in (["--debug", "demo"], ["demo", "--debug"]):
        monkeypatch.setattr(sys, "argv", ["flatout", *words])
        with pytest.raises(ZeroDivisionError):
            app()


def start(*words: str, **environment: str) -> subprocess.Popen[str]:
    """A Python process; its output can be read."""
    command = [sys.executable, *words]
    pipe: Any = subprocess.PIPE
    return subprocess.Popen(
        command, stdout=pipe, stderr=pipe, text=True, env={**os.environ, **environment}
    )


def test_an_interrupt_while_libraries_load_is_one_word() -> None:
    process = start("-X", "importtime", "-c", "import flatout_command; flatout_command.run()")
    assert process.stderr is not None
    for line in process.stderr:  # told of every module that was loaded
        if "numpy" in line:
            break
    process.send_signal(signal.SIGINT)
    said = process.communicate()[1]
    assert process.returncode == 130
    assert said.endswith("interrupted\n")
    assert "Traceback" not in said


@pytest.mark.parametrize("encoding", ["latin-1", "ascii"])
def test_letters_that_cannot_be_shown_are_replaced(encoding: str, tmp_path: Path) -> None:
    missing = tmp_path / "贵州 – 茅台.csv"
    script = (
        "import sys, flatout_command; sys.argv[1:] = ['data', 'check', sys.argv[1]]; "
        "flatout_command.run()"
    )
    process = start("-c", script, str(missing), PYTHONIOENCODING=encoding)
    said = process.communicate()[1]
    assert process.returncode == 2
    assert (
        said == f"error: {tmp_path}/?? ? ??.csv: there is no such file or folder. Check the path.\n"
    )
