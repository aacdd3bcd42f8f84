"""Scripts of orders: dealt to the workers, answered whole and in order, begun again when a death
interrupts them.
"""

import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from flatout.learners.jobs import Chunk, Ready, WorkOrder
from flatout.workers.driving import run_scripts

CHUNK = Chunk(*[0] * 7)


class FakeWorker:
    """Answers orders with their rounds; a script's first order must come first after a start."""

    def __init__(self, name: int, dies: Callable[[], bool]) -> None:
        self.name, self.dies, self.deaths = name, dies, 0
        reader, self.writer = os.pipe()
        self.connection = os.fdopen(reader, "rb", buffering=0)
        self.sent: list[tuple[Chunk, ...]] = []
        self.start()

    def start(self) -> None:
        self.ready: Ready | None = None
        self.script: int | None = None
        self.send((CHUNK, CHUNK))

    def send(self, what: tuple[Chunk, ...]) -> None:
        self.sent.append(what)
        os.write(self.writer, b".")

    def ask(self, order: WorkOrder) -> None:
        assert self.ready
        script, part = divmod(order.round, 100)
        if part == 0:
            self.script = script
        assert self.script == script, (
            "an order of a script whose beginning this process has not seen"
        )
        self.send((CHUNK._replace(round=order.round, job=self.name),))

    def answer(self) -> tuple[Chunk, ...]:
        self.connection.read(1)
        answer = self.sent.pop(0)
        if self.dies():
            self.deaths += 1
            for _ in self.sent:
                self.connection.read(1)
            self.sent = []
            self.start()
            return ()
        self.ready = Ready((), 0.0, 0)
        return answer


@contextmanager
def workers_that(dies: Callable[[], bool], count: int) -> Iterator[list[FakeWorker]]:
    workers = [FakeWorker(n, dies) for n in range(count)]
    yield workers
    for worker in workers:
        worker.connection.close()
        os.close(worker.writer)


def scripts_of(lengths: list[int]) -> list[list[WorkOrder]]:
    return [
        [WorkOrder((1,), round=100 * k + part) for part in range(length)]
        for k, length in enumerate(lengths)
    ]


def rounds_of(answers: list[list[Chunk]]) -> list[list[int]]:
    return [[chunk.round for chunk in script] for script in answers]


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("lengths", [[1], [3, 1, 2], [2] * 7, []])
def test_scripts_are_answered_whole_and_in_order(count: int, lengths: list[int]) -> None:
    with workers_that(lambda: False, count) as workers:
        scripts = scripts_of(lengths)
        answers = run_scripts(workers, scripts)  # type: ignore[arg-type]
        assert rounds_of(answers) == [[order.round for order in script] for script in scripts]
        for k, script in enumerate(answers):
            assert {chunk.job for chunk in script} == {
                k % count
            }  # each on one worker, dealt one by one


@pytest.mark.parametrize("seed", range(10))
def test_scripts_that_a_death_interrupts_are_begun_again(seed: int) -> None:
    """Also when the worker dies while it starts."""
    rng, scripts = random.Random(seed), scripts_of([4, 2, 5, 1, 3])
    with workers_that(lambda: rng.random() < 0.3, 2) as workers:
        answers = run_scripts(workers, scripts)  # type: ignore[arg-type]
        assert rounds_of(answers) == [[order.round for order in script] for script in scripts]
        assert sum(worker.deaths for worker in workers) > 0


def test_workers_carry_out_one_batch_after_another() -> None:
    """Whoever is ready already is asked at once."""
    seen: list[Any] = []
    with workers_that(lambda: False, 2) as workers:
        for _ in range(3):
            seen.append(rounds_of(run_scripts(workers, scripts_of([2, 2, 1]))))  # type: ignore[arg-type]
    assert seen == [[[0, 1], [100, 101], [200]]] * 3
