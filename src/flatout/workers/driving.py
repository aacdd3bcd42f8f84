"""Workers at work: started together, fed until nothing is left to do, and ended together."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from flatout.learners.jobs import Chunk, Job, WorkOrder
from flatout.workers.process_worker import ProcessWorker
from flatout.workers.slots import Slot
from flatout.workers.worker import Worker

Until = Sequence[int]  # per lane: advance to this many updates


@contextlib.contextmanager
def start_workers(
    slots: Sequence[Slot], jobs: Sequence[Sequence[Job]], logs: Path
) -> Iterator[list[Worker]]:
    """One worker per slot with its jobs, ended on the way out; their messages go to
    `logs/worker-K.log`.
    """
    with contextlib.ExitStack() as stack:
        workers: list[Worker] = []
        for k, (slot, own) in enumerate(zip(slots, jobs, strict=True)):
            workers.append(ProcessWorker(slot, own, logs / f"worker-{k}.log"))
            stack.callback(workers[-1].stop)
        yield workers


def drive_workers(
    workers: Sequence[Worker],
    next_until: Callable[[int, Chunk], Until | None],
    on_chunk: Callable[[int, Chunk], None],
) -> None:
    """Feed workers that have one job each until none has more to do.

    `on_chunk(worker, chunk)` is called with every chunk, also with the one that a checkpoint ended
    with; `next_until(worker, chunk)` gives how far the worker shall go next, None if it is done.
    """
    open_workers: dict[Any, int] = {worker.connection: k for k, worker in enumerate(workers)}
    while open_workers:
        for connection in wait(list(open_workers)):
            k = open_workers.pop(connection)
            for chunk in workers[k].answer():
                on_chunk(k, chunk)
                until = next_until(k, chunk)
                if until is None:
                    break
                workers[k].ask(WorkOrder(tuple(until)))
            else:
                open_workers[workers[k].connection] = k


def run_scripts(
    workers: Sequence[Worker], scripts: Sequence[Sequence[WorkOrder]]
) -> list[list[Chunk]]:
    """The answers to each script of orders, in order. Scripts are dealt out: each stays on one
    worker, and begins with lanes that begin. One that a death interrupts is begun again.
    """
    left = [list(range(n, len(scripts), len(workers))) for n in range(len(workers))]
    found: list[list[Chunk]] = [[] for _ in scripts]

    def ask_next(worker: Worker, mine: Sequence[int]) -> None:
        if mine and worker.ready:
            worker.ask(scripts[mine[0]][len(found[mine[0]])])

    for worker, mine in zip(workers, left, strict=True):
        ask_next(worker, mine)
    while any(left):
        busy: dict[Any, int] = {workers[n].connection: n for n, mine in enumerate(left) if mine}
        for connection in wait(list(busy)):
            worker, mine = workers[busy[connection]], left[busy[connection]]
            started = worker.ready is None
            answer = worker.answer()
            if answer and not started:
                found[mine[0]] += answer
                if len(found[mine[0]]) == len(scripts[mine[0]]):
                    mine.pop(0)
            elif not answer:
                found[mine[0]] = []
            ask_next(worker, mine)
    return found
