"""How flatout starts Python programs of its own."""

import sys


def own_program(module: str, *words: str) -> list[str]:
    """The command that runs a module of flatout. -P keeps the current folder off the import path: a file that lies
    there, perhaps beside downloaded bars, must not be taken for a library.
    """
    return [sys.executable, "-P", "-m", module, *words]
