"""The report of a study: one page that opens offline, with the verdict and all that speaks for and
against it.

What the numbers rest on comes before the numbers. A section whose numbers do not exist says so in a
sentence. The page is made from `report.json` alone; this file does not know how anything in it was
computed.
"""

import re
from pathlib import Path

from flatout.pages.frame import Section, link_sections, render_page, render_section
from flatout.pages.values import (
    Html,
    join,
    look,
    mapping,
    paragraph,
    records,
    say,
    table,
    tick,
    words_of_key,
)
from flatout.runs import write_bytes
from flatout.search import report_sections as sections
from flatout.search.report_assumptions import Report, assumptions, limits

FILE = "report.html"


SECTIONS = (
    Section(
        "assumptions",
        "What the numbers rest on",
        assumptions,
        "the report names no assumptions; believe nothing",
    ),
    Section(
        "winner",
        "The winner's paths against the baselines",
        sections.winner,
        "no trial has a full set of paths",
    ),
    Section("hold-out", "Hold-out", sections.hold_out, "the hold-out is sealed, or there is none"),
    Section("sharpes", "Sharpe ratios beside luck", sections.sharpes, "no path has a Sharpe ratio"),
    Section(
        "degradation",
        "In sample and out of sample",
        sections.degradation,
        "too few trials to choose among",
    ),
    Section(
        "pbo", "Probability of overfitting", sections.overfitted, "too few trials to choose among"
    ),
    Section(
        "deflated",
        "Deflated Sharpe ratio",
        sections.deflated,
        "there is no Sharpe ratio to deflate",
    ),
    Section("trials", "Trials", sections.trials, "no trial was completed"),
    Section(
        "importance",
        "Which settings mattered",
        sections.importance,
        "too few trials, or all of equal value",
    ),
    Section(
        "stress", "Higher costs, later orders", sections.stress, "the winner was not run again"
    ),
    Section(
        "finalists", "Seeds of the finalists", sections.finalists, "no finalist was trained again"
    ),
    Section("controls", "Controls", sections.controls, "neither noise nor oracle was tried"),
    Section(
        "reward",
        "What the reward was made of",
        sections.reward_terms,
        "the reward's terms were not logged",
    ),
    Section("trading", "Trades and fees", sections.trading, "the winner has no trades"),
    Section("days", "Day by day", sections.days, "there are no days"),
    Section("throughput", "Speed", sections.throughput, "nothing was timed"),
    Section("limits", "Known limits", limits, "nobody wrote them"),
)


def write_report(folder: Path, report: Report) -> Path:
    """Write `report.html` into the folder, atomically."""
    write_bytes(folder / FILE, page(report).encode())
    return folder / FILE


def page(report: Report) -> str:
    """The whole page; nothing in it is loaded from elsewhere."""
    study = look(report, "study") or "study"
    made = say(
        "flatout {version} · {time}", version=look(report, "flatout"), time=look(report, "created")
    )
    body = [
        say("<header><h1>{study}</h1>{made}</header>", study=study, made=paragraph(made, "quiet")),
        verdict(report),
        link_sections(SECTIONS),
        *(render_section(section, report, "not computed") for section in SECTIONS),
        files(report),
    ]
    return render_page(f"{study}: flatout report", body)


def verdict(report: Report) -> Html:
    """May it be promoted, and which gates say so."""
    found = mapping(report, "verdict")
    promotable = look(found, "promotable")
    words, kind = ("PROMOTABLE", "good") if promotable is True else ("NOT PROMOTABLE", "bad")
    if not isinstance(promotable, bool):
        words, kind = "NO VERDICT", "none"
    columns = ("wanted", "found", "sentence")
    rows = [
        (
            tick(look(row, "passed")),
            words_of_key(look(row, "name")),
            *(look(row, column) for column in columns),
        )
        for row in records(found, "gates")
    ]
    gates = table(("", "gate", "wanted", "found", ""), rows, words=(0, 1, 4), kind="gates")
    fixed = say(
        "The gates were fixed before the study began: <code>{code}</code>",
        code=look(found, "gates_hash"),
    )
    return say(
        '<div class="verdict {kind}"><b>{words}</b>{sentence}{gates}{fixed}</div>',
        kind=kind,
        words=words,
        sentence=paragraph(look(found, "sentence") or "not computed: no gate was asked"),
        gates=gates or paragraph("not computed: there are no gates", "missing"),
        fixed=paragraph(fixed, "quiet") if look(found, "gates_hash") else "",
    )


def files(report: Report) -> Html:
    """Where the numbers are; only plain names of files become links."""
    links = [
        say('{key}: <a href="{file}">{file}</a>', key=words_of_key(key), file=file)
        if re.fullmatch(r"\w[\w.-]*", str(file))
        else say("{key}: {file}", key=words_of_key(key), file=file)
        for key, file in mapping(report, "files").items()
    ]
    return say("<footer>{files}</footer>", files=paragraph(join(links, " · "), "quiet"))
