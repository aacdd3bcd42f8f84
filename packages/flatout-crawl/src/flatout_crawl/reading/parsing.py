"""From the bytes of an answer to a `Page`: title, visible text, and links with what stands around
them.

Pages are written by strangers: nothing here raises for what they contain, and size, nesting and
number of links are bounded. It does not know which links may be followed (`scope`) nor which pages
matter (`relevance`).
"""

import re
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

from selectolax.lexbor import LexborHTMLParser, LexborNode

from flatout_crawl.net.fetching import Answer
from flatout_crawl.reading.charsets import decode_body
from flatout_crawl.reading.page import Link, Page, Zone
from flatout_crawl.reading.taming import tame_markup

Canonical = Callable[[str, str], str | None]  # (href, base) -> absolute URL, None if not crawlable


@dataclass(frozen=True)
class PageCaps:
    """How much of a page is read."""

    bytes: int = 2_000_000  # of markup
    tags: int = 20_000  # of large pages
    text: int = 200_000  # characters
    links: int = 500
    depth: int = 32  # tags in a tag path
    title: int = 300
    anchor: int = 200
    around: int = 80  # characters on either side of a link
    href: int = 2_000


DEFAULT_CAPS = PageCaps()
WANTED = "a[href],area[href],h1,h2,h3,h4,h5,h6,title,base[href],meta[name]"
INVISIBLE = ["script", "style", "template", "svg", "math", "iframe", "object"]
# letters of a class, an id or a role; the rest is cut, since what is seen is remembered
LONGEST_NAME = 200
HEADINGS = frozenset(("h1", "h2", "h3", "h4", "h5", "h6"))
# C0 and C1 controls, and the marks that turn the direction of text: none of them may reach a
# terminal.
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]")

ZONE_OF_TAG: dict[str, Zone] = {
    "nav": "nav",
    "header": "nav",
    "aside": "aside",
    "footer": "footer",
    "main": "main",
    "article": "main",
}
ZONE_OF_ROLE: dict[str, Zone] = {
    "navigation": "nav",
    "banner": "nav",
    "menu": "nav",
    "menubar": "nav",
    "complementary": "aside",
    "contentinfo": "footer",
    "main": "main",
}
ZONE_WORDS: tuple[tuple[re.Pattern[str], Zone], ...] = (
    (re.compile(r"(?:^|[\s_-])(?:foot|footer|colophon)(?:$|[\s_-])"), "footer"),
    (re.compile(r"(?:^|[\s_-])(?:sidebar|aside|related|rail)(?:$|[\s_-])"), "aside"),
    (
        re.compile(
            r"(?:^|[\s_-])(?:nav|navbar|navigation|menu|breadcrumbs?|topbar|masthead)(?:$|[\s_-])"
        ),
        "nav",
    ),
    (re.compile(r"^(?:main|content|article|post|entry)$"), "main"),
)


class ElementPlace(NamedTuple):
    """Where an element stands."""

    path: str
    depth: int
    zone: Zone
    in_article: bool  # a header within an article is no navigation


NOWHERE = ElementPlace("", 0, "main", False)


def read_page(answer: Answer, canonical: Canonical, caps: PageCaps = DEFAULT_CAPS) -> Page:
    """The page that an answer holds."""
    markup = tame_markup(decode_body(answer.body[: caps.bytes]), caps.tags)
    tree = LexborHTMLParser(markup)
    tree.strip_tags(INVISIBLE)
    body = tree.body
    text = (
        clean(body.text(separator=" ")[: 2 * caps.text])[: caps.text].rstrip()
        if body is not None
        else ""
    )
    title, links = Reading(answer.url, canonical, caps).read(tree)
    digest = blake2b(f"{title}\n{text}".encode("utf-8", "replace"), digest_size=16).hexdigest()
    return Page(url=answer.url, title=title, text=text, links=links, digest=digest)


class Reading:
    """One walk over the elements that are wanted, in the order of the page."""

    def __init__(self, url: str, canonical: Canonical, caps: PageCaps) -> None:
        self.url, self.base, self.canonical, self.caps = url, url, canonical, caps
        self.places: dict[int, ElementPlace] = {}  # by element
        self.blocks: dict[int, str] = {}  # text of elements that hold links
        self.links: dict[str, Link] = {}
        self.heading = ""

    def read(self, tree: LexborHTMLParser) -> tuple[str, tuple[Link, ...]]:
        """The page's title, and its links where each stands first."""
        title, seen_base, caps = "", False, self.caps
        for node in tree.css(WANTED):
            tag = node.tag
            if tag in ("a", "area"):
                if len(self.links) < caps.links:
                    self.add(node)
            elif tag in HEADINGS:
                self.heading = clean(node.text(separator=" ")[: 4 * caps.anchor])[: caps.anchor]
            elif tag == "title":
                title = title or clean(node.text()[: 4 * caps.title])[: caps.title].rstrip()
            elif tag == "base":
                given = (node.attributes["href"] or "")[: caps.href + 1]
                self.base = self.base if seen_base else self.canonical(given, self.url) or self.url
                seen_base = True
            elif forbids_following(node):
                return title or self.found_title(tree), ()
        return title, tuple(self.links.values())

    def found_title(self, tree: LexborHTMLParser) -> str:
        """The title, where the walk was left before it came by."""
        node = tree.css_first("title")
        return (
            clean(node.text()[: 4 * self.caps.title])[: self.caps.title].rstrip()
            if node is not None
            else ""
        )

    def add(self, node: LexborNode) -> None:
        """A link, unless it is to be left alone or was there before."""
        given = node.attributes
        href, rel = (given["href"] or "").strip(), given.get("rel")
        if (
            not href
            or href[0] == "#"
            or len(href) > self.caps.href
            or (rel and "nofollow" in rel.lower())
        ):
            return
        url = self.canonical(href, self.base)
        if url is None or url in self.links or url == self.url:
            return
        parent = node.parent
        place = self.place(parent) if parent is not None else NOWHERE
        anchor = clean(node.text()[: 4 * self.caps.anchor])[: self.caps.anchor].rstrip()
        if not anchor:
            anchor = clean(
                (given.get("title") or given.get("aria-label") or given.get("alt") or "")[:200]
            )
        context = self.context(parent, anchor) if place.zone in ("main", "aside") else self.heading
        own = step("a", (given.get("class") or "")[:LONGEST_NAME])
        path = f"{place.path}/{own}" if place.depth < self.caps.depth else place.path
        self.links[url] = Link(
            url=url,
            anchor=anchor,
            context=context,
            zone=place.zone,
            tag_path=path,
            position=len(self.links),
        )

    def context(self, parent: LexborNode | None, anchor: str) -> str:
        """The heading above and the words on either side, from the smallest block that says more
        than the link.
        """
        for _ in range(2):
            if parent is None or parent.tag == "body":
                break
            words = self.block(parent)
            if len(words) > len(anchor) + 2:
                at = max(words.find(anchor), 0)
                before = words[max(at - self.caps.around, 0) : at]
                after = words[at + len(anchor) : at + len(anchor) + self.caps.around]
                return " ".join(filter(None, (self.heading, before.strip(), after.strip())))
            parent = parent.parent
        return self.heading

    def block(self, node: LexborNode) -> str:
        """The text of an element, computed once."""
        words = self.blocks.get(node.mem_id)
        if words is None:
            words = self.blocks[node.mem_id] = clean(node.text(separator=" ")[:4_000])
        return words

    def place(self, node: LexborNode) -> ElementPlace:
        """Where an element stands; ancestors are looked at once for all links below them."""
        unknown: list[LexborNode] = []
        at: LexborNode | None = node
        known: ElementPlace | None = None
        while at is not None and known is None:
            known = self.places.get(at.mem_id)
            if known is None:
                unknown.append(at)
                at = None if at.tag == "body" else at.parent
        place = known or NOWHERE
        for one in reversed(unknown):
            place = self.places[one.mem_id] = below(place, one, self.caps.depth)
        return place


def below(above: ElementPlace, node: LexborNode, most: int) -> ElementPlace:
    """The place of an element within one that is known."""
    tag = node.tag or ""
    given = node.attributes
    classes, role, own_id = (
        (given.get(name) or "")[:LONGEST_NAME] for name in ("class", "role", "id")
    )
    zone = own_zone(tag, role, f"{classes}\n{own_id}")
    if tag == "header" and above.in_article:
        zone = None
    inside = above.in_article or tag in ("article", "main")
    if above.depth >= most:
        return ElementPlace(above.path, above.depth, zone or above.zone, inside)
    own = step(tag, classes)
    path = f"{above.path}/{own}" if above.path else own
    return ElementPlace(path, above.depth + 1, zone or above.zone, inside)


@lru_cache(maxsize=4_096)
def step(tag: str, classes: str) -> str:
    """An element in a tag path: its tag and first class."""
    first = classes.split(None, 1)
    return clean(f"{tag}.{first[0][:40]}") if first else tag


@lru_cache(maxsize=4_096)
def own_zone(tag: str, role: str, names: str) -> Zone | None:
    """The zone that an element opens; None if it says nothing. `names` are its classes and its id,
    on two lines.
    """
    zone = ZONE_OF_ROLE.get(role) or ZONE_OF_TAG.get(tag)
    if zone is not None or tag in ("body", "html") or len(names) < 2:
        return zone
    for name in names.lower().split():
        for pattern, zone in ZONE_WORDS:
            if pattern.search(name):
                return zone
    return None


def forbids_following(node: LexborNode) -> bool:
    """Whether this is a robots meta tag that asks not to follow the page's links."""
    given = node.attributes
    if (given.get("name") or "").strip().lower() != "robots":
        return False
    rules = {rule.strip() for rule in (given.get("content") or "").lower().split(",")}
    return bool(rules & {"nofollow", "none"})


def clean(text: str) -> str:
    """Without control characters, spaces collapsed."""
    joined = " ".join(text.split())  # tabs, line ends and the like go here
    return joined if joined.isprintable() else " ".join(CONTROL.sub("", joined).split())


class Reader:
    """Reads pages and remembers them: pages recur across episodes, and their links across pages."""

    def __init__(
        self, canonical: Canonical, *, caps: PageCaps = DEFAULT_CAPS, pages: int = 4_096
    ) -> None:
        self.canonical, self.caps, self.most = Resolver(canonical), caps, pages
        self.known: OrderedDict[tuple[str, bytes], Page] = OrderedDict()
        self.hits = self.misses = 0

    def read(self, answer: Answer) -> Page:
        """The page, parsed if it was not seen lately."""
        key = answer.url, blake2b(answer.body, digest_size=16).digest()
        page = self.known.get(key)
        if page is not None:
            self.hits += 1
            self.known.move_to_end(key)
            return page
        self.misses += 1
        page = self.known[key] = read_page(answer, self.canonical, self.caps)
        if len(self.known) > self.most:
            self.known.popitem(last=False)
        return page


class Resolver:
    """`canonical`, remembered by what its answer depends on: host, folder or whole base."""

    def __init__(self, canonical: Canonical, most: int = 200_000) -> None:
        self.canonical, self.most = canonical, most
        self.known: dict[tuple[str, str], str | None] = {}
        self.base = self.origin = self.folder = ""

    def __call__(self, href: str, base: str) -> str | None:
        if base != self.base:
            plain = base.partition("#")[0].partition("?")[0]
            self.base, self.origin = base, "/".join(plain.split("/", 3)[:3])
            self.folder = plain.rpartition("/")[0] if plain.count("/") > 2 else plain
        key = self.depends_on(href), href
        try:
            return self.known[key]
        except KeyError:
            if len(self.known) >= self.most:
                self.known.clear()
            found = self.known[key] = self.canonical(href, base)
            return found

    def depends_on(self, href: str) -> str:
        """The part of the base that matters for this reference."""
        if href.startswith(("http://", "https://")):
            return ""
        if href[:1] == "/":
            return self.origin
        return self.folder if href[:1].isalnum() and ":" not in href else self.base
