"""The report of a crawl or of an evaluation of policies: one page that opens offline, what was found in its first line.

It is made from the folder's files alone. All text from pages and servers is stripped of control characters and escaped.
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from plotly.offline import get_plotlyjs

from flatout.crawl import report_sections as sections
from flatout.crawl.report_facts import gather
from flatout.crawl.report_sections import Report
from flatout.evaluation.report_style import SCRIPT, STYLE
from flatout.evaluation.report_values import Html, join, look, paragraph, say
from flatout.run_directory import write_bytes

FILE = "report.html"
MORE_STYLE = """
header { margin-top: 1.4rem; } td { overflow-wrap: anywhere; min-width: 3rem; }
details summary { cursor: pointer; }
"""


class Section(NamedTuple):
    """A part of the page."""

    anchor: str
    title: str
    body: Callable[[Report], Html]  # empty where there is nothing to show
    without: str  # the reason why there may be nothing


RUN_SECTIONS = (
    Section("summary", "In numbers", sections.summary, "the crawl has not ended yet"),
    Section("curve", "Targets against requests", sections.found_curve, "the crawl has not ended yet"),
    Section("targets", "What was found", sections.targets, "nothing was found"),
    Section("failures", "What could not be had", sections.failures, "the crawl has not ended yet"),
    Section("hosts", "Requests and manners", sections.hosts, "no request was sent: a recording was crawled"),
    Section("order", "What the numbers rest on", sections.asked, "the order is not known"),
)
EVALUATION_SECTIONS = (
    Section("duels", "The learned policy and its rivals", sections.duels, "nobody was beside it"),
    Section("curve", "Recall against requests", sections.recall_curve, "there are no curves"),
    Section("choosers", "All choosers", sections.choosers, "nobody crawled"),
    Section("sites", "Where it was tried", sections.sites, "nowhere"),
    Section(
        "grounds", "What the numbers rest on", sections.grounds, "the report names no assumptions; believe nothing"
    ),
)


def write_report(folder: Path) -> Path:
    """Write `report.html` from the folder's files, atomically."""
    write_bytes(folder / FILE, page(gather(folder)).encode())
    return folder / FILE


def headline(report: Report) -> tuple[str, str, str]:
    """The first line: kind, a word or two, and the sentence."""
    if look(report, "kind") == "evaluation":
        beats = look(report, "verdict", "beats") is True
        words = "BEATS ITS RIVALS" if beats else "DOES NOT BEAT ITS RIVALS"
        return "good" if beats else "bad", words, str(look(report, "verdict", "sentence") or "There is no verdict.")
    outcome = look(report, "outcome") or {}
    found, requests = look(outcome, "found"), look(outcome, "requests")
    if found is None:
        return "none", "NOT ENDED", "This crawl has not ended yet: go on with `flatout crawl run --resume`."
    if not look(report, "run", "order", "relevance"):
        pages = look(outcome, "pages") or 0
        return "good", f"{pages:,} PAGES RECORDED", f"{requests:,} requests; it ended because {look(outcome, 'ended')}."
    words = f"{found:,} TARGET{'S' * (found != 1)} FOUND"
    return "good" if found else "bad", words, f"{requests:,} requests; it ended because {look(outcome, 'ended')}."


def page(report: Report) -> str:
    """The whole page; nothing in it is loaded from elsewhere."""
    kind, words, sentence = headline(report)
    evaluated = look(report, "kind") == "evaluation"
    chosen = EVALUATION_SECTIONS if evaluated else RUN_SECTIONS
    title = "Choosing links" if evaluated else str(look(report, "run", "order", "seed_url") or "A crawl")
    version, started = look(report, "flatout") or look(report, "run", "flatout"), look(report, "run", "started")
    made = say("flatout {version} {time}", version=version, time=started or look(report, "created") or "")
    box = '<div class="verdict {kind}"><b>{words}</b>{sentence}</div>'
    body = [
        say(box, kind=kind, words=words, sentence=paragraph(sentence)),
        say("<header><h1>{title}</h1>{made}</header>", title=title, made=paragraph(made, "quiet")),
        say("<nav>{links}</nav>", links=join(say('<a href="#{a}">{t}</a> ', a=s.anchor, t=s.title) for s in chosen)),
        *(framed(section, report) for section in chosen),
        files(report),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="referrer" content="no-referrer">'
        f"{say('<title>{words}: flatout crawl</title>', words=words.capitalize())}"
        f"<style>{STYLE}{MORE_STYLE}</style></head>\n"
        f"<body><main>\n{join(body, chr(10))}\n"
        "<noscript><p>The charts need JavaScript; the tables do not.</p></noscript></main>\n"
        f"<script>{get_plotlyjs()}</script>\n<script>{SCRIPT}</script></body></html>\n"
    )


def framed(section: Section, report: Report) -> Html:
    """A section with its heading, or with the sentence that says why it is empty."""
    body = section.body(report) or paragraph(f"not shown: {section.without}", "missing")
    template = '<section id="{anchor}"><h2>{title}</h2>\n{body}</section>'
    return say(template, anchor=section.anchor, title=section.title, body=body)


def files(report: Report) -> Html:
    """Where the numbers are."""
    names = [say('<a href="{file}">{file}</a>', file=str(name)) for name in look(report, "files") or ()]
    return say("<footer>{files}</footer>", files=paragraph(join(names, " · "), "quiet"))
