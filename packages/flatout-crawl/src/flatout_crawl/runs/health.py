"""Would a crawl be refused? The checks of `flatout crawl doctor`; those without requests are made
before every run.

A check that fails says what was given, what is allowed and what to do. It does not ask whether
pages are worth having.
"""

import asyncio
import shutil
import socket
import tempfile
from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

from flatout.errors import FlatoutError, RunError
from flatout.foreign import shorten_repr
from flatout_crawl.choosers.session import same_site
from flatout_crawl.net.addresses import ForbiddenAddressError, Guard, GuardedResolver
from flatout_crawl.net.exchange import RequestCaps
from flatout_crawl.net.fetching import Answer
from flatout_crawl.net.http import LiveFetcher, check_agent
from flatout_crawl.net.ledger import BUDGET_FILE, STOP_FILE, AuditLog, RequestBudget, requests_sent
from flatout_crawl.net.politeness import UNHURRIED, UNLIMITED
from flatout_crawl.net.robots import agent_token
from flatout_crawl.net.scope import Origin, canonical, origin_of
from flatout_crawl.reading.parsing import Resolver, read_page
from flatout_crawl.runs.archive import Archive
from flatout_crawl.runs.live import agent_of, is_public, live_fetcher, politeness_of
from flatout_crawl.runs.order import CrawlOrder

# a dead server is noticed within 5 s
QUICK = RequestCaps(total_seconds=4.0, connect_seconds=3.0, read_seconds=3.5)
BYTES_PER_REQUEST = 50_000  # of a page, compressed: a guess that is rather large
LEAST_FREE_BYTES = 50_000_000
LOOKS = 3  # requests that the checks may send: robots.txt, the seed page, one redirect

WHY = {
    "scope": (
        "it is not on the allow-list, or redirects off it: add the host to --allow if you "
        "may crawl it"
    ),
    "robots": "robots.txt forbids it, or could not be had: respect that, or ask the site's owner",
    "address": (
        "its name leads to an address that must not be dialled: only public hosts, and "
        "loopback by --lab"
    ),
    "budget": "no request may be sent",
    "timeout": "the server did not answer in time: check the address, or try later",
    "connection": "no connection came about: is the server running, and the port right?",
    "size": "the page is too large",
    "type": "it is no HTML page: begin at one",
    "redirects": "it redirects in circles, or too often",
    "down": "the host fails too often: try later",
}


class HealthFinding(NamedTuple):
    """The result of one check, with a sentence about it."""

    name: str
    ok: bool
    sentence: str


OnFinding = Callable[[HealthFinding], None]


def describe_refusal(findings: list[HealthFinding]) -> str:
    """What stands in the way of a crawl, in one sentence; "" if nothing does."""
    return "; ".join(f"{found.name}: {found.sentence}" for found in findings if not found.ok)


def require(findings: list[HealthFinding]) -> None:
    """Raise if a crawl must not begin."""
    if why := describe_refusal(findings):
        raise RunError(f"the crawl is refused: {why}")


def without_requests(order: CrawlOrder, folder: Path | None) -> list[HealthFinding]:
    """Checks that cost nothing: before every run, and the first of the doctor's."""
    findings = [scope(order), rule(order), disk(order, folder)]
    if folder is not None:
        findings.append(books(order, folder))
    if order.is_live:
        findings.append(manners(order))
        if is_address(seed_origin(order).host):
            findings.append(literal_address(order))
    return findings


def scope(order: CrawlOrder) -> HealthFinding:
    """Is the seed page on the allow-list?"""
    allowed = order.scope()
    if allowed is None:
        return HealthFinding("scope", True, "the seed page's own host, in a recording")
    text = ", ".join(order.allow)
    if not allowed.allows(order.seed_url):
        return HealthFinding(
            "scope",
            False,
            f"{order.seed_url} is not on the allow-list ({text[:500]}): add its host to --allow",
        )
    return HealthFinding("scope", True, f"{text}; everything else is refused")


def rule(order: CrawlOrder) -> HealthFinding:
    """Whether relevance can be computed for what is looked for."""
    made = order.rule()
    if not order.relevance:
        return HealthFinding("relevance", True, "nothing is looked for: pages are recorded only")
    topic = order.topic or made.topic
    if not topic and order.chooser != "breadth-first":
        text = (
            "no words to compare links with: best-first and learned policies do better with "
            "--topic WORDS"
        )
        return HealthFinding("relevance", True, text)
    return HealthFinding("relevance", True, f"links are compared with: {topic}")


def disk(order: CrawlOrder, folder: Path | None) -> HealthFinding:
    """Is there room for the pages?"""
    place = next(
        path
        for path in ((folder or Path()).absolute(), *(folder or Path()).absolute().parents)
        if path.exists()
    )
    free = shutil.disk_usage(place).free
    needed = max(LEAST_FREE_BYTES, order.requests * BYTES_PER_REQUEST if order.is_live else 0)
    text = f"{free / 1e9:.1f} GB are free at {place}, {needed / 1e9:.2f} GB are wanted"
    return HealthFinding(
        "disk",
        free >= needed,
        text if free >= needed else f"{text}: free some space or give another --out",
    )


def books(order: CrawlOrder, folder: Path) -> HealthFinding:
    """Are requests left, and is nobody asking to stop?"""
    if (folder / STOP_FILE).exists():
        return HealthFinding(
            "budget",
            False,
            f"{folder / STOP_FILE} is there, which stops every crawl here: remove it",
        )
    if not order.is_live:
        return HealthFinding("budget", True, f"{order.requests} requests to a recording")
    left = max(0, order.requests - requests_sent(folder / BUDGET_FILE).total())
    return HealthFinding(
        "budget", True, f"{left} of {order.requests} requests are left, robots.txt included"
    )


def manners(order: CrawlOrder) -> HealthFinding:
    """Does it say who it is, and how fast does it ask?"""
    try:
        agent = check_agent(agent_of(order), is_public(order))
        settings = politeness_of(order) or (UNHURRIED if is_public(order) else UNLIMITED)
    except FlatoutError as error:
        return HealthFinding("manners", False, f"{error}: give --user-agent")
    text = f"{shorten_repr(agent)}, known to robots.txt as {shorten_repr(agent_token(agent))}"
    text += f"; at least {settings.delay_seconds:g} s apart"
    return HealthFinding("manners", True, text)


async def examine(
    order: CrawlOrder, folder: Path | None, on_finding: OnFinding = lambda _: None
) -> list[HealthFinding]:
    """Make all checks and report each as soon as it is made; those that need the site stop at the
    first that fails.
    """
    findings: list[HealthFinding] = []

    def note(found: HealthFinding) -> bool:
        findings.append(found)
        on_finding(found)
        return found.ok

    for found in without_requests(order, folder):
        note(found)
    if not all(found.ok for found in findings):
        return findings
    if not order.is_live:
        with Archive(Path(order.archive), read_only=True) as archive:
            answer = archive.get(order.seed_url) or Answer(order.seed_url, 404)
        note(seed_page(order, answer))
    elif is_address(seed_origin(order).host) or note(await resolve_address(order)):
        for found in await ask_site(order):
            note(found)
    return findings


def seed_origin(order: CrawlOrder) -> Origin:
    """Host and port of the seed page."""
    return origin_of(canonical(order.seed_url) or "")


def literal_address(order: CrawlOrder) -> HealthFinding:
    """May the address that stands in the seed's URL be dialled?"""
    origin = seed_origin(order)
    try:
        Guard(order.doors()).check(origin.host, origin.port)
    except ForbiddenAddressError as error:
        return address_finding(error)
    return HealthFinding("address", True, f"{origin.host}, port {origin.port}")


async def resolve_address(order: CrawlOrder) -> HealthFinding:
    """Where does the seed's name lead?"""
    origin, resolver = seed_origin(order), GuardedResolver()
    try:
        async with asyncio.timeout(QUICK.total_seconds):
            found = await resolver.resolve(origin.host, origin.port, socket.AF_UNSPEC)
    except ForbiddenAddressError as error:
        return address_finding(error)
    except (OSError, TimeoutError) as error:
        text = (
            "no answer in time" if isinstance(error, TimeoutError) else error.strerror or str(error)
        )
        return HealthFinding(
            "address",
            False,
            f"{origin.host} cannot be resolved: {text}; check the name and the network",
        )
    finally:
        await resolver.close()
    return HealthFinding(
        "address",
        True,
        f"{origin.host} is {', '.join(sorted({entry['host'] for entry in found}))}",
    )


def address_finding(error: ForbiddenAddressError) -> HealthFinding:
    """An address that must not be dialled."""
    return HealthFinding(
        "address", False, f"{error}; a server of your own on loopback is named by --lab"
    )


def is_address(host: str) -> bool:
    """Whether a canonical host is an address, not a name."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


async def ask_site(order: CrawlOrder) -> list[HealthFinding]:
    """robots.txt and the seed page, in books of their own: the run's budget is not touched."""
    with (
        tempfile.TemporaryDirectory() as place,
        RequestBudget(Path(place), LOOKS) as budget,
        AuditLog(Path(place)) as audit,
    ):
        fetcher = live_fetcher(order, budget, audit, QUICK)
        try:
            return await check_site(order, fetcher)
        finally:
            await fetcher.close()


async def check_site(order: CrawlOrder, fetcher: LiveFetcher) -> list[HealthFinding]:
    """Ask the site for robots.txt and the seed page; stops where one fails."""
    seed = canonical(order.seed_url) or order.seed_url
    rules = await fetcher.robots.rules(origin_of(seed))
    if rules.lost:
        why = WHY.get(
            rules.lost, f"it gave {rules.lost}; until it can be had, nothing may be asked for"
        )
        return [
            HealthFinding(
                "robots.txt",
                False,
                f"robots.txt of {origin_of(seed).host} could not be had: {why}",
            )
        ]
    if not rules.allows(seed):
        return [
            HealthFinding(
                "robots.txt", False, f"it forbids {seed}: respect that, or ask the site's owner"
            )
        ]
    wait = (
        f"; it asks for {rules.delay_seconds:g} s between requests" if rules.delay_seconds else ""
    )
    return [
        HealthFinding("robots.txt", True, f"allows the seed page{wait}"),
        seed_page(order, await fetcher.fetch(seed)),
    ]


def seed_page(order: CrawlOrder, answer: Answer) -> HealthFinding:
    """Is there a page with links in scope, and what is it worth?"""
    if not answer.is_page:
        text = WHY.get(
            answer.failure, f"it gave status {answer.status}: begin at a page that is there"
        )
        return HealthFinding("seed page", False, f"{order.seed_url}: {text}")
    page, allowed = read_page(answer, Resolver(canonical)), order.scope()
    inside = allowed.allows if allowed else same_site(order.seed_url)
    links = [link for link in page.links if inside(link.url)]
    worth = order.rule()(page, answer.body)
    text = (
        f"{len(links)} of its {len(page.links)} links are in scope; its own relevance is "
        f"{worth:.2f}"
    )
    if not links:
        return HealthFinding(
            "seed page", False, f"{text}: begin at a page that leads on, or widen --allow"
        )
    return HealthFinding("seed page", True, f"{text} (a target has {order.threshold:g} or more)")
