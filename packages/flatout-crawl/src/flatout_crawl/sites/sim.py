"""A site in memory behind the crawler's door: answers come after a drawn wait, on whatever clock
the loop has.

The wait is one `asyncio.sleep`, so that on a simulated clock it takes no time. Redirects within the
site are followed and counted, as a real fetcher does; what robots.txt forbids and what leaves the
site fails as it does there.
"""

import asyncio
from random import Random
from urllib.parse import urljoin

from flatout_crawl.net.fetching import Answer, Failure
from flatout_crawl.net.scope import canonical
from flatout_crawl.sites.latency import NO_LATENCY, Latency, LatencyDraw
from flatout_crawl.sites.site import SLOW, Site

MOST_REDIRECTS = 5
REDIRECTS = (301, 302, 303, 307, 308)


class SimFetcher:
    """Fetches pages of one made-up site. Which request draws which wait depends on the seed and on
    their order.
    """

    def __init__(
        self, site: Site, latency: Latency = NO_LATENCY, seed: int = 0, *, timeout_s: float = 30.0
    ) -> None:
        self.site, self.latency, self.timeout_s = site, latency, timeout_s
        self.rng = Random(f"flatout sim {seed}")
        self.requests = 0

    async def fetch(self, url: str) -> Answer:
        """The page, or how it failed."""
        began = asyncio.get_running_loop().time()
        sent = 0
        for _ in range(MOST_REDIRECTS + 1):
            refused = self.refusal(url)
            if refused:
                return self.fail(url, refused, began, sent)
            sent += 1
            self.requests += 1
            draw = self.latency.draw(self.rng)
            status, headers, body = self.site.answer(url)
            wait = draw.seconds + float(headers.get(SLOW, "0"))
            if draw.fault == "hang" or wait > self.timeout_s:
                await asyncio.sleep(self.timeout_s)
                return self.fail(url, "timeout", began, sent)
            await asyncio.sleep(wait)
            if draw.fault:
                return self.faulty(url, draw, began, sent)
            if status not in REDIRECTS:
                kind = headers.get("content-type", "").partition(";")[0].strip().lower()
                return Answer(
                    url=url,
                    status=status,
                    body=body,
                    content_type=kind,
                    seconds=self.since(began),
                    requests=sent,
                )
            url = canonical(urljoin(url, headers["location"])) or ""
        return self.fail(url, "redirects", began, sent)

    def refusal(self, url: str) -> Failure:
        """Why a URL is not asked for; "" if it is."""
        if not url.startswith(f"{self.site.origin}/"):
            return "scope"
        return "robots" if self.site.forbids(url) else ""

    def faulty(self, url: str, draw: LatencyDraw, began: float, sent: int) -> Answer:
        """What an injected fault looks like."""
        if draw.fault == "close":
            return self.fail(url, "connection", began, sent)
        return Answer(
            url=url,
            status=500 if draw.fault == "error" else 503,
            body=b"",
            content_type="text/html",
            seconds=self.since(began),
            requests=sent,
        )

    def fail(self, url: str, failure: Failure, began: float, sent: int) -> Answer:
        """An answer that is none."""
        return Answer(url, 0, seconds=self.since(began), requests=sent, failure=failure)

    def since(self, began: float) -> float:
        """Seconds on the loop's clock."""
        return asyncio.get_running_loop().time() - began

    async def close(self) -> None:
        """There is nothing to give back."""
