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
from flatout.slow_envs.learner_state import Assignment, LearnerState, Vector
from flatout.slow_envs.learning import Learning, Update
from flatout.slow_envs.outbox import Outbox
from flatout.slow_envs.overlap import Rule
from flatout.slow_envs.shared_memory import SharedArrays
from flatout.slow_envs.tape import Segment

# --- messages


class SegmentFilled(NamedTuple):
    """To the learner: this place of the ring holds a segment."""

    place: int


class WeightsCopied(NamedTuple):
    """To the learner: these weights have been copied."""

    version: int


class ChangeRule(NamedTuple):
    """To the learner: learn by this rule from now on."""

    rule: Rule


class SendState(NamedTuple):
    """To the learner: send all that was learned, as a `LearnerState`."""


MessageToLearner = SegmentFilled | WeightsCopied | ChangeRule | SendState


class PlacesFreed(NamedTuple):
    """From the learner: these places may be filled again."""

    places: tuple[int, ...]


class WeightsPublished(NamedTuple):
    """From the learner: an update is done, its weights lie in half `version % 2`."""

    update: Update
    idle: float  # seconds since the update before without anything to learn from


class LearnerFailed(NamedTuple):
    """From the learner: it failed, with this traceback."""

    traceback: str


# --- links


class LearnerLink(Protocol):
    """What the environments' side needs of a learner."""

    async def put(self, segment: Segment) -> None:
        """Hand over a segment; waits while too many wait."""
        ...

    async def state(self) -> LearnerState:
        """All that was learned so far."""
        ...

    def change_rule(self, rule: Rule) -> None:
        """Learn by this rule from now on."""
        ...

    async def close(self) -> None:
        """End the learner, whatever it is doing."""
        ...


OnFailure = Callable[[RunError], None]


class OnUpdate(Protocol):
    """What is called after every update, with its weights."""

    def __call__(self, update: Update, vector: Vector, idle: float) -> None: ...


class InlineLink:
    """A learner in the same event loop: updates are made on the spot, and take as long as the
    settings say.
    """

    def __init__(self, assignment: Assignment, on_update: OnUpdate, on_failure: OnFailure) -> None:
        # late: PyTorch takes seconds to load
        from flatout.slow_envs.torch_learner import new_learner

        self.learner, self.on_update = new_learner(assignment), on_update
        self.learning, self.ring = Learning(self.learner, assignment.overlap), assignment.ring
        self.update_s = assignment.overlap.update_s
        self.changed = asyncio.Condition()
        self.on_failure = on_failure
        self.work = asyncio.create_task(self.learn())
        self.work.add_done_callback(self.report_end)

    async def put(self, segment: Segment) -> None:
        async with self.changed:
            await self.changed.wait_for(lambda: len(self.learning.waiting) < self.ring)
            self.learning.add_segment(segment)
            self.changed.notify_all()

    def report_end(self, work: "asyncio.Task[None]") -> None:
        """Report why there will be no more updates, unless `close` ended them."""
        error = None if work.cancelled() else work.exception()
        if error is not None:
            self.on_failure(RunError(f"the learner failed: {''.join(format_exception(error))}"))

    async def learn(self) -> None:
        """Make update after update, waiting for segments between them."""
        while True:
            async with self.changed:
                if self.learning.gather_batch():
                    self.changed.notify_all()
            update = self.learning.make_update()
            if update is not None:
                await asyncio.sleep(self.update_s)
                self.on_update(update, self.learner.vector, 0.0)
                continue
            async with self.changed:
                await self.changed.wait_for(
                    lambda: len(self.learning.waiting) >= self.learning.rule.batch_segments
                )

    async def state(self) -> LearnerState:
        return self.learner.state

    def change_rule(self, rule: Rule) -> None:
        self.learner.change_rule(rule)

    async def close(self) -> None:
        """End the updates; a batch that is being learned from is given up."""
        self.work.cancel()
        await asyncio.gather(self.work, return_exceptions=True)


class ProcessLink:
    """The learner's process, seen from the environments'."""

    def __init__(self, assignment: Assignment, on_update: OnUpdate, on_failure: OnFailure) -> None:
        self.on_update, self.on_failure = on_update, on_failure
        self.memory = SharedArrays(assignment.shapes())
        self.free = deque(range(assignment.ring))
        self.room = asyncio.Event()
        self.room.set()
        self.awaited: asyncio.Future[LearnerState] | None = None
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
        # by cloudpickle: a model may be defined in a user's script
        self.connection.send((sys.path, cloudpickle.dumps(assignment)))
        self.loop = asyncio.get_running_loop()
        self.loop.add_reader(self.connection.fileno(), self.read_message)
        # uvloop makes it non-blocking, and messages may be long
        os.set_blocking(self.connection.fileno(), True)
        self.outbox = Outbox(self.connection, self.loop)

    async def put(self, segment: Segment) -> None:
        while not self.free:
            self.room.clear()
            await self.room.wait()
        place = self.free.popleft()
        for name, array in segment._asdict().items():
            self.memory[name][place] = array
        self.outbox.send(SegmentFilled(place))

    def read_message(self) -> None:
        """Read one message of the learner and do what it asks."""
        try:
            message = self.connection.recv()
        except (EOFError, OSError):
            self.loop.remove_reader(self.connection.fileno())
            self.report_failure(f"it ended with {self.process.wait()} without a word")
            return
        if isinstance(message, PlacesFreed):
            self.free.extend(message.places)
            self.room.set()
        elif isinstance(message, WeightsPublished):
            version = message.update.version
            vector = self.memory["weights"][version % 2].copy()
            self.outbox.send(WeightsCopied(version))
            self.on_update(message.update, vector, message.idle)
        elif isinstance(message, LearnerFailed):
            self.report_failure(message.traceback)
        elif self.awaited is not None:
            self.awaited.set_result(message)

    def report_failure(self, why: str) -> None:
        """The learner is gone: tell whoever awaits its state, and the session."""
        error = RunError(f"the learner's process failed: {why}")
        if self.awaited is not None and not self.awaited.done():
            self.awaited.set_exception(error)
        self.on_failure(error)

    async def state(self) -> LearnerState:
        self.awaited = asyncio.get_running_loop().create_future()
        self.outbox.send(SendState())
        return await self.awaited

    def change_rule(self, rule: Rule) -> None:
        self.outbox.send(ChangeRule(rule))

    async def close(self) -> None:
        """Kill the learner's process and give back the shared memory."""
        self.outbox.close()
        self.loop.remove_reader(self.connection.fileno())
        self.connection.close()
        self.process.kill()
        self.process.wait()
        if self.process.stdin:
            self.process.stdin.close()
        self.memory.close()
