"""flatout in `flatout bench slow`: all crawls in one event loop, the learner in a process of its
own.
"""

import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from flatout.slow_envs.batcher import Batching
from flatout.slow_envs.overlap import Overlap, Rule
from flatout.slow_envs.session import Session
from flatout_crawl.bench.slow_workload import (
    EPOCHS,
    MEMORY,
    ROWS,
    Books,
    Count,
    Spec,
    answer_lines,
    known_tasks,
    memory_of,
    new_crawl,
    requests_seen,
)
from flatout_crawl.choosers.scorer import LinkScorer

WARM_UPDATES = 2  # before the clock starts
FILLINGS = 4  # of all the memory that is for segments, before memory is looked at
OVERLAP = Overlap(segment=ROWS, batching=Batching(largest=1))


class Moment(NamedTuple):
    """What a session has counted so far."""

    at: float
    steps: int
    resets: int
    updates: int
    learning_s: float
    idle_s: float
    lags: Counter[int]
    requests: int  # that the server has had
    cpu_s: float

    @classmethod
    def now(cls, session: Session, origin: str) -> "Moment":
        """Take it down."""
        requests, events = requests_seen(origin), session.pool.events
        at = asyncio.get_running_loop().time()
        counts = (events["steps"], events["resets"], session.totals["updates"])
        return cls(
            at,
            *counts,
            session.learning_s,
            session.idle_s,
            session.lags.copy(),
            requests,
            time.process_time(),
        )

    def since(self, before: "Moment") -> Count:
        """What happened in between."""
        learning, idle = self.learning_s - before.learning_s, self.idle_s - before.idle_s
        ages = sorted((self.lags - before.lags).elements())
        return Count(
            self.steps - before.steps,
            self.resets - before.resets,
            self.at - before.at,
            before.requests,
            self.requests,
            self.updates - before.updates,
            idle / (learning + idle) if learning + idle else 1.0,
            float(np.percentile(ages, 95)) if ages else 0.0,
            self.cpu_s - before.cpu_s,
        )


async def with_session(
    spec: Spec, kind: str, envs: int, use: Callable[[Session], Awaitable[Any]]
) -> Any:
    """Let so many crawls live and learn, and do something meanwhile."""
    books = Books([spec.origins[kind]], Path(spec.folder))
    try:
        tasks = known_tasks([spec.origins[kind]], books.fetcher)
        crawls = [new_crawl(tasks, alone=False) for _ in range(envs)]
        rule = Rule(batch_segments=spec.envs, minibatch=spec.minibatch, epochs=EPOCHS)
        session = Session(crawls, LinkScorer(), rule, OVERLAP)
        await session.start()
        try:
            return await use(session)
        finally:
            await session.stop()
    finally:
        await books.close()


async def measured(session: Session, origin: str, seconds: float) -> Count:
    """What happens in so many seconds once everything is under way."""
    while session.totals["updates"] < WARM_UPDATES or not all(
        slot.steps for slot in session.pool.slots
    ):
        await going_on(session, 0.05)
    before = Moment.now(session, origin)
    await going_on(session, seconds)
    return Moment.now(session, origin).since(before)


async def going_on(session: Session, seconds: float) -> None:
    """Let a session run for so long; raises what ends it."""
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            while True:
                await session.next_update()
    except TimeoutError:
        if not limit.expired():
            raise


async def settled(session: Session) -> dict[str, float]:
    """The memory of this process after all places for segments were filled several times."""
    rows = FILLINGS * OVERLAP.waiting_batches * session.rule.batch_segments * ROWS
    while session.pool.events["steps"] < rows:
        await going_on(session, 0.05)
    return memory_of()


def memory_per_env(spec: Spec) -> dict[str, float]:
    """Megabytes that each environment after the first adds to this process, and what it has with
    all of them.
    """
    one = asyncio.run(with_session(spec, MEMORY, 1, settled))
    many = asyncio.run(with_session(spec, MEMORY, spec.envs, settled))
    return {"rss_per_env_mb": (many["rss_mb"] - one["rss_mb"]) / (spec.envs - 1), **many}


def main() -> None:
    """Measure what is asked for."""
    spec = Spec(**json.loads(sys.argv[1]))

    def answer(kind: str) -> dict[str, Any]:
        if kind == MEMORY:
            return memory_per_env(spec)

        async def use(session: Session) -> Count:
            return await measured(session, spec.origins[kind], spec.seconds)

        return asyncio.run(with_session(spec, kind, spec.envs, use))._asdict()

    answer_lines(answer)


if __name__ == "__main__":
    main()
