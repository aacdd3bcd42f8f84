"""Where trials are kept: journals that were cut off, locks that end with their process, leases,
URLs.
"""

import os
import re
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import optuna
import pytest
from fake_workers import made_study

from flatout.errors import RunError
from flatout.search.about_study import is_begun, study_path
from flatout.search.run import make_folder, open_study_folder
from flatout.search.storage import (
    JOURNAL,
    LEASE,
    LEASE_SECONDS,
    FileLock,
    close_storage,
    cut_unfinished_line,
    drop_lease,
    give_lease_back,
    hide_password,
    keep_lease,
    make_sampler,
    open_storage,
    open_study,
    take_lease,
)

X = {
    "x": optuna.distributions.FloatDistribution(0.0, 1.0),
    "y": optuna.distributions.FloatDistribution(0.0, 1.0),
}


@pytest.fixture(autouse=True)
def quiet() -> None:
    optuna.logging.set_verbosity(optuna.logging.WARNING)


def tell_value(folder: Path, value: float, url: str | None = None) -> list[float | None]:
    """One more trial with this value; all values so far."""
    found = open_storage(folder, url)
    try:
        study = open_study(found, "study")
        study.sampler = make_sampler("random", 0, len(study.get_trials()))
        study.tell(study.ask(X), value)
        return [t.value for t in study.get_trials()]
    finally:
        close_storage(found)


# --- journals -------------------------------------------------------------------------------------


def test_a_journal_is_found_again(tmp_path: Path) -> None:
    assert tell_value(tmp_path, 0.25) == [0.25]
    assert tell_value(tmp_path, 0.5) == [0.25, 0.5]


def test_a_line_that_was_not_finished_is_cut_off(tmp_path: Path) -> None:
    """Wherever it was cut; trials that were whole stay, and new ones can be added."""
    tell_value(tmp_path, 0.25)
    path = tmp_path / JOURNAL
    whole = path.read_bytes()
    *_, last = whole.splitlines(keepends=True)
    for length in (1, len(last) // 2, len(last) - 1):
        path.write_bytes(whole + last[:length])
        cut_unfinished_line(path)
        assert path.read_bytes() == whole
        path.write_bytes(whole + last[:length])
        assert tell_value(tmp_path, 0.5) == [0.25, 0.5]


def test_a_journal_that_was_cut_in_its_first_line_begins_anew(tmp_path: Path) -> None:
    (tmp_path / JOURNAL).write_bytes(b'{"op_code":0,"work')
    assert tell_value(tmp_path, 0.25) == [0.25]


@pytest.mark.parametrize("content", [b"", b"one\n", b"one\ntwo\n"])
def test_whole_journals_are_left_alone(tmp_path: Path, content: bytes) -> None:
    (tmp_path / JOURNAL).write_bytes(content)
    cut_unfinished_line(tmp_path / JOURNAL)
    assert (tmp_path / JOURNAL).read_bytes() == content


def test_no_journal_is_made_by_mending(tmp_path: Path) -> None:
    cut_unfinished_line(tmp_path / JOURNAL)
    assert not (tmp_path / JOURNAL).exists()


HOLD = """
import sys, time
from pathlib import Path
from flatout.search.storage import FileLock
print("wanted", flush=True)
lock = FileLock(Path(sys.argv[1]))
lock.acquire()
print("held", flush=True)
time.sleep(600)
"""


@contextmanager
def holding(path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that wants the lock and then keeps it."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, bufsize=0
    )
    try:
        assert read_line(process) == b"wanted\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def read_line(process: subprocess.Popen[bytes], seconds: float = 60.0) -> bytes | None:
    """A line, None if none comes."""
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], seconds)
    return process.stdout.readline() if ready else None


def test_a_lock_ends_with_its_process(tmp_path: Path) -> None:
    """A lock file would stay when its owner is killed, and the next process would wait for it for
    ever.
    """
    path = tmp_path / "lock"
    with holding(path) as owner:
        assert read_line(owner) == b"held\n"
        with holding(path) as second:
            assert read_line(second, 0.5) is None
            owner.kill()
            assert read_line(second) == b"held\n"
    lock = FileLock(path)
    assert lock.acquire()
    lock.release()
    lock.release()  # nothing is held: nothing happens


# --- URLs -----------------------------------------------------------------------------------------


def test_sqlite_keeps_trials_too(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/study.db"
    assert tell_value(tmp_path, 0.25, url) == [0.25]
    assert tell_value(tmp_path, 0.5, url) == [0.25, 0.5]
    assert not (tmp_path / JOURNAL).exists()


@pytest.mark.parametrize(
    "url",
    [
        "nonsense",
        "nonsense://user:secret@host/db",
        "sqlite:////no/such/folder/study.db",
        "redis://u:secret@h/0",
    ],
)
def test_a_url_that_leads_nowhere_is_explained(tmp_path: Path, url: str) -> None:
    with pytest.raises(RunError) as caught:
        open_storage(tmp_path, url)
    message = str(caught.value)
    assert message.startswith(f"the storage {hide_password(url)} cannot be opened: ")
    assert "give an Optuna storage URL such as sqlite:///study.db" in message
    assert "secret" not in message


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://user:secret@host:5432/db", "postgresql://user:***@host:5432/db"),
        ("postgresql://user:se@cr:et@host/db", "postgresql://user:***@host/db"),
        ("postgresql://user@host/db", "postgresql://user@host/db"),
        ("sqlite:///study.db", "sqlite:///study.db"),
        ("mysql://:secret@host/db", "mysql://:***@host/db"),
    ],
)
def test_passwords_are_not_shown(url: str, shown: str) -> None:
    assert hide_password(url) == shown


# --- leases ---------------------------------------------------------------------------------------


@pytest.fixture
def study(tmp_path: Path) -> Iterator[optuna.Study]:
    found = open_storage(tmp_path, None)
    yield open_study(found, "mine")
    close_storage(found)


@pytest.fixture
def dead() -> int:
    """The number of a process that is over."""
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def lease(**changes: Any) -> dict[str, Any]:
    usual = {
        "host": socket.gethostname(),
        "pid": os.getppid(),
        "folder": "/elsewhere",
        "time": time.time(),
    }
    return {**usual, **changes}


def test_a_lease_is_taken_and_given_back(study: optuna.Study, tmp_path: Path) -> None:
    take_lease(study, tmp_path)
    held = study.user_attrs[LEASE]
    assert (held["host"], held["pid"], held["folder"]) == (
        socket.gethostname(),
        os.getpid(),
        str(tmp_path),
    )
    take_lease(study, tmp_path)  # its owner may take it again
    give_lease_back(study)
    assert study.user_attrs[LEASE] is None


def test_a_living_owner_is_named(study: optuna.Study, tmp_path: Path) -> None:
    study.set_user_attr(LEASE, lease())
    with pytest.raises(
        RunError,
        match=rf"'mine' is run by process {os.getppid()} on .* \(/elsewhere\): wait for it",
    ):
        take_lease(study, tmp_path)
    assert study.user_attrs[LEASE]["pid"] == os.getppid()


def test_a_dead_owner_is_succeeded(study: optuna.Study, tmp_path: Path, dead: int) -> None:
    study.set_user_attr(LEASE, lease(pid=dead))
    take_lease(study, tmp_path)
    assert study.user_attrs[LEASE]["pid"] == os.getpid()


@pytest.mark.parametrize(
    ("age", "alive"), [(0.0, True), (LEASE_SECONDS - 60, True), (LEASE_SECONDS + 1, False)]
)
def test_owners_elsewhere_live_as_long_as_they_are_heard(
    study: optuna.Study, tmp_path: Path, dead: int, age: float, alive: bool
) -> None:
    """Their process numbers mean nothing here."""
    study.set_user_attr(LEASE, lease(host="another", pid=dead, time=time.time() - age))
    if alive:
        with pytest.raises(RunError, match=f"process {dead} on another"):
            take_lease(study, tmp_path)
    else:
        take_lease(study, tmp_path)
        assert study.user_attrs[LEASE]["host"] == socket.gethostname()


def test_a_process_of_somebody_else_lives(
    study: optuna.Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(pid: int, number: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", forbidden)
    study.set_user_attr(LEASE, lease(pid=1))
    with pytest.raises(RunError, match="process 1 on"):
        take_lease(study, tmp_path)


def test_the_lease_of_a_folder_that_is_held_is_nobodys(study: optuna.Study, tmp_path: Path) -> None:
    """After a kill another process may have the owner's number; it must not be taken for it."""
    study.set_user_attr(LEASE, lease(folder=str(tmp_path)))
    drop_lease(study, tmp_path)
    take_lease(study, tmp_path)
    for other in (lease(), lease(folder=str(tmp_path), host="another")):
        study.set_user_attr(LEASE, other)
        drop_lease(study, tmp_path)
        assert study.user_attrs[LEASE] == other


def test_leases_are_renewed_long_before_they_run_out(study: optuna.Study, tmp_path: Path) -> None:
    take_lease(study, tmp_path)
    fresh = study.user_attrs[LEASE]
    keep_lease(study, tmp_path)
    assert study.user_attrs[LEASE] == fresh  # not at every round
    now = time.time()
    study.set_user_attr(LEASE, {**fresh, "time": now - LEASE_SECONDS / 2})
    keep_lease(study, tmp_path)
    assert study.user_attrs[LEASE]["time"] >= now


# --- samplers and pruners -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["random", "tpe", "cmaes"])
def test_what_a_trial_draws_depends_on_its_number_alone(name: Any) -> None:
    def drawn(seed: int, trial: int, knob: int = 0) -> dict[str, float]:
        study = optuna.create_study(sampler=make_sampler(name, seed, trial, knob))
        return study.ask(X).params

    assert drawn(0, 3) == drawn(0, 3)
    assert (
        len(
            {
                str(drawn(seed, trial, knob))
                for seed in range(3)
                for trial in range(5)
                for knob in range(3)
            }
        )
        == 45
    )


@pytest.mark.parametrize(
    "url", ["sqlite:////nowhere/at/all/study.db", "postgresql://nobody@127.0.0.1:1/x", "nonsense"]
)
def test_a_mistyped_storage_does_not_stay_with_the_study(tmp_path: Path, url: str) -> None:
    made, folder = made_study(), make_folder(tmp_path, "study")
    with pytest.raises(RunError, match="cannot be opened"), open_study_folder(made, folder, url):
        pass
    assert not is_begun(folder)
    with open_study_folder(made, folder, None):
        assert is_begun(folder)


def test_a_study_is_not_begun_among_somebodys_files(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, "study")
    for name in ("scratch/thesis.txt", "sub/.notes.csv.backup12"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("precious")
    with pytest.raises(
        RunError, match=r"not empty: it holds \['scratch', 'sub'\]; give another `name`"
    ):
        open_study_folder(made_study(), folder, None).__enter__()
    assert (folder / "scratch" / "thesis.txt").read_text() == "precious"
    assert (folder / "sub" / ".notes.csv.backup12").read_text() == "precious"


def test_a_start_that_was_cut_off_is_begun_again(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, "study")
    with open_study_folder(made_study(), folder, None):
        pass
    (folder / "settings.json").rename(folder / ".settings.json.abcdefgh")  # written last
    with open_study_folder(made_study(), folder, None):
        assert is_begun(folder)


def test_studies_of_before_keep_their_folders(tmp_path: Path) -> None:
    name = "v1 (Größe)"
    assert study_path(tmp_path, name).name == "v1 %28Gr%C3%B6ße%29"
    (tmp_path / name).mkdir()
    (tmp_path / name / "about.json").touch()
    assert study_path(tmp_path, name) == tmp_path / name
    (tmp_path / "about.json").touch()
    assert study_path(tmp_path / "runs", "..") == tmp_path / "runs" / "%2E%2E"


@pytest.mark.parametrize("value", ["-5.0", "1e9"])
def test_values_outside_of_their_range_are_refused(tmp_path: Path, value: str) -> None:
    """Also where the sampler would take their logarithm."""
    made, folder = (
        made_study(search={"trials": 6, "sampler": "cmaes"}),
        make_folder(tmp_path, "study"),
    )
    with open_study_folder(made, folder, None) as study:
        study.trials.ask(0)
    path = folder / JOURNAL
    path.write_text(
        re.sub(
            r'"param_value_internal": ?[0-9.e-]+',
            f'"param_value_internal": {value}',
            path.read_text(),
        )
    )
    with (
        pytest.raises(RunError, match=r"trial 0 was not drawn from|is invalid value"),
        open_study_folder(made, folder, None),
    ):
        pass


def test_a_forged_lease_in_a_journal_of_ones_own_keeps_nobody_out(tmp_path: Path) -> None:
    """Whoever holds the folder holds its journal; the process of that number is somebody else's."""
    made, folder = made_study(), make_folder(tmp_path, "study")
    with open_study_folder(made, folder, None) as study:
        lease = {
            "host": socket.gethostname(),
            "pid": os.getppid(),
            "folder": "/elsewhere",
            "time": time.time(),
        }
        name = study.optuna_study.study_name
    storage = open_storage(folder, None)
    open_study(storage, name).set_user_attr(LEASE, lease)
    close_storage(storage)
    with open_study_folder(made, folder, None):
        pass
