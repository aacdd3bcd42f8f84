"""How flatout starts Python programs of its own, on which cores they may run, and how much memory
they may take.
"""

import os
import resource
import sys
from pathlib import Path

__all__ = ["foreign_program", "own_program"]


def own_program(module: str, *words: str) -> list[str]:
    """The command that runs a module of flatout. -P keeps the current folder off the import path: a
    file that lies there, perhaps beside downloaded bars, must not be taken for a library.

    >>> own_program("json.tool", "--indent", "2")[1:]
    ['-P', '-m', 'json.tool', '--indent', '2']
    """
    return [sys.executable, "-P", "-m", module, *words]


def foreign_program(python: Path, file: Path, *words: str) -> list[str]:
    """The command that runs a file with another interpreter, which has libraries that must not be
    installed beside flatout. -I keeps this one's import path and the current folder from it.

    >>> foreign_program(Path("python3"), Path("learn.py"), "folder")
    ['python3', '-I', 'learn.py', 'folder']
    """
    return [str(python), "-I", str(file), *words]


def available_cores() -> list[int]:
    """The cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def limit_memory(more_bytes: int) -> None:
    """Let this process take no more memory than so many bytes beyond what it uses now; a request
    for more fails. Where the system does not tell what is in use, there is no limit.
    """
    used = Path("/proc/self/statm")
    if used.exists():
        pages = int(used.read_text().split()[5])  # of data: addresses only reserved do not count
        limit = pages * os.sysconf("SC_PAGE_SIZE") + more_bytes
        _, most = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, most))
