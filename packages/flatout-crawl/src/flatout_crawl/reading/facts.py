"""What is computed once of a page, however often it is met: its relevance, and its links as
numbers.

Episodes meet the same pages again and again, so a task remembers them by URL and content; what
depends on the episode (who led here, what groups have earned) is not here but in `frontier.py`.
"""

import math
import re
from collections.abc import Callable
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple
from urllib.parse import parse_qsl, urlsplit

import numpy as np
from numpy.typing import NDArray

from flatout_crawl.net.fetching import Answer
from flatout_crawl.reading.page import ZONES, Link, Page
from flatout_crawl.reading.relevance import Relevance
from flatout_crawl.reading.text import Topic, url_text

Floats = NDArray[np.float32]

FILE_TYPES = ("page", "document", "data", "other")
TYPE_OF = {
    **dict.fromkeys(("", "html", "htm", "xhtml", "php", "asp", "aspx", "jsp"), 0),
    **dict.fromkeys(("pdf", "doc", "docx", "odt", "ppt", "pptx", "txt", "md", "rst", "ps"), 1),
    **dict.fromkeys(("csv", "json", "xml", "xls", "xlsx", "ods", "zip", "gz", "parquet", "tsv"), 2),
}
LINK_FACTS = (
    "anchor_similarity",
    "url_similarity",
    "context_similarity",
    "path_depth",
    "query_parameters",
    "digit_ratio",
    "same_directory",
    *(f"type_{name}" for name in FILE_TYPES),
    *(f"zone_{name}" for name in ZONES),
    "position",
    "anchor_length",
)
SIMILARITIES = 3  # the first columns
DIGITS = re.compile(r"\d+")
SLUG = re.compile(
    r"[-_%~+]|.{21}"
)  # several words, escapes, or long: a name of a thing, not of a kind


class UrlShape(NamedTuple):
    """What a URL looks like, without what is its own."""

    directory: str
    template: str  # names of single things generalised: "/blog/#/*.html"
    columns: tuple[float, ...]  # path_depth, query_parameters, digit_ratio
    file_type: int


@lru_cache(maxsize=100_000)
def url_shape(url: str) -> UrlShape:
    """Shape of a URL; the last part of a path names a thing and is always generalised."""
    parts = urlsplit(url)
    directory, _, leaf = parts.path.rpartition("/")
    folders = [folder for folder in directory.split("/") if folder]
    name, dot, extension = leaf.rpartition(".")
    extension = extension.lower() if dot and name else ""
    keys = sorted(key for key, _ in parse_qsl(parts.query, keep_blank_values=True))
    template = "/".join(
        ["", *map(general, folders), ("*" if leaf else "") + (f".{extension}" if extension else "")]
    )
    letters = parts.path + parts.query
    digits = sum(map(str.isdigit, letters)) / max(1, len(letters))
    columns = (len([*folders, *([leaf] if leaf else [])]) / 4, len(keys) / 2, digits)
    shape = f"{parts.netloc}{template}?{'&'.join(keys)}" if keys else f"{parts.netloc}{template}"
    return UrlShape(f"{parts.netloc}{directory}", shape, columns, TYPE_OF.get(extension, 3))


def general(folder: str) -> str:
    """A folder's name with digits as #, or * where it names a single thing."""
    return "*" if SLUG.search(folder) else DIGITS.sub("#", folder)


def general_tag_path(tag_path: str) -> str:
    """A tag path without numbers, which count items rather than tell kinds apart."""
    return DIGITS.sub("#", tag_path)


class PageFacts(NamedTuple):
    """A page that was read, as far as the crawl needs it; only links in scope."""

    url: str
    digest: str
    relevance: float
    links: tuple[Link, ...]
    urls: tuple[str, ...]  # of the links
    columns: Floats  # (link, LINK_FACTS)
    tag_paths: tuple[str, ...]  # of the links, generalised
    templates: tuple[str, ...]


class PageNotes:
    """The facts of pages met before, up to a number of them; the oldest go first."""

    def __init__(
        self,
        relevance: Relevance,
        topic: Topic,
        in_scope: Callable[[str], bool],
        read: Callable[[Answer], Page],
        remembered_pages: int = 4096,
    ) -> None:
        self.relevance, self.topic, self.in_scope, self.read = relevance, topic, in_scope, read
        self.remembered_pages = remembered_pages
        self._known: dict[tuple[str, bytes], PageFacts] = {}

    def facts(self, answer: Answer) -> PageFacts:
        """Of an answer that is a page."""
        key = (answer.url, blake2b(answer.body, digest_size=16).digest())
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= self.remembered_pages:
                del self._known[next(iter(self._known))]
            found = self._known[key] = self._compute_facts(answer)
        return found

    def _compute_facts(self, answer: Answer) -> PageFacts:
        page = self.read(answer)
        links = tuple(link for link in page.links if self.in_scope(link.url))
        shapes = [url_shape(link.url) for link in links]
        return PageFacts(
            url=page.url,
            digest=page.digest,
            relevance=self.relevance(page, answer.body),
            links=links,
            urls=tuple(link.url for link in links),
            columns=link_columns(page.url, links, shapes, self.topic),
            tag_paths=tuple(general_tag_path(link.tag_path) for link in links),
            templates=tuple(shape.template for shape in shapes),
        )


def link_columns(url: str, links: tuple[Link, ...], shapes: list[UrlShape], topic: Topic) -> Floats:
    """(link, LINK_FACTS) of the links on the page with this URL."""
    n, table = len(links), np.zeros((len(links), len(LINK_FACTS)), np.float32)
    if not n:
        return table
    texts = (
        [link.anchor for link in links]
        + [url_text(link.url) for link in links]
        + [link.context for link in links]
    )
    table[:, :SIMILARITIES] = topic.similarities(texts).reshape(SIMILARITIES, n).T
    table[:, 3:6] = [shape.columns for shape in shapes]
    directory, rows = url_shape(url).directory, np.arange(n)
    table[:, 6] = [shape.directory == directory for shape in shapes]
    table[rows, 7 + np.array([shape.file_type for shape in shapes])] = 1
    table[rows, 11 + np.array([ZONES.index(link.zone) for link in links])] = 1
    table[:, 15] = [math.log1p(link.position) / 5 for link in links]
    table[:, 16] = [math.log1p(len(link.anchor)) / 4 for link in links]
    return np.clip(table, -10, 10)
