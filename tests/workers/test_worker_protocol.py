"""What every `Worker` must keep to, whoever launches it: questions, answers, readiness, stopping;
death and restart.

The suite is the functions `check_...`, which take a launcher. Another launcher runs it by being
added to `LAUNCHERS`.
"""

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pytest

from flatout.errors import RunError
from flatout.learners.jobs import Chunk, Job, WorkOrder
from flatout.training.training import make_jobs
from flatout.workers.driving import drive_workers, run_scripts
from flatout.workers.process_worker import MOST_RESTARTS, ProcessWorker
from flatout.workers.worker import Worker
from tiny_training import DyingEnvironment, FailingEnvironment, tiny_slots, tiny_training
from worker_processes import lives

pytestmark = pytest.mark.long  # workers that compile

PATIENCE = 600.0  # seconds that anything here may take on a busy machine


class Launcher(Protocol):
    """Something that makes workers, and can end them as an accident would."""

    def launch(self, jobs: Sequence[Job], folder: Path) -> Worker:
        """A worker with these jobs; its messages go into the folder."""
        ...

    def kill(self, worker: Worker) -> None:
        """End what runs the worker at once, without a word to anybody."""
        ...

    def is_running(self, worker: Worker) -> bool:
        """Whether anything of the worker is left."""
        ...


class ProcessLauncher:
    """Workers that are processes of this machine."""

    def __init__(self, cache: Path) -> None:
        self.cache = cache

    def launch(self, jobs: Sequence[Job], folder: Path) -> ProcessWorker:
        return ProcessWorker(tiny_slots(self.cache)[0], jobs, folder / "worker.log")

    def kill(self, worker: Worker) -> None:
        assert isinstance(worker, ProcessWorker)
        os.kill(worker.process.pid, signal.SIGKILL)

    def is_running(self, worker: Worker) -> bool:
        assert isinstance(worker, ProcessWorker)
        return lives(worker.process.pid)


LAUNCHERS: dict[str, Callable[[Path], Launcher]] = {"process": ProcessLauncher}


# --- what the suite is made of
# --------------------------------------------------------------------------------------------------


def tiny_jobs(folder: Path, count: int = 1, **changes: Any) -> list[Job]:
    """Jobs of two lanes each, of one shape, with a checkpoint of their own."""
    folder.mkdir(exist_ok=True)
    [job] = make_jobs(tiny_training(updates=40, **changes), folder, 1)
    return [
        replace(job, checkpoint=job.checkpoint.with_name(f"job-{k}.safetensors"))
        for k in range(count)
    ]


@contextmanager
def launched(launcher: Launcher, jobs: Sequence[Job], folder: Path) -> Iterator[Worker]:
    """A worker that is stopped on the way out."""
    with ExitStack() as stack:
        worker = launcher.launch(jobs, folder)
        stack.callback(worker.stop)
        yield worker


def next_answer(worker: Worker) -> tuple[Chunk, ...]:
    """The answer that `wait` has announced; a driver waits for several workers so."""
    connection: Any = worker.connection
    assert wait([connection], PATIENCE) == [connection]
    return worker.answer()


def answer_after_death(worker: Worker) -> tuple[Chunk, ...]:
    """What the worker that was started again answers first: the last of each job."""
    while not (answer := next_answer(worker)):
        assert worker.ready is None
    return answer


# --- the suite
# --------------------------------------------------------------------------------------------------


def check_the_first_answer_is_the_last_of_each_job(launcher: Launcher, folder: Path) -> None:
    """A worker is ready when that answer is read, not before; there it tells what it compiled."""
    jobs = tiny_jobs(folder, 2)
    with launched(launcher, jobs, folder) as worker:
        assert tuple(worker.jobs) == tuple(jobs)
        assert worker.slot.name
        assert worker.ready is None
        last = next_answer(worker)
        assert [(chunk.round, list(chunk.updates)) for chunk in last] == [(-1, [0, 0])] * 2
        assert worker.ready is not None
        assert worker.ready.compile_seconds > 0
        assert [chunk.round for chunk in worker.ready.last] == [-1, -1]


def check_orders_are_answered_in_their_order(launcher: Launcher, folder: Path) -> None:
    """Also those that are sent before an earlier one is answered; each by its job and number. What
    is answered is on disk.
    """
    jobs = tiny_jobs(folder, 2)
    with launched(launcher, jobs, folder) as worker:
        next_answer(worker)
        orders = [
            WorkOrder((1, 2), job=0, round=5),
            WorkOrder((3, 3), job=1, round=6),
            WorkOrder((4, 4), job=0, round=7, networks=True),
        ]
        for order in orders:
            worker.ask(order)
        for order in orders:
            [chunk] = next_answer(worker)
            assert (chunk.job, chunk.round) == (order.job, order.round)
            assert tuple(chunk.updates) == order.until
            assert jobs[order.job].checkpoint.exists()
            assert (chunk.networks is not None) == order.networks
            assert chunk.steps > 0 and chunk.seconds >= chunk.busy > 0 and chunk.peak_bytes > 0


def check_a_new_worker_goes_on_from_the_checkpoint(launcher: Launcher, folder: Path) -> None:
    """A stopped worker is gone, and has left all that matters on disk."""
    jobs = tiny_jobs(folder)
    with launched(launcher, jobs, folder) as worker:
        next_answer(worker)
        worker.ask(WorkOrder((2, 2), round=3))
        [chunk] = next_answer(worker)
    assert not launcher.is_running(worker)
    with launched(launcher, jobs, folder) as worker:
        [last] = next_answer(worker)
    assert (last.round, list(last.updates)) == (3, [2, 2])
    np.testing.assert_array_equal(last.scores, chunk.scores)


def check_a_worker_that_dies_is_started_again(launcher: Launcher, folder: Path) -> None:
    """A death shows when the answer is read, as an empty one; asking a dead worker does no harm.
    The new one goes on from the checkpoint, and what it was asked is asked anew: nothing tells that
    there was a death.
    """
    for name in ("disturbed", "undisturbed"):
        jobs = tiny_jobs(folder / name)
        with launched(launcher, jobs, folder / name) as worker:
            next_answer(worker)
            worker.ask(WorkOrder((2, 2), round=1))
            next_answer(worker)
            if name == "disturbed":
                launcher.kill(worker)
                worker.ask(WorkOrder((9, 9), round=2))
                assert next_answer(worker) == ()
                assert worker.ready is None
                [last] = answer_after_death(worker)
                assert worker.ready is not None
                assert (last.round, list(last.updates)) == (1, [2, 2])
            worker.ask(WorkOrder((4, 5), round=2))
            [chunk] = next_answer(worker)
            assert (chunk.round, list(chunk.updates)) == (2, [4, 5])
    found, expected = (
        (folder / name / "checkpoints" / "job-0.safetensors").read_bytes()
        for name in ("disturbed", "undisturbed")
    )
    assert found == expected


def check_death_at_the_start_is_forgiven_some_times(launcher: Launcher, folder: Path) -> None:
    """Not for ever: a worker that never finishes a chunk ends the run."""
    with launched(launcher, tiny_jobs(folder, environment=DyingEnvironment()), folder) as worker:
        for _ in range(MOST_RESTARTS):
            assert next_answer(worker) == ()
        with pytest.raises(RunError, match="in a row without finishing a chunk"):
            next_answer(worker)
    assert not launcher.is_running(worker)


def check_a_failure_is_raised(launcher: Launcher, folder: Path) -> None:
    """With what went wrong, in the driver."""
    jobs = tiny_jobs(folder, environment=FailingEnvironment())
    with (
        launched(launcher, jobs, folder) as worker,
        pytest.raises(RunError, match="ValueError: the well is poisoned"),
    ):
        next_answer(worker)


def check_workers_are_driven(launcher: Launcher, folder: Path) -> None:
    """By the two loops that know nothing else of them; one worker dies while it works."""
    seen: list[tuple[int, int]] = []
    with ExitStack() as stack:
        workers = [
            stack.enter_context(launched(launcher, tiny_jobs(folder / name), folder / name))
            for name in ("first", "second")
        ]

        def on_chunk(k: int, chunk: Chunk) -> None:
            seen.append((k, int(min(chunk.updates))))
            if seen.count((0, 2)) == 1 and (k, seen[-1][1]) == (0, 2):
                launcher.kill(workers[0])

        def next_until(k: int, chunk: Chunk) -> tuple[int, ...] | None:
            done = int(min(chunk.updates))
            return None if done >= 4 else (done + 2,) * len(chunk.updates)

        drive_workers(workers, next_until, on_chunk)
        assert [done for k, done in seen if k == 1] == [0, 2, 4]
        assert [done for k, done in seen if k == 0] == [0, 2, 2, 4]
        scripts = [[WorkOrder((5, 5), round=8), WorkOrder((6, 6), round=9)]] * 2
        answers = run_scripts(workers, scripts)
        assert [[chunk.round for chunk in script] for script in answers] == [[8, 9]] * 2


SUITE = [
    check_the_first_answer_is_the_last_of_each_job,
    check_orders_are_answered_in_their_order,
    check_a_new_worker_goes_on_from_the_checkpoint,
    check_a_worker_that_dies_is_started_again,
    check_death_at_the_start_is_forgiven_some_times,
    check_a_failure_is_raised,
    check_workers_are_driven,
]


@pytest.mark.long
@pytest.mark.parametrize("launcher", LAUNCHERS)
@pytest.mark.parametrize("check", SUITE, ids=lambda check: check.__name__)
def test_a_worker_keeps_to_the_protocol(
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    check: Callable[[Launcher, Path], None],
    launcher: str,
) -> None:
    cache = tmp_path_factory.getbasetemp() / "xla"  # compiled programs, for all of the session
    cache.mkdir(exist_ok=True)
    check(LAUNCHERS[launcher](cache), tmp_path)
