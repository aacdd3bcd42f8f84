"""The report of a crawl or of an evaluation of policies: one page that opens offline, what was
found in its first line.

It is made from the folder's files alone. All text from pages and servers is stripped of control
characters and escaped.
"""

from pathlib import Path

from flatout.pages.frame import Section, link_sections, render_page, render_section
from flatout.pages.values import Html, fill_in, find_value, join, write_paragraph
from flatout.runs import write_bytes
from flatout_crawl.runs import report_sections as sections
from flatout_crawl.runs.report_facts import gather
from flatout_crawl.runs.report_sections import Report

FILE = "report.html"
MORE_STYLE = """
header { margin-top: 1.4rem; } td { overflow-wrap: anywhere; min-width: 3rem; }
details summary { cursor: pointer; }
"""


RUN_SECTIONS = (
    Section("summary", "In numbers", sections.summary, "the crawl has not ended yet"),
    Section(
        "curve", "Targets against requests", sections.found_curve, "the crawl has not ended yet"
    ),
    Section("targets", "What was found", sections.targets, "nothing was found"),
    Section("failures", "What could not be had", sections.failures, "the crawl has not ended yet"),
    Section(
        "hosts",
        "Requests and manners",
        sections.hosts,
        "no request was sent: a recording was crawled",
    ),
    Section("order", "What the numbers rest on", sections.show_order, "the order is not known"),
)
EVALUATION_SECTIONS = (
    Section("duels", "The learned policy and its rivals", sections.duels, "nobody was beside it"),
    Section("curve", "Recall against requests", sections.recall_curve, "there are no curves"),
    Section("choosers", "All choosers", sections.choosers, "nobody crawled"),
    Section("sites", "Where it was tried", sections.sites, "nowhere"),
    Section(
        "grounds",
        "What the numbers rest on",
        sections.grounds,
        "the report names no assumptions; believe nothing",
    ),
)


def write_report(folder: Path) -> Path:
    """Write `report.html` from the folder's files, atomically."""
    write_bytes(folder / FILE, page(gather(folder)).encode())
    return folder / FILE


def headline(report: Report) -> tuple[str, str, str]:
    """The first line: kind, a word or two, and the sentence."""
    if find_value(report, "kind") == "evaluation":
        beats = find_value(report, "verdict", "beats") is True
        words = "BEATS ITS RIVALS" if beats else "DOES NOT BEAT ITS RIVALS"
        return (
            "good" if beats else "bad",
            words,
            str(find_value(report, "verdict", "sentence") or "There is no verdict."),
        )
    outcome = find_value(report, "outcome") or {}
    found, requests = find_value(outcome, "found"), find_value(outcome, "requests")
    if found is None:
        return (
            "none",
            "NOT ENDED",
            "This crawl has not ended yet: go on with `flatout crawl run --resume`.",
        )
    if not find_value(report, "run", "order", "relevance"):
        pages = find_value(outcome, "pages") or 0
        return (
            "good",
            f"{pages:,} PAGES RECORDED",
            f"{requests:,} requests; it ended because {find_value(outcome, 'ended')}.",
        )
    words = f"{found:,} TARGET{'S' * (found != 1)} FOUND"
    return (
        "good" if found else "bad",
        words,
        f"{requests:,} requests; it ended because {find_value(outcome, 'ended')}.",
    )


def page(report: Report) -> str:
    """The whole page; nothing in it is loaded from elsewhere."""
    kind, words, sentence = headline(report)
    evaluated = find_value(report, "kind") == "evaluation"
    chosen = EVALUATION_SECTIONS if evaluated else RUN_SECTIONS
    title = (
        "Choosing links"
        if evaluated
        else str(find_value(report, "run", "order", "seed_url") or "A crawl")
    )
    version, started = (
        find_value(report, "flatout") or find_value(report, "run", "flatout"),
        find_value(report, "run", "started"),
    )
    made = fill_in(
        "flatout {version} {time}",
        version=version,
        time=started or find_value(report, "created") or "",
    )
    box = '<div class="verdict {kind}"><b>{words}</b>{sentence}</div>'
    body = [
        fill_in(box, kind=kind, words=words, sentence=write_paragraph(sentence)),
        fill_in(
            "<header><h1>{title}</h1>{made}</header>",
            title=title,
            made=write_paragraph(made, "quiet"),
        ),
        link_sections(chosen),
        *(render_section(section, report, "not shown") for section in chosen),
        files(report),
    ]
    referrer = '<meta name="referrer" content="no-referrer">'
    return render_page(f"{words.capitalize()}: flatout crawl", body, MORE_STYLE, referrer)


def files(report: Report) -> Html:
    """Links to the files that hold the numbers."""
    names = [
        fill_in(('<a href="{file}">{file}</a>'), file=str(name))
        for name in find_value(report, "files") or ()
    ]
    return fill_in("<footer>{files}</footer>", files=write_paragraph(join(names, " · "), "quiet"))
