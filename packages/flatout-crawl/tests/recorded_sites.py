"""A made-up site as a recording, and fetchers that count or fail on purpose."""

from collections import Counter
from functools import cache
from pathlib import Path

from flatout_crawl.net.fetching import Answer
from flatout_crawl.runs.archive import Archive
from flatout_crawl.runs.order import CrawlOrder
from flatout_crawl.sites.sim import SimFetcher
from flatout_crawl.sites.site import Site, SiteSettings, generate

PAGES = 120


@cache
def site(seed: int = 5) -> Site:
    return generate(SiteSettings(seed=seed, pages=PAGES))


class StoppedError(Exception):
    """What a crawl is stopped by here, as by a kill."""


class Counting:
    """A site in memory that counts what it is asked for, and stops the crawl at a given request."""

    def __init__(self, made: Site, stops_at: int | None = None) -> None:
        self.inner, self.asked, self.stops_at = SimFetcher(made), Counter[str](), stops_at

    async def fetch(self, url: str) -> Answer:
        if self.stops_at is not None and self.asked.total() >= self.stops_at:
            raise StoppedError
        self.asked[url] += 1
        answer = await self.inner.fetch(url)
        return answer._replace(seconds=0.01 * self.asked.total() / 7)  # never the same twice

    async def close(self) -> None:
        await self.inner.close()


def record(made: Site, path: Path, limit: int = 10_000) -> Path:
    """All pages of a site, as they answer."""
    with Archive(path) as archive:
        for url in list(made.graph)[:limit]:
            status, headers, body = made.answer(url)
            archive.put(
                Answer(url, status, body, headers["content-type"].partition(";")[0], 0.01), url
            )
        for url, ended in made.redirects.items():
            status, headers, body = made.answer(ended)
            archive.put(
                Answer(ended, status, body, headers["content-type"].partition(";")[0], 0.02, 2), url
            )
    return path


def order_of(made: Site, **changed: object) -> CrawlOrder:
    """A crawl of this site for its own topic."""
    given: dict[str, object] = {
        "relevance": {"keywords": list(made.topic)},
        "requests": 60,
        "threshold": 0.4,
    }
    given["allow"] = (made.origin.removeprefix("http://"),)
    return CrawlOrder(made.seed_url, **(given | changed))  # type: ignore[arg-type]
