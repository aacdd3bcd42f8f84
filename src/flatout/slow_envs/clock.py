"""An event loop on simulated time: where nothing is ready, the clock jumps to the next timer
instead of waiting.

What runs on it is the same code that runs on real time. Given equal seeds it does the same things
in the same order, and an hour of waits takes as long as the work between them.
"""

import asyncio
import selectors
from typing import TypeVar

from flatout.errors import RunError
from flatout.slow_envs.coroutines import Work

__all__ = ["VirtualLoop", "run_virtually"]

T = TypeVar("T")


class JumpingSelector(selectors.SelectSelector):
    """Answers at once and remembers how long it was asked to wait."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready:
            return ready
        if timeout is None:
            raise RunError(
                "everything waits for something that no timer will bring: on simulated time "
                "that is for ever"
            )
        self.now += max(timeout, 0.0)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """asyncio's loop with a clock that starts at 0 and only jumps. Threads and sockets have no
    place on it.

    >>> with asyncio.Runner(loop_factory=VirtualLoop) as runner:
    ...     runner.run(asyncio.sleep(3600, "an hour later"))
    'an hour later'
    """

    def __init__(self) -> None:
        self.jumping = JumpingSelector()
        super().__init__(self.jumping)
        # timers that are due within it fire together; the default is the system's
        self._clock_resolution = 1e-9

    def time(self) -> float:
        return self.jumping.now


def run_virtually(main: Work[T]) -> T:
    """Run a coroutine on simulated time, as `asyncio.run` does on real time.

    >>> async def main() -> float:
    ...     await asyncio.sleep(3600)
    ...     return asyncio.get_running_loop().time()
    >>> run_virtually(main())
    3600.0
    """
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
