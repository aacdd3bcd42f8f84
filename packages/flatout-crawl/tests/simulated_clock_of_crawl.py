"""Event loops whose clocks jump: to the next timer where nothing is real, or when they are
asked to.
"""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class JumpingLoop(asyncio.SelectorEventLoop):
    """Time passes only when nobody has anything to do."""

    def __init__(self) -> None:
        self.now = 0.0
        selector = selectors.DefaultSelector()
        super().__init__(selector)
        real = selector.select

        def select(timeout: float | None = None) -> Any:
            events = real(0)
            if not events and timeout:
                self.now += timeout
            return events

        selector.select = select  # type: ignore[method-assign]

    def time(self) -> float:
        return self.now


class SkippingLoop(asyncio.SelectorEventLoop):
    """Real time for real sockets and processes; `skip` lets so many seconds pass at once.

    Deadlines can be hours then, so that none passes because a machine is slow, and pass when they
    are meant to.
    """

    def __init__(self) -> None:
        self.skipped = 0.0
        super().__init__()

    def time(self) -> float:
        return super().time() + self.skipped

    def skip(self, seconds: float) -> None:
        self.skipped += seconds


def skip(seconds: float) -> None:
    """Let so many seconds pass in the running loop, which skips."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SkippingLoop)
    loop.skip(seconds)


def run_skipping(work: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run` on a clock that can be asked to skip."""
    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        return runner.run(work)


def run_simulated(work: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run` on simulated time, from 0."""
    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        return runner.run(work)
