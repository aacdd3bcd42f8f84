"""Workers that train nobody: what a lane earns is made up from its seed, its rates and its updates.

They answer orders as real ones do, keep what a lane is in checkpoints and find it there again, and
refuse orders that no real study could mean. A whole study takes a second, so that it can be
interrupted everywhere.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from small_studies import prepared, table

from flatout.learners.checkpoint import read_checkpoint, write_checkpoint
from flatout.learners.jobs import Chunk, Job, Ready, WorkOrder
from flatout.learners.metrics import metric_names
from flatout.market.rewards import RewardTerms
from flatout.search.lane_layout import Layout
from flatout.search.run import PreparedStudy, open_study_folder
from flatout.search.scheduler import Scheduler
from flatout.search.study import Study
from flatout.search.study_orders import make_jobs

READY = Ready((), 0.0, 0)


class Lane(NamedTuple):
    """What decides what a lane earns."""

    seed: int
    learning_rate: float
    first_bar: int  # of its first test block, in the joined tape
    updates: int


def earned(lane: Lane, blocks: int, bars: int) -> np.ndarray:
    """(term, block, bar): more for learning rates near 1e-3, and for longer trainings."""
    rng = np.random.default_rng(
        [lane.seed, lane.first_bar, lane.updates, round(lane.learning_rate * 1e9)]
    )
    skill = 2e-3 * (1 - abs(np.log10(lane.learning_rate) + 3)) * np.sqrt(lane.updates)
    traces = np.zeros((len(RewardTerms._fields), blocks, bars), np.float32)
    traces[0] = skill + 1e-2 * rng.standard_normal((blocks, bars))
    traces[1] = traces[0] - 1e-4
    traces[RewardTerms._fields.index("turnover")] = -0.1
    return traces


Earned = Callable[[Lane, int, int], np.ndarray]


class FakeBatch:
    """The lanes of one job; all that it knows is in its checkpoint."""

    def __init__(self, job: Job, earned: Earned) -> None:
        self.job, self.earned = job, earned
        count = len(job.names)
        self.arrays: dict[str, np.ndarray] = {
            "seed": np.zeros(count, np.uint32), "rate": np.zeros(count),
            "updates": np.zeros(count, np.int32),
            "last/turn": np.asarray(-1, np.int32), "last/traces": np.zeros(0, np.float32),
        }  # fmt: skip
        if job.checkpoint.exists():
            self.arrays = read_checkpoint(job.checkpoint)[0]

    def last(self) -> Chunk:
        """What the last round led to."""
        arrays, names = self.arrays, metric_names(self.job.program)
        return Chunk(
            updates=arrays["updates"],
            metrics=np.outer(arrays["rate"], np.arange(len(names))) + arrays["updates"][:, None],
            scores=None,
            steps=0,
            busy=0.0,
            seconds=0.0,
            peak_bytes=0,
            job=0,
            round=arrays["last/turn"],
            traces=arrays["last/traces"],
        )

    def advance(self, order: WorkOrder) -> Chunk:
        """Carry out an order, and save."""
        new, plan = order.new_lanes, self.job.evaluation
        assert new is not None
        assert plan is not None
        rates = np.asarray(new.rates.learning_rate)
        seed, rate, updates = (self.arrays[name].copy() for name in ("seed", "rate", "updates"))
        for lane, own_seed in zip(new.lanes, new.seeds, strict=True):
            seed[lane], rate[lane], updates[lane] = own_seed, rates[lane], 0
        for lane, until in enumerate(order.until):
            if until:  # a lane that works goes on with the agent it was born as
                assert rate[lane] == rates[lane]
                assert until >= updates[lane]
        until = np.asarray(order.until, np.int32)
        first = new.judged.segments.first[:, 0]
        lanes = [
            Lane(int(s), float(r), int(f), int(u))
            for s, r, f, u in zip(seed, rates, first, until, strict=True)
        ]
        terms = np.stack([self.earned(lane, plan.n_envs, plan.n_steps) for lane in lanes])
        held = len(self.job.program.environment.traced)  # nothing, so all that is earned is skill
        nothing = np.zeros((len(lanes), held, *terms.shape[2:]))
        traces = np.concatenate([terms, nothing], axis=1).astype(np.float32)
        updates = np.maximum(updates, until)
        number = np.asarray(order.round, np.int32)
        self.arrays = {
            "seed": seed,
            "rate": rate,
            "updates": updates,
            "last/turn": number,
            "last/traces": traces,
        }
        write_checkpoint(self.job.checkpoint, self.arrays, {})
        return self.last()._replace(job=order.job, steps=int(sum(order.until)), seconds=0.01)


class FakeWorker:
    """Does at once what it is asked for; it speaks through a pipe, as `wait` wants."""

    def __init__(self, jobs: list[Job], earned: Earned) -> None:
        self.jobs, self.earned = jobs, earned
        reader, self.writer = os.pipe()
        self.connection = os.fdopen(reader, "rb", buffering=0)
        self.ready: Ready | None = None
        self.answers: list[Any] = []
        self.start()

    def start(self) -> None:
        self.batches = [FakeBatch(job, self.earned) for job in self.jobs]
        self.ready, self.answers = None, []
        self.say(tuple(batch.last() for batch in self.batches))

    def say(self, what: Any) -> None:
        self.answers.append(what)
        os.write(self.writer, b".")

    def ask(self, order: WorkOrder) -> None:
        self.say((self.batches[order.job].advance(order),))

    def answer(self) -> tuple[Chunk, ...]:
        self.connection.read(1)
        self.ready = READY
        return self.answers.pop(0)

    def close(self) -> None:
        self.connection.close()
        os.close(self.writer)


class Played(NamedTuple):
    """A study after some rounds."""

    study: Study
    table: list[dict[str, Any]]


@contextmanager
def fakes(studies: list[Study], earned: Earned = earned) -> Iterator[list[FakeWorker]]:
    """Workers of some studies."""
    count = studies[0].layout.workers
    workers = [
        FakeWorker([job for s in studies for job in make_jobs(s, n, None)], earned)
        for n in range(count)
    ]
    try:
        yield workers
    finally:
        for worker in workers:
            worker.close()


def play(
    folder: Path, made: PreparedStudy, earned: Earned = earned, on_round: Any = lambda *_: None
) -> Played:
    """Run the trials of a study, or go on with them, until nothing is waited for."""
    folder.mkdir(exist_ok=True)
    with open_study_folder(made, folder, None) as study:
        study.begin()
        with fakes([study], earned) as workers:
            Scheduler([study], workers, on_round).run()  # type: ignore[arg-type]
        return Played(study, table(study.optuna_study))


def made_study(workers: int = 2, **changes: Any) -> PreparedStudy:
    """A small study; equal ones are made once."""
    return prepared(Path("nowhere"), workers=workers, **changes)


def layout_of(made: PreparedStudy, **changes: int) -> PreparedStudy:
    """The same study with another layout."""
    layout: Layout = made.layout._replace(**changes)
    return made.__class__(made.request, made.resolved, made.panel, made.market, layout)
