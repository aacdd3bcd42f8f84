"""An event loop whose clock jumps to the next timer instead of waiting for it."""

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


def run_simulated(work: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run` on simulated time, from 0."""
    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        return runner.run(work)
