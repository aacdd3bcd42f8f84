"""The conductor: feeds workers with the turns of one or several studies until all are done.

Each worker has the orders of two turns of every study: the one it works on and those that wait in
its connection. Studies take turns, so they share the devices fairly. Answers are processed strictly
in the order of turns: which trial is asked for depends on what was told before, never on which
worker was faster.
"""

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from flatout.learners.jobs import Chunk, Order
from flatout.search.dead_knobs import prove_live
from flatout.search.finalists import close, is_closed
from flatout.search.lane_layout import CREWS
from flatout.search.storage import keep_lease
from flatout.search.study import Study
from flatout.search.study_state import Decision
from flatout.training.training import shared_files
from flatout.workers.driving import start_workers
from flatout.workers.slots import Slot
from flatout.workers.worker import Worker

JOBS = CREWS + 1  # of a study on a worker
STOP = "stop"  # a file of this name in a study's folder ends it after the current turn
Heard = Callable[[Study, list[Decision]], None]
Said = Callable[[Study, str], None]


def conduct(
    studies: Sequence[Study], slots: Sequence[Slot], logs: Path, heard: Heard, said: Said
) -> None:
    """Run all studies to their ends, closing included, or until they are told to stop."""
    for study in studies:
        (study.folder / STOP).unlink(missing_ok=True)
        study.begin()
    going = [study for study in studies if not (study.done and is_closed(study))]
    if not going:
        return
    with batches_of(going, slots, logs) as workers:
        unproven = [
            (k * JOBS + CREWS, study) for k, study in enumerate(going) if not study.board.live_knobs
        ]
        for job, study in unproven:
            prove_live(study, workers, job)
            study.save(live_knobs=True)
        Conductor(going, workers, heard).run()
        for k, study in enumerate(going):
            if study.done:
                close(study, workers, k * JOBS + CREWS, partial(said, study))


@contextmanager
def batches_of(
    studies: Sequence[Study], slots: Sequence[Slot], logs: Path
) -> Iterator[list[Worker]]:
    """Workers that hold the lanes of all studies."""
    logs.mkdir(parents=True, exist_ok=True)
    try:
        files = [shared_files(study.folder / "scratch", study.market.tape) for study in studies]
        jobs = [
            [
                job
                for study, data in zip(studies, files, strict=True)
                for job in study.jobs(worker, data)
            ]
            for worker in range(len(slots))
        ]
        with start_workers(slots, jobs, logs) as workers:
            yield workers
    finally:
        for study in studies:
            shutil.rmtree(study.folder / "scratch", ignore_errors=True)


class Conductor:
    """What was ordered and not yet answered, for all studies and workers."""

    def __init__(self, studies: Sequence[Study], workers: Sequence[Worker], heard: Heard) -> None:
        self.studies, self.workers, self.heard = list(studies), list(workers), heard
        self.waiting: list[dict[int, Order]] = [{} for _ in workers]  # by worker and job
        self.answers: dict[tuple[int, int], dict[int, Chunk]] = {}  # by study and turn, by worker
        self.stopping: set[int] = set()
        self.running = False
        self.counted: float | None = None  # until when time was counted

    def run(self) -> None:
        """Until nothing is waited for."""
        for k in range(len(self.studies)):
            self.skip_idle_turns(k)
        for turn in range(CREWS):
            for k, study in enumerate(self.studies):
                self.order(k, study.board.turn + turn)
        for worker in range(len(self.workers)):
            if self.workers[worker].ready:
                self.send_waiting(worker)
        self.running = True
        while any(self.waiting):
            busy: dict[Any, int] = {
                w.connection: n
                for n, w in enumerate(self.workers)
                if self.waiting[n] or not w.ready
            }
            for connection in wait(list(busy)):
                self.listen(busy[connection])

    def order(self, k: int, turn: int) -> None:
        """Order a turn of a study from all workers, unless its crew has nothing to do."""
        study = self.studies[k]
        if k in self.stopping or not any(study.board.crews[turn % CREWS]):
            return
        for worker, order in enumerate(study.orders(turn)):
            order = order._replace(job=k * JOBS + turn % CREWS)
            self.waiting[worker][order.job] = order
            if self.running and self.workers[worker].ready:
                self.workers[worker].ask(order)

    def listen(self, worker: int) -> None:
        """Take what a worker says: an answer, or after a start what its checkpoints hold."""
        started = self.workers[worker].ready is None
        for job, chunk in enumerate(self.workers[worker].answer()):
            if not started:
                self.answered(worker, chunk)
            elif (order := self.waiting[worker].get(job)) and int(chunk.turn) == order.turn:
                self.answered(worker, chunk._replace(job=job))
        if started and self.workers[worker].ready:
            self.send_waiting(worker)

    def send_waiting(self, worker: int) -> None:
        """Send all orders again, in the order of turns."""
        for order in sorted(
            self.waiting[worker].values(), key=lambda order: (order.turn, order.job)
        ):
            self.workers[worker].ask(order)

    def answered(self, worker: int, chunk: Chunk) -> None:
        """Note an answer; process the turns of its study that are complete."""
        order = self.waiting[worker].get(int(chunk.job))
        if order is None or order.turn != int(chunk.turn):
            return
        del self.waiting[worker][int(chunk.job)]
        k = int(chunk.job) // JOBS
        self.answers.setdefault((k, order.turn), {})[worker] = chunk
        study = self.studies[k]
        self.account(study, chunk)
        while len(self.answers.get((k, study.board.turn), {})) == len(self.workers):
            turn = study.board.turn
            found = self.answers.pop((k, turn))
            decided = study.process(turn, [found[n] for n in range(len(self.workers))])
            if (study.folder / STOP).exists():
                self.stopping.add(k)
            self.order(k, turn + CREWS)
            self.skip_idle_turns(k)
            keep_lease(study.study, study.folder)
            self.heard(study, decided)

    def skip_idle_turns(self, k: int) -> None:
        """A turn whose crew has nobody is over at once: the other crew goes on alone."""
        study = self.studies[k]
        while (
            not study.done
            and k not in self.stopping
            and not any(study.board.crews[study.board.turn % CREWS])
        ):
            study.save(turn=study.board.turn + 1)

    def account(self, study: Study, chunk: Chunk) -> None:
        """Count steps and seconds; time in which workers wait counts against the studies that they
        have.
        """
        now = time.monotonic()
        passed = now - self.counted if self.counted is not None else float(chunk.seconds)
        self.counted = now
        for other in self.studies:
            if not other.done:
                shared = passed * len(self.workers) / len(self.studies)
                board = other.board
                other.board = replace(
                    board,
                    seconds=board.seconds + passed,
                    worker_seconds=board.worker_seconds + shared,
                )
        board = study.board
        study.board = replace(
            board,
            steps=board.steps + int(chunk.steps),
            busy_seconds=board.busy_seconds + float(chunk.seconds),
        )
