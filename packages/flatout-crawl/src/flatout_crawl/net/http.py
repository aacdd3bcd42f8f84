"""Pages from the network. Every hop of every redirect passes the same gates: allow-list,
robots.txt, rate limit, request budget and kill file, address. There is no way around them, and
robots.txt itself passes all but its own.

What the other side does becomes an Answer with a failure; only mistakes on this side raise.
"""

import asyncio
import re
import time
from collections.abc import Callable
from typing import NamedTuple

import aiohttp
from aiohttp.abc import AbstractResolver

from flatout.errors import SettingsError
from flatout.foreign import shorten_repr
from flatout_crawl.net.addresses import NO_LAB, Guard, Lab
from flatout_crawl.net.connecting import GuardedConnector
from flatout_crawl.net.exchange import PAGE, PEEK, ROBOTS, Errand, Exchange, HopReply, RequestCaps
from flatout_crawl.net.fetching import Answer, Failure
from flatout_crawl.net.ledger import AuditLog, RequestBudget, printable
from flatout_crawl.net.politeness import (
    UNHURRIED,
    UNLIMITED,
    Politeness,
    RateLimiter,
    RequestOutcome,
    retry_after_seconds,
)
from flatout_crawl.net.robots import Robots, RobotsRules, agent_token
from flatout_crawl.net.scope import Origin, Scope, canonical, origin_of
from flatout_crawl.net.unpacking import ACCEPTED

# What became of robots.txt that says more than "robots": the host cannot be reached, or must not
# be.
TELLING = ("budget", "address", "timeout", "connection", "down")

has_contact = re.compile(r"https?://[^\s/]+|mailto:\S+@\S+").search
DEFAULT_CAPS = RequestCaps()


class Sent(NamedTuple):
    """A reply and how many requests it took."""

    reply: HopReply
    requests: int


def check_agent(user_agent: str, public: bool) -> str:
    """The user agent, if it names a product and, where it meets the public, somebody to turn to."""
    agent_token(user_agent)
    if not user_agent.isascii() or not user_agent.isprintable():
        raise SettingsError(
            f"user agent {shorten_repr(user_agent)}: only printable ASCII characters can be sent"
        )
    if public and not has_contact(user_agent):
        raise SettingsError(
            f"user agent {shorten_repr(user_agent)} names nobody to turn to; whoever crawls public "
            "sites says who they are: 'my-crawler/1.0 (+https://example.org/about-my-crawler)'"
        )
    return user_agent


class LiveFetcher:
    """Implements `fetching.Fetcher` over HTTP. Budget and audit log stay open when it is closed:
    they are the caller's.

    Requests for robots.txt are entered in budget and audit log, but not in `Answer.requests`: they
    are made for a site.
    """

    def __init__(
        self,
        scope: Scope,
        *,
        budget: RequestBudget,
        audit: AuditLog,
        user_agent: str = "flatout",
        lab: Lab = NO_LAB,
        politeness: Politeness
        | None = None,  # None: unhurried with the public, unlimited in the laboratory
        caps: RequestCaps = DEFAULT_CAPS,
        resolver: AbstractResolver | None = None,
    ) -> None:
        public = not all(
            lab.holds(place.host, port) for place in scope.places for port in place.ports
        )
        self.user_agent = check_agent(user_agent, public)
        self.scope, self.lab, self.caps = scope, lab, caps
        self.budget, self.audit, self.politeness = budget, audit, politeness
        self.robots = Robots(self.fetch_robots, user_agent)
        self.limiter = RateLimiter()
        self.resolver = resolver
        self.had: Callable[[str], Answer | None] = lambda url: (
            None
        )  # pages that a redirect need not ask for again
        self.session: aiohttp.ClientSession | None = None

    async def fetch(self, url: str) -> Answer:
        """The page at this URL, after at most `caps.redirects` redirects."""
        return await self.follow(url, PAGE)

    async def head(self, url: str) -> Answer:
        """What the page's headers say, without its body."""
        return await self.follow(url, PEEK)

    async def fetch_robots(self, url: str) -> Answer:
        """A robots.txt; cut if it is too long."""
        return await self.follow(url, ROBOTS)

    async def sitemaps(self, url: str) -> tuple[str, ...]:
        """What this site's robots.txt names as sitemaps, as far as they are on the allow-list."""
        here = canonical(url)
        if here is None or not self.scope.allows_host(here):
            return ()
        rules = await self.robots.rules(origin_of(here))
        known = (canonical(entry) for entry in rules.sitemaps)
        return tuple(entry for entry in known if entry is not None and self.scope.allows(entry))

    async def close(self) -> None:
        """Close all connections to all hosts."""
        session, self.session = self.session, None
        if session is not None:
            await session.close()

    async def follow(self, url: str, errand: Errand) -> Answer:
        """Send a request, and another one for every redirect, each of them checked."""
        clock = asyncio.get_running_loop().time
        met: set[str] = set()
        begun, requests = clock(), 0
        here = canonical(url)
        if here is None:
            return Answer(printable(url), 0, requests=0, failure="scope")
        reply = HopReply()
        while True:
            failure, delay = await self.gate(here, errand)
            if failure:
                break
            had = self.had(here) if met and errand is PAGE else None
            if (
                had is not None and had.url == here
            ):  # one that led elsewhere then is followed anew, hop by hop
                reply, failure = HopReply(had.status, had.body, had.content_type), had.failure
                break
            reply, sent = await self.send(here, errand, delay)
            requests += sent
            failure = reply.failure
            if reply.location is None:
                break
            met.add(here)
            target = canonical(reply.location, here)
            if target is None or target in met or len(met) > self.caps.redirects:
                failure = "scope" if target is None else "redirects"
                break
            here = target
        body = b"" if failure else reply.body
        return Answer(
            url=here,
            status=reply.status,
            body=body,
            content_type=reply.content_type,
            seconds=clock() - begun,
            requests=requests,
            failure=failure,
        )

    async def gate(self, url: str, errand: Errand) -> tuple[Failure, float]:
        """Why this URL must not be asked for, and the delay that the site wants between
        requests.
        """
        if not (self.scope.allows_robots(url) if errand.for_robots else self.scope.allows(url)):
            return "scope", 0.0
        if errand.for_robots:
            return "", 0.0
        rules = await self.robots.rules(origin_of(url))
        return ("", rules.delay_seconds) if rules.allows(url) else (why_not(rules), 0.0)

    async def send(self, url: str, errand: Errand, delay: float) -> Sent:
        """Wait until the host may be asked again and send one request."""
        host, politeness = self.treatment(origin_of(url))
        if not await self.limiter.acquire(host, politeness, delay):
            return Sent(HopReply(failure="down"), 0)
        outcome = None
        try:
            exchange = Exchange(
                url=url,
                errand=errand,
                host=host,
                caps=self.caps,
                budget=self.budget,
                audit=self.audit,
            )
            reply = await exchange.run(self.open_session())
            outcome = outcome_of(reply, exchange)
        finally:
            self.limiter.release(host, outcome)
        return Sent(reply, exchange.attempts)

    def treatment(self, origin: Origin) -> tuple[str, Politeness]:
        """What a host is called in the books, and how it is treated. In the laboratory each port is
        a host.
        """
        if self.lab.holds(origin.host, origin.port):
            return f"{origin.host}:{origin.port}", self.politeness or UNLIMITED
        return origin.host, self.politeness or UNHURRIED

    def open_session(self) -> aiohttp.ClientSession:
        """The connections, opened by the first request since they belong to its event loop."""
        if self.session is None:
            self.session = aiohttp.ClientSession(
                connector=GuardedConnector(Guard(self.lab), self.resolver),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={
                    "User-Agent": self.user_agent,
                    "Accept": "text/html, application/xhtml+xml, text/plain;q=0.5",
                    "Accept-Encoding": ACCEPTED,
                },
                auto_decompress=False,  # done in `unpacking`, under limits
                trust_env=False,  # a proxy would dial for us, unchecked
                timeout=aiohttp.ClientTimeout(
                    total=None,  # the exchange has its own, from connecting to the last byte
                    sock_connect=self.caps.connect_seconds,
                    sock_read=self.caps.read_seconds,
                ),
            )
        return self.session


def why_not(rules: RobotsRules) -> Failure:
    """The failure for a URL that the rules forbid."""
    return rules.lost if rules.lost in TELLING else "robots"


def outcome_of(reply: HopReply, exchange: Exchange) -> RequestOutcome | None:
    """What a reply says about the host; None if the host was never asked."""
    if not exchange.attempts or reply.failure in ("address", "budget"):
        return None
    broken = reply.failure in ("timeout", "connection")
    wait = retry_after_seconds(reply.retry_after, time.time()) if reply.retry_after else 0.0
    seconds = exchange.clock() - exchange.begun
    return RequestOutcome(
        0 if broken else reply.status, seconds, broken and not exchange.address, wait
    )
