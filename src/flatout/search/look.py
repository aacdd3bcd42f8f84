"""Studies as they lie on disk: which there are, who runs them, what their storages know. Nothing writes or waits."""

import fcntl
import json
import math
from pathlib import Path
from typing import Any, NamedTuple

import optuna
from optuna.storages.journal import JournalFileBackend, JournalStorage

from flatout.errors import RunError
from flatout.search.storage import JOURNAL, LEASE, close_storage, open_storage
from flatout.search.study import SCORES


class Trial(NamedTuple):
    """What the storage knows of a trial."""

    number: int
    state: str  # running, complete, pruned or failed
    value: float | None  # mean over splits and seeds, of a pruned trial where it ended
    params: dict[str, Any]
    reports: dict[int, float]  # by Optuna's step


class Stored(NamedTuple):
    """A study as its storage shows it."""

    trials: list[Trial]
    lease: dict[str, Any] | None  # who runs it


def study_folders(out: Path) -> list[Path]:
    """All studies under a folder, the one that was last worked on first."""
    found = [path.parent for path in out.glob("*/about.json") if is_study(path.parent)]
    return sorted(found, key=last_change, reverse=True)


def is_study(folder: Path) -> bool:
    """Whether `flatout search` made this folder."""
    try:
        about = json.loads((folder / "about.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(about, dict) and about.get("verb") == "search"


def last_change(folder: Path) -> float:
    """When a study last moved on."""
    return max(path.stat().st_mtime for name in ("about.json", "board.json") if (path := folder / name).exists())


def find_study(folder: Path | None, out: Path) -> Path:
    """The study in this folder or of this name; without either the one that was last worked on."""
    if folder is not None:
        for path in (folder, out / folder):
            if is_study(path):
                return path
        raise RunError(f"{folder} is not the folder of a study; `flatout status --out {out}` lists those there are")
    found = study_folders(out)
    if not found:
        raise RunError(f"there is no study under {out}: give its folder, or --out the folder that holds it")
    return found[0]


def is_running(folder: Path) -> bool:
    """Whether a process holds the study."""
    try:
        with (folder / "lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def read_stored(folder: Path, url: str | None = None) -> Stored | None:
    """The study in its storage; None if there is no journal and no URL, or if nothing was asked yet."""
    storage = open_to_read(folder, url)
    if storage is None:
        return None
    try:
        name = json.loads((folder / "about.json").read_text(encoding="utf-8"))["request"]["name"]
        study = storage.get_study_id_from_name(name)
        trials = [as_trial(trial) for trial in storage.get_all_trials(study, deepcopy=False)]
        return Stored(trials, storage.get_study_user_attrs(study).get(LEASE))
    except KeyError:
        return None
    finally:
        close_storage(storage)


def open_to_read(folder: Path, url: str | None) -> optuna.storages.BaseStorage | None:
    """The storage for reading. A journal is neither mended nor locked: its owner may be in the middle of a line."""
    if (folder / JOURNAL).exists():
        return JournalStorage(JournalFileBackend(str(folder / JOURNAL)))
    return None if url is None else open_storage(folder, url)


def as_trial(trial: optuna.trial.FrozenTrial) -> Trial:
    """A trial as people see it. To Optuna a pruned trial's value is what one split reported last; here it is the mean
    of all splits and seeds.
    """
    state = {"fail": "failed"}.get(trial.state.name.lower(), trial.state.name.lower())
    scores = [score for split in trial.user_attrs.get(SCORES, ()) for score in split]
    known = bool(scores) and all(score is not None and math.isfinite(score) for score in scores)
    value = sum(scores) / len(scores) if known else None
    return Trial(trial.number, state, value, trial.params, trial.intermediate_values)
