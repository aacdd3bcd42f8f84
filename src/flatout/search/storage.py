"""Where trials are kept: an Optuna journal in the run's folder, or any Optuna storage by its URL.

A process that is killed in the middle of a line leaves half of it in the journal; it is cut off
before the study goes on, as nothing that was finished can be in it.
"""

import fcntl
import importlib.util
import os
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Annotated

import numpy as np
import optuna
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock, JournalStorage
from pydantic import Field, FiniteFloat
from typing_extensions import TypedDict

from flatout.errors import RunError
from flatout.foreign import check_file, shorten, shorten_repr, validate_shape
from flatout.runs import open_lock
from flatout.search.about_study import CURE
from flatout.search.cma_sampler import ReplayedCma
from flatout.settings.fields import MOST_COUNTED
from flatout.settings.study import SamplerName

JOURNAL = "study.journal"
JOURNAL_BYTES = 4 << 30
LINE_BYTES = 16 << 20
LONGEST = 300  # characters of what a library says
LEASE = "flatout:lease"
LEASE_SECONDS = 600.0  # after which a silent owner on another machine counts as dead


class Lease(TypedDict):
    """The process that runs a study, and when it last said so."""

    host: str
    pid: Annotated[int, Field(ge=1, le=MOST_COUNTED)]
    folder: str
    time: FiniteFloat


class FileLock(JournalFileOpenLock):
    """A lock that ends with its process, unlike a lock file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file: IO[bytes] | None = None

    def acquire(self) -> bool:
        """Wait until the lock is free, and take it."""
        self.file = open_lock(self.path)
        fcntl.flock(self.file, fcntl.LOCK_EX)
        return True

    def release(self) -> None:
        """Let go of the lock, if it is held."""
        if self.file is not None:
            self.file.close()
            self.file = None


def open_storage(folder: Path, url: str | None) -> optuna.storages.BaseStorage:
    """The storage of a study."""
    if url is None:
        path = folder / JOURNAL
        check_journal(path)
        cut_unfinished_line(path)
        return open_journal(path, FileLock(folder / f"{JOURNAL}.lock"))
    try:
        return optuna.storages.get_storage(add_driver(url))
    except Exception as error:  # whatever a database driver raises
        raise RunError(
            f"the storage {hide_password(url)} cannot be opened: {type(error).__name__}: "
            f"{shorten_error(error)}; give an "
            "Optuna storage URL such as sqlite:///study.db or "
            "postgresql://user:password@host/database"
        ) from None


def open_journal(path: Path, lock: JournalFileOpenLock | None = None) -> JournalStorage:
    """A journal that was checked; all of its lines are taken in."""
    with explain_storage_errors(str(path)):
        return JournalStorage(JournalFileBackend(str(path), lock_obj=lock))


@contextmanager
def explain_storage_errors(where: str) -> Iterator[None]:
    """Turn whatever Optuna raises about what a storage holds into a sentence: it trusts its files
    and databases, and fails in its own ways where they are damaged.
    """
    try:
        yield
    except RunError:
        raise
    except Exception as error:
        raise RunError(
            f"{where}: its trials cannot be read: {type(error).__name__}: "
            f"{shorten_error(error)}; {CURE}"
        ) from None


def place_of(folder: Path, url: str | None) -> str:
    """The storage of a study, for messages."""
    return str(folder / JOURNAL) if url is None else f"the storage {hide_password(url)}"


def shorten_error(error: Exception) -> str:
    """What an error of a library says, in one line that is not too long."""
    return " ".join(shorten(error, LONGEST).split())


def check_journal(path: Path) -> None:
    """Refuse what is no ordinary file, and lines that nobody has written: Optuna takes each into
    memory at once.
    """
    if not os.path.lexists(path):
        return
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            check_file(
                path, os.fstat(file.fileno()), limit=JOURNAL_BYTES, refuse=RunError, cure=CURE
            )
            while line := file.readline(LINE_BYTES):
                if len(line) == LINE_BYTES:
                    raise RunError(f"{path}: a line has more than {LINE_BYTES:,} bytes; {CURE}")
    except OSError as error:
        raise RunError(f"{path}: cannot be read: {error.strerror}; {CURE}") from None


def add_driver(url: str) -> str:
    """PostgreSQL's URL for the driver that `flatout[postgres]` installs, unless the older one is
    there.
    """
    scheme, separator, rest = url.partition("://")
    plain = scheme in ("postgresql", "postgres") and importlib.util.find_spec("psycopg2") is None
    return f"postgresql+psycopg{separator}{rest}" if plain else url


def close_storage(storage: optuna.storages.BaseStorage) -> None:
    """Let go of a database's connections."""
    storage.remove_session()
    inner = getattr(storage, "_backend", storage)  # Optuna wraps databases in a cache
    if isinstance(inner, optuna.storages.RDBStorage):
        inner.engine.dispose()


def hide_password(url: str) -> str:
    """A URL that may be shown."""
    scheme, separator, rest = url.partition("://")
    user, at, host = rest.rpartition("@")
    name = user.partition(":")[0]
    return f"{scheme}{separator}{name}{':***' if ':' in user else ''}{at}{host}"


def cut_unfinished_line(path: Path) -> None:
    """Cut off a last line that was not finished."""
    if not path.exists():
        return
    with path.open("rb+") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - LINE_BYTES))
        tail = file.read()
        unfinished = len(tail) - (tail.rfind(b"\n") + 1)
        if unfinished:
            file.truncate(size - unfinished)


def open_study(
    storage: optuna.storages.BaseStorage, name: str, pruner: optuna.pruners.BasePruner | None = None
) -> optuna.Study:
    """The study of this name, made if it is new; the sampler is set for each trial. Without a
    pruner no trial is pruned.
    """
    with explain_storage_errors(f"the study {shorten_repr(name)}"):
        return optuna.create_study(
            storage=storage,
            study_name=name,
            direction="maximize",
            load_if_exists=True,
            pruner=pruner or optuna.pruners.NopPruner(),
        )


def make_sampler(
    name: SamplerName, seed: int, trial: int, knob: int = 0
) -> optuna.samplers.BaseSampler:
    """A sampler for one trial, or for one of its knobs; its randomness depends on their numbers
    alone: a resumed study draws the same.
    """
    own = int(np.random.SeedSequence([seed, trial, knob]).generate_state(1)[0])
    if name == "random":
        return optuna.samplers.RandomSampler(seed=own)
    if name == "cmaes":
        return ReplayedCma(seed=own)
    return optuna.samplers.TPESampler(
        seed=own, multivariate=True, constant_liar=True, n_startup_trials=10
    )


def read_lease(attributes: Mapping[str, object], where: str) -> Lease | None:
    """Who runs a study, as its storage says."""
    lease = attributes.get(LEASE)
    return (
        None
        if lease is None
        else validate_shape(lease, Lease, where=f"{where}: {LEASE}", refuse=RunError, cure=CURE)
    )


def lease_of(study: optuna.Study) -> Lease | None:
    """The lease on a study, None if nobody runs it."""
    return read_lease(study.user_attrs, f"the study {shorten_repr(study.study_name)}")


def take_lease(study: optuna.Study, folder: Path) -> None:
    """Own the study, or say who does. A dead owner's lease is taken over."""
    lease = lease_of(study)
    if (
        lease
        and is_alive(lease)
        and (lease["host"], lease["pid"]) != (socket.gethostname(), os.getpid())
    ):
        raise RunError(
            f"the study {study.study_name!r} is run by process {lease['pid']} on {lease['host']} "
            f"({lease['folder']}): wait for it or end it"
        )
    renew_lease(study, folder)


def drop_lease(study: optuna.Study, folder: Path, own: bool = False) -> None:
    """End a lease of this folder, which this process holds: its owner is dead, whoever has its
    number now. With `own` the storage lies in the folder, and nobody else can have a lease.
    """
    lease = lease_of(study)
    if lease and (
        own or (lease["host"], lease["folder"]) == (socket.gethostname(), str(folder.resolve()))
    ):
        give_lease_back(study)


def renew_lease(study: optuna.Study, folder: Path) -> None:
    """Say that this process lives and runs the study."""
    study.set_user_attr(
        LEASE,
        {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "folder": str(folder.resolve()),
            "time": time.time(),
        },
    )


def keep_lease(study: optuna.Study, folder: Path) -> None:
    """Renew the lease long before it runs out."""
    lease = lease_of(study)
    if not lease or time.time() - lease["time"] > LEASE_SECONDS / 10:
        renew_lease(study, folder)


def give_lease_back(study: optuna.Study) -> None:
    """Nobody runs the study any more."""
    study.set_user_attr(LEASE, None)


def is_alive(lease: Lease) -> bool:
    """Whether the owner of a lease may still run."""
    if lease["host"] != socket.gethostname():
        return bool(time.time() - lease["time"] < LEASE_SECONDS)
    try:
        os.kill(lease["pid"], 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
