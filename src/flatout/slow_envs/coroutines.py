"""Several coroutines awaited together: all or nothing, or each for itself."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

T = TypeVar("T")
Work = Coroutine[Any, Any, T]  # what `async def` makes; only the event loop knows the first two


async def all_of(work: Sequence[Work[T]]) -> list[T]:
    """Await all; the first exception (or being cancelled) cancels the others, and awaits that
    too.
    """
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


async def each_of(work: Sequence[Work[T]]) -> list[T | BaseException]:
    """Await all; an exception stands in the place of its result and does not cancel the others,
    which in a process would cost it its life.
    """
    return await asyncio.gather(*work, return_exceptions=True)
