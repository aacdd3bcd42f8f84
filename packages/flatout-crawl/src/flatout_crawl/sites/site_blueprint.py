"""What a made-up site consists of, as data: links, blocks of links, pages, and the whole with its
hazards.
"""

from dataclasses import dataclass, field
from random import Random
from typing import Literal, NamedTuple

from flatout_crawl.sites.site_style import Style
from flatout_crawl.sites.site_words import Vocabulary

FIXED = ("about", "contact", "privacy", "help", "terms")  # pages that every site has
BlockKind = Literal["list", "archive", "box", "pager"]


class PageLink(NamedTuple):
    """A link on a page, with the text beside it."""

    path: str  # or a whole URL of another site
    anchor: str
    blurb: str = ""  # text beside it
    follow: bool = True


class LinkBlock(NamedTuple):
    """Links that stand together in the main part of a page."""

    kind: BlockKind
    heading: str
    entries: tuple[PageLink, ...]


class PagePlan(NamedTuple):
    """What a page holds, before it becomes HTML."""

    path: str
    title: str
    topic: int
    rate: float  # of keywords in its text
    words: int
    blocks: tuple[LinkBlock, ...] = ()
    aside: tuple[PageLink, ...] = ()
    crumbs: tuple[PageLink, ...] = ()


@dataclass
class Blueprint:
    """A whole site before it becomes HTML."""

    style: Style
    words: Vocabulary
    plans: dict[str, PagePlan] = field(default_factory=dict)
    targets: set[str] = field(default_factory=set)
    gateways: dict[str, list[str]] = field(
        default_factory=dict
    )  # and the targets that only they lead to
    decoys: set[str] = field(default_factory=set)
    redirects: dict[str, str] = field(default_factory=dict)
    copies: dict[str, str] = field(default_factory=dict)  # path -> the one it is a copy of
    errors: dict[str, int] = field(default_factory=dict)
    slow: dict[str, float] = field(default_factory=dict)  # seconds more than usual
    private: set[str] = field(default_factory=set)  # forbidden by robots.txt
    nav: tuple[PageLink, ...] = ()
    footer: tuple[PageLink, ...] = ()


class SiteSizes(NamedTuple):
    """How many topics, lists and targets a site has."""

    topics: int
    shelves: int  # per topic: lists of leaves
    gateways: int  # that lead to targets; as many lead to nothing
    clustered: int  # targets behind gateways
    scattered: int  # targets in lists
    leaves: int  # other pages in lists


class Leaf(NamedTuple):
    """A page at the end of a list, and how the list speaks of it."""

    entry: PageLink
    topic: int
    rate: float
    title: str


def drawn_sizes(rng: Random, pages: int, target_share: float, per_page: int) -> SiteSizes:
    """Sizes that add up to about this many pages."""
    topics = rng.randint(4, 5) if pages < 250 else rng.randint(5, 8)
    shelves = 2 if pages < 250 else rng.randint(2, 4)
    gateways = 2 if pages < 250 else rng.randint(3, 5)
    targets = max(round(pages * target_share), 4)
    clustered = round(targets * rng.uniform(0.6, 0.8))
    fixed = 2 + topics * (1 + shelves) + len(FIXED) + 4 * gateways + 2 * clustered
    scattered = targets - clustered
    leaves = round((pages - fixed) * per_page / (per_page + 1)) - scattered
    return SiteSizes(
        topics=topics,
        shelves=shelves,
        gateways=gateways,
        clustered=clustered,
        scattered=scattered,
        leaves=max(leaves, 10),
    )
