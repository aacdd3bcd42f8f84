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
from flatout.slow_envs.learner_state import Assignment
from flatout.slow_envs.link import ProcessLink
from flatout.slow_envs.model import PerceptronModel
from flatout.slow_envs.outbox import Outbox
from flatout.slow_envs.overlap import Overlap, Rule
from flatout.slow_envs.session import new_state
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
        received = []
        while len(received) < MANY:
            while theirs.poll():
                received.append(theirs.recv())
            await asyncio.sleep(0)
        assert not outbox.unsent and not outbox.waiting
        outbox.close()
        ours.close()
        theirs.close()
        return received

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
    """The learner sends its whole state, more than the connection holds, while it is sent more
    segments than that.
    """
    pytest.importorskip("torch")
    model = PerceptronModel(64, Discrete(2), (256, 256))
    form = Format(1, model.observation_size, model.actions)
    rule = Rule(batch_segments=1000, minibatch=1000, epochs=1)
    segment, start = form.new(), new_state(model.new_weights(0))

    async def main() -> Any:
        link = ProcessLink(
            Assignment(
                model=model,
                rule=rule,
                overlap=Overlap(learner="process"),
                form=form,
                state=start,
                seed=0,
            ),
            on_update=lambda update, vector, idle: None,
            on_failure=lambda error: None,
        )
        try:
            state = asyncio.create_task(link.state())
            await asyncio.sleep(0)
            for _ in range(rule.batch_segments - 1):  # none of these lets the event loop go on
                await link.put(segment)
            assert link.outbox.unsent
            return await state
        finally:
            await link.close()

    with not_for_ever():
        assert np.array_equal(asyncio.run(main()).vector, start.vector)
