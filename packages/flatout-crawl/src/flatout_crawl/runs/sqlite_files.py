"""SQLite files that others may have made: what makes SQLite write, delete or compute without end is
refused.
"""

import contextlib
import os
import sqlite3
from pathlib import Path

from flatout.errors import RunError

# how a journal ends that names a file to be deleted
SUPER_JOURNAL = bytes.fromhex("d9d505f920a163d7")
Tables = frozenset[tuple[str, ...]]


def check_neighbours(path: Path) -> None:
    """Refuse a database beside which files lie that would make SQLite write or delete something
    elsewhere.
    """
    for ending in ("-wal", "-shm", "-journal"):
        beside = Path(f"{path}{ending}")
        if beside.is_symlink():
            raise RunError(f"{beside} is a symbolic link to {beside.readlink()}; remove it")
        if beside.exists() and not beside.is_file():
            raise RunError(f"{beside} is no file; remove it")
    journal = Path(f"{path}-journal")
    with contextlib.suppress(FileNotFoundError), journal.open("rb") as file:
        file.seek(-min(len(SUPER_JOURNAL), os.fstat(file.fileno()).st_size), os.SEEK_END)
        if file.read() == SUPER_JOURNAL:
            raise RunError(f"{journal} names another file, which SQLite would delete; remove it")


def tables(base: sqlite3.Connection) -> Tables:
    """What a database is made of, however it is spaced."""
    rows = base.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema")
    return frozenset(tuple(" ".join(str(part).split()) for part in row) for row in rows)


def tables_of(schema: str) -> Tables:
    """What a database is made of that these statements make."""
    with contextlib.closing(sqlite3.connect(":memory:")) as base:
        base.executescript(schema)
        return tables(base)
