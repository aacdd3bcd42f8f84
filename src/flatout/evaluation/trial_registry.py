"""How many trials were ever run on given bars: what the best of them must be deflated by.

One JSON file per fingerprint of bars, one count per study. A study's count only grows, so that a
resumed study is not counted twice. A lock beside each file keeps two processes from losing each
other's counts; it ends with the process. This file does not know what a trial or a study is, nor
what bars are behind a fingerprint.
"""

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field
from typing_extensions import TypedDict

from flatout.errors import RunError
from flatout.foreign import read_json_if_there, shorten_repr
from flatout.runs import open_lock, write_json
from flatout.settings.fields import MOST_COUNTED

ENVIRONMENT_VARIABLE = "FLATOUT_REGISTRY"
DAMAGED = (
    "this registry of trials is damaged, so how many were run on these bars is unknown; "
    "restore it, or remove it to forget them"
)


class Registry(TypedDict):
    """The content of a registry's file."""

    fingerprint: str
    studies: dict[str, Annotated[int, Field(ge=0, le=MOST_COUNTED)]]


def note_trials(fingerprint: str, study: str, count: int, folder: Path | None = None) -> None:
    """Set how many trials a study has run on these bars so far; a smaller count than the noted one
    changes nothing.
    """
    if not _is_count(count):
        raise RunError(
            f"the count of study {study!r} is {count!r}; it is a whole number of trials, 0 or more"
        )
    if not study:
        raise RunError("a study without a name cannot be told from others: give one")
    path = registry_file(fingerprint, folder)
    with lock_registry(path):
        studies = read_studies(path)
        if count > studies.get(study, -1):
            _write(path, {"fingerprint": path.stem, "studies": {**studies, study: count}})


def trials_ever(fingerprint: str, folder: Path | None = None) -> int:
    """The sum over all studies; 0 for bars that none was noted for."""
    return sum(read_studies(registry_file(fingerprint, folder)).values())


def registry_folder() -> Path:
    """$FLATOUT_REGISTRY, else flatout/trials under $XDG_DATA_HOME, else under ~/.local/share."""
    given = os.environ.get(ENVIRONMENT_VARIABLE)
    if given:
        return Path(given).expanduser()
    data = Path(os.environ.get("XDG_DATA_HOME", ""))
    # The XDG specification says to ignore a relative path.
    return (data if data.is_absolute() else Path.home() / ".local" / "share") / "flatout" / "trials"


def registry_file(fingerprint: str, folder: Path | None = None) -> Path:
    """The file of these bars, whether it exists or not."""
    if not re.fullmatch("[0-9a-fA-F]+", fingerprint):
        raise RunError(
            f"fingerprint {fingerprint!r} is not hexadecimal: give the fingerprint of the bars"
        )
    return (registry_folder() if folder is None else folder) / f"{fingerprint.lower()}.json"


def read_studies(path: Path) -> dict[str, int]:
    """Trials by study; none if there is no file. A file that cannot be understood is never taken
    for an empty one.
    """
    content = read_json_if_there(path, Registry, RunError, DAMAGED)
    if content is None:
        return {}
    if content["fingerprint"] != path.stem:
        raise RunError(
            f"{path}: is about other bars, {shorten_repr(content['fingerprint'])}; {DAMAGED}"
        )
    return content["studies"]


@contextmanager
def lock_registry(path: Path) -> Iterator[None]:
    """Wait until no other process changes this file, and keep others waiting meanwhile."""
    # A lock of its own: the JSON file is replaced by each write, and a lock on what was replaced
    # guards nothing.
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = open_lock(path.with_suffix(".lock"))
    except OSError as error:
        raise RunError(
            f"{path.parent}: cannot hold the registry of trials: {error.strerror}; "
            f"set {ENVIRONMENT_VARIABLE} to another folder"
        ) from None
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _write(path: Path, content: dict[str, Any]) -> None:
    try:
        write_json(path, content)
    except OSError as error:
        raise RunError(
            f"{path}: the registry of trials cannot be written: {error.strerror}"
        ) from None


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
