"""Tasks from recordings: every recorded page was read, so targets and links are known as far as the
recording goes.

Pages that were never recorded do not exist here. What a chooser finds in a recording says little
about a site of which only a part was recorded.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np

from flatout.errors import RunError, SettingsError
from flatout_crawl.choosers.baselines import InOrder, MakeChooser, standard
from flatout_crawl.choosers.evaluate import ForTask, crawl
from flatout_crawl.choosers.session import CrawlTask, Prices, same_site
from flatout_crawl.net.scope import canonical
from flatout_crawl.reading.parsing import Resolver, read_page
from flatout_crawl.reading.relevance import Relevance
from flatout_crawl.runs.archive import Archive, ArchiveFetcher
from flatout_crawl.runs.order import ARCHIVE
from flatout_crawl.sites.site import Site, oracle_order

FEWEST_PAGES = 5
# baselines shown beside a crawl of a recording: seeds
BESIDE = {"random": 5, "breadth-first": 1, "best-first": 1}


class KnownSite(NamedTuple):
    """What an oracle reads of a site."""

    graph: Mapping[str, tuple[str, ...]]
    seed_url: str
    targets: frozenset[str]


class Recorded(NamedTuple):
    """What a recording holds, seen from a seed page."""

    seed_url: str
    graph: Mapping[str, tuple[str, ...]]  # pages that can be reached, and their links
    targets: Mapping[str, str]  # URL to content: copies share it
    task: CrawlTask


def archive_at(path: Path) -> Path:
    """The archive's file: the path itself, or the one in a run directory."""
    return path / ARCHIVE if path.is_dir() else path


def read_archive(
    archive: Archive,
    seed_url: str,
    relevance: Relevance,
    *,
    allows: Callable[[str], bool] | None = None,
    threshold: float = 0.5,
    topic: str = "",
    budget: int | None = None,
) -> Recorded:
    """Read all recorded pages that links lead to from the seed page."""
    seed = canonical(seed_url)
    if seed is None:
        raise SettingsError(
            f"{seed_url!r} is no URL to begin at; give one such as https://docs.example.org/"
        )
    inside, resolve = allows or same_site(seed), Resolver(canonical)
    graph: dict[str, tuple[str, ...]] = {}
    targets: dict[str, str] = {}
    queue, met = [seed], {seed}
    for asked in queue:  # grows while it is walked
        answer = archive.get(asked)
        if answer is None or not answer.is_page or not inside(answer.url):
            continue
        page = read_page(answer, resolve)
        links = tuple(link.url for link in page.links if inside(link.url))
        graph[asked] = graph[answer.url] = links
        if relevance(page, answer.body) >= threshold:
            targets[answer.url] = targets[asked] = page.digest
        new = [url for url in links if url not in met]
        met.update(new)
        queue.extend(new)
    check(archive, seed, graph, targets)
    task = CrawlTask(
        ArchiveFetcher(archive),
        seed,
        relevance,
        topic=topic or None,
        scope=inside,
        targets=targets,
        budget=budget,
        name=f"{archive.path.name} {seed}",
        pages=len(graph),
    )
    return Recorded(seed, graph, targets, task)


def check(
    archive: Archive, seed: str, graph: Mapping[str, tuple[str, ...]], targets: Mapping[str, str]
) -> None:
    """Refuse a recording that nothing can be learned from."""
    if len(graph) < FEWEST_PAGES:
        held = ", ".join(f"{site.host} ({site.pages})" for site in archive.sites()[:5]) or "nothing"
        raise RunError(
            f"{archive.path}: {len(graph)} recorded pages can be reached from {seed}, and "
            f"{FEWEST_PAGES} are the least; it holds {held}: check --seed-url and --allow, or "
            "record more"
        )
    if not targets:
        raise RunError(
            f"{archive.path}: none of the {len(graph)} pages that can be reached from {seed} is "
            "relevant: check what is looked for (--keywords, --examples, --css, --regex, "
            "--threshold)"
        )


def archive_oracle(recorded: Recorded) -> ForTask:
    """The order of who knows the whole recording."""
    first: dict[str, str] = {}
    for url, digest in recorded.targets.items():
        first.setdefault(digest, url)
    known = KnownSite(recorded.graph, recorded.seed_url, frozenset(first.values()))
    order = oracle_order(cast(Site, known))  # it reads these three only
    return ForTask(lambda task, seed: InOrder(order))


class Band(NamedTuple):
    """Targets found after each request: the mean, and the least and most, over seeds."""

    mean: list[float]
    low: list[float]
    high: list[float]


def beside(
    task: CrawlTask, budget: int, threshold: float, seeds: Mapping[str, int] = BESIDE
) -> dict[str, Band]:
    """What baselines find in the same recording with as many requests."""
    made = standard()
    return asyncio.run(
        crawl_with_each(
            {name: (made[name], count) for name, count in seeds.items()}, task, budget, threshold
        )
    )


async def crawl_with_each(
    makers: Mapping[str, tuple[MakeChooser, int]], task: CrawlTask, budget: int, threshold: float
) -> dict[str, Band]:
    """Crawl with every maker and seed."""
    bands = {}
    for name, (make, count) in makers.items():
        sessions = [
            await crawl(task, make(seed), budget, Prices(threshold=threshold))
            for seed in range(count)
        ]
        bands[name] = band([session.curve for session in sessions], budget)
    return bands


def band(curves: Sequence[Sequence[int]], budget: int) -> Band:
    """Curves over a budget, as far as any of them goes; each stays as it is after its end."""
    budget = min(budget, max(map(len, curves)))
    held = np.array(
        [[*curve[:budget], *[curve[-1]] * (budget - len(curve))] for curve in curves], np.float64
    )
    return Band(held.mean(0).tolist(), held.min(0).tolist(), held.max(0).tolist())
