"""Worker processes as the system sees them: found, watched and killed."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path


def children(parent: int) -> list[int]:
    """Workers that a process has started and that live."""
    return [pid for pid, owner in processes() if owner == parent and is_worker(pid)]


def processes() -> Iterator[tuple[int, int]]:
    """(process, its parent), zombies left out."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            state, owner = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
        except OSError:  # gone in the meantime
            continue
        if state != "Z":
            yield int(entry.name), int(owner)


def is_worker(pid: int) -> bool:
    """Whether it runs the worker's module."""
    try:
        return b"flatout.workers.worker_process" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def lives(pid: int) -> bool:
    """Whether the process is there and no zombie."""
    return any(found == pid for found, _ in processes())


def kill_workers() -> list[int]:
    """Kill all workers of this process."""
    pids = children(os.getpid())
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    return pids
