"""The frame of every page: sections with their headings, links to them, and one HTML document that
opens offline.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from plotly.offline import get_plotlyjs

from flatout.pages.style import SCRIPT, STYLE
from flatout.pages.values import Html, fill_in, join, write_paragraph

__all__ = ["Section", "link_sections", "render_page", "render_section"]

ReportT = TypeVar("ReportT")  # what the sections of a page read


class Section(NamedTuple, Generic[ReportT]):
    """A part of a page with its heading.

    >>> def show(report):
    ...     return write_paragraph(report.get("costs"))
    >>> costs = Section("costs", "Costs", show, "none")
    >>> costs.body({"costs": "3 bps"})
    '<p class="">3 bps</p>'
    """

    anchor: str
    title: str
    body: Callable[[ReportT], Html]  # empty where there is nothing to show
    without: str  # the reason why there may be nothing


def render_section(section: Section[ReportT], report: ReportT, empty: str) -> Html:
    """A section with its heading, or with the sentence that says why it is empty, which begins with
    `empty`.

    >>> def show(report):
    ...     return write_paragraph(report.get("costs"))
    >>> costs = Section("costs", "Costs", show, "none")
    >>> print(render_section(costs, {}, empty="Nothing here"))
    <section id="costs"><h2>Costs</h2>
    <p class="missing">Nothing here: none</p></section>
    """
    body = section.body(report) or write_paragraph(f"{empty}: {section.without}", "missing")
    template = '<section id="{anchor}"><h2>{title}</h2>\n{body}</section>'
    return fill_in(template, anchor=section.anchor, title=section.title, body=body)


def link_sections(sections: Sequence[Section[Any]]) -> Html:
    """Links to the sections, for the head of the page.

    >>> link_sections([Section("costs", "Costs", lambda report: Html(""), "none paid")])
    '<nav><a href="#costs">Costs</a> </nav>'
    """
    link = '<a href="#{anchor}">{title}</a> '
    return fill_in(
        "<nav>{links}</nav>",
        links=join(fill_in(link, anchor=s.anchor, title=s.title) for s in sections),
    )


def render_page(title: str, body: Iterable[Html], more_style: str = "", more_head: str = "") -> str:
    """The whole document; nothing in it is loaded from elsewhere.

    >>> page = render_page("A crawl", [write_paragraph("3 pages & more")])
    >>> "<title>A crawl</title>" in page, "3 pages &amp; more" in page
    (True, True)
    """
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"{more_head}{fill_in('<title>{title}</title>', title=title)}"
        f"<style>{STYLE}{more_style}</style></head>\n"
        f"<body><main>\n{join(body, chr(10))}\n"
        "<noscript><p>The charts need JavaScript; the tables do not.</p></noscript></main>\n"
        f"<script>{get_plotlyjs()}</script>\n<script>{SCRIPT}</script></body></html>\n"
    )
