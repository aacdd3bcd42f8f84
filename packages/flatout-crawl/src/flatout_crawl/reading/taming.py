"""Large markup made harmless before it is parsed.

A parser that follows the HTML standard takes quadratic time on pages that were made for it: a
hundred thousand nested tags are half a minute. Small pages cannot do much harm and go to the parser
as they are. Large ones are written anew here, in one pass of linear time: containers closed in
order and nested a bounded number of times, links, headings and text; no scripts, no comments, no
attributes but the few that are read. What it does not know: what any of it means.
"""

import re
from typing import Literal, NamedTuple

SMALL_BYTES = 64_000
SMALL_TAGS = 2_500  # counted by "<"
MOST_NESTED = 64

CONTAINERS = frozenset(
    b"a address article aside blockquote center details div dl fieldset figure footer form h1 h2 "
    b"h3 h4 h5 h6 header "
    b"main nav ol pre section span summary table tbody tfoot thead ul".split()
)
ITEMS = frozenset(
    b"p li dt dd td th tr".split()
)  # the parser closes them by itself: they do not nest
LONE = frozenset(b"base meta br hr area".split())
UNREAD = frozenset(
    b"script style template svg math textarea iframe noembed noframes xmp object title".split()
)
TITLE_LENGTH = 2_000
# Nothing in it is tried twice (all repetitions are possessive), and what it passes over before it
# fails is bounded: a hundred pieces, none of which holds a "<" unless it is a quotation of 2,000
# bytes at most.
TAG = re.compile(
    rb"""<(/?)([a-zA-Z][a-zA-Z0-9-]*+)((?:[^<>"']++|"[^"]{0,2000}+"|'[^']{0,2000}+'){0,100}+)>|<!--|<[!?][^<>]*+>"""
)
ATTRIBUTE = re.compile(
    rb"""[\s"'/](class|href|rel|role|id|name|content|charset)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'<>=`]+))""",
    re.IGNORECASE,
)
END_OF = {name: re.compile(rb"</" + name + rb"(?=[\s/>])", re.IGNORECASE) for name in UNREAD}
END_OF_COMMENT = re.compile(rb"--!?>")


def is_small(markup: bytes) -> bool:
    """Whether no parser can be busy with it for long."""
    return len(markup) <= SMALL_BYTES and markup.count(b"<") <= SMALL_TAGS


def tame_markup(markup: bytes, most_tags: int) -> bytes:
    """The markup itself if small, else written anew, with this many tags at most."""
    return markup if is_small(markup) else rewrite_markup(markup, most_tags)


def rewrite_markup(markup: bytes, most_tags: int) -> bytes:
    """Well-formed markup with the same text, links and headings."""
    writing = Writing(markup)
    while writing.at < len(markup) and writing.tags < most_tags:
        writing.go_on(most_tags)
    return b"".join(writing.out)


class Tag(NamedTuple):
    """What is done about a tag, remembered by its text: pages use few different ones."""

    kind: Literal["open", "close", "plain", "skip", "comment"]
    name: bytes = b""
    written: bytes = b" "  # a tag that is left out still parts words


class Writing:
    """Markup on its way to harmless markup."""

    def __init__(self, markup: bytes) -> None:
        self.markup, self.at, self.tags = markup, 0, 0
        self.out: list[bytes] = [b"<!doctype html>"]
        self.stack: list[
            bytes
        ] = []  # open containers; those beyond the limit are here but not written
        self.known: dict[bytes, Tag] = {}

    def go_on(self, most_tags: int) -> None:
        """Up to the next element whose content is not read, the last tag allowed, or the end."""
        markup, out, stack, known = self.markup, self.out, self.stack, self.known
        for found in TAG.finditer(markup, self.at):
            self.tags += 1
            start, end = found.span()
            if start > self.at:
                out.append(escape_text(markup[self.at : start]))
            self.at = end
            text = found[0]
            tag = known.get(text)
            if tag is None:
                tag = known[text] = parse_tag(found)
            if tag.kind == "open":
                if tag.name == b"a":
                    self.close(tag.name)  # links do not nest
                stack.append(tag.name)
                if len(stack) <= MOST_NESTED:
                    out.append(tag.written)
            elif tag.kind == "close":
                self.close(tag.name)
            elif tag.kind == "plain":
                out.append(tag.written)
            else:
                self.at = self.skip(tag, start, end)
                return
            if self.tags >= most_tags:
                return
        out.append(escape_text(markup[self.at :]))
        self.at = len(markup)

    def close(self, name: bytes) -> None:
        """Close the innermost container of this name and what is open within it; nothing if it is
        not near.
        """
        stack = self.stack
        for place in range(len(stack) - 1, max(len(stack) - 1 - MOST_NESTED, -1), -1):
            if stack[place] == name:
                self.out.extend(
                    b"</" + inner + b">" for inner in reversed(stack[place:MOST_NESTED])
                )
                del stack[place:]
                return

    def skip(self, tag: Tag, start: int, end: int) -> int:
        """Where to go on after a comment or an element whose content is not read; of a title the
        text is kept.
        """
        if tag.kind == "comment":
            found = END_OF_COMMENT.search(self.markup, start + 2)
            return found.end() if found else len(self.markup)
        found = END_OF[tag.name].search(self.markup, end)
        if tag.name == b"title":
            inside = self.markup[end : found.start() if found else len(self.markup)]
            self.out.append(b"<title>" + escape_text(inside[:TITLE_LENGTH]) + b"</title>")
        return found.start() if found else len(self.markup)


def parse_tag(found: re.Match[bytes]) -> Tag:
    """What is to be done about a tag."""
    closing, name = found[1], (found[2] or b"").lower()
    if found[0] == b"<!--":
        return Tag("comment")
    if name in CONTAINERS:
        return (
            Tag("close", name)
            if closing
            else Tag("open", name, b"<" + name + attributes(found[3]) + b">")
        )
    if name in UNREAD and not closing:
        return Tag("skip", name)
    if closing and name in ITEMS:
        return Tag("plain", name, b"</" + name + b">")
    if not closing and (name in ITEMS or name in LONE or name == b"body"):
        return Tag("plain", name, b"<" + name + attributes(found[3]) + b">")
    return Tag("plain", name)


def attributes(text: bytes) -> bytes:
    """The few attributes that are read, each once, quoted."""
    if b"=" not in text:
        return b""
    kept: dict[bytes, bytes] = {}
    for found in ATTRIBUTE.finditer(b" " + text[:8_000]):
        kept.setdefault(found[1].lower(), found[2] or found[3] or found[4] or b"")
    return b"".join(
        b" " + name + b'="' + value.replace(b'"', b"&quot;") + b'"' for name, value in kept.items()
    )


def escape_text(text: bytes) -> bytes:
    """Text in which nothing looks like a tag; entities stay as they are."""
    return text.replace(b"<", b"&lt;") if b"<" in text else text
