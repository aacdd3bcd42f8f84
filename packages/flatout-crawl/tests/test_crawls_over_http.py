"""Many crawls over real HTTP on loopback, learned from while they wait: hangs, crashes, kills and a
dead server.
"""

import asyncio
import json
import os
import signal
import socket
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from simulated_clock_of_crawl import run_skipping, skip

from flatout.errors import RunError
from flatout.slow_envs.overlap import Care, Overlap, Rule
from flatout.slow_envs.plain import adapt_env
from flatout.slow_envs.session import Session
from flatout_crawl.choosers.environment import FocusedCrawl, SiteUnreachable
from flatout_crawl.choosers.scorer import LinkScorer
from flatout_crawl.choosers.site_task import site_task
from flatout_crawl.net.addresses import Lab
from flatout_crawl.net.exchange import RequestCaps
from flatout_crawl.net.http import LiveFetcher
from flatout_crawl.net.ledger import AuditLog, RequestBudget
from flatout_crawl.net.scope import Scope
from flatout_crawl.sites.latency import Latency, constant
from flatout_crawl.sites.site import SiteSettings, generate
from flatout_crawl.sites.site_server import Served, Serving, listen, port_of, serve_sites
from worker_processes import lives

pytest.importorskip("torch")
SITE = SiteSettings(seed=5, pages=120, hazards=False)
MODEL = LinkScorer(candidates=8, width=8)
RULE = Rule(batch_segments=6, minibatch=32, epochs=1)
# of a step, and of a beginning: it passes where a test skips it, and never because all is slow
DEADLINE_S = 3600.0
OVERLAP = Overlap(
    segment=4,
    learner="inline",
    care=Care(step_deadline_s=DEADLINE_S, reset_deadline_s=DEADLINE_S, first_pause_s=0.01),
)
CAPS = RequestCaps(
    total_seconds=9e6, connect_seconds=9e6, read_seconds=9e6
)  # the deadlines above are those that count


class LabCrawl:
    """A fetcher for one server on loopback, with its budget and audit log."""

    def __init__(self, folder: Path, port: int) -> None:
        self.place = f"127.0.0.1:{port}"
        self.budget, self.audit = RequestBudget(folder, 10**6), AuditLog(folder)
        self.fetcher = LiveFetcher(
            Scope.parse([self.place]),
            budget=self.budget,
            audit=self.audit,
            lab=Lab.parse([self.place]),
            caps=CAPS,
        )
        self.task = site_task(generate(SITE).at(f"http://{self.place}"), self.fetcher)

    def env(self) -> FocusedCrawl:
        return FocusedCrawl([self.task], candidates=8, budget=40, stop_action=False)

    async def close(self) -> None:
        await self.fetcher.close()
        self.budget.close()
        self.audit.close()


def counted(site: Served) -> int:
    """Requests that the server has seen, robots.txt among them."""
    with urllib.request.urlopen(f"{site.origin}/-/counters") as answer:
        return int(json.load(answer)["requests"])


async def updates(session: Session, enough: Callable[[Session], bool]) -> dict[str, Any]:
    """Run until there was enough; what happened, with the steps that end while all is stopped."""
    await session.start()
    try:
        while not enough(session):
            await session.next_update()
    finally:
        await session.stop()
    return session.figures()


@pytest.mark.long
def test_steps_are_requests_and_learning_goes_on(tmp_path: Path) -> None:
    """Every step and every beginning is one request, as is robots.txt; but for those under way at
    the end, which are entered in the budget and may not have reached the server.
    """

    async def main(site: Served) -> tuple[dict[str, Any], int]:
        lab = LabCrawl(tmp_path, site.port)
        overlap = replace(OVERLAP, learner="process")
        figures = await updates(
            Session([lab.env] * 12, MODEL, RULE, overlap),
            lambda one: one.pool.events["episodes"] >= 15,
        )
        spent = lab.budget.spent
        await lab.close()
        return figures, spent

    with serve_sites(SITE, constant(0.005)) as site:
        figures, spent = asyncio.run(main(site))
        seen = counted(site)
    done = figures["steps"] + figures["resets"] + 1
    assert done <= seen <= spent <= done + 12
    assert figures["updates"] > 0 and figures["crashes"] == figures["timeouts"] == 0


async def until(session: Session, happened: Callable[[], bool]) -> None:
    """Wait for this, however long it takes; raises what ended the run."""
    while not happened():
        if session.running.done():
            session.running.result()
        await asyncio.sleep(0.001)


def test_hanging_requests_are_cut_and_counted(tmp_path: Path) -> None:
    """Each crawl goes on until a request of its own hangs. When all do, the deadline passes, and
    they begin anew.
    """

    async def main() -> tuple[dict[str, Any], dict[str, Any]]:
        serving = Serving(generate(SITE), Latency(hang_share=0.02), seed=3)
        server = await listen(serving)
        lab = LabCrawl(tmp_path, port_of(server))
        session = Session([lab.env] * 12, MODEL, RULE, OVERLAP)
        await session.start()
        await until(session, lambda: serving.counters["hang"] == 12)
        before = session.figures()
        skip(DEADLINE_S)
        while (
            session.pool.events["resets"] < before["resets"] + 6
            or session.version == before["updates"]
        ):
            await session.next_update()
        after = session.figures()
        await session.stop()
        await lab.close()
        server.close()
        return before, after

    before, after = run_skipping(main())
    assert before["timeouts"] == 0 and before["updates"] > 0
    assert (after["timeouts"], after["crashes"], after["quarantined"]) == (12, 0, 0)
    assert after["updates"] > before["updates"] and after["steps"] > before["steps"]


class Fragile(FocusedCrawl):
    """Breaks every so often."""

    made = 0

    async def step(self, action: Any) -> Any:
        Fragile.made += 1
        if Fragile.made % 60 == 0:
            raise LookupError("lost the thread")
        return await super().step(action)


def test_crashes_are_mended_and_counted_exactly(tmp_path: Path) -> None:
    Fragile.made = 0

    async def main(site: Served) -> dict[str, Any]:
        lab = LabCrawl(tmp_path, site.port)
        makers = [lambda: Fragile([lab.task], candidates=8, budget=40, stop_action=False)] * 8
        figures = await updates(
            Session(makers, MODEL, RULE, OVERLAP), lambda one: one.pool.events["crashes"] >= 4
        )
        await lab.close()
        return figures

    with serve_sites(SITE, constant(0.002)) as site:
        figures = asyncio.run(main(site))
    assert figures["crashes"] == Fragile.made // 60 and figures["timeouts"] == 0


def test_a_dead_server_is_refused_at_once(tmp_path: Path) -> None:
    """Nobody waits for a deadline of an hour."""
    with socket.socket() as taken:  # a port that nobody listens on
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]

        async def main() -> None:
            lab = LabCrawl(tmp_path, port)
            session = Session([lab.env] * 16, MODEL, RULE, OVERLAP)
            try:
                await session.start()
                async with asyncio.timeout(DEADLINE_S / 10):
                    await session.next_update()
            finally:
                await session.stop()
                await lab.close()

        with pytest.raises(RunError, match="none of the 16 environments could begin") as caught:
            asyncio.run(main())
    assert isinstance(caught.value.__cause__, SiteUnreachable)


class InItsProcess:
    """Makes a plain environment that fetches in a process of its own."""

    def __init__(self, folder: Path, port: int, k: int) -> None:
        self.folder, self.port, self.k = folder, port, k

    def __call__(self) -> Any:
        folder = self.folder / f"{self.k}-{os.getpid()}"
        folder.mkdir()
        return LabCrawl(folder, self.port).env()


@pytest.mark.long
def test_a_killed_worker_is_replaced(tmp_path: Path) -> None:
    async def main(site: Served) -> tuple[dict[str, Any], list[int]]:
        pids: list[int] = []

        def maker(k: int) -> Any:
            def make() -> Any:
                env: Any = adapt_env(InItsProcess(tmp_path, site.port, k), "process")
                pids.append(env.pid)
                return env

            return make

        session = Session([maker(k) for k in range(2)], MODEL, RULE, OVERLAP)
        await session.start()
        slot = session.pool.slots[1]
        await until(
            session, lambda: 1 <= slot.length <= 3
        )  # at an episode's end, a dead process would not be missed
        os.kill(pids[1], signal.SIGKILL)
        await until(session, lambda: session.pool.events["restarts"] > 0)
        before = slot.steps
        while slot.steps < before + 10:
            await session.next_update()
        figures = session.figures()
        await session.stop()
        return figures, pids

    with serve_sites(SITE, constant(0.002)) as site:
        figures, pids = asyncio.run(main(site))
    assert (figures["crashes"], figures["restarts"], figures["timeouts"]) == (1, 1, 0)
    assert len(pids) == 3 and not any(lives(pid) for pid in pids)
