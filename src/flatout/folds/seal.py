"""The sealed hold-out: whoever looks at it is written down first, and everybody can see how often
it was opened.

Does not know the bars: it keeps the log, and the caller reads the bars once it holds an `Opening`.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from flatout.errors import RunError
from flatout.foreign import read_json_if_there
from flatout.runs import write_json

LOG = "hold_out.json"
DAMAGED = "nobody can say how often the hold-out was opened, so it stays sealed; restore the file"


class Opening(NamedTuple):
    """The permission to read the hold-out once."""

    time: str  # UTC, ISO 8601
    what: str  # opened it
    fingerprint: str  # of the bars
    times: int  # the hold-out has been opened, this one included


def open_hold_out(folder: Path, what: str, fingerprint: str) -> Opening:
    """Write down that `what` opens the hold-out of the bars with this fingerprint; the permission
    is returned only when it is on the disk.
    """
    try:
        with lock_folder(folder):
            earlier = openings(folder)
            opening = Opening(
                datetime.now(UTC).isoformat(timespec="seconds"), what, fingerprint, len(earlier) + 1
            )
            write_json(folder / LOG, [record._asdict() for record in (*earlier, opening)])
    except OSError as error:
        raise RunError(
            f"{folder / LOG}: the opening cannot be written down ({error.strerror}), so the "
            "hold-out stays sealed; make the folder writable"
        ) from None
    return opening


def openings(folder: Path) -> tuple[Opening, ...]:
    """All openings so far, oldest first. Looking at the log opens nothing."""
    return tuple(read_json_if_there(folder / LOG, list[Opening], RunError, DAMAGED) or ())


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Hold the folder for a moment: of two openings at once, neither may overwrite the other's line
    in the log.
    """
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)  # ends the lock
