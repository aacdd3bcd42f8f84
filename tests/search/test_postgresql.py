"""A study in a real PostgreSQL server: started for the test, on a socket of its own, stopped at its
end.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import optuna
import pytest

from flatout.errors import RunError
from flatout.search.storage import (
    LEASE,
    close_storage,
    give_lease_back,
    open_storage,
    open_study,
    take_lease,
)

PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The URL of a database that nobody else knows."""
    pytest.importorskip("psycopg", reason="no PostgreSQL driver: pip install 'flatout[postgres]'")
    found = shutil.which("initdb") or (str(PROGRAMS[-1]) if PROGRAMS else None)
    if found is None:
        pytest.skip("no PostgreSQL server programs: install Debian's package postgresql")
    folder = Path(tempfile.mkdtemp())  # pytest's own folders are closed to the server's user
    data, programs = folder / "data", Path(found).parent
    user = {}
    if os.getuid() == 0:  # the server refuses to run as root
        user = {"user": "postgres", "group": "postgres"}
        shutil.chown(folder, "postgres")

    def run(name: str, *arguments: str) -> None:
        subprocess.run(
            [str(programs / name), *arguments], check=True, cwd=folder, capture_output=True, **user
        )  # type: ignore[call-overload]

    run("initdb", "-E", "UTF8", "-D", str(data), "-U", "flatout", "--auth=trust", "--no-sync")
    options = f"-c listen_addresses= -c unix_socket_directories={folder} -c fsync=off"
    run(
        "pg_ctl",
        "-D",
        str(data),
        "-w",
        "-t",
        "600",
        "-l",
        str(folder / "log"),
        "-o",
        options,
        "start",
    )
    try:
        yield f"postgresql://flatout@/postgres?host={folder}"
    finally:
        run("pg_ctl", "-D", str(data), "-m", "immediate", "stop")
        shutil.rmtree(folder)


@contextmanager
def closing_storage(folder: Path, url: str) -> Iterator[optuna.storages.BaseStorage]:
    """A storage whose connections are closed."""
    storage = open_storage(folder, url)
    try:
        yield storage
    finally:
        close_storage(storage)


@pytest.mark.long
def test_trials_are_told_and_found_again(server: str, tmp_path: Path) -> None:
    for value in (None, 0.5):
        with closing_storage(tmp_path, server) as storage:
            study = open_study(storage, "told")
            assert [t.value for t in study.get_trials()] == ([] if value is None else [value])
            if value is None:
                study.tell(study.ask({"x": optuna.distributions.FloatDistribution(0, 1)}), 0.5)
    assert not (tmp_path / "study.journal").exists()


def test_the_lease_of_a_dead_process_is_taken_over(server: str, tmp_path: Path) -> None:
    with closing_storage(tmp_path, server) as storage:
        study = open_study(storage, "leased")
        take_lease(study, tmp_path)
        held = study.user_attrs[LEASE]
        study.set_user_attr(LEASE, {**held, "pid": os.getppid()})
        with pytest.raises(RunError, match="is run by process"):
            take_lease(study, tmp_path)
        dead = subprocess.Popen(["true"])
        dead.wait()
        study.set_user_attr(LEASE, {**held, "pid": dead.pid})
        take_lease(study, tmp_path)
        assert study.user_attrs[LEASE]["pid"] == os.getpid()
        give_lease_back(study)
        assert study.user_attrs[LEASE] is None
