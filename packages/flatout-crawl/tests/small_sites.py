"""Sites of a few pages, written by hand, and a fetcher that serves them from memory."""

from collections.abc import Iterable, Mapping

from flatout_crawl.choosers.session import CrawlTask
from flatout_crawl.net.fetching import Answer
from flatout_crawl.reading.relevance import Keywords, KnownTargets

HOME = "http://small.lab/"


def url(path: str) -> str:
    return f"{HOME}{path}"


def html(
    title: str, links: Iterable[str | tuple[str, str]] = (), text: str = "", list_class: str = "all"
) -> bytes:
    """A page with a list of links: paths, or pairs of path and anchor."""
    pairs = [(link, f"about {link}") if isinstance(link, str) else link for link in links]
    items = "".join(f'<li><a href="{href}">{anchor}</a></li>' for href, anchor in pairs)
    return (
        f"<html><head><title>{title}</title></head><body><main><h1>{title}</h1><p>{text}</p>"
        f'<ul class="{list_class}">{items}</ul></main></body></html>'
    ).encode()


class FixedFetcher:
    """Serves given bodies or answers; everything else is 404. Counts what it was asked for."""

    def __init__(self, pages: Mapping[str, bytes | Answer]) -> None:
        self.pages, self.asked, self.closed = dict(pages), [], 0

    async def fetch(self, address: str) -> Answer:
        self.asked.append(address)
        found = self.pages.get(address, Answer(address, 404))
        return (
            found if isinstance(found, Answer) else Answer(address, 200, found, "text/html", 0.01)
        )

    async def close(self) -> None:
        self.closed += 1


# The seed leads to two hubs, a copy of a page, an error and two refusals; "/solar" has what is
# looked for.
PAGES: dict[str, bytes | Answer] = {
    HOME: html("home", ["/news", ("/solar", "solar power"), "/broken", "/forbidden", "/moved"]),
    url("news"): html("news", ["/news/1", "/news/2", "/news/3"], "nothing of note"),
    url("news/1"): html("one", ["/"], "weather"),
    url("news/2"): html("two", ["/solar/a-copy"], "sport"),
    url("news/3"): html("three", [], "traffic"),
    url("solar"): html("hub", ["/solar/a", "/solar/b", "/news"], "a list", "found"),
    url("solar/a"): html("a", ["/"], "solar power " * 20),
    url("solar/a-copy"): html("a", ["/"], "solar power " * 20),
    url("solar/b"): html("b", ["/"], "solar power " * 10),
    url("broken"): Answer(url("broken"), 500),
    url("forbidden"): Answer(url("forbidden"), 0, requests=0, failure="robots"),
    url("moved"): Answer(
        url("solar/b"), 200, html("b", ["/"], "solar power " * 10), "text/html", 0.02, 2
    ),
}
TARGETS = {url("solar/a"): "a", url("solar/a-copy"): "a", url("solar/b"): "b"}


def small_task(served: Mapping[str, bytes | Answer] = PAGES, /, **changed: object) -> CrawlTask:
    given: dict[str, object] = {
        "relevance": Keywords(("solar power",)),
        "targets": TARGETS,
        "pages": len(PAGES),
    }
    return CrawlTask(FixedFetcher(served), HOME, **(given | changed))  # type: ignore[arg-type]


def chain(length: int, branches: int = 1) -> dict[str, bytes | Answer]:
    """Pages 0, 1, ..., each with `branches` links to pages after it; the seed is page 0's."""
    pages: dict[str, bytes | Answer] = {HOME: html("home", ["/p0"])}
    for k in range(length):
        links = [f"/p{min(k * branches + b + 1, length - 1)}" for b in range(branches)]
        pages[url(f"p{k}")] = html(f"page {k}", links, f"text number {k}")
    return pages


def known(*paths: str) -> KnownTargets:
    return KnownTargets(frozenset(map(url, paths)))
