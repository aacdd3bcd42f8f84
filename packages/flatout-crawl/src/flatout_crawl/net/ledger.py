"""The books of a crawl: how many requests were sent, what came of each, and the file that stops it.

A request is entered before it is sent, by one write to the operating system: a killed process gives
nothing back.
"""

import errno
import fcntl
import json
import os
import stat
import unicodedata
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, NamedTuple, Self

from flatout.errors import RunError, SettingsError

BUDGET_FILE = "requests.log"
AUDIT_FILE = "audit.jsonl"
STOP_FILE = "STOP"
LONGEST_LINE = 8 << 20  # bytes; a robots.txt as JSON is 3 MB at most
LONGEST_HOST = 300
MOST_LOG_BYTES = 1 << 30  # of the log of requests


def printable(text: str, longest: int = 2000) -> str:
    """Foreign text without what could steer a terminal or hide: control, format and lone surrogate
    characters.
    """
    if text.isascii() and text.isprintable():
        return text[:longest]
    return "".join(
        c for c in text[:longest] if unicodedata.category(c)[0] != "C" and c not in "\u2028\u2029"
    )


def hold_file(path: Path) -> int:
    """The descriptor of a file that only grows, held by one process at a time. Links are not
    followed, nor pipes waited for.
    """
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        handle = os.open(path, flags, 0o644)
    except OSError as error:
        why = "it is a symbolic link" if error.errno == errno.ELOOP else error.strerror
        raise RunError(f"{path}: cannot be written: {why}; give another run directory") from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise RunError(f"{path}: is no file; remove it, or give another run directory")
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise RunError(
            f"{path}: another crawl is using this run directory; stop it or give another"
        ) from None
    return handle


def bounded_lines(file: IO[bytes], longest: int = LONGEST_LINE) -> Iterator[bytes]:
    """The lines of a file, of each no more than this: a file of zeros is one line, however
    large.
    """
    begun = False
    while piece := file.readline(longest):
        if not begun:
            yield piece
        begun = not piece.endswith(b"\n")


def append(handle: int, path: Path, line: bytes) -> None:
    """Add a line by one write; raises if it could not be added whole."""
    try:
        written = os.write(handle, line)
    except OSError as error:
        raise RunError(
            f"{path}: cannot be written: {error.strerror}; free some space and go on"
        ) from None
    if written != len(line):
        raise RunError(f"{path}: the disk is full; free some space and go on")


class AppendOnly:
    """A file that only grows, one line per write, held by one process at a time."""

    def __init__(self, path: Path) -> None:
        self.handle, self.path = hold_file(path), path
        size = os.fstat(self.handle).st_size
        if size and os.pread(self.handle, 1, size - 1) != b"\n":
            self.write(b"")  # end the line that a killed process left half written

    def write(self, line: bytes) -> None:
        """Add a line; raises if it could not be added whole."""
        append(self.handle, self.path, line + b"\n")

    def close(self) -> None:
        """Let go of the file; twice does no harm."""
        handle, self.handle = self.handle, -1
        if handle >= 0:
            os.close(handle)


def requests_sent(path: Path) -> Counter[str]:
    """How many requests a run's log tells of, by host."""
    if not path.is_file():
        return Counter()
    if path.stat().st_size > MOST_LOG_BYTES:
        raise RunError(
            f"{path}: has more than {MOST_LOG_BYTES:,} bytes, as no crawl has; begin in "
            f"another folder"
        )
    with path.open(
        "rb"
    ) as lines:  # of which a forged one may be long; it is one request all the same
        cut = (line[:LONGEST_HOST].rstrip(b"\n") for line in bounded_lines(lines))
        return Counter(printable(line.decode(errors="replace")) for line in cut)


class RequestBudget:
    """How many requests may still be sent, in all and per host. What was spent survives
    restarts.
    """

    def __init__(self, run: Path, total: int, per_host: int | None = None) -> None:
        per_host = total if per_host is None else per_host
        if total < 0 or per_host < 0:
            raise SettingsError(
                f"a budget of {total} requests, {per_host} per host: both must be 0 or more"
            )
        self.total, self.per_host, self.stop_file = total, per_host, run / STOP_FILE
        self.log = AppendOnly(run / BUDGET_FILE)
        try:
            self.hosts = requests_sent(self.log.path)
        except RunError:
            self.log.close()
            raise
        self.spent = self.hosts.total()

    @property
    def stopped(self) -> bool:
        """Whether the kill file is there; asked before every request, and `Path.exists` is slow to
        say no.
        """
        return os.access(self.stop_file, os.F_OK)

    @property
    def left(self) -> int:
        """Requests that may still be sent; 0 if the kill file is there."""
        return 0 if self.stopped else max(0, self.total - self.spent)

    def refusal(self, host: str) -> str:
        """Why no request may be sent to this host; "" if one may."""
        if self.stopped:
            return f"{self.stop_file} is there"
        if self.spent >= self.total:
            return f"all {self.total} requests are spent"
        return (
            f"all {self.per_host} requests for {host} are spent"
            if self.hosts[host] >= self.per_host
            else ""
        )

    def take(self, host: str) -> str:
        """Enter one request that is about to be sent; or say why it must not be."""
        why = self.refusal(host)
        if not why:
            self.log.write(host.encode())  # first the file: if this fails, nothing is sent
            self.hosts[host] += 1
            self.spent += 1
        return why

    def close(self) -> None:
        """Close the file; it can be held by others then."""
        self.log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AuditEntry(NamedTuple):
    """One request in the audit log."""

    method: str
    url: str
    address: str  # dialled; "" if it came to none
    status: int
    bytes: int  # of the body, as they came
    seconds: float
    failure: str


class AuditLog:
    """One line of JSON per request that was entered in the budget."""

    def __init__(self, run: Path) -> None:
        self.log = AppendOnly(run / AUDIT_FILE)

    def write(self, entry: AuditEntry) -> None:
        """Add a line; foreign text is stripped of control characters."""
        line = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "method": entry.method,
            "url": printable(entry.url),
            "address": printable(entry.address),
            "status": entry.status,
            "bytes": entry.bytes,
            "seconds": round(entry.seconds, 4),
            "failure": printable(entry.failure),
        }
        self.log.write(json.dumps(line).encode())

    def close(self) -> None:
        """Close the file; it can be held by others then."""
        self.log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
