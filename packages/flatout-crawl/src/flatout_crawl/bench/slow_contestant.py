"""flatout in `flatout bench slow`: all crawls in one event loop, the learner in a process of its
own.
"""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from flatout.slow_envs.batcher import Batching
from flatout.slow_envs.overlap import Overlap, Rule
from flatout.slow_envs.session import Session, SessionCounts
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


class SessionSnapshot(NamedTuple):
    """What a session, its server and the clock have counted at one moment."""

    at: float
    counts: SessionCounts
    requests: int  # that the server has had
    cpu_s: float

    @classmethod
    def take(cls, session: Session, origin: str) -> "SessionSnapshot":
        """Read all counters, that of the server first."""
        requests = requests_seen(origin)
        at = asyncio.get_running_loop().time()
        return cls(at, session.counts(), requests, time.process_time())

    def since(self, before: "SessionSnapshot") -> Count:
        """What happened between an earlier snapshot and this one."""
        now, then = self.counts, before.counts
        learning, idle = now.learning_s - then.learning_s, now.idle_s - then.idle_s
        ages = sorted((now.lags - then.lags).elements())
        return Count(
            steps=now.steps - then.steps,
            resets=now.resets - then.resets,
            seconds=self.at - before.at,
            first=before.requests,
            last=self.requests,
            updates=now.updates - then.updates,
            learner_idle=idle / (learning + idle) if learning + idle else 1.0,
            lag_p95=float(np.percentile(ages, 95)) if ages else 0.0,
            cpu_s=self.cpu_s - before.cpu_s,
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


async def measure_session(session: Session, origin: str, seconds: float) -> Count:
    """What happens in so many seconds once everything is under way."""
    while (
        counts := session.counts()
    ).updates < WARM_UPDATES or counts.envs_at_work < session.n_envs:
        await run_for(session, 0.05)
    before = SessionSnapshot.take(session, origin)
    await run_for(session, seconds)
    return SessionSnapshot.take(session, origin).since(before)


async def run_for(session: Session, seconds: float) -> None:
    """Let a session run for so long; raises what ends it."""
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            while True:
                await session.next_update()
    except TimeoutError:
        if not limit.expired():
            raise


async def settle_memory(session: Session) -> dict[str, float]:
    """The memory of this process after all places for segments were filled several times."""
    rows = FILLINGS * OVERLAP.waiting_batches * session.rule.batch_segments * ROWS
    while session.steps < rows:
        await run_for(session, 0.05)
    return memory_of()


def memory_per_env(spec: Spec) -> dict[str, float]:
    """Megabytes that each environment after the first adds to this process, and what it has with
    all of them.
    """
    one = asyncio.run(with_session(spec, MEMORY, 1, settle_memory))
    many = asyncio.run(with_session(spec, MEMORY, spec.envs, settle_memory))
    return {"rss_per_env_mb": (many["rss_mb"] - one["rss_mb"]) / (spec.envs - 1), **many}


def main() -> None:
    """Measure what the lines on standard input ask for."""
    spec = Spec(**json.loads(sys.argv[1]))

    def answer(kind: str) -> dict[str, Any]:
        if kind == MEMORY:
            return memory_per_env(spec)

        async def use(session: Session) -> Count:
            return await measure_session(session, spec.origins[kind], spec.seconds)

        return asyncio.run(with_session(spec, kind, spec.envs, use))._asdict()

    answer_lines(answer)


if __name__ == "__main__":
    main()
