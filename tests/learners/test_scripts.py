"""Scripts of orders: dealt to the workers, answered whole and in order, begun again when a death
interrupts them.
"""

import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from flatout.learners.jobs import Chunk, Order, Ready
from flatout.workers.driving import run_scripts

CHUNK = Chunk(*[0] * 7)


class FakeWorker:
    """Answers orders with their turns; a script's first order must come first after every start."""

    def __init__(self, name: int, dies: Callable[[], bool]) -> None:
        self.name, self.dies, self.deaths = name, dies, 0
        reader, self.writer = os.pipe()
        self.connection = os.fdopen(reader, "rb", buffering=0)
        self.said: list[tuple[Chunk, ...]] = []
        self.start()

    def start(self) -> None:
        self.ready: Ready | None = None
        self.script: int | None = None
        self.say((CHUNK, CHUNK))

    def say(self, what: tuple[Chunk, ...]) -> None:
        self.said.append(what)
        os.write(self.writer, b".")

    def ask(self, order: Order) -> None:
        assert self.ready
        script, part = divmod(order.turn, 100)
        if part == 0:
            self.script = script
        assert self.script == script, (
            "an order of a script whose beginning this process has not seen"
        )
        self.say((CHUNK._replace(turn=order.turn, job=self.name),))

    def answer(self) -> tuple[Chunk, ...]:
        self.connection.read(1)
        told = self.said.pop(0)
        if self.dies():
            self.deaths += 1
            for _ in self.said:
                self.connection.read(1)
            self.said = []
            self.start()
            return ()
        self.ready = Ready((), 0.0, 0)
        return told


@contextmanager
def workers_that(dies: Callable[[], bool], count: int) -> Iterator[list[FakeWorker]]:
    workers = [FakeWorker(n, dies) for n in range(count)]
    yield workers
    for worker in workers:
        worker.connection.close()
        os.close(worker.writer)


def scripts_of(lengths: list[int]) -> list[list[Order]]:
    return [
        [Order((1,), turn=100 * k + part) for part in range(length)]
        for k, length in enumerate(lengths)
    ]


def turns(answers: list[list[Chunk]]) -> list[list[int]]:
    return [[chunk.turn for chunk in script] for script in answers]


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("lengths", [[1], [3, 1, 2], [2] * 7, []])
def test_scripts_are_answered_whole_and_in_order(count: int, lengths: list[int]) -> None:
    with workers_that(lambda: False, count) as workers:
        scripts = scripts_of(lengths)
        answers = run_scripts(workers, scripts)  # type: ignore[arg-type]
        assert turns(answers) == [[order.turn for order in script] for script in scripts]
        for k, script in enumerate(answers):
            assert {chunk.job for chunk in script} == {
                k % count
            }  # each on one worker, dealt in turn


@pytest.mark.parametrize("seed", range(10))
def test_scripts_that_a_death_interrupts_are_begun_again(seed: int) -> None:
    """Also when the worker dies while it starts."""
    rng, scripts = random.Random(seed), scripts_of([4, 2, 5, 1, 3])
    with workers_that(lambda: rng.random() < 0.3, 2) as workers:
        answers = run_scripts(workers, scripts)  # type: ignore[arg-type]
        assert turns(answers) == [[order.turn for order in script] for script in scripts]
        assert sum(worker.deaths for worker in workers) > 0


def test_workers_carry_out_one_batch_after_another() -> None:
    """Whoever is ready already is asked at once."""
    seen: list[Any] = []
    with workers_that(lambda: False, 2) as workers:
        for _ in range(3):
            seen.append(turns(run_scripts(workers, scripts_of([2, 2, 1]))))  # type: ignore[arg-type]
    assert seen == [[[0, 1], [100, 101], [200]]] * 3
