"""What a driver asks of a worker, whoever launches it: a process on this machine, or another
machine's.

A launcher makes something with these names; `driving.py` and `search/` know nothing else of it.
"""

from collections.abc import Sequence
from typing import Protocol

from flatout.learners.jobs import Chunk, Job, Order, Ready
from flatout.workers.slots import Slot


class Waitable(Protocol):
    """What `multiprocessing.connection.wait` can wait for."""

    def fileno(self) -> int:
        """The file descriptor that becomes readable when the worker has said something."""
        ...


class Worker(Protocol):
    """The lanes of some jobs on one device, advanced by orders; their state survives the worker on
    disk.
    """

    @property
    def slot(self) -> Slot:
        """Where it runs."""
        ...

    @property
    def jobs(self) -> Sequence[Job]:
        """The jobs whose lanes it holds."""
        ...

    @property
    def ready(self) -> Ready | None:
        """What it said when its programs were compiled; None before, also after a death."""
        ...

    @property
    def connection(self) -> Waitable:
        """Readable when there is an answer; another one after a death."""
        ...

    def ask(self, order: Order) -> None:
        """Order a chunk. A worker that has died shows when it is listened to."""
        ...

    def answer(self) -> tuple[Chunk, ...]:
        """What it sent: a chunk; after a start the last of each job; nothing if it died and was
        started again.
        """
        ...

    def stop(self) -> None:
        """End it at once; what matters is on disk."""
        ...
