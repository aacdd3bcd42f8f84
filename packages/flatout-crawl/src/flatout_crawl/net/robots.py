"""What a site's robots.txt allows, after RFC 9309. It knows how to judge and keep answers, not how
to fetch them.

Where the RFC leaves a choice, the stricter one is taken: 429 counts as unreachable, and so do more
than five redirects and redirects off the allow-list.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from protego import Protego

from flatout.errors import SettingsError
from flatout.foreign import shorten_repr
from flatout_crawl.net.fetching import Answer
from flatout_crawl.net.scope import Origin

MOST_BYTES = 512 * 1024  # the RFC wants at least 500 KiB read
KEPT_SECONDS = 24 * 3600.0  # the RFC's longest
MOST_VERDICTS = 10_000  # kept of one site
RETRIED_SECONDS = 60.0  # when to ask again for one that could not be had
# what a site may ask for; nobody waits so long, see `Politeness.patience_seconds`
LONGEST_DELAY = 24 * 3600.0
STRANGER = "~"  # no product token

product_token = re.compile(r"[A-Za-z_-]+").match
# How Protego, which is generous, knows the line that begins a group: by a colon, or without one
# that a space follows.
named_agent = re.compile(
    r"(?:user-agent|useragent|user agent)\s*:(?P<name>.*)"
    r"|(?![^:]*:(?:\s|\Z))(?:user-agent|useragent|user\s+agent)(?:\s+(?P<bare>.*))?",
    re.DOTALL,
).fullmatch


@dataclass(frozen=True)
class RobotsRules:
    """What one site allows to one robot."""

    parsed: Any  # a Protego; None if all or nothing is allowed
    agent: str
    otherwise: bool = True  # what holds where nothing was parsed
    lost: str = ""  # the failure, if robots.txt could not be had

    def allows(self, url: str) -> bool:
        """Whether this URL may be asked for."""
        return self.otherwise if self.parsed is None else self.verdict(url)

    @cached_property
    def verdict(self) -> Callable[[str], bool]:
        """What was parsed says of a URL; remembered, since training asks for the same ones again
        and again.
        """
        return lru_cache(MOST_VERDICTS)(lambda url: bool(self.parsed.can_fetch(url, self.agent)))

    @cached_property
    def delay_seconds(self) -> float:
        """How long the site wants between two requests: the longer of Crawl-delay and
        Request-rate.
        """
        if self.parsed is None:
            return 0.0
        delay, rate = self.parsed.crawl_delay(self.agent), self.parsed.request_rate(self.agent)
        try:
            apart = rate.seconds / rate.requests if rate else 0.0
        except OverflowError:  # more digits than a float has room for
            apart = LONGEST_DELAY
        return min(max(float(delay or 0.0), apart), LONGEST_DELAY)

    @property
    def sitemaps(self) -> tuple[str, ...]:
        """What the Sitemap lines name; untrusted like all else on the page."""
        return () if self.parsed is None else tuple(self.parsed.sitemaps)


def agent_token(user_agent: str) -> str:
    """The name that robots.txt may call this robot by: letters, "_" and "-" before the first
    slash.
    """
    found = product_token(user_agent)
    if found is None:
        raise SettingsError(
            f"user agent {shorten_repr(user_agent)} does not begin with a product name; write one "
            "such as 'my-crawler/1.0 (+https://example.org/about-my-crawler)'"
        )
    return found[0].lower()


def read_rules(body: bytes, agent: str) -> RobotsRules:
    """Rules from the bytes of a robots.txt; a line that the limit cuts is dropped: half of it means
    something else.
    """
    if len(body) > MOST_BYTES:
        kept = body[:MOST_BYTES]
        body = kept[: max(kept.rfind(b"\n"), kept.rfind(b"\r"), 0)]
    return RobotsRules(
        Protego.parse(simplify_robots(body.decode("utf-8-sig", errors="replace"), agent)), agent
    )


def simplify_robots(text: str, agent: str) -> str:
    """The same rules for this robot. All other robots become one: Protego copies every rule of a
    group to every robot that the group names, and a short file can name thousands of each.
    """
    lines = text.splitlines()
    named = [agent_of_line(line) for line in lines]
    ours = (name for name in set(named) if name and (name == "*" or agent.startswith(name)))
    best = max(ours, key=lambda name: (len(name), name == "*"), default="*")  # as Protego chooses
    return "\n".join(
        line if name is None else f"User-agent: {name if name == best else STRANGER}"
        for line, name in zip(lines, named, strict=True)
    )


def agent_of_line(line: str) -> str | None:
    """The robot that a line names, stars left out unless it is all; "" where it names none; None
    for other lines.
    """
    found = named_agent(line.partition("#")[0].strip().lower())
    if found is None:
        return None
    name = (found["name"] or found["bare"] or "").strip()
    return name if name == "*" else name.replace("*", "")


def judge(answer: Answer, agent: str) -> RobotsRules:
    """Rules from whatever the request for robots.txt led to."""
    if not answer.failure and 200 <= answer.status < 300:
        return read_rules(answer.body, agent)
    if not answer.failure and 400 <= answer.status < 500 and answer.status != 429:
        return RobotsRules(None, agent, True)
    return RobotsRules(None, agent, False, answer.failure or f"status {answer.status}")


class Kept(NamedTuple):
    """Rules and when to ask anew."""

    rules: RobotsRules
    until: float


class Robots:
    """The rules of every site met, each asked for once a day, by one caller at a time."""

    def __init__(self, fetch: Callable[[str], Awaitable[Answer]], user_agent: str) -> None:
        self.fetch, self.agent = fetch, agent_token(user_agent)
        self.kept: dict[Origin, Kept] = {}
        self.locks: dict[Origin, asyncio.Lock] = {}

    async def rules(self, origin: Origin) -> RobotsRules:
        """The rules of a site; asks for them if they are unknown or old."""
        if known := self.fresh(origin):
            return known
        async with self.locks.setdefault(origin, asyncio.Lock()):
            return self.fresh(origin) or await self.ask(origin)

    def fresh(self, origin: Origin) -> RobotsRules | None:
        """Rules that may still be used."""
        kept = self.kept.get(origin)
        return kept.rules if kept and asyncio.get_running_loop().time() < kept.until else None

    async def ask(self, origin: Origin) -> RobotsRules:
        """Ask for robots.txt and keep what it means."""
        answer = await self.fetch(f"{origin.url}robots.txt")
        rules = judge(answer, self.agent)
        if rules.lost not in ("budget", "down"):  # nothing was asked, so nothing is known
            seconds = RETRIED_SECONDS if rules.lost else KEPT_SECONDS
            self.kept[origin] = Kept(rules, asyncio.get_running_loop().time() + seconds)
        return rules
