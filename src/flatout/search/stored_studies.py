"""Studies as they lie on disk: which there are, who runs them, what their storages know. Nothing
writes or waits.
"""

import os
from pathlib import Path
from typing import Annotated, NamedTuple

import optuna
from pydantic import Field
from typing_extensions import TypedDict

from flatout.errors import RunError
from flatout.foreign import validate_shape
from flatout.search.about_study import ABOUT, CURE, made_by_search, read_run, study_path
from flatout.search.storage import (
    JOURNAL,
    Lease,
    check_journal,
    close_storage,
    explain_storage_errors,
    open_journal,
    open_storage,
    place_of,
    read_lease,
)
from flatout.search.study_state import FILE as STATE
from flatout.search.study_trials import SCORES
from flatout.settings.study import SettingValue

Figure = Annotated[float, Field(ge=-1e300, le=1e300)]
Whole = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]


class TrialAttributes(TypedDict):
    """What a trial's attributes hold."""

    params: dict[str, bool | Whole | Figure | str]
    reports: dict[int, Figure]
    scores: list[list[Figure | None]]


class StoredTrial(NamedTuple):
    """What the storage knows of a trial."""

    number: int
    state: str  # running, complete, pruned or failed
    value: float | None  # mean over splits and seeds, of a pruned trial where it ended
    params: dict[str, SettingValue]
    reports: dict[int, float]  # by Optuna's step


class StoredStudy(NamedTuple):
    """A study as its storage shows it."""

    trials: list[StoredTrial]
    lease: Lease | None  # who runs it


def study_folders(out: Path) -> list[Path]:
    """All studies under a folder, the one that was last worked on first."""
    found = [path.parent for path in out.glob(f"*/{ABOUT}") if is_study(path.parent)]
    return sorted(found, key=last_change, reverse=True)


def is_study(folder: Path) -> bool:
    """Whether `flatout search` made this folder; if its own word is damaged, by what else lies
    there.
    """
    if not os.path.lexists(folder / ABOUT):
        return False
    try:
        return made_by_search(folder)
    except RunError:
        return any(os.path.lexists(folder / name) for name in (JOURNAL, STATE))


def last_change(folder: Path) -> float:
    """When a study last moved on."""
    times = (path.stat().st_mtime for name in (ABOUT, STATE) if (path := folder / name).exists())
    return max(times, default=0.0)


def find_study(folder: Path | None, out: Path) -> Path:
    """The study in this folder or of this name; without either the one that was last worked on."""
    if folder is not None:
        for path in (folder, out / folder, study_path(out, str(folder))):
            if is_study(path):
                return path
        raise RunError(
            f"{folder} is not the folder of a study; `flatout status --out {out}` lists those "
            f"there are"
        )
    found = study_folders(out)
    if not found:
        raise RunError(
            f"there is no study under {out}: give its folder, or `out` the folder that holds it"
        )
    return found[0]


def read_stored(folder: Path, url: str | None = None) -> StoredStudy | None:
    """The study in its storage; None if there is no journal and no URL, or if nothing was asked
    yet.
    """
    name = read_run(folder)[1]["request"]["name"]
    storage = open_to_read(folder, url)
    if storage is None:
        return None
    where = place_of(folder, None if (folder / JOURNAL).exists() else url)
    try:
        with explain_storage_errors(where):
            study = study_id(storage, name)
            if study is None:
                return None
            trials = storage.get_all_trials(study, deepcopy=False)
            lease = read_lease(storage.get_study_user_attrs(study), where)
        return StoredStudy([to_stored_trial(trial, where) for trial in trials], lease)
    finally:
        close_storage(storage)


def study_id(storage: optuna.storages.BaseStorage, name: str) -> int | None:
    """The number of a study in its storage; None if it is not there."""
    try:
        return storage.get_study_id_from_name(name)
    except KeyError:
        return None


def open_to_read(folder: Path, url: str | None) -> optuna.storages.BaseStorage | None:
    """The storage for reading. A journal is neither mended nor locked: its owner may be in the
    middle of a line.
    """
    path = folder / JOURNAL
    if os.path.lexists(path):
        check_journal(path)
        return open_journal(path)
    return None if url is None else open_storage(folder, url)


def to_stored_trial(trial: optuna.trial.FrozenTrial, where: str = "the storage") -> StoredTrial:
    """A trial as people see it. To Optuna a pruned trial's value is what one split reported last;
    here it is the mean of all splits and seeds.
    """
    state = {"fail": "failed"}.get(trial.state.name.lower(), trial.state.name.lower())
    given = {
        "params": trial.params,
        "reports": trial.intermediate_values,
        "scores": trial.user_attrs.get(SCORES, []),
    }
    known = validate_shape(
        given, TrialAttributes, where=f"{where}: trial {trial.number}", refuse=RunError, cure=CURE
    )
    scores = [score for split in known["scores"] for score in split]
    numbers = [score for score in scores if score is not None]
    value = sum(numbers) / len(numbers) if numbers and len(numbers) == len(scores) else None
    return StoredTrial(
        number=trial.number,
        state=state,
        value=value,
        params=known["params"],
        reports=known["reports"],
    )
