"""A planned page as HTML, in the style of its site. Equal plans give equal bytes."""

import posixpath
from collections.abc import Iterable
from html import escape
from random import Random

from flatout_crawl.sites.site_blueprint import Blueprint, LinkBlock, PageLink, PagePlan


def render_html(site: Blueprint, plan: PagePlan, seed: int) -> bytes:
    """The bytes of a page, as the site's style has it."""
    return PageRenderer(site, plan, Random(f"flatout page {seed} {plan.path}")).html().encode()


class PageRenderer:
    """One page on its way to HTML."""

    def __init__(self, site: Blueprint, plan: PagePlan, rng: Random) -> None:
        self.site, self.plan, self.rng, self.style = site, plan, rng, site.style
        self.folder = posixpath.dirname(plan.path.partition("?")[0]) or "/"

    def html(self) -> str:
        """The whole page as HTML."""
        plan = self.plan
        head = (
            f'<!doctype html>\n<html lang="en"><head><meta '
            f'charset="utf-8"><title>{escape(plan.title)}</title>\n'
            "<style>body{margin:0;font:16px serif}a{color:#036}</style>\n"
            "<script>window.began = Date.now();</script></head>\n<body>\n"
        )
        main = self.wrap_zone(
            "main", "main", f"<h1>{escape(plan.title)}</h1>\n{self.prose()}\n{self.blocks()}"
        )
        opening, closing = "<div>" * self.style.wrappers, "</div>" * self.style.wrappers
        aside = (
            self.wrap_zone("aside", "aside", f"<h4>See also</h4>\n{self.items(plan.aside)}")
            if plan.aside
            else ""
        )
        top = self.wrap_zone("nav", "nav", self.items(self.site.nav))
        crumbs = (
            self.wrap_zone("crumbs", "nav", " / ".join(self.link(one) for one in plan.crumbs))
            if plan.crumbs
            else ""
        )
        foot = self.wrap_zone(
            "footer", "footer", f"<p>{' | '.join(self.link(one) for one in self.site.footer)}</p>"
        )
        return f"{head}{top}{opening}{crumbs}{main}{aside}{closing}{foot}</body></html>\n"

    def wrap_zone(self, role: str, tag: str, inside: str) -> str:
        """A zone of the page, in the tag that the site's style has for it."""
        name = self.style.names[role]
        tag = tag if self.style.semantic else "div"
        return f'<{tag} class="{name}">\n{inside}\n</{tag}>\n'

    def prose(self) -> str:
        """The running text of the page."""
        plan, paragraphs, left = self.plan, [], self.plan.words
        while left > 0:
            length = min(self.rng.randint(40, 90), left)
            text = self.site.words.paragraph(self.rng, plan.topic, length, plan.rate)
            paragraphs.append(f"<p>{text}</p>")
            left -= length
        return "\n".join(paragraphs)

    def blocks(self) -> str:
        """The links in the main part."""
        return "\n".join(self.block(block) for block in self.plan.blocks)

    def block(self, block: LinkBlock) -> str:
        """Links that stand together."""
        name = self.style.names[block.kind]
        if block.kind == "box":
            return f'<div class="{name}"><p>{self.weave_links(block.entries)}</p></div>'
        if block.kind == "pager":
            return f'<div class="{name}">{" ".join(self.link(one) for one in block.entries)}</div>'
        outer, inner = self.style.archive_tags if block.kind == "archive" else self.style.list_tags
        heading = f"<h2>{escape(block.heading)}</h2>\n" if block.heading else ""
        rows = "\n".join(f"<{inner}>{self.row(one)}</{inner}>" for one in block.entries)
        return f'{heading}<{outer} class="{name}">\n{rows}\n</{outer}>'

    def row(self, entry: PageLink) -> str:
        """A link in a list, and the text beside it."""
        tag = self.style.title_tag
        link = f"<{tag}>{self.link(entry)}</{tag}>" if tag else self.link(entry)
        return f"{link} <span>{escape(entry.blurb)}</span>" if entry.blurb else link

    def weave_links(self, entries: Iterable[PageLink]) -> str:
        """Links within running text."""
        words = self.site.words
        rate = self.plan.rate
        return " ".join(
            f"{words.sentence(self.rng, self.plan.topic, 6, rate)} {self.link(one)}"
            for one in entries
        )

    def items(self, entries: Iterable[PageLink]) -> str:
        """Links as a plain list of anchors."""
        return "<ul>" + "".join(f"<li>{self.link(one)}</li>" for one in entries) + "</ul>"

    def link(self, entry: PageLink) -> str:
        """A link as an HTML anchor."""
        rel = "" if entry.follow else ' rel="nofollow"'
        return f'<a href="{escape(self.reference(entry.path))}"{rel}>{escape(entry.anchor)}</a>'

    def reference(self, path: str) -> str:
        """The path as the site writes it; never with a host, so that the site may move."""
        if not self.style.relative or not path.startswith("/") or path == "/":
            return path
        plain, mark, query = path.partition("?")
        made = posixpath.relpath(plain, self.folder)
        return f"{made}{'/' if plain.endswith('/') else ''}{mark}{query}"
