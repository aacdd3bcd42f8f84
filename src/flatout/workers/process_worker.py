"""The workers of this machine, from the driver's side: one process per device, started, fed,
replaced when it dies, ended with the run.

On a CPU a worker is pinned to one core and its XLA uses one thread: several XLA devices in one
process may hang, and one program on all cores is slower than one on each. A single agent is the
exception: it has all cores for itself.
"""

import contextlib
import os
import subprocess
import sys
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from socket import socketpair

from flatout.children import own_program
from flatout.errors import RunError
from flatout.learners.jobs import Chunk, Job, Ready, WorkerFailure, WorkOrder
from flatout.workers.slots import Slot

MOST_RESTARTS = 3  # in a row without a finished chunk
WIDE = 128  # hidden units from which a network counts as large


class ProcessWorker:
    """A `Worker` that is a process of this machine: the process and the connection to it."""

    def __init__(self, slot: Slot, jobs: Sequence[Job], log: Path) -> None:
        self.slot, self.jobs, self.log = slot, tuple(jobs), log
        self.restarts = 0
        self.ready: Ready | None = None
        self.start()

    def start(self) -> None:
        """Start the process and give it its jobs."""
        self.ready = None
        ours, theirs = socketpair()
        with self.log.open("ab") as log, theirs:
            self.process = subprocess.Popen(
                own_program("flatout.workers.worker_process", str(theirs.fileno())),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                pass_fds=(theirs.fileno(),),
                env={**os.environ, **self.slot.environment, **large_pages(self.jobs)},
            )
        pin_process(self.process.pid, self.slot.cores)
        self.connection = Connection(ours.detach())
        # a dead worker shows when its answer is read
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            # an environment of the user's own is found where they found it
            self.connection.send(sys.path)
            self.connection.send(self.jobs)

    def answer(self) -> tuple[Chunk, ...]:
        """What the worker sent: a chunk; after a start the last of each job; nothing if it died and
        was started again.
        """
        try:
            message = self.connection.recv()
        except (EOFError, OSError):  # OSError: it died in the middle of a message
            self.replace()
            return ()
        if isinstance(message, WorkerFailure):
            raise RunError(self.explain(message))
        if isinstance(message, Ready):
            self.ready = message
            return message.last
        self.restarts = 0
        return (message,)

    def ask(self, order: WorkOrder) -> None:
        """Send an order, which the worker answers with a chunk."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send(order)

    def replace(self) -> None:
        """Start a new process after a death; its lanes go on from their last checkpoint."""
        code = self.process.wait()
        self.restarts += 1
        if self.restarts > MOST_RESTARTS:
            raise RunError(
                f"the worker on {self.slot.name} died {self.restarts} times in a row without "
                f"finishing a chunk (last: {explain_exit(code)}); its messages are in {self.log}"
            )
        self.stop()
        self.start()

    def stop(self) -> None:
        """End the process at once; what matters is on disk."""
        self.connection.close()
        self.process.kill()
        self.process.wait()
        if self.process.stdin:
            self.process.stdin.close()

    def explain(self, failure: WorkerFailure) -> str:
        """A failure as a sentence that says what to do where that is known."""
        if "RESOURCE_EXHAUSTED" in failure.message or failure.kind == "MemoryError":
            largest = max(self.jobs, key=lambda job: job.program.rollout * len(job.seeds))
            return (
                f"out of memory on {self.slot.name}: lower train.n_envs "
                f"({largest.program.n_envs}), train.n_steps "
                f"({largest.program.n_steps}) or the number of lanes ({len(largest.seeds)}); "
                "`flatout train --plan` forecasts what fits"
            )
        return f"the worker on {self.slot.name} failed: {failure.kind}: {failure.message}"


def large_pages(jobs: Sequence[Job]) -> dict[str, str]:
    """Ask the C library for large pages where matrices are large: faster for one worker at width
    256, slower at 64.
    """
    wide = max(max(job.program.hidden) for job in jobs) >= WIDE
    return (
        {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
        if wide and "GLIBC_TUNABLES" not in os.environ
        else {}
    )


def explain_exit(code: int) -> str:
    """Why a process ended, from its exit code, as part of a sentence."""
    if code == -9:
        return (
            "killed, perhaps for want of memory: lower train.n_envs, train.n_steps or the "
            "number of lanes"
        )
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def pin_process(pid: int, cores: Sequence[int]) -> None:
    """Keep a process on these cores, where the system can."""
    if cores and hasattr(os, "sched_setaffinity"):
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(pid, cores)
