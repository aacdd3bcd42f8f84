"""What the crawler knows of a page it has read."""

from typing import Literal, NamedTuple

Zone = Literal["main", "nav", "aside", "footer"]
ZONES: tuple[Zone, ...] = ("main", "nav", "aside", "footer")


class Link(NamedTuple):
    """A link as it stands on a page."""

    url: str  # absolute, canonical (see `scope.canonical`), without fragment
    anchor: str  # its text
    context: str  # the nearest heading above it and a little of the text around it
    zone: Zone
    tag_path: str  # tags and classes from the body down to the link: "body/div.content/ul/li/a"
    position: int  # among the page's links, from 0


class Page(NamedTuple):
    """A page that was read: its text and its links."""

    url: str
    title: str
    text: str  # visible, spaces collapsed
    links: tuple[Link, ...]  # each URL once: where it stands first
    digest: str  # of the content (title and text): equal for copies under several URLs
