"""The report of a study: one page that opens offline, with the verdict and all that speaks for and
against it.

What the numbers rest on comes before the numbers. A section whose numbers do not exist says so in a
sentence. The page is made from `report.json` alone; this file does not know how anything in it was
computed.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from flatout.pages.frame import Section, link_sections, render_page, render_section
from flatout.pages.values import (
    Html,
    fill_in,
    join,
    words_of_key,
    write_paragraph,
    write_sign,
    write_table,
)
from flatout.runs import write_bytes
from flatout.search import report_evidence as evidence
from flatout.search import report_sections as sections
from flatout.search.report_assumptions import show_assumptions, show_limits
from flatout.search.report_model import StudyReport, VerdictFacts

FILE = "report.html"

SECTIONS = (
    Section(
        "assumptions",
        "What the numbers rest on",
        show_assumptions,
        "the report names no assumptions; believe nothing",
    ),
    Section(
        "winner",
        "The winner's paths against the baselines",
        evidence.show_winner,
        "no trial has a full set of paths",
    ),
    Section(
        "hold-out", "Hold-out", evidence.show_hold_out, "the hold-out is sealed, or there is none"
    ),
    Section(
        "sharpes", "Sharpe ratios beside luck", evidence.show_sharpes, "no path has a Sharpe ratio"
    ),
    Section(
        "degradation",
        "In sample and out of sample",
        evidence.show_degradation,
        "too few trials to choose among",
    ),
    Section(
        "pbo",
        "Probability of overfitting",
        evidence.show_overfitting,
        "too few trials to choose among",
    ),
    Section(
        "deflated",
        "Deflated Sharpe ratio",
        evidence.show_deflated,
        "there is no Sharpe ratio to deflate",
    ),
    Section("trials", "Trials", sections.show_trials, "no trial was completed"),
    Section(
        "importance",
        "Which settings mattered",
        sections.show_importance,
        "too few trials, or all of equal value",
    ),
    Section(
        "stress", "Higher costs, later orders", sections.show_stress, "the winner was not run again"
    ),
    Section(
        "finalists",
        "Seeds of the finalists",
        sections.show_finalists,
        "no finalist was trained again",
    ),
    Section("controls", "Controls", sections.show_controls, "neither noise nor oracle was tried"),
    Section(
        "reward",
        "What the reward was made of",
        sections.show_reward_terms,
        "the reward's terms were not logged",
    ),
    Section("trading", "Trades and fees", sections.show_trading, "the winner has no trades"),
    Section("days", "Day by day", sections.show_days, "there are no days"),
    Section("throughput", "Speed", sections.show_throughput, "nothing was timed"),
    Section("limits", "Known limits", show_limits, "nobody wrote them"),
)


def write_page(folder: Path, report: StudyReport) -> Path:
    """Write `report.html` into the folder, atomically."""
    write_bytes(folder / FILE, render_report(report).encode())
    return folder / FILE


def render_report(report: StudyReport) -> str:
    """The whole page; nothing in it is loaded from elsewhere."""
    study = report.study or "study"
    made = fill_in("flatout {version} · {time}", version=report.flatout, time=report.created)
    body = [
        fill_in(
            "<header><h1>{study}</h1>{made}</header>",
            study=study,
            made=write_paragraph(made, "quiet"),
        ),
        show_verdict(report.verdict or VerdictFacts()),
        link_sections(SECTIONS),
        *(render_section(section, report, "not computed") for section in SECTIONS),
        show_files(report.files or {}),
    ]
    return render_page(f"{study}: flatout report", body)


def show_verdict(verdict: VerdictFacts) -> Html:
    """May it be promoted, and which gates say so."""
    words, kind = {
        True: ("PROMOTABLE", "good"),
        False: ("NOT PROMOTABLE", "bad"),
        None: ("NO VERDICT", "none"),
    }[verdict.promotable]
    rows = [
        (write_sign(gate.passed), words_of_key(gate.name), gate.wanted, gate.found, gate.sentence)
        for gate in verdict.gates or ()
    ]
    gates = write_table(("", "gate", "wanted", "found", ""), rows, words=(0, 1, 4), kind="gates")
    fixed = fill_in(
        "The gates were fixed before the study began: <code>{code}</code>",
        code=verdict.gates_hash,
    )
    return fill_in(
        '<div class="verdict {kind}"><b>{words}</b>{sentence}{gates}{fixed}</div>',
        kind=kind,
        words=words,
        sentence=write_paragraph(verdict.sentence or "not computed: no gate was asked"),
        gates=gates or write_paragraph("not computed: there are no gates", "missing"),
        fixed=write_paragraph(fixed, "quiet") if verdict.gates_hash else "",
    )


def show_files(files: Mapping[str, str | None]) -> Html:
    """Where the numbers are; only plain names of files become links."""
    links = [
        fill_in('{key}: <a href="{file}">{file}</a>', key=words_of_key(key), file=file)
        if file and re.fullmatch(r"\w[\w.-]*", file)
        else fill_in("{key}: {file}", key=words_of_key(key), file=file)
        for key, file in files.items()
    ]
    return fill_in("<footer>{files}</footer>", files=write_paragraph(join(links, " · "), "quiet"))
