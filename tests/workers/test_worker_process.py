"""The worker's side of the connection, without a device: orders are taken as they come and answered
in their order.
"""

import subprocess
import sys
import threading
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from flatout.learners.jobs import Chunk, Ready, WorkOrder
from flatout.workers import worker_process

LARGE = np.zeros(2**20, np.float32)  # 4 MiB, more than any connection holds
CHUNK = Chunk(*[0] * 7)


class EchoBatch:
    """Answers every order with as much as it was given."""

    def __init__(self, job: int) -> None:
        self.programs, self.state = SimpleNamespace(working_bytes=job), SimpleNamespace(last=CHUNK)

    def advance(self, order: WorkOrder) -> Chunk:
        return CHUNK._replace(job=order.job, round=order.round, traces=order.new_lanes)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The driver's end of a connection that is served in a thread."""
    monkeypatch.setattr(
        worker_process, "make_lane_batches", lambda jobs: [EchoBatch(job) for job in jobs]
    )
    ours, theirs = Pipe()
    server = threading.Thread(target=worker_process.serve, args=(theirs, [0, 1, 2]), daemon=True)
    server.start()
    assert isinstance(ours.recv(), Ready)
    yield ours
    ours.close()
    server.join(60)
    assert not server.is_alive()  # the end of the connection is the end of the service
    theirs.close()


def test_large_orders_do_not_wait_for_large_answers(driver: Connection) -> None:
    """A driver sends the next round before it reads the last one's answer; neither side may block
    the other for good.
    """
    orders = [
        WorkOrder((1,), job=k % 3, round=k, new_lanes=LARGE)  # type: ignore[arg-type]
        for k in range(4)
    ]
    sender = threading.Thread(target=lambda: [driver.send(order) for order in orders], daemon=True)
    sender.start()
    sender.join(60)
    assert not sender.is_alive()
    for order in orders:
        assert driver.poll(60)
        chunk = driver.recv()
        assert (chunk.job, chunk.round, chunk.traces.nbytes) == (
            order.job,
            order.round,
            LARGE.nbytes,
        )
        assert chunk.peak_bytes > 0


def test_the_service_ends_with_the_connection(driver: Connection) -> None:
    driver.send(WorkOrder((1,), round=5))
    assert driver.recv().round == 5


def test_a_worker_of_a_large_driver_is_not_large() -> None:
    ballast = np.ones(
        2**25
    )  # 256 MiB, held by this process while the other one starts; that one takes 50 for itself
    code = "from flatout.workers.worker_process import peak_bytes; print(peak_bytes())"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 2**24 < int(ended.stdout) < ballast.nbytes
