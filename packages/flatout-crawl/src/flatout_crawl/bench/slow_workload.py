"""What `flatout bench slow` runs, the same for all contestants: a made-up site behind a slow
server, crawled over HTTP.

One step is one request: the site has no hazards, stopping is not among the choices, and all pages
were read once before the clock starts, in every process, so that nobody pays for the first reading.
A contestant is a process that hears JSON lines on standard input and answers them on standard
output until there are no more.
"""

import json
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple

from flatout_crawl.choosers.environment import CrawlTask, FocusedCrawl
from flatout_crawl.choosers.site_task import site_task
from flatout_crawl.net.addresses import Lab
from flatout_crawl.net.fetching import Answer, Fetcher
from flatout_crawl.net.http import LiveFetcher
from flatout_crawl.net.ledger import AuditLog, RequestBudget
from flatout_crawl.net.scope import Scope
from flatout_crawl.sites.site import Site, SiteSettings, generate
from flatout_crawl.sites.site_server import COUNTERS

SITE = SiteSettings(seed=1, pages=200, hazards=False)
BUDGET = 100  # requests of an episode
ROWS, MINIBATCH, EPOCHS = 16, 256, 4  # each update learns from so many steps of every environment
ENOUGH = 10**9  # requests that the books allow
MEMORY = "memory"  # in place of a kind of latency: tell how much memory an environment takes

READY = "ready"  # what a contestant says first


@dataclass(frozen=True)
class Spec:
    """What a contestant is given when it begins; it travels as JSON."""

    contestant: str
    envs: int
    seconds: float  # of a measurement, at least
    origins: dict[str, str]  # where the site is served with each kind of latency
    folder: str  # for the books of requests

    @property
    def minibatch(self) -> int:
        """Steps of a minibatch: never more than an update has."""
        return min(MINIBATCH, ROWS * self.envs)

    @property
    def kinds(self) -> list[str]:
        """Kinds of latency, in the order of the tasks."""
        return list(self.origins)


class Count(NamedTuple):
    """What happened in a measurement."""

    steps: int
    resets: int  # of environments; each is one request
    seconds: float
    first: int  # request of the server's, in the order in which they came
    last: int  # the one after the last
    updates: int = 0
    learner_idle: float = 0.0  # share of its time
    lag_p95: float = 0.0  # updates
    cpu_s: float = 0.0  # computing in the process of the environments, where they share one

    @property
    def requests(self) -> int:
        """As the contestant counts them."""
        return self.steps + self.resets


class Books:
    """A fetcher for the laboratory, with its budget and its audit log."""

    def __init__(self, origins: list[str], folder: Path) -> None:
        doors = [origin.removeprefix("http://") for origin in origins]
        folder = Path(tempfile.mkdtemp(dir=folder))  # books belong to one process
        self.budget, self.audit = RequestBudget(folder, ENOUGH), AuditLog(folder)
        self.fetcher = LiveFetcher(
            Scope.parse(doors), lab=Lab.parse(doors), budget=self.budget, audit=self.audit
        )

    async def close(self) -> None:
        """Close connections and files."""
        await self.fetcher.close()
        self.budget.close()
        self.audit.close()


def known_tasks(origins: list[str], fetcher: Fetcher) -> list[CrawlTask]:
    """The site under each origin, all its pages read."""
    site = generate(SITE)
    return [known_task(site.at(origin), fetcher) for origin in origins]


def known_task(site: Site, fetcher: Fetcher) -> CrawlTask:
    """The task of one site, all its pages read."""
    task = site_task(site, fetcher)
    for url in site.graph:
        reply = site.answer(url)
        task.notes.facts(Answer(url, reply.status, reply.body, "text/html"))
    return task


def new_crawl(tasks: list[CrawlTask], alone: bool) -> FocusedCrawl:
    """The environment of all contestants: with others in one loop, or alone in a process where
    nobody knows masks.
    """
    return FocusedCrawl(
        tasks, budget=BUDGET, stop_action=False, forgiving=alone, closes_fetchers=alone
    )


def requests_seen(origin: str) -> int:
    """How many requests the server has had."""
    with closing(HTTPConnection(origin.removeprefix("http://"), timeout=30)) as connection:
        connection.request("GET", COUNTERS)
        return int(json.loads(connection.getresponse().read())["requests"])


def memory_of(process: int | str = "self") -> dict[str, float]:
    """Megabytes of a process: all that it has mapped, and with its share of what it shares with
    others.
    """
    lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()[1:]
    sizes = {line.split(":")[0]: int(line.split()[1]) for line in lines}
    return {"rss_mb": sizes["Rss"] / 1024, "pss_mb": sizes["Pss"] / 1024}


def answer_lines(answer: Callable[[str], dict[str, Any]]) -> None:
    """Say that all is ready, then answer each line of standard input, which is a JSON text, by a
    line of JSON.
    """
    print(json.dumps(READY), flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)
