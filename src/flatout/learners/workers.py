"""The driver's side of the workers: one process per device, started, fed, replaced when it dies, ended with the run.

On a CPU a worker is pinned to one core and its XLA uses one thread: several XLA devices in one process may hang, and
one program on all cores is slower than one on each. A single agent is the exception: it has all cores for itself.
"""

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from multiprocessing.connection import Connection, wait
from pathlib import Path
from socket import socketpair
from typing import Any

from flatout.children import own_program
from flatout.errors import RunError
from flatout.learners.jobs import Chunk, Failure, Job, Order, Ready

DEVICE = "FLATOUT_TORCH_DEVICE"  # tells a worker which device PyTorch shall use
MOST_RESTARTS = 3  # in a row without a finished chunk
ONE_THREAD = "--xla_cpu_multi_thread_eigen=false"
WIDE = 128  # hidden units from which a network counts as large
# Compiled programs are kept between runs; a user's own choice of folder wins.
CACHE_FOLDER = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "flatout"
CACHE = {
    "JAX_COMPILATION_CACHE_DIR": os.environ.get("JAX_COMPILATION_CACHE_DIR", str(CACHE_FOLDER / "xla")),
    # PyTorch would keep and run libraries in the folder for temporary files, which all users of a machine share.
    "TORCHINDUCTOR_CACHE_DIR": os.environ.get("TORCHINDUCTOR_CACHE_DIR", str(CACHE_FOLDER / "inductor")),
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "1",
}
Until = Sequence[int]  # per lane: advance to this many updates


@dataclass(frozen=True)
class Slot:
    """Where a worker runs."""

    name: str
    cores: tuple[int, ...] = ()  # pinned to these; () = anywhere
    environment: Mapping[str, str] = field(default_factory=dict)


def cpu_slots(lanes: int, workers: int | None = None) -> list[Slot]:
    """One slot per core, but not more than lanes; a single lane gets all cores."""
    cores = available_cores()
    count = min(lanes, workers or len(cores))
    environment = {"JAX_PLATFORMS": "cpu", **CACHE}
    if count == 1:
        return [Slot("cpu", tuple(cores), environment)]
    environment["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {ONE_THREAD}".strip()
    pinned = [cores[k % len(cores)] for k in range(count)]
    return [Slot(f"cpu core {core}", (core,), environment) for core in pinned]


def available_cores() -> list[int]:
    """The cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def shares(lanes: int, slots: int) -> list[range]:
    """Which lanes each slot gets, as evenly as possible."""
    bounds = [k * lanes // slots for k in range(slots + 1)]
    return [range(first, stop) for first, stop in pairwise(bounds)]


class Worker:
    """One process and the connection to it."""

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
                own_program("flatout.learners.worker", str(theirs.fileno())),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                pass_fds=(theirs.fileno(),),
                env={**os.environ, **self.slot.environment, **large_pages(self.jobs)},
            )
        pin(self.process.pid, self.slot.cores)
        self.connection = Connection(ours.detach())
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # a dead worker shows when it is asked
            self.connection.send(sys.path)  # an environment of the user's own is found where they found it
            self.connection.send(self.jobs)

    def answer(self) -> tuple[Chunk, ...]:
        """What the worker sent: a chunk; after a start the last of each job; nothing if it died and was started
        again.
        """
        try:
            told = self.connection.recv()
        except (EOFError, OSError):  # OSError: it died in the middle of a message
            self.replace()
            return ()
        if isinstance(told, Failure):
            raise RunError(self.explain(told))
        if isinstance(told, Ready):
            self.ready = told
            return told.last
        self.restarts = 0
        return (told,)

    def ask(self, order: Order) -> None:
        """Order a chunk."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send(order)

    def replace(self) -> None:
        """Start a new process after a death; its lanes go on from their last checkpoint."""
        code = self.process.wait()
        self.restarts += 1
        if self.restarts > MOST_RESTARTS:
            raise RunError(
                f"the worker on {self.slot.name} died {self.restarts} times in a row without finishing a chunk "
                f"(last: {cause(code)}); its messages are in {self.log}"
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

    def explain(self, failure: Failure) -> str:
        """A failure as a sentence."""
        if "RESOURCE_EXHAUSTED" in failure.message or failure.kind == "MemoryError":
            largest = max(self.jobs, key=lambda job: job.program.rollout * len(job.seeds))
            return (
                f"out of memory on {self.slot.name}: lower train.n_envs ({largest.program.n_envs}), train.n_steps "
                f"({largest.program.n_steps}) or the number of lanes ({len(largest.seeds)}); "
                "`--plan` forecasts what fits"
            )
        return f"the worker on {self.slot.name} failed: {failure.kind}: {failure.message}"


@contextlib.contextmanager
def hired(slots: Sequence[Slot], jobs: Sequence[Sequence[Job]], logs: Path) -> Iterator[list[Worker]]:
    """One worker per slot with its jobs, ended on the way out; their messages go to `logs/worker-K.log`."""
    with contextlib.ExitStack() as stack:
        workers: list[Worker] = []
        for k, (slot, own) in enumerate(zip(slots, jobs, strict=True)):
            workers.append(Worker(slot, own, logs / f"worker-{k}.log"))
            stack.callback(workers[-1].stop)
        yield workers


def large_pages(jobs: Sequence[Job]) -> dict[str, str]:
    """Ask the C library for large pages where matrices are large: faster for one worker at width 256, slower at 64."""
    wide = max(max(job.program.hidden) for job in jobs) >= WIDE
    return {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"} if wide and "GLIBC_TUNABLES" not in os.environ else {}


def cause(code: int) -> str:
    """Why a process ended."""
    if code == -9:
        return "killed, perhaps for want of memory: lower train.n_envs, train.n_steps or the number of lanes"
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def pin(pid: int, cores: Sequence[int]) -> None:
    """Keep a process on these cores, where the system can."""
    if cores and hasattr(os, "sched_setaffinity"):
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(pid, cores)


def drive(
    workers: Sequence[Worker],
    next_until: Callable[[int, Chunk], Until | None],
    heard: Callable[[int, Chunk], None],
) -> None:
    """Feed workers that have one job each until none has more to do.

    `heard(worker, chunk)` is told of every chunk, also of the one that a checkpoint ended with; `next_until` says how
    far the worker shall go next, None if it is done.
    """
    open_workers: dict[Any, int] = {worker.connection: k for k, worker in enumerate(workers)}
    while open_workers:
        for connection in wait(list(open_workers)):
            k = open_workers.pop(connection)
            for chunk in workers[k].answer():
                heard(k, chunk)
                until = next_until(k, chunk)
                if until is None:
                    break
                workers[k].ask(Order(tuple(until)))
            else:
                open_workers[workers[k].connection] = k


def carry_out(workers: Sequence[Worker], scripts: Sequence[Sequence[Order]]) -> list[list[Chunk]]:
    """The answers to scripts of orders, dealt to the workers: a script stays on one worker, and begins with lanes that
    begin. One that a death interrupts is begun again.
    """
    left = [list(range(n, len(scripts), len(workers))) for n in range(len(workers))]
    found: list[list[Chunk]] = [[] for _ in scripts]

    def ask(worker: Worker, mine: Sequence[int]) -> None:
        if mine and worker.ready:
            worker.ask(scripts[mine[0]][len(found[mine[0]])])

    for worker, mine in zip(workers, left, strict=True):
        ask(worker, mine)
    while any(left):
        heeded: dict[Any, int] = {workers[n].connection: n for n, mine in enumerate(left) if mine}
        for connection in wait(list(heeded)):
            worker, mine = workers[heeded[connection]], left[heeded[connection]]
            started = worker.ready is None
            told = worker.answer()
            if told and not started:
                found[mine[0]] += told
                if len(found[mine[0]]) == len(scripts[mine[0]]):
                    mine.pop(0)
            elif not told:
                found[mine[0]] = []
            ask(worker, mine)
    return found
