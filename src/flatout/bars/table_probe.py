"""The process that reads Parquet and Feather files before anyone else does, within limits of
memory.

A damaged file can end the reader's whole process, or print what no user understands; here it ends
this one, whose output nobody sees. A line of JSON asks and the file's bytes follow it; a line of
JSON answers: what is wrong, or null.
"""

import json
import sys

import polars as pl

from flatout.children import limit_memory

MOST_COLUMNS = 10_000
FREE_ROWS = 1_000_000  # a file with more has at least a byte for each
FREE_BYTES = 512 << 20  # of memory for reading, and a multiple of the file's size
TIMES_SIZE = 30


def serve() -> None:
    """Answer requests on standard input until it ends."""
    asked, answers = sys.stdin.buffer, sys.stdout
    print(json.dumps("ready"), flush=True)
    for line in asked:
        request = json.loads(line)
        content = asked.read(request["bytes"])
        limit_memory(FREE_BYTES + TIMES_SIZE * len(content))
        print(json.dumps(fault_of(content, request["suffix"])), file=answers, flush=True)


def fault_of(content: bytes, suffix: str) -> str | None:
    """Why a table file cannot be used, or None."""
    try:
        scan = pl.scan_parquet(content) if suffix == ".parquet" else pl.scan_ipc(content)
        if len(scan.collect_schema()) > MOST_COLUMNS:
            return f"it has more than {MOST_COLUMNS:,} columns"
        rows = scan.select(pl.len()).collect().item()
        if rows > FREE_ROWS + len(content):
            return f"its {len(content):,} bytes claim {rows:,} rows: it would fill the memory"
        read_table(content, suffix)
    except pl.exceptions.PanicException:  # its text speaks of the reader's own code
        return "it is damaged"
    except Exception as error:  # what is raised for damaged files is not documented
        return next(iter(str(error).splitlines()), "") or type(error).__name__
    return None


def read_table(content: bytes, suffix: str) -> pl.DataFrame:
    """The table in the bytes of a Parquet or Feather file."""
    return pl.read_parquet(content) if suffix == ".parquet" else pl.read_ipc(content)


if __name__ == "__main__":
    serve()
