"""The books of a crawl: how many requests were sent, what came of each, and the file that stops it.

A request is entered before it is sent, by one write to the operating system: a killed process gives nothing back.
"""

import fcntl
import json
import os
import unicodedata
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, Self

from flatout.errors import RunError, SettingsError

BUDGET_FILE = "requests.log"
AUDIT_FILE = "audit.jsonl"
STOP_FILE = "STOP"


def printable(text: str, longest: int = 2000) -> str:
    """Foreign text without what could steer a terminal or hide: control, format and lone surrogate characters."""
    if text.isascii() and text.isprintable():
        return text[:longest]
    return "".join(c for c in text[:longest] if unicodedata.category(c)[0] != "C" and c not in "\u2028\u2029")


def held(path: Path) -> int:
    """The descriptor of a file that only grows, held by one process at a time."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise RunError(f"{path}: cannot be written: {error.strerror}; give another run directory") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise RunError(f"{path}: another crawl is using this run directory; stop it or give another") from None
    return handle


class AppendOnly:
    """A file that only grows, one line per write, held by one process at a time."""

    def __init__(self, path: Path) -> None:
        self.handle, self.path = held(path), path
        size = os.fstat(self.handle).st_size
        if size and os.pread(self.handle, 1, size - 1) != b"\n":
            self.write(b"")  # end the line that a killed process left half written

    def write(self, line: bytes) -> None:
        """Add a line; raises if it could not be added whole."""
        line += b"\n"
        if os.write(self.handle, line) != len(line):
            raise RunError(f"{self.path}: the disk is full; free some space and go on")

    def close(self) -> None:
        """Let go of the file; twice does no harm."""
        handle, self.handle = self.handle, -1
        if handle >= 0:
            os.close(handle)


class RequestBudget:
    """How many requests may still be sent, in all and per host. What was spent survives restarts."""

    def __init__(self, run: Path, total: int, per_host: int | None = None) -> None:
        per_host = total if per_host is None else per_host
        if total < 0 or per_host < 0:
            raise SettingsError(f"a budget of {total} requests, {per_host} per host: both must be 0 or more")
        self.total, self.per_host, self.stop_file = total, per_host, run / STOP_FILE
        self.log = AppendOnly(run / BUDGET_FILE)
        with self.log.path.open("rb") as lines:
            self.hosts = Counter(line.rstrip(b"\n").decode(errors="replace") for line in lines)
        self.spent = self.hosts.total()

    @property
    def stopped(self) -> bool:
        """Whether the kill file is there; asked before every request, and `Path.exists` is slow to say no."""
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
        return f"all {self.per_host} requests for {host} are spent" if self.hosts[host] >= self.per_host else ""

    def take(self, host: str) -> str:
        """Enter one request that is about to be sent; or say why it must not be."""
        why = self.refusal(host)
        if not why:
            self.log.write(host.encode())  # first the file: if this fails, nothing is sent
            self.hosts[host] += 1
            self.spent += 1
        return why

    def close(self) -> None:
        """Let go of the file."""
        self.log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Entry(NamedTuple):
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

    def write(self, entry: Entry) -> None:
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
        """Let go of the file."""
        self.log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
