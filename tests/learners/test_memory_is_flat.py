"""A worker's resident memory does not grow from chunk to chunk."""

import os
from pathlib import Path

import pytest

from flatout.training.metrics_file import Row
from tiny_training import run_tiny
from worker_processes import children

EARLY, CHUNKS = 20, 200


def resident_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:"))


@pytest.mark.slow
def test_resident_memory_is_flat(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    sizes: list[int] = []

    def on_rows(rows: list[Row]) -> None:
        if rows:
            (pid,) = children(os.getpid())
            sizes.append(resident_bytes(pid))

    cache = tmp_path_factory.getbasetemp() / "xla"
    run_tiny(tmp_path, cache, on_rows=on_rows, updates=CHUNKS, chunk=1)
    assert len(sizes) == CHUNKS
    assert sizes[-1] < 1.02 * sizes[EARLY - 1], [size // 1024 for size in sizes[::20]]
