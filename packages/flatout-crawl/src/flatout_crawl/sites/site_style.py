"""How a made-up site looks: its templates, class names and URLs, drawn from a seed.

Within a site every list of a kind has one tag path; across sites the paths differ, so that only
what they mean carries over: where on the page a link stands, and what links like it have led to.
"""

from dataclasses import dataclass
from random import Random

NEUTRAL = [
    "Archive",
    "Resources",
    "Appendix",
    "Further reading",
    "Collection",
    "Annex",
    "Register",
    "Holdings",
    "Papers",
    "Records",
]
LIST_TAGS = (("ul", "li"), ("ol", "li"), ("div", "div"), ("section", "article"))
NAMES = {
    "nav": ("navbar", "menu", "top-nav", "site-nav", "main-menu"),
    "crumbs": ("breadcrumbs", "crumb-nav", "breadcrumb"),
    "main": ("content", "main", "article"),
    "aside": ("sidebar", "related", "side-rail", "page-aside"),
    "footer": ("footer", "page-foot", "site-footer"),
    "list": ("items", "listing", "entries", "cards", "results", "rows"),
    "archive": ("files", "index-list", "volumes", "shelf", "stack", "catalogue"),
    "box": ("note", "box", "callout", "lead", "teaser"),
    "pager": ("pages", "pager", "more"),
}


@dataclass(frozen=True)
class Style:
    """The templates of one site: tags, class names and order."""

    semantic: bool  # <nav>, <main>, <aside>, <footer>; else <div> with class names
    names: dict[str, str]  # class names by role
    list_tags: tuple[str, str]
    archive_tags: tuple[str, str]
    title_tag: str  # around the anchors of a list: "" or a heading
    urls: str  # of leaves: "folders", "numbers", "flat", "query"
    suffix: str  # of leaves in folders
    paged: str  # how further pages of a list are named: "query" or "folder"
    relative: bool  # references relative to the page; else to the root
    numbered_pager: bool  # all pages; else only the next one
    per_page: int
    same_archive_path: bool  # lists of other topics look like those that hold targets
    telling: float  # share of targets behind a gateway whose anchor says what they are
    wrappers: int  # <div>s around the content


def draw_style(rng: Random) -> Style:
    """Draw the style of one site."""
    first, second = rng.sample(LIST_TAGS, 2)
    return Style(
        semantic=rng.random() < 0.6,
        names={role: rng.choice(names) for role, names in NAMES.items()},
        list_tags=first,
        archive_tags=second,
        title_tag=rng.choice(("", "", "h3", "strong")),
        urls=rng.choice(("folders", "numbers", "flat", "query")),
        suffix=rng.choice((".html", "/", "")),
        paged=rng.choice(("query", "folder")),
        relative=rng.random() < 0.3,
        numbered_pager=rng.random() < 0.4,
        per_page=rng.randint(9, 16),
        same_archive_path=rng.random() < 0.5,
        telling=rng.uniform(0.1, 0.5),
        wrappers=rng.randint(0, 3),
    )
