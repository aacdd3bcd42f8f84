"""What a driver asks of a worker, whoever launches it: a process on this machine, or another
machine's.

A launcher makes something with these names; `driving.py` and `search/` know nothing else of it.
What a worker must keep to is tested by tests/workers/test_worker_protocol.py, for any launcher.
"""

from collections.abc import Sequence
from typing import Protocol

from flatout.learners.jobs import Chunk, Job, Ready, WorkOrder
from flatout.workers.slots import Slot


class Waitable(Protocol):
    """What `multiprocessing.connection.wait` can wait for."""

    def fileno(self) -> int:
        """The file descriptor that becomes readable when the worker has sent something."""
        ...


class Worker(Protocol):
    """The lanes of some jobs on one device, advanced by orders; their state survives the worker on
    disk.
    """

    @property
    def slot(self) -> Slot:
        """Where it runs: its device or cores."""
        ...

    @property
    def jobs(self) -> Sequence[Job]:
        """The jobs whose lanes it holds."""
        ...

    @property
    def ready(self) -> Ready | None:
        """Its first message, sent when its programs are compiled; None before it is read, and
        again after a death.
        """
        ...

    @property
    def connection(self) -> Waitable:
        """Readable when there is an answer; another one after a death."""
        ...

    def ask(self, order: WorkOrder) -> None:
        """Send an order, which it answers with a chunk; orders are answered in their order. That
        a worker has died shows when its answer is read.
        """
        ...

    def answer(self) -> tuple[Chunk, ...]:
        """What it sent, waiting for it if need be: a chunk; after a start the last of each job;
        nothing if it died and was started again, when all that was asked of it is to be asked anew.

        Raises RunError where it failed, or dies again and again.
        """
        ...

    def stop(self) -> None:
        """End it at once; what matters is on disk."""
        ...
