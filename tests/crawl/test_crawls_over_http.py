"""Many crawls over real HTTP on loopback, learned from while they wait: hangs, crashes, kills and a dead server."""

import asyncio
import json
import os
import signal
import socket
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flatout.crawl.addresses import Lab
from flatout.crawl.environment import FocusedCrawl, SiteUnreachable
from flatout.crawl.http import LiveFetcher
from flatout.crawl.latency import Latency, constant
from flatout.crawl.ledger import AuditLog, RequestBudget
from flatout.crawl.scope import Scope
from flatout.crawl.scorer import LinkScorer
from flatout.crawl.site import SiteSettings, generate
from flatout.crawl.site_server import Served, served
from flatout.crawl.site_task import site_task
from flatout.errors import RunError
from flatout.slow_envs.overlap import Care, Overlap, Rule
from flatout.slow_envs.plain import adapted
from flatout.slow_envs.session import Session

pytest.importorskip("torch")
SITE = SiteSettings(seed=5, pages=120, hazards=False)
MODEL = LinkScorer(candidates=8, width=8)
RULE = Rule(batch_segments=6, minibatch=32, epochs=1)
QUICK = Overlap(segment=4, care=Care(step_deadline_s=1.0, reset_deadline_s=5.0))


class LabCrawl:
    """A fetcher for one server on loopback, with its budget and audit log."""

    def __init__(self, folder: Path, port: int) -> None:
        self.place = f"127.0.0.1:{port}"
        self.budget, self.audit = RequestBudget(folder, 10**6), AuditLog(folder)
        self.fetcher = LiveFetcher(
            Scope.parse([self.place]), budget=self.budget, audit=self.audit, lab=Lab.parse([self.place])
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
    """Run until there was enough; what happened."""
    await session.start()
    try:
        while not enough(session):
            await session.next_update()
        return session.figures()
    finally:
        await session.stop()


def test_steps_are_requests_and_learning_goes_on(tmp_path: Path) -> None:
    """Every step and every beginning is one request, but for those under way at the end."""

    async def main(site: Served) -> tuple[dict[str, Any], int]:
        lab = LabCrawl(tmp_path, site.port)
        figures = await updates(
            Session([lab.env] * 12, MODEL, RULE, QUICK), lambda one: one.pool.events["episodes"] >= 15
        )
        spent = lab.budget.spent
        await lab.close()
        return figures, spent

    with served(SITE, constant(0.005)) as site:
        figures, spent = asyncio.run(main(site))
        assert counted(site) in (spent, spent + 1)  # the question itself may count
    assert figures["steps"] + figures["resets"] <= spent <= figures["steps"] + figures["resets"] + 12 + 1
    assert figures["updates"] > 0 and figures["crashes"] == figures["timeouts"] == 0


def test_hanging_requests_are_cut_and_counted(tmp_path: Path) -> None:
    async def main(site: Served) -> dict[str, Any]:
        lab = LabCrawl(tmp_path, site.port)
        session = Session([lab.env] * 12, MODEL, RULE, QUICK)
        figures = await updates(session, lambda one: one.pool.events["timeouts"] >= 5)
        await lab.close()
        return figures

    with served(SITE, Latency(0.005, hang_share=0.02), seed=3) as site:
        figures = asyncio.run(main(site))
    assert figures["restarts"] <= figures["timeouts"] <= figures["restarts"] + 12
    assert figures["crashes"] == 0 and figures["updates"] > 0


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
        figures = await updates(Session(makers, MODEL, RULE, QUICK), lambda one: one.pool.events["crashes"] >= 4)
        await lab.close()
        return figures

    with served(SITE, constant(0.002)) as site:
        figures = asyncio.run(main(site))
    assert figures["crashes"] == Fragile.made // 60 and figures["timeouts"] == 0


def test_a_dead_server_is_refused_within_seconds(tmp_path: Path) -> None:
    with socket.socket() as taken:  # a port that nobody listens on
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]

        async def main() -> None:
            lab = LabCrawl(tmp_path, port)
            session = Session([lab.env] * 16, MODEL, RULE, QUICK)
            try:
                await session.start()
                async with asyncio.timeout(5):
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


def test_a_killed_worker_is_replaced(tmp_path: Path) -> None:
    async def main(site: Served) -> tuple[dict[str, Any], list[int]]:
        pids: list[int] = []

        def maker(k: int) -> Any:
            def make() -> Any:
                env: Any = adapted(InItsProcess(tmp_path, site.port, k), "process")
                pids.append(env.pid)
                return env

            return make

        session = Session([maker(k) for k in range(3)], MODEL, RULE, QUICK)
        await session.start()
        await session.next_update()
        os.kill(pids[1], signal.SIGKILL)
        while session.pool.events["restarts"] < 1 or session.pool.slots[1].steps < 60:
            await session.next_update()
        figures = session.figures()
        await session.stop()
        return figures, pids

    with served(SITE, constant(0.002)) as site:
        figures, pids = asyncio.run(main(site))
    assert (figures["crashes"], figures["restarts"], figures["timeouts"]) == (1, 1, 0)
    assert len(pids) == 4 and not any(np.array([Path(f"/proc/{pid}").exists() for pid in pids]))
