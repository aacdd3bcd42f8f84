"""Messages between the environments' process and the learner's: none waits for the other for
ever.
"""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from socket import socketpair
from typing import Any

import numpy as np
import pytest

from flatout.learners.environment import Discrete
from flatout.slow_envs.knowledge import Assignment
from flatout.slow_envs.link import ProcessLink
from flatout.slow_envs.model import PerceptronModel
from flatout.slow_envs.outbox import Outbox
from flatout.slow_envs.overlap import Overlap, Rule
from flatout.slow_envs.session import beginning
from flatout.slow_envs.tape import Format

MANY = 3000  # small messages: several times what a socket takes


@contextmanager
def not_for_ever(seconds: int = 600) -> Iterator[None]:
    """Raise where a call into the system does not come back."""

    def late(*_: Any) -> None:
        raise TimeoutError(f"still waiting after {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def test_what_finds_no_room_is_sent_later_in_order() -> None:
    async def main() -> list[int]:
        ours, theirs = (Connection(end.detach()) for end in socketpair())
        outbox = Outbox(ours, asyncio.get_running_loop())
        for k in range(MANY):
            outbox.send(k)
        assert 0 < len(outbox.unsent) < MANY
        heard = []
        while len(heard) < MANY:
            while theirs.poll():
                heard.append(theirs.recv())
            await asyncio.sleep(0)
        assert not outbox.unsent and not outbox.waiting
        outbox.close()
        ours.close()
        theirs.close()
        return heard

    with not_for_ever():
        assert asyncio.run(main()) == list(range(MANY))


def test_messages_to_one_who_is_gone_are_dropped() -> None:
    async def main() -> None:
        ours, theirs = (Connection(end.detach()) for end in socketpair())
        outbox = Outbox(ours, asyncio.get_running_loop())
        for k in range(MANY):
            outbox.send(k)
        theirs.close()
        while outbox.waiting:
            await asyncio.sleep(0.001)
        assert not outbox.unsent
        outbox.send("more")
        assert not outbox.unsent
        outbox.close()
        ours.close()

    with not_for_ever():
        asyncio.run(main())


@pytest.mark.long
def test_both_sides_may_have_much_to_say_at_once() -> None:
    """The learner says all it knows, more than the connection holds, while it is told of more
    segments than that.
    """
    pytest.importorskip("torch")
    model = PerceptronModel(64, Discrete(2), (256, 256))
    form = Format(1, model.observation_size, model.actions)
    rule = Rule(batch_segments=1000, minibatch=1000, epochs=1)
    known = beginning(model.new_weights(0))
    segment = form.new()

    async def main() -> Any:
        link = ProcessLink(
            Assignment(model, rule, Overlap(learner="process"), form, known, 0),
            *([lambda *_: None] * 2),
        )
        try:
            told = asyncio.create_task(link.knowledge())
            await asyncio.sleep(0)
            for _ in range(rule.batch_segments - 1):  # none of these lets the loop turn
                await link.put(segment)
            assert link.outbox.unsent
            return await told
        finally:
            await link.close()

    with not_for_ever():
        assert np.array_equal(asyncio.run(main()).vector, known.vector)
