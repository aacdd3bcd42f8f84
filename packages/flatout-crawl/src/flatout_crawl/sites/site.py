"""Made-up sites to learn on: a seed gives a whole site with known targets, links and hazards.

`generate(SiteSettings(seed=1))` plans a site; pages become HTML when they are asked for, always the
same bytes. Other seeds are other sites: other words, templates, URLs, depths and difficulties. What
it does not know: time. Latency is added by whoever serves it (`sim`, `site_server`); a page that is
slow says so in the header `x-slow-seconds`.
"""

import re
from collections import deque
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, Protocol

from flatout.errors import SettingsError
from flatout_crawl.sites.site_blueprint import Blueprint, LinkBlock, PageLink, PagePlan
from flatout_crawl.sites.site_plan import CALENDAR, plan_site
from flatout_crawl.sites.site_render import render_html

FEWEST_PAGES = 100
MOST_PAGES = 20_000
HTML = "text/html; charset=utf-8"
SLOW = "x-slow-seconds"
DISALLOWED = ("/private/", "/login")
IS_CALENDAR = re.compile(
    r"/calendar/(\d{1,5})/(0[1-9]|1[0-2])/(?:(0[1-9]|[12]\d|3[01])/)?"
).fullmatch
REASONS = {301: "Moved", 404: "Not found", 410: "Gone", 500: "Internal error"}


class SiteReply(NamedTuple):
    """What a site says to one request."""

    status: int
    headers: dict[str, str]  # names in lower case
    body: bytes


class Answering(Protocol):
    """Anything that can be served: a made-up site, a folder of documentation, an archive."""

    def answer(self, path: str) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body for a path (or a URL) of the site."""
        ...


@dataclass(frozen=True)
class SiteSettings:
    """What fixes a made-up site."""

    seed: int
    pages: int = 600  # about; copies, redirects, errors and the calendar come on top
    target_share: float = 0.07  # of the pages
    # redirects, copies, errors, slow and forbidden pages, a calendar without end
    hazards: bool = True
    sitemap: bool = False  # /sitemap.xml with a third of the pages
    origin: str = ""  # "http://127.0.0.1:8000"; by default a host named after the seed

    def __post_init__(self) -> None:
        if not FEWEST_PAGES <= self.pages <= MOST_PAGES:
            raise SettingsError(
                f"pages={self.pages}: a site has {FEWEST_PAGES} to {MOST_PAGES} pages"
            )
        if not 0.01 <= self.target_share <= 0.2:
            raise SettingsError(
                f"target_share={self.target_share}: 0.01 to 0.2 of the pages can be targets"
            )
        if self.origin and not re.fullmatch(r"https?://[^/?#]+", self.origin):
            raise SettingsError(
                f"origin={self.origin!r}: give scheme and host only, as in http://127.0.0.1:8000"
            )


class Site:
    """A made-up site and the truth about it."""

    def __init__(self, settings: SiteSettings, plan: Blueprint) -> None:
        self.settings, self.plan = settings, plan
        self.origin = settings.origin or f"http://site{settings.seed}.lab"
        self.seed_url = f"{self.origin}/"
        self.topic = plan.words.keywords
        self.targets = frozenset(map(self.url, plan.targets))
        self.gateways = {
            self.url(path): tuple(map(self.url, behind)) for path, behind in plan.gateways.items()
        }
        self.decoys = frozenset(map(self.url, plan.decoys))
        self.copies = {self.url(copy): self.url(path) for copy, path in plan.copies.items()}
        self.redirects = {self.url(path): self.url(to) for path, to in plan.redirects.items()}
        self.errors = {self.url(path): status for path, status in plan.errors.items()}
        self.forbidden = frozenset(map(self.url, plan.private))
        self.pages: dict[str, bytes] = {}  # rendered, by path

    def url(self, path: str) -> str:
        """A path of this site as a URL; URLs stay as they are."""
        return self.origin + path if path.startswith("/") else path

    @cached_property
    def graph(self) -> dict[str, tuple[str, ...]]:
        """Every page that may be read and the links on it, in the order of the page. Of the
        calendar only the first page is here: the others have no end.
        """
        plans = [plan for path, plan in self.plan.plans.items() if path not in self.plan.private]
        if self.settings.hazards:
            plans.append(calendar(CALENDAR))
        return {self.url(plan.path): self.links(plan) for plan in plans}

    def links(self, plan: PagePlan) -> tuple[str, ...]:
        """The links of a page, each once, without those to itself and those not to be followed."""
        inside = [entry for block in plan.blocks for entry in block.entries]
        entries = [*self.plan.nav, *plan.crumbs, *inside, *plan.aside, *self.plan.footer]
        urls = dict.fromkeys(self.url(entry.path) for entry in entries if entry.follow)
        urls.pop(self.url(plan.path), None)
        return tuple(urls)

    def at(self, origin: str) -> "Site":
        """The same site under another host."""
        return Site(replace(self.settings, origin=origin), self.plan)

    def answer(self, path: str) -> SiteReply:
        """What the site says to a path or URL."""
        path = path.removeprefix(self.origin) or "/"
        if not path.startswith("/"):
            return failure(404)
        if path in self.plan.redirects:
            return SiteReply(
                301, {"location": self.plan.redirects[path], "content-type": HTML}, b"<p>Moved</p>"
            )
        if path in self.plan.errors:
            return failure(self.plan.errors[path])
        if path == "/robots.txt":
            return SiteReply(200, {"content-type": "text/plain"}, self.robots())
        if path == "/sitemap.xml" and self.settings.sitemap:
            return SiteReply(200, {"content-type": "application/xml"}, self.sitemap())
        body = self.body(self.plan.copies.get(path, path))
        if body is None:
            return failure(404)
        slow = self.plan.slow.get(path)
        return SiteReply(
            200, {"content-type": HTML} | ({SLOW: f"{slow:.3f}"} if slow else {}), body
        )

    def body(self, path: str) -> bytes | None:
        """The HTML of a page; None if there is none."""
        body = self.pages.get(path)
        if body is not None:
            return body
        plan = self.plan.plans.get(path)
        if plan is not None:
            body = self.pages[path] = render_html(self.plan, plan, self.settings.seed)
            return body
        if self.settings.hazards and IS_CALENDAR(path):
            return render_html(
                self.plan, calendar(path), self.settings.seed
            )  # without end: not kept
        return None

    def forbids(self, url: str) -> bool:
        """Whether the site's robots.txt forbids a URL."""
        return url.removeprefix(self.origin).startswith(DISALLOWED)

    def robots(self) -> bytes:
        """The text of the site's robots.txt."""
        lines = ["User-agent: *", *(f"Disallow: {path}" for path in DISALLOWED)]
        lines += [f"Sitemap: {self.origin}/sitemap.xml"] if self.settings.sitemap else []
        return ("\n".join(lines) + "\n").encode()

    def sitemap(self) -> bytes:
        """A third of the pages that stand in lists, none that stand behind gateways."""
        behind = {path for paths in self.plan.gateways.values() for path in paths}
        listed = [
            path
            for path in sorted(self.plan.plans)
            if path not in self.plan.private and path not in behind
        ]
        urls = "".join(
            f"<url><loc>{self.url(path).replace('&', '&amp;')}</loc></url>" for path in listed[::3]
        )
        head = (
            '<?xml version="1.0" encoding="UTF-8"?>\n<urlset '
            'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">'
        )
        return f"{head}{urls}</urlset>\n".encode()

    def resolve(self, url: str) -> str:
        """The page that a URL of the truth ends at: copies and redirects undone."""
        for _ in range(5):
            if url not in self.redirects:
                break
            url = self.redirects[url]
        return self.copies.get(url, url)


def generate(settings: SiteSettings) -> Site:
    """Make the site that these settings fix."""
    return Site(
        settings, plan_site(settings.seed, settings.pages, settings.target_share, settings.hazards)
    )


def failure(status: int) -> SiteReply:
    """An error page with this status."""
    return SiteReply(
        status, {"content-type": HTML}, f"<h1>{REASONS.get(status, 'Error')}</h1>".encode()
    )


def calendar(path: str) -> PagePlan:
    """A month or a day: there is always another one."""
    found = IS_CALENDAR(path)
    year, month, day = (int(found[1]), int(found[2]), found[3]) if found else (2025, 3, None)
    title = f"Events {year}-{month:02d}" + (f"-{day}" if day else "")
    if day:
        return PagePlan(
            path=path,
            title=title,
            topic=0,
            rate=0.0,
            words=30,
            blocks=(),
            aside=(),
            crumbs=(PageLink(month_path(year, month), "Month"),),
        )
    before, after = (
        (year, month - 1) if month > 1 else (year - 1, 12),
        (year, month + 1) if month < 12 else (year + 1, 1),
    )
    pager = [PageLink(month_path(*before), "Earlier")] if before[0] >= 0 else []
    days = [
        PageLink(f"{month_path(year, month)}{day:02d}/", str(day))
        for day in range(1 + month % 3, 29, 4)
    ]
    block = LinkBlock("list", "Days", tuple(days))
    return PagePlan(
        path=path,
        title=title,
        topic=0,
        rate=0.0,
        words=20,
        blocks=(LinkBlock("pager", "", (*pager, PageLink(month_path(*after), "Later"))), block),
    )


def month_path(year: int, month: int) -> str:
    """The path of a month in the calendar."""
    return f"/calendar/{year}/{month:02d}/"


def oracle_order(site: Site) -> list[str]:
    """Requests, in order, that find all targets of a known graph with few of them: again and again
    the page is fetched whose links to new targets are the most per request, the way to it included.
    A greedy bound: finding the best order is NP-complete.
    """
    graph, visited, left = site.graph, [site.seed_url], set(site.targets)
    seen = {site.seed_url}
    holds = {
        page: [url for url in dict.fromkeys(links) if url in left] for page, links in graph.items()
    }
    holders = [page for page, targets in holds.items() if targets]
    while left:
        before = ways(graph, visited)
        reachable = [page for page in holders if page in before]
        gains = {page: sum(url in left for url in holds[page]) for page in reachable}
        best = max(
            (page for page in reachable if gains[page]),
            key=lambda page: (gains[page] / (gains[page] + len(way(before, page))), page),
            default=None,
        )
        if best is None:
            break
        for url in (*way(before, best), *(url for url in holds[best] if url in left)):
            if url not in seen:
                seen.add(url)
                visited.append(url)
        left -= seen
    return visited


def ways(graph: dict[str, tuple[str, ...]], visited: list[str]) -> dict[str, str]:
    """For every page that can be reached from those visited: the page before it on a shortest way
    ("" = visited).
    """
    before = dict.fromkeys(visited, "")
    queue = deque(visited)
    while queue:
        page = queue.popleft()
        for url in graph.get(page, ()):
            if url not in before and url in graph:
                before[url] = page
                queue.append(url)
    return before


def way(before: dict[str, str], page: str) -> list[str]:
    """The pages still to be fetched on the way to a page, itself included."""
    found = []
    while before[page]:
        found.append(page)
        page = before[page]
    return found[::-1]
