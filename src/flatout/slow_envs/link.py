"""The way between environments and learner: segments there, weights back, each with the version of
the policy.

`InlineLink` learns in the same event loop, for simulated time. `ProcessLink` has the learner in a
process of its own, so that learning takes nothing from the event loop: arrays lie in shared memory,
and small messages say which are ready.
"""

import asyncio
import os
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from multiprocessing.connection import Connection
from socket import socketpair
from traceback import format_exception
from typing import NamedTuple, Protocol

import cloudpickle

from flatout.children import own_program
from flatout.errors import RunError
from flatout.slow_envs.knowledge import Assignment, Knowledge, Vector
from flatout.slow_envs.learning import Learning, Update
from flatout.slow_envs.outbox import Outbox
from flatout.slow_envs.overlap import Rule
from flatout.slow_envs.shared_memory import SharedArrays
from flatout.slow_envs.tape import Segment

# --- messages
# -----------------------------------------------------------------------------------------------


class Filled(NamedTuple):
    """To the learner: this place of the ring holds a segment."""

    place: int


class Took(NamedTuple):
    """To the learner: these weights have been copied."""

    version: int


class Change(NamedTuple):
    """To the learner: learn by this rule from now on."""

    rule: Rule


class Tell(NamedTuple):
    """To the learner: say all you know."""


class Freed(NamedTuple):
    """From the learner: these places may be filled again."""

    places: tuple[int, ...]


class Published(NamedTuple):
    """From the learner: an update is done, its weights lie in half `version % 2`."""

    update: Update
    idle: float  # seconds since the update before without anything to learn from


class Broken(NamedTuple):
    """From the learner: it failed."""

    traceback: str


# --- links
# --------------------------------------------------------------------------------------------------


class Link(Protocol):
    """What the environments' side needs of a learner."""

    async def put(self, segment: Segment) -> None:
        """Hand over a segment; waits while too many wait."""
        ...

    async def knowledge(self) -> Knowledge: ...
    def change(self, rule: Rule) -> None: ...
    async def close(self) -> None: ...


class Heard(Protocol):
    """Whoever is told of updates."""

    def __call__(self, update: Update, vector: Vector, idle: float) -> None: ...


class InlineLink:
    """A learner in the same event loop: updates are made on the spot, and take as long as the
    settings say.
    """

    def __init__(
        self, assignment: Assignment, heard: Heard, failed: Callable[[RunError], None]
    ) -> None:
        from flatout.slow_envs.torch_learner import (
            new_learner,
        )  # late: PyTorch takes seconds to load

        self.learner, self.heard = new_learner(assignment), heard
        self.learning, self.ring = Learning(self.learner, assignment.overlap), assignment.ring
        self.update_s = assignment.overlap.update_s
        self.changed = asyncio.Condition()
        self.failed = failed
        self.work = asyncio.create_task(self.learn())
        self.work.add_done_callback(self.ended)

    async def put(self, segment: Segment) -> None:
        async with self.changed:
            await self.changed.wait_for(lambda: len(self.learning.waiting) < self.ring)
            self.learning.take(segment)
            self.changed.notify_all()

    def ended(self, work: "asyncio.Task[None]") -> None:
        """There will be no more updates."""
        error = None if work.cancelled() else work.exception()
        if error is not None:
            self.failed(RunError(f"the learner failed: {''.join(format_exception(error))}"))

    async def learn(self) -> None:
        """Update after update."""
        while True:
            async with self.changed:
                if self.learning.gather():
                    self.changed.notify_all()
            update = self.learning.work()
            if update is not None:
                await asyncio.sleep(self.update_s)
                self.heard(update, self.learner.vector, 0.0)
                continue
            async with self.changed:
                await self.changed.wait_for(
                    lambda: len(self.learning.waiting) >= self.learning.rule.batch_segments
                )

    async def knowledge(self) -> Knowledge:
        return self.learner.knowledge

    def change(self, rule: Rule) -> None:
        self.learner.change(rule)

    async def close(self) -> None:
        """End the updates."""
        self.work.cancel()
        await asyncio.gather(self.work, return_exceptions=True)


class ProcessLink:
    """The learner's process, seen from the environments'."""

    def __init__(
        self, assignment: Assignment, heard: Heard, failed: Callable[[RunError], None]
    ) -> None:
        self.heard, self.failed = heard, failed
        self.memory = SharedArrays(assignment.shapes())
        self.free = deque(range(assignment.ring))
        self.room = asyncio.Event()
        self.room.set()
        self.told: asyncio.Future[Knowledge] | None = None
        self.start(assignment)

    def start(self, assignment: Assignment) -> None:
        """Start the process and listen to it in this event loop."""
        ours, theirs = socketpair()
        inherited = (theirs.fileno(), self.memory.descriptor)
        with theirs:
            self.process = subprocess.Popen(
                own_program("flatout.slow_envs.learner_process", *map(str, inherited)),
                stdin=subprocess.PIPE,
                pass_fds=inherited,
            )
        self.connection = Connection(ours.detach())
        self.connection.send(
            (sys.path, cloudpickle.dumps(assignment))
        )  # a model may be defined in a user's script
        self.loop = asyncio.get_running_loop()
        self.loop.add_reader(self.connection.fileno(), self.read)
        os.set_blocking(
            self.connection.fileno(), True
        )  # uvloop makes it non-blocking, and messages may be long
        self.outbox = Outbox(self.connection, self.loop)

    async def put(self, segment: Segment) -> None:
        while not self.free:
            self.room.clear()
            await self.room.wait()
        place = self.free.popleft()
        for name, array in segment._asdict().items():
            self.memory[name][place] = array
        self.outbox.send(Filled(place))

    def read(self) -> None:
        """Hear one message."""
        try:
            message = self.connection.recv()
        except (EOFError, OSError):
            self.loop.remove_reader(self.connection.fileno())
            self.give_up(f"it ended with {self.process.wait()} without a word")
            return
        if isinstance(message, Freed):
            self.free.extend(message.places)
            self.room.set()
        elif isinstance(message, Published):
            version = message.update.version
            vector = self.memory["weights"][version % 2].copy()
            self.outbox.send(Took(version))
            self.heard(message.update, vector, message.idle)
        elif isinstance(message, Broken):
            self.give_up(message.traceback)
        elif self.told is not None:
            self.told.set_result(message)

    def give_up(self, why: str) -> None:
        """The learner is gone."""
        error = RunError(f"the learner's process failed: {why}")
        if self.told is not None and not self.told.done():
            self.told.set_exception(error)
        self.failed(error)

    async def knowledge(self) -> Knowledge:
        self.told = asyncio.get_running_loop().create_future()
        self.outbox.send(Tell())
        return await self.told

    def change(self, rule: Rule) -> None:
        self.outbox.send(Change(rule))

    async def close(self) -> None:
        """End the process."""
        self.outbox.close()
        self.loop.remove_reader(self.connection.fileno())
        self.connection.close()
        self.process.kill()
        self.process.wait()
        if self.process.stdin:
            self.process.stdin.close()
        self.memory.close()
