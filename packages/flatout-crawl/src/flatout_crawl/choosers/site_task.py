"""Tasks from made-up sites, where the truth is known."""

from typing import Literal

from flatout_crawl.choosers.baselines import InOrder
from flatout_crawl.choosers.evaluate import ForTask
from flatout_crawl.choosers.session import CrawlTask
from flatout_crawl.net.fetching import Fetcher
from flatout_crawl.reading.relevance import Keywords, KnownTargets, Relevance
from flatout_crawl.sites.sim import SimFetcher
from flatout_crawl.sites.site import Site, oracle_order

Judge = Literal["truth", "keywords"]


def site_task(
    site: Site, fetcher: Fetcher | None = None, judge: Judge = "truth", budget: int | None = None
) -> CrawlTask:
    """Find this site's targets, from memory or by a fetcher. The judge of pages is the site's own
    truth, or what a user would write: its keywords.
    """
    copies = {copy: url for copy, url in site.copies.items() if url in site.targets}
    targets = {url: url for url in sorted(site.targets)} | copies
    words = " ".join(site.topic)
    relevance: Relevance = (
        KnownTargets(frozenset(targets), words) if judge == "truth" else Keywords(tuple(site.topic))
    )
    return CrawlTask(
        fetcher or SimFetcher(site),
        site.seed_url,
        relevance,
        topic=words,
        targets=targets,
        budget=budget,
        name=site.origin,
        pages=len(site.graph),
    )


def oracle(sites: list[Site]) -> ForTask:
    """The order of who knows the whole graph, as a chooser for tasks of these sites."""
    by_name = {site.origin: site for site in sites}
    return ForTask(lambda task, seed: InOrder(oracle_order(by_name[task.name])))
