"""Workers at work: started together, fed until nothing is left to do, and ended together."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from flatout.learners.jobs import Chunk, Job, Order
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
    heard: Callable[[int, Chunk], None],
) -> None:
    """Feed workers that have one job each until none has more to do.

    `heard(worker, chunk)` is told of every chunk, also of the one that a checkpoint ended with;
    `next_until` says how far the worker shall go next, None if it is done.
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


def run_scripts(workers: Sequence[Worker], scripts: Sequence[Sequence[Order]]) -> list[list[Chunk]]:
    """The answers to scripts of orders, dealt to the workers: a script stays on one worker, and
    begins with lanes that begin. One that a death interrupts is begun again.
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
