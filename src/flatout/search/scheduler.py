"""The scheduler: feeds workers with the rounds of one or several studies until all are done.

Each worker has the orders of two rounds of every study: the one it works on and those that wait in
its connection. Studies alternate, so they share the devices fairly. Answers are processed strictly
in the order of rounds: which trial is asked for depends on what Optuna was told before, never on
which worker was faster.
"""

import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, NamedTuple

from flatout.learners.jobs import Chunk, WorkOrder
from flatout.search.begun_study import forget_study
from flatout.search.callbacks import OnNote, OnRound, OnStage
from flatout.search.control_results import try_controls
from flatout.search.dead_knobs import DeadKnobError, check_live_knobs
from flatout.search.finalist_results import has_finalist_results
from flatout.search.finalists import run_finals
from flatout.search.lane_layout import LANE_BATCHES
from flatout.search.spare_lanes import SpareLanes
from flatout.search.storage import keep_lease
from flatout.search.study import Study
from flatout.search.study_orders import JOBS, SPARE_BATCH, make_jobs, make_orders
from flatout.training.training import shared_files
from flatout.workers.driving import start_workers
from flatout.workers.slots import Slot
from flatout.workers.worker import Worker

STOP = "stop"  # a file of this name in a study's folder ends it after the current round


class StudyRound(NamedTuple):
    """A round of one of the studies."""

    study: int  # its position among them
    number: int


def run_scheduler(
    studies: Sequence[Study],
    slots: Sequence[Slot],
    logs: Path,
    on_round: OnRound,
    on_stage: OnStage,
    on_note: OnNote,
) -> None:
    """Run all studies to their ends, finalists included, or until they are asked to stop. New ones
    have no trial before all of their knobs were seen to act; else they are forgotten.
    """
    for study in studies:
        (study.folder / STOP).unlink(missing_ok=True)
        if not study.untried:
            study.begin()
    going = [study for study in studies if not (study.done and has_finalist_results(study))]
    if not going:
        return
    try:
        with start_study_workers(going, slots, logs) as workers:
            spare = [
                SpareLanes(study, workers, k * JOBS + SPARE_BATCH) for k, study in enumerate(going)
            ]
            check_new(spare, on_stage, on_note)
            Scheduler(going, workers, on_round).run()
            for lanes in spare:
                if lanes.study.done and not has_finalist_results(lanes.study):
                    run_finals(lanes, partial(on_stage, lanes.study))
    except DeadKnobError:  # its workers have ended, so nobody writes into the folders
        for study in going:
            if study.untried:
                forget_study(study.folder)
        raise


def check_new(spare: Sequence[SpareLanes], on_stage: OnStage, on_note: OnNote) -> None:
    """Begin the studies that are new, once every knob of all of them was seen to act and it was
    tried what their agents make of the controls.
    """
    unchecked = [lanes for lanes in spare if not lanes.study.state.live_knobs]
    for lanes in unchecked:
        check_live_knobs(lanes)
    for lanes in unchecked:
        if lanes.study.untried:
            try_controls(lanes, partial(on_stage, lanes.study), on_note)
            lanes.study.begin()
        lanes.study.save(live_knobs=True)


@contextmanager
def start_study_workers(
    studies: Sequence[Study], slots: Sequence[Slot], logs: Path
) -> Iterator[list[Worker]]:
    """Workers that hold the lanes of all studies, ended on the way out."""
    logs.mkdir(parents=True, exist_ok=True)
    for study in studies:
        (study.folder / "checkpoints").mkdir(exist_ok=True)  # which new ones do not have yet
    try:
        files = [shared_files(study.folder / "scratch", study.market.tape) for study in studies]
        jobs = [
            [
                job
                for study, data in zip(studies, files, strict=True)
                for job in make_jobs(study, worker, data)
            ]
            for worker in range(len(slots))
        ]
        with start_workers(slots, jobs, logs) as workers:
            yield workers
    finally:
        for study in studies:
            shutil.rmtree(study.folder / "scratch", ignore_errors=True)


class Scheduler:
    """What was ordered and not yet answered, for all studies and workers."""

    def __init__(
        self, studies: Sequence[Study], workers: Sequence[Worker], on_round: OnRound
    ) -> None:
        self.studies, self.workers, self.on_round = list(studies), list(workers), on_round
        self.waiting: list[dict[int, WorkOrder]] = [{} for _ in workers]  # by worker and job
        self.answers: dict[StudyRound, dict[int, Chunk]] = {}  # by worker
        self.stopping: set[int] = set()  # positions of studies
        self.running = False
        self.counted: float | None = None  # until when time was counted

    def run(self) -> None:
        """Order and process rounds until nothing is waited for."""
        for k in range(len(self.studies)):
            self.skip_idle_rounds(k)
        for ahead in range(LANE_BATCHES):
            for k, study in enumerate(self.studies):
                self.order_round(StudyRound(k, study.state.round + ahead))
        for worker in range(len(self.workers)):
            if self.workers[worker].ready:
                self.send_waiting(worker)
        self.running = True
        while any(self.waiting):
            # `wait` gives back connections as one of several types
            busy: dict[Any, int] = {
                w.connection: n
                for n, w in enumerate(self.workers)
                if self.waiting[n] or not w.ready
            }
            for connection in wait(list(busy)):
                self.receive(busy[connection])

    def order_round(self, wanted: StudyRound) -> None:
        """Order a round from all workers, unless its batch of lanes has nothing to do."""
        study, batch = self.studies[wanted.study], wanted.number % LANE_BATCHES
        if wanted.study in self.stopping or not any(study.state.batches[batch]):
            return
        for worker, order in enumerate(make_orders(study, wanted.number)):
            order = order._replace(job=wanted.study * JOBS + batch)
            self.waiting[worker][order.job] = order
            if self.running and self.workers[worker].ready:
                self.workers[worker].ask(order)

    def receive(self, worker: int) -> None:
        """Take what a worker sends: an answer, or after a start what its checkpoints hold."""
        started = self.workers[worker].ready is None
        for job, chunk in enumerate(self.workers[worker].answer()):
            if not started:
                self.take_answer(worker, chunk)
            elif (order := self.waiting[worker].get(job)) and int(chunk.round) == order.round:
                self.take_answer(worker, chunk._replace(job=job))
        if started and self.workers[worker].ready:
            self.send_waiting(worker)

    def send_waiting(self, worker: int) -> None:
        """Send all orders of a worker again, in the order of rounds."""
        for order in sorted(
            self.waiting[worker].values(), key=lambda order: (order.round, order.job)
        ):
            self.workers[worker].ask(order)

    def take_answer(self, worker: int, chunk: Chunk) -> None:
        """Note an answer, and process the rounds of its study that all workers have answered."""
        order = self.waiting[worker].get(int(chunk.job))
        if order is None or order.round != int(chunk.round):
            return
        del self.waiting[worker][int(chunk.job)]
        k = int(chunk.job) // JOBS
        self.answers.setdefault(StudyRound(k, order.round), {})[worker] = chunk
        study = self.studies[k]
        self.count_time(study, chunk)
        while len(self.answers.get(StudyRound(k, study.state.round), {})) == len(self.workers):
            self.process_round(StudyRound(k, study.state.round))

    def process_round(self, answered: StudyRound) -> None:
        """Let a study decide on a round, and order the next one of the same batch of lanes."""
        study, chunks = self.studies[answered.study], self.answers.pop(answered)
        decisions = study.process(answered.number, [chunks[n] for n in range(len(self.workers))])
        if (study.folder / STOP).exists():
            self.stopping.add(answered.study)
        self.order_round(StudyRound(answered.study, answered.number + LANE_BATCHES))
        self.skip_idle_rounds(answered.study)
        keep_lease(study.optuna_study, study.folder)
        self.on_round(study, decisions)

    def skip_idle_rounds(self, k: int) -> None:
        """A round whose batch has no trial is over at once: the other batch goes on alone."""
        study = self.studies[k]
        while (
            not study.done
            and k not in self.stopping
            and not any(study.state.batches[study.state.round % LANE_BATCHES])
        ):
            study.save(round=study.state.round + 1)

    def count_time(self, study: Study, chunk: Chunk) -> None:
        """Count steps and seconds of an answer; time in which workers wait counts against the
        studies that they have.
        """
        now = time.monotonic()
        passed = now - self.counted if self.counted is not None else float(chunk.seconds)
        self.counted = now
        for other in self.studies:
            if not other.done:
                shared = passed * len(self.workers) / len(self.studies)
                other.state = replace(
                    other.state,
                    seconds=other.state.seconds + passed,
                    worker_seconds=other.state.worker_seconds + shared,
                )
        study.state = replace(
            study.state,
            steps=study.state.steps + int(chunk.steps),
            busy_seconds=study.state.busy_seconds + float(chunk.seconds),
        )
