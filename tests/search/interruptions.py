"""Deaths at chosen moments: the folder of a study as a process that is killed before one of its
writes leaves it.
"""

import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from optuna.storages.journal import JournalFileBackend

from flatout.training.metrics_file import FILE, MetricsFile, Row

Wanted = Callable[[int, str], bool]  # by the write's number and what is written


class Killed(BaseException):
    """Nothing catches it, as nothing catches a kill."""


class Writes:
    """Counts what is written durably, and keeps the folder as it was before some of these writes.

    Every second death in the middle of a line, of Optuna's journal or of the metrics, leaves half
    of it; a death before a file is moved into place leaves its temporary neighbour.
    """

    def __init__(self, folder: Path, kept: Path, wanted: Wanted, mortal: bool) -> None:
        self.folder, self.kept, self.wanted, self.mortal = folder, kept, wanted, mortal
        self.count = 0
        self.copies: list[Path] = []

    def before(self, what: str, line: bytes = b"", file: str = "study.journal") -> None:
        """A write is about to happen: of the file of this name, or of such a line of a file to
        which lines are appended.
        """
        if self.mortal and self.copies:
            raise Killed  # the dead write nothing
        if self.wanted(self.count, what):
            copy = self.kept / f"{self.count:04d}"
            shutil.copytree(self.folder, copy)
            if line and self.count % 2:
                with (copy / file).open("ab") as appended:
                    appended.write(line[: len(line) // 2])
            self.copies.append(copy)
            if self.mortal:
                raise Killed
        self.count += 1


@contextmanager
def writes_to(folder: Path, kept: Path, wanted: Wanted, mortal: bool = False) -> Iterator[Writes]:
    """Watch the writes; a mortal process dies at the first wanted one."""
    writes = Writes(folder, kept, wanted, mortal)
    append, move = JournalFileBackend.append_logs, Path.replace
    append_rows = MetricsFile.append

    def watched_append(self: JournalFileBackend, logs: list[dict[str, Any]]) -> None:
        writes.before(logs[0]["op_code"].name, str(logs).encode())
        append(self, logs)

    def watched_move(self: Path, target: Path) -> Path:
        if self.is_relative_to(folder):
            writes.before(target.name)
        return move(self, target)

    def watched_rows(self: MetricsFile, rows: Iterable[Row]) -> list[Row]:
        every = list(rows)
        if every and self.path.is_relative_to(folder):
            line = json.dumps({"lane": every[0].lane, "updates": every[0].updates})
            writes.before(FILE, line.encode(), FILE)
        return append_rows(self, every)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(MetricsFile, "append", watched_rows)
        patched.setattr(JournalFileBackend, "append_logs", watched_append)
        patched.setattr(Path, "replace", watched_move)
        yield writes
