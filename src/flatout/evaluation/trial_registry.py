"""The trials of all studies of this user: how many were started on which symbols and times, and
when which hold-out was opened.

One folder, and in it one JSON file per study, by an id that is made when the study begins. So a
study that is gone on with is not counted twice, and another one in a folder of the same name is
another study. Nothing is ever taken out: what was tried stays tried when a study is stopped or its
folder deleted. Trials are noted before they are trained. Counts only grow, files are replaced
whole, and a lock that ends with its process keeps two processes from losing each other's: after a
kill at any moment the registry can be read, and holds all that was started.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from pydantic import AwareDatetime, Field, TypeAdapter

from flatout.errors import RunError
from flatout.evaluation.daily_moves import DailyMoves
from flatout.evaluation.fingerprint_counts import DAMAGED
from flatout.evaluation.seen_bars import SeenBars, TimeSpan
from flatout.foreign import read_json_if_there
from flatout.runs import open_lock, sweep, write_json
from flatout.settings.fields import AtLeastOne, Count

ENVIRONMENT_VARIABLE = "FLATOUT_REGISTRY"
STUDIES, LOCK = "studies", "studies.lock"
StudyId = Annotated[str, Field(pattern="^[0-9a-f]{32}$")]


@dataclass(frozen=True)
class HoldOutLook:
    """One opening of a study's hold-out."""

    time: AwareDatetime
    what: str  # it was opened for


@dataclass(frozen=True)
class StudyRecord:
    """What the registry knows of a study."""

    id: StudyId
    folder: str  # for people: it may be gone
    fingerprint: str
    symbols: Annotated[tuple[str, ...], Field(min_length=1)]
    bar_seconds: AtLeastOne
    judged: TimeSpan  # what trials were chosen by
    hold_out: TimeSpan | None
    begun: AwareDatetime
    # how an earlier version called the study in its own count of trials, which holds it too
    counted_as: str | None = None
    trials: Count = 0  # started so far
    openings: tuple[HoldOutLook, ...] = ()
    # of each symbol, before the hold-out: other names do not make it another market
    daily_moves: dict[str, DailyMoves] = field(default_factory=dict)

    @property
    def judged_bars(self) -> SeenBars:
        """The bars that its trials were judged by."""
        return SeenBars(self.symbols, self.judged)

    @property
    def sealed_bars(self) -> SeenBars | None:
        """Its hold-out, whether opened or not."""
        return SeenBars(self.symbols, self.hold_out) if self.hold_out else None

    def list_seen(self) -> list[SeenBars]:
        """What it has shown to whoever ran it: the judged bars, and the hold-out once opened."""
        return [
            self.judged_bars,
            *([self.sealed_bars] if self.sealed_bars and self.openings else []),
        ]


RECORD = TypeAdapter(StudyRecord)


@dataclass(frozen=True)
class StudyEntry:
    """A study's own place in a registry."""

    registry: Path
    record: StudyRecord  # as it was when the study was opened

    def note_trials(self, count: int) -> None:
        """Set how many trials the study has started so far; a smaller count than the noted one
        changes nothing. They are on the disk when this returns.
        """
        if not isinstance(count, int) or isinstance(count, bool) or count < 0:
            raise RunError(
                f"the count of study {self.record.folder!r} is {count!r}; it is a whole number of "
                "trials, 0 or more"
            )
        with lock_registry(self.registry):
            known = self.read()
            if known is None or count > known.trials:
                known = known or self.record
                self.write(replace(known, trials=max(count, known.trials)))

    def note_opening(self, what: str) -> HoldOutLook:
        """Note that the study's hold-out is opened for somebody, before it is."""
        look = HoldOutLook(datetime.now(UTC), what)
        with lock_registry(self.registry):
            known = self.read() or self.record
            self.write(replace(known, openings=(*known.openings, look)))
        return look

    def check_registry(self) -> None:
        """Refuse a registry that is damaged or cannot be written, before any work rests on it; what
        killed writers left there is removed.
        """
        with lock_registry(self.registry):
            sweep(self.registry / STUDIES)
            read_records(self.registry)

    def read(self) -> StudyRecord | None:
        """The record as it is now; None before anything was noted."""
        return read_record(record_file(self.registry, self.record.id))

    def write(self, record: StudyRecord) -> None:
        """Replace the record; the caller holds the lock."""
        path = record_file(self.registry, record.id)
        try:
            write_json(path, RECORD.dump_python(record, mode="json"))
        except OSError as error:
            raise RunError(
                f"{path}: the registry of trials cannot be written: {error.strerror}"
            ) from None


def registry_folder(setting: str | None = None) -> Path:
    """$FLATOUT_REGISTRY, else what the settings say, else flatout/trials under $XDG_DATA_HOME, else
    under ~/.local/share.
    """
    given = os.environ.get(ENVIRONMENT_VARIABLE) or setting
    if given:
        return Path(given).expanduser()
    data = Path(os.environ.get("XDG_DATA_HOME", ""))
    # The XDG specification says to ignore a relative path.
    return (data if data.is_absolute() else Path.home() / ".local" / "share") / "flatout" / "trials"


def read_records(registry: Path) -> list[StudyRecord]:
    """All studies of a registry, the first to begin first; none if there is no such folder."""
    found = [read_record(path) for path in (registry / STUDIES).glob("*.json")]
    return sorted(filter(None, found), key=lambda record: (record.begun, record.id))


def read_record(path: Path) -> StudyRecord | None:
    """A study's record, or None. One that cannot be understood is never taken for none."""
    record = read_json_if_there(path, StudyRecord, RunError, DAMAGED)
    if record is None:
        return None
    spans = [record.judged, *([record.hold_out] if record.hold_out else [])]
    if record.id != path.stem or any(span.first >= span.end for span in spans):
        raise RunError(f"{path}: is not of this study, or ends before it begins; {DAMAGED}")
    return record


def record_file(registry: Path, study: str) -> Path:
    """The file of a study, whether it exists or not."""
    return registry / STUDIES / f"{study}.json"


@contextmanager
def lock_registry(registry: Path) -> Iterator[None]:
    """Wait until no other process changes the registry, and keep others waiting meanwhile."""
    # A lock of its own: files are replaced by each write, and a lock on what was replaced guards
    # nothing.
    try:
        (registry / STUDIES).mkdir(parents=True, exist_ok=True)
        lock = open_lock(registry / LOCK)
    except OSError as error:
        raise RunError(
            f"{registry}: cannot hold the registry of trials: {error.strerror}; set "
            f"search.registry or {ENVIRONMENT_VARIABLE} to another folder"
        ) from None
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
