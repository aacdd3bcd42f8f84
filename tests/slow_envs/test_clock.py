"""Time that jumps: timers fire in order and on time, and a wait for nothing is an error."""

import asyncio

import pytest

from flatout.errors import RunError
from flatout.slow_envs.clock import run_virtually


def test_an_hour_takes_no_time_and_timers_fire_in_order() -> None:
    fired: list[tuple[float, int]] = []

    async def sleeper(k: int) -> None:
        await asyncio.sleep(3600 * (5 - k))
        fired.append((asyncio.get_running_loop().time(), k))

    async def main() -> None:
        await asyncio.gather(*(sleeper(k) for k in range(5)))

    run_virtually(main())
    assert fired == [(3600.0 * (5 - k), k) for k in (4, 3, 2, 1, 0)]


def test_deadlines_are_kept_to_the_second() -> None:
    async def main() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(12.5):
                await asyncio.sleep(100)
        return asyncio.get_running_loop().time()

    assert run_virtually(main()) == 12.5


def test_waiting_for_nothing_is_an_error() -> None:
    async def main() -> None:
        await asyncio.Event().wait()

    with pytest.raises(RunError, match="no timer will bring"):
        run_virtually(main())
