"""How flatout starts Python programs of its own, and on which cores they may run."""

import os
import sys

__all__ = ["own_program"]


def own_program(module: str, *words: str) -> list[str]:
    """The command that runs a module of flatout. -P keeps the current folder off the import path: a
    file that lies there, perhaps beside downloaded bars, must not be taken for a library.

    >>> own_program("json.tool", "--indent", "2")[1:]
    ['-P', '-m', 'json.tool', '--indent', '2']
    """
    return [sys.executable, "-P", "-m", module, *words]


def available_cores() -> list[int]:
    """The cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))
