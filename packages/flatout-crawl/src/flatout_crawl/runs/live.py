"""The live side of a crawl's folder: its request budget, its audit log, its archive, and a polite
fetcher over them.

A site's robots.txt is kept for an hour, so that a crawl that is begun again does not ask
for it anew.
"""

import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from aiohttp.abc import AbstractResolver

from flatout.errors import SettingsError
from flatout.runs import installed_version
from flatout_crawl.net.exchange import RequestCaps
from flatout_crawl.net.fetching import Answer, Fetcher
from flatout_crawl.net.http import LiveFetcher
from flatout_crawl.net.ledger import AuditLog, RequestBudget
from flatout_crawl.net.politeness import UNHURRIED, UNLIMITED, Politeness
from flatout_crawl.net.robots import Robots
from flatout_crawl.runs.archive import Archive, RecordingFetcher, Seconds
from flatout_crawl.runs.order import ARCHIVE, CrawlOrder
from flatout_crawl.runs.visits import HttpStatus, JsonLines, Url

ROBOTS = "robots.jsonl"
ROBOTS_KEPT_SECONDS = 3600.0
CONNECT_SECONDS = 4.0  # a dead host is noticed soon
SHORTEST_DELAY = 1.0  # seconds, at public hosts


class Source(NamedTuple):
    """Where a crawl's pages come from."""

    fetcher: Fetcher
    archive: Archive
    budget: RequestBudget | None  # None: nothing is sent


@dataclass(frozen=True)
class RobotsRow:
    """What a site answered when it was asked for its robots.txt."""

    asked: Url
    time: Seconds  # Unix time
    url: Url
    status: HttpStatus
    content_type: str
    body: str  # its bytes as Latin-1


class KeptRobots:
    """A robots.txt's fetch that remembers, over restarts, what sites answered a short while ago."""

    def __init__(
        self, fetch: Callable[[str], Awaitable[Answer]], lines: JsonLines[RobotsRow]
    ) -> None:
        self.fetch, self.lines = fetch, lines

    async def __call__(self, url: str) -> Answer:
        """The kept answer if it is young enough, else a new one, which is kept."""
        for row in reversed(self.lines.rows):
            if row.asked == url and 0 <= time.time() - row.time < ROBOTS_KEPT_SECONDS:
                content = row.body.encode("latin-1", "replace")
                return Answer(row.url, row.status, content, row.content_type, requests=0)
        answer = await self.fetch(url)
        if not answer.failure and answer.status < 500 and answer.status != 429:
            body = answer.body.decode("latin-1")
            self.lines.add(
                RobotsRow(
                    asked=url,
                    time=time.time(),
                    url=answer.url,
                    status=answer.status,
                    content_type=answer.content_type,
                    body=body,
                )
            )
        return answer


def is_public(order: CrawlOrder) -> bool:
    """Whether hosts other than the laboratory may be asked."""
    scope, lab = order.scope(), order.doors()
    return scope is not None and not all(
        lab.holds(place.host, port) for place in scope.places for port in place.ports
    )


def politeness_of(order: CrawlOrder) -> Politeness | None:
    """How hosts are treated; None: unhurried with the public, unlimited in the laboratory."""
    if order.delay_seconds is None:
        return None
    if is_public(order):
        if order.delay_seconds < SHORTEST_DELAY:
            raise SettingsError(
                f"a delay of {order.delay_seconds:g} s is too short for public hosts: give "
                f"{SHORTEST_DELAY:g} or more"
            )
        first = max(order.delay_seconds, UNHURRIED.first_delay_seconds)
        return replace(UNHURRIED, delay_seconds=order.delay_seconds, first_delay_seconds=first)
    return replace(UNLIMITED, delay_seconds=order.delay_seconds, connections=1)


def agent_of(order: CrawlOrder) -> str:
    """The user agent; without a contact, which public hosts require, where none was given."""
    return order.user_agent or f"flatout/{installed_version('flatout')}"


def live_fetcher(
    order: CrawlOrder,
    budget: RequestBudget,
    audit: AuditLog,
    caps: RequestCaps | None = None,
    resolver: AbstractResolver | None = None,
) -> LiveFetcher:
    """A fetcher under this order's rules."""
    scope = order.scope()
    if scope is None:
        raise SettingsError(
            "a recording is crawled without requests: there is nothing to fetch live"
        )
    return LiveFetcher(
        scope,
        budget=budget,
        audit=audit,
        user_agent=agent_of(order),
        lab=order.doors(),
        politeness=politeness_of(order),
        caps=caps or RequestCaps(connect_seconds=CONNECT_SECONDS),
        resolver=resolver,
    )


@contextmanager
def live_source(order: CrawlOrder, folder: Path) -> Iterator[Source]:
    """Pages from the network into the folder's archive; whoever uses it closes the fetcher in its
    event loop.
    """
    with (
        RequestBudget(folder, order.requests) as budget,
        AuditLog(folder) as audit,
        JsonLines(folder / ROBOTS, RobotsRow) as kept,
        Archive(folder / ARCHIVE) as archive,
    ):
        fetcher = live_fetcher(order, budget, audit)
        fetcher.robots = Robots(KeptRobots(fetcher.fetch_robots, kept), fetcher.user_agent)
        fetcher.had = archive.get
        yield Source(RecordingFetcher(fetcher, archive), archive, budget)
