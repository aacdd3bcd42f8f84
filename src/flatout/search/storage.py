"""Where trials are kept: an Optuna journal in the run's folder, or any Optuna storage by its URL.

A process that is killed in the middle of a line leaves half of it in the journal; it is cut off before the study goes
on, as nothing that was finished can be in it.
"""

import fcntl
import importlib.util
import os
import socket
import time
import warnings
from pathlib import Path
from typing import IO, Any

import numpy as np
import optuna
from optuna.storages.journal import BaseJournalBackend, JournalFileBackend, JournalFileOpenLock, JournalStorage

from flatout.errors import RunError
from flatout.settings_study import PrunerName, SamplerName

JOURNAL = "study.journal"
LEASE = "flatout:lease"
LEASE_SECONDS = 600.0  # after which a silent owner on another machine counts as dead


class FileLock(JournalFileOpenLock):
    """A lock that ends with its process, unlike a lock file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file: IO[Any] | None = None

    def acquire(self) -> bool:
        self.file = self.path.open("w")
        fcntl.flock(self.file, fcntl.LOCK_EX)
        return True

    def release(self) -> None:
        if self.file is not None:
            self.file.close()
            self.file = None


def open_storage(folder: Path, url: str | None) -> optuna.storages.BaseStorage:
    """The storage of a study."""
    if url is None:
        path = folder / JOURNAL
        mend(path)
        backend: BaseJournalBackend = JournalFileBackend(str(path), lock_obj=FileLock(folder / f"{JOURNAL}.lock"))
        return JournalStorage(backend)
    try:
        return optuna.storages.get_storage(with_driver(url))
    except Exception as error:  # whatever a database driver raises
        raise RunError(
            f"the storage {hidden_password(url)} cannot be opened: {type(error).__name__}: {error}; give an Optuna "
            "storage URL such as sqlite:///study.db or postgresql://user:password@host/database"
        ) from None


def with_driver(url: str) -> str:
    """PostgreSQL's URL for the driver that `flatout[postgres]` installs, unless the older one is there."""
    scheme, separator, rest = url.partition("://")
    plain = scheme in ("postgresql", "postgres") and importlib.util.find_spec("psycopg2") is None
    return f"postgresql+psycopg{separator}{rest}" if plain else url


def close_storage(storage: optuna.storages.BaseStorage) -> None:
    """Let go of a database's connections."""
    storage.remove_session()
    inner = getattr(storage, "_backend", storage)  # Optuna wraps databases in a cache
    if isinstance(inner, optuna.storages.RDBStorage):
        inner.engine.dispose()


def hidden_password(url: str) -> str:
    """A URL that may be shown."""
    scheme, separator, rest = url.partition("://")
    user, at, host = rest.rpartition("@")
    name = user.partition(":")[0]
    return f"{scheme}{separator}{name}{':***' if ':' in user else ''}{at}{host}"


def mend(path: Path) -> None:
    """Cut off a last line that was not finished."""
    if not path.exists():
        return
    with path.open("rb+") as file:
        content = file.read()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            file.truncate(whole)


def open_study(storage: optuna.storages.BaseStorage, name: str, pruner: PrunerName) -> optuna.Study:
    """The study of this name, made if it is new; the sampler is set for each trial."""
    return optuna.create_study(
        storage=storage, study_name=name, direction="maximize", load_if_exists=True, pruner=make_pruner(pruner)
    )


def make_pruner(name: PrunerName) -> optuna.pruners.BasePruner:
    """The pruner of this name."""
    if name == "wilcoxon":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            return optuna.pruners.WilcoxonPruner(p_threshold=0.1)
    return Halving() if name == "halving" else optuna.pruners.NopPruner()


class Halving(optuna.pruners.BasePruner):
    """At every rung the better half of the trials that were ever seen there goes on. Unlike Optuna's it keeps no notes,
    so it says the same when a process that goes on after a kill asks again.
    """

    def prune(self, study: optuna.Study, trial: optuna.trial.FrozenTrial) -> bool:
        step = trial.last_step
        if step is None:
            return False
        known = [t.intermediate_values for t in study.get_trials(deepcopy=False)]
        values = sorted(values[step] for values in known if step in values)
        return trial.intermediate_values[step] < values[-max(1, len(values) // 2)]


def make_sampler(name: SamplerName, seed: int, trial: int, knob: int = 0) -> optuna.samplers.BaseSampler:
    """A sampler for one trial, or for one of its knobs; its randomness depends on their numbers alone: a resumed study
    draws the same.
    """
    own = int(np.random.SeedSequence([seed, trial, knob]).generate_state(1)[0])
    if name == "random":
        return optuna.samplers.RandomSampler(seed=own)
    if name == "cmaes":
        return optuna.samplers.CmaEsSampler(seed=own, n_startup_trials=10)
    return optuna.samplers.TPESampler(seed=own, multivariate=True, constant_liar=True, n_startup_trials=10)


def take_lease(study: optuna.Study, folder: Path) -> None:
    """Own the study, or say who does. A dead owner's lease is taken over."""
    lease = study.user_attrs.get(LEASE)
    if lease and lives(lease) and (lease["host"], lease["pid"]) != (socket.gethostname(), os.getpid()):
        raise RunError(
            f"the study {study.study_name!r} is run by process {lease['pid']} on {lease['host']} ({lease['folder']}): "
            "wait for it or end it"
        )
    renew_lease(study, folder)


def drop_lease(study: optuna.Study, folder: Path) -> None:
    """End a lease of this folder, which this process holds: its owner is dead, whoever has its number now."""
    lease = study.user_attrs.get(LEASE)
    if lease and (lease["host"], lease["folder"]) == (socket.gethostname(), str(folder.resolve())):
        give_lease_back(study)


def renew_lease(study: optuna.Study, folder: Path) -> None:
    """Say that this process lives and runs the study."""
    study.set_user_attr(
        LEASE,
        {"host": socket.gethostname(), "pid": os.getpid(), "folder": str(folder.resolve()), "time": time.time()},
    )


def keep_lease(study: optuna.Study, folder: Path) -> None:
    """Renew the lease long before it runs out."""
    lease = study.user_attrs.get(LEASE)
    if not lease or time.time() - lease["time"] > LEASE_SECONDS / 10:
        renew_lease(study, folder)


def give_lease_back(study: optuna.Study) -> None:
    """Nobody runs the study any more."""
    study.set_user_attr(LEASE, None)


def lives(lease: dict[str, Any]) -> bool:
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
