"""Answers environments together: all that are ready go in one forward pass, and nobody waits longer
than a deadline.

Continuous batching: while nothing is computed, the next pass takes everyone who is there; those who
come meanwhile go with the one after it. `least` and `patience_s` let a pass wait for company where
a pass is dear (a GPU).

Passes together have a price: environments that are answered together wait, and come back, together.
Where a step costs the event loop more than a pass (HTTP), `largest=1` is faster: it answers at
once, and environments stay spread.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flatout.errors import SettingsError
from flatout.slow_envs.field_kinds import check_kinds

__all__ = ["Batching"]

Floats = NDArray[np.float32]
RawActions = NDArray[np.float32 | np.int64]  # as drawn: numbers for a box, one choice otherwise
KEPT_WAITS = 10_000  # the last of them, for percentiles
MOST_IN_A_ROW = 64


class SampledActions(NamedTuple):
    """Actions that a policy drew for a batch of observations."""

    raw: RawActions  # (observation, ...)
    log_prob: Floats  # (observation,)
    version: int  # of the weights that drew them


class SampledAction(NamedTuple):
    """The action that it drew for one observation."""

    raw: RawActions | np.int64
    log_prob: float
    version: int


@dataclass(frozen=True)
class Batching:
    """When a forward pass begins and how large it is.

    >>> Batching(least=8, patience_s=0.005).largest
    256
    >>> Batching(buckets=(64, 256)).padded_size(100)
    256
    """

    least: int = 1  # wait for so many ...
    patience_s: float = 0.002  # ... but not longer than this
    largest: int = 256  # 1: everybody is answered at once
    # sizes to pad to, for programs compiled per shape; () = no padding
    buckets: tuple[int, ...] = ()
    threaded: bool = False  # compute beside the event loop: for passes of milliseconds

    def __post_init__(self) -> None:
        check_kinds(self)
        if not 1 <= self.least <= self.largest or self.patience_s < 0:
            raise SettingsError(
                f"least is {self.least}, largest {self.largest}, patience_s {self.patience_s}; "
                "give 1 <= least <= largest and patience_s >= 0"
            )
        if self.buckets and (
            list(self.buckets) != sorted(set(self.buckets)) or self.buckets[-1] < self.largest
        ):
            raise SettingsError(
                f"buckets are {self.buckets}: give growing sizes, the last at least {self.largest}"
            )

    def padded_size(self, count: int) -> int:
        """The size of the pass that serves so many."""
        return next((size for size in self.buckets if size >= count), count)


class Waiting(NamedTuple):
    """An environment that is ready, and the future that its action is put into."""

    observation: Floats
    since: float
    answer: "asyncio.Future[SampledAction]"


class Batcher:
    """Collects observations and answers them with actions."""

    def __init__(
        self, act: Callable[[Floats], SampledActions], size: int, batching: Batching | None = None
    ) -> None:
        self.act, self.batching = act, batching or Batching()
        rows = self.batching.padded_size(self.batching.largest)
        self.buffer = np.zeros((rows, size), np.float32)
        self.ready: deque[Waiting] = deque()
        self.timer: asyncio.Handle | None = None
        self.urgent = self.busy = False
        self.in_a_row = 0  # answers since the event loop last came round
        self.executor = ThreadPoolExecutor(1, "policy") if self.batching.threaded else None
        self.sizes: Counter[int] = Counter()
        self.waits: deque[float] = deque(maxlen=KEPT_WAITS)

    async def ask(self, observation: Floats) -> SampledAction:
        """What to do now that this was seen."""
        loop = asyncio.get_running_loop()
        if self.batching.largest == 1 and self.executor is None:
            return await self.answer_alone(observation, loop)
        waiting = Waiting(observation, loop.time(), loop.create_future())
        self.ready.append(waiting)
        self.arrange(loop)
        return await waiting.answer

    async def answer_alone(
        self, observation: Floats, loop: asyncio.AbstractEventLoop
    ) -> SampledAction:
        """Make a pass for one observation at once; an environment that never waits lets the event
        loop see to the others now and then.
        """
        if not self.in_a_row:
            loop.call_soon(self.end_row)
        elif self.in_a_row >= MOST_IN_A_ROW:
            await asyncio.sleep(0)
        self.in_a_row += 1
        self.waits.append(0.0)
        self.sizes[1] += 1
        self.buffer[0] = observation
        made = self.act(self.buffer)
        return SampledAction(made.raw[0], float(made.log_prob[0]), made.version)

    def end_row(self) -> None:
        """The event loop has come round: answers are counted anew."""
        self.in_a_row = 0

    def arrange(self, loop: asyncio.AbstractEventLoop) -> None:
        """See to it that a pass begins when it should."""
        if self.busy or not self.ready:
            return
        enough = len(self.ready) >= self.batching.least
        if self.timer is not None and (self.urgent or not enough):
            return
        if self.timer is not None:
            self.timer.cancel()
        self.urgent = enough
        due = self.ready[0].since + self.batching.patience_s
        self.timer = loop.call_soon(self.begin) if enough else loop.call_at(due, self.begin)

    def begin(self) -> None:
        """Take those who are ready into a pass."""
        self.timer = None
        loop = asyncio.get_running_loop()
        served: list[Waiting] = []
        while self.ready and len(served) < self.batching.largest:
            waiting = self.ready.popleft()
            if not waiting.answer.done():  # whoever was cancelled needs no answer
                served.append(waiting)
        if not served:
            self.arrange(loop)
            return
        for k, waiting in enumerate(served):
            self.buffer[k] = waiting.observation
            self.waits.append(loop.time() - waiting.since)
        self.sizes[len(served)] += 1
        batch = self.buffer[: self.batching.padded_size(len(served))]
        if self.executor is None:
            self.finish(served, self.act(batch))
            self.arrange(loop)
        else:
            self.busy = True
            computed = loop.run_in_executor(self.executor, self.act, batch)
            computed.add_done_callback(lambda made: self.finish_threaded(served, made))

    def finish_threaded(
        self, served: list[Waiting], made: "asyncio.Future[SampledActions]"
    ) -> None:
        """A pass in the thread is over: hand out what it made, or its error."""
        self.busy = False
        error = None if made.cancelled() else made.exception()
        if error is not None:
            for waiting in served:
                if not waiting.answer.done():
                    waiting.answer.set_exception(error)
        elif not made.cancelled():
            self.finish(served, made.result())
        self.arrange(made.get_loop())

    @staticmethod
    def finish(served: list[Waiting], made: SampledActions) -> None:
        """Give each environment of the pass its action."""
        # Not strict: the rows of the padding belong to nobody.
        for waiting, raw, log_prob in zip(served, made.raw, made.log_prob, strict=False):
            if not waiting.answer.done():
                waiting.answer.set_result(SampledAction(raw, float(log_prob), made.version))

    def close(self) -> None:
        """End the thread, and the wait of whoever still waits."""
        for waiting in self.ready:
            waiting.answer.cancel()
        if self.timer is not None:
            self.timer.cancel()
        if self.executor is not None:
            self.executor.shutdown(wait=True)
