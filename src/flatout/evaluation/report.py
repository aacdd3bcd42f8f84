"""The report of a study: one page that opens offline, with the verdict and all that speaks for and against it.

What the numbers rest on comes before the numbers. A section whose numbers do not exist says so in a sentence. The page
is made from `report.json` alone; this file does not know how anything in it was computed.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from plotly.offline import get_plotlyjs

from flatout.evaluation import report_sections as sections
from flatout.evaluation.report_sections import Report
from flatout.evaluation.report_style import SCRIPT, STYLE
from flatout.evaluation.report_values import (
    DASH,
    Html,
    decimal,
    facts,
    join,
    listed,
    look,
    mapping,
    name,
    number,
    pairs,
    paragraph,
    records,
    say,
    table,
    tick,
)
from flatout.run_directory import write_bytes

FILE = "report.html"

FILLS = {
    "next_open": "at the next bar's open",
    "next_close": "at the next bar's close",
    "same_close": "at the close it has just seen",
}
LIMITS = (
    "<b>Bars, not ticks.</b> Within a bar only open, high, low, close and volume are known. Where the order of events"
    " matters (stops), the worst case is assumed.",
    "<b>No queue.</b> A limit order's place in the order book is not modelled. The share of maker fills is an"
    " assumption, and who is filled as maker is often filled because the price is about to go against him.",
    "<b>Impact is a convention.</b> Volatility times the root of the share of volume fits large orders in deep markets."
    " It has not been measured here.",
    "<b>Hindsight universe.</b> Symbols that trade today were chosen today. Those that died are missing, which flatters"
    " everything that holds them, baselines included.",
    "<b>Paper fills are optimistic.</b> Nobody reacts to the orders, the exchange is never down, every bar arrives in time.",
    "<b>The past.</b> All tests ask whether the result is luck on these bars. None can say that the market will stay"
    " as it was.",
)


class Section(NamedTuple):
    """A part of the page."""

    anchor: str
    title: str
    body: Callable[[Report], Html]  # empty where there is nothing to show
    without: str  # what is missing then


def write_report(folder: Path, report: Report) -> Path:
    """Write `report.html`, atomically."""
    write_bytes(folder / FILE, page(report).encode())
    return folder / FILE


def page(report: Report) -> str:
    """The whole page; nothing in it is loaded from elsewhere."""
    study = look(report, "study") or "study"
    made = say("flatout {version} · {time}", version=look(report, "flatout"), time=look(report, "created"))
    body = [
        say("<header><h1>{study}</h1>{made}</header>", study=study, made=paragraph(made, "quiet")),
        verdict(report),
        contents(),
        *(framed(section, report) for section in SECTIONS),
        files(report),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"{say('<title>{study}: flatout report</title>', study=study)}<style>{STYLE}</style></head>\n"
        f"<body><main>\n{join(body, chr(10))}\n</main>\n"
        "<noscript><p>The charts need JavaScript; the tables do not.</p></noscript>\n"
        f"<script>{get_plotlyjs()}</script>\n<script>{SCRIPT}</script></body></html>\n"
    )


def framed(section: Section, report: Report) -> Html:
    """A section with its heading, or with the sentence that says what is missing."""
    body = section.body(report) or paragraph(f"not computed: {section.without}", "missing")
    template = '<section id="{anchor}"><h2>{title}</h2>\n{body}</section>'
    return say(template, anchor=section.anchor, title=section.title, body=body)


def contents() -> Html:
    """Links to the sections."""
    link = '<a href="#{anchor}">{title}</a> '
    return say("<nav>{links}</nav>", links=join(say(link, anchor=s.anchor, title=s.title) for s in SECTIONS))


def verdict(report: Report) -> Html:
    """May it be promoted, and which gates say so."""
    found = mapping(report, "verdict")
    promotable = look(found, "promotable")
    words, kind = ("PROMOTABLE", "good") if promotable is True else ("NOT PROMOTABLE", "bad")
    if not isinstance(promotable, bool):
        words, kind = "NO VERDICT", "none"
    gate = "{name}<small>{sentence}</small>"
    rows = [
        (
            tick(look(row, "passed")),
            say(gate, name=name(look(row, "name")), sentence=look(row, "sentence")),
            look(row, "wanted"),
            look(row, "found"),
        )
        for row in records(found, "gates")
    ]
    gates = table(("", "gate", "wanted", "found"), rows, words=(0, 1), kind="gates")
    fixed = say("Gates as fixed before the study began: <code>{code}</code>", code=look(found, "gates_hash"))
    return say(
        '<div class="verdict {kind}"><b>{words}</b>{sentence}{gates}{fixed}</div>',
        kind=kind,
        words=words,
        sentence=paragraph(look(found, "sentence") or "not computed: the gates were not asked"),
        gates=gates or paragraph("not computed: no gates", "missing"),
        fixed=paragraph(fixed, "quiet") if look(found, "gates_hash") else "",
    )


def assumptions(report: Report) -> Html:
    """What every number rests on: the six that decide most, then all of them."""
    found = mapping(report, "assumptions")
    if not found:
        return Html("")
    market, folds, tried = (mapping(found, key) for key in ("market", "folds", "trials"))
    details = join(
        [
            pairs("bars", mapping(found, "bars")),
            pairs("costs", mapping(market, "costs")),
            pairs("limits", {"capital": look(market, "capital"), **mapping(market, "limits")} if market else {}),
            pairs("folds", {key: value for key, value in folds.items() if key != "gaps"}),
            pairs("search", mapping(found, "search")),
            pairs("trials", tried),
        ]
    )
    gaps = say("<pre>{lines}</pre>", lines="\n".join(map(str, listed(folds, "gaps"))))
    notes = join(say("<li>{note}</li>", note=note) for note in listed(found, "notes"))
    return join(
        [
            facts(*six(found)),
            say("<ul>{notes}</ul>", notes=notes) if notes else Html(""),
            say('<div class="columns">{details}</div>', details=details),
            say('<h3>purged and embargoed bars</h3><div class="box">{gaps}</div>', gaps=gaps)
            if listed(folds, "gaps")
            else Html(""),
            openings(found),
        ]
    )


def six(found: Report) -> list[tuple[str, object, object]]:
    """Fills, costs, gaps, trials, hold-out, universe: what decides most about the numbers."""
    market, folds, tried, sealed = (mapping(found, key) for key in ("market", "folds", "trials", "hold_out"))
    fill = str(look(market, "fill"))
    optimistic = Html('<span class="badge bad">optimistic</span>') if fill == "same_close" else ""
    bars = say("{a} + {b} bars", a=look(folds, "purge_bars"), b=look(folds, "embargo_bars"))
    cut = say(
        "purge + embargo · {kind}, {s} splits, {p} paths",
        kind=look(folds, "kind"),
        s=look(folds, "splits"),
        p=look(folds, "paths"),
    )
    counted = say(
        "{n} in this study, {p} pruned, {f} failed · like {e} independent ones",
        n=look(tried, "this_study"),
        p=look(tried, "pruned"),
        f=look(tried, "failed"),
        e=decimal(look(tried, "effective"), 0),
    )
    return [
        (
            "Orders fill",
            FILLS.get(fill, look(market, "fill")),
            optimistic or say("action: {a}", a=look(market, "action")),
        ),
        ("Trading costs", *costs(mapping(market, "costs"))),
        ("Bars dropped around test blocks", bars, cut),
        ("Trials ever on these bars", look(tried, "ever"), counted),
        (
            "Hold-out",
            state(look(sealed, "state")),
            say("{n} bars, {a} to {b}", n=look(sealed, "bars"), a=day(look(sealed, "from")), b=day(look(sealed, "to"))),
        ),
        ("Universe", badge(look(found, "universe"), "warn"), universe(look(found, "universe"))),
    ]


def universe(kind: object) -> str:
    """What the choice of symbols means."""
    return "symbols were chosen knowing which survived" if kind == "hindsight" else ""


def day(time: object) -> str:
    """The date of an ISO time."""
    return str(time)[:10] if time else DASH


def badge(word: object, kind: str) -> Html:
    """A word in a frame."""
    return say('<span class="badge {kind}">{word}</span>', kind=kind, word=word)


def state(word: object) -> Html:
    """Of the hold-out."""
    return badge(word, {"sealed": "good", "opened": "warn"}.get(str(word), "bad"))


def costs(found: Report) -> tuple[Html, Html]:
    """What a trade costs on one side, in bps, and how that is made up."""
    tier = next(iter(records(found, "tiers")), {})
    maker, taker, spread = number(tier, "maker_bps"), number(tier, "taker_bps"), number(found, "half_spread_bps")
    if maker is None or taker is None or spread is None:
        return Html(DASH), Html("not computed: fees are not in the report")
    share = number(found, "maker_share") or 0.0
    fee = share * maker + (1 - share) * taker
    made = say(
        "fee {f} + half spread {s}, adverse; impact × {i} on top",
        f=decimal(fee, 1),
        s=decimal(spread, 1),
        i=look(found, "impact"),
    )
    return decimal(fee + spread, 1, " bps a side"), made


def openings(found: Report) -> Html:
    """When the hold-out was looked at."""
    rows = [(look(row, "time"), look(row, "what")) for row in records(found, "hold_out", "openings")]
    return join([Html("<h3>hold-out opened</h3>"), table(("time", "what"), rows, words=(0, 1))]) if rows else Html("")


def limits(_: Report) -> Html:
    """What no number on the page can know."""
    return say(
        '<ul class="limits">{every}</ul>', every=join(say("<li>{text}</li>", text=Html(text)) for text in LIMITS)
    )


def files(report: Report) -> Html:
    """Where the numbers are; only plain names become links."""
    found = mapping(report, "files")
    links = [
        say('{key}: <a href="{file}">{file}</a>', key=name(key), file=file)
        if re.fullmatch(r"\w[\w.-]*", str(file))
        else say("{key}: {file}", key=name(key), file=file)
        for key, file in found.items()
    ]
    return say("<footer>{files}</footer>", files=paragraph(join(links, " · "), "quiet"))


SECTIONS = (
    Section("assumptions", "What the numbers rest on", assumptions, "the report names no assumptions; believe nothing"),
    Section("winner", "The winner's paths against the baselines", sections.winner, "no trial has a full set of paths"),
    Section("hold-out", "Hold-out", sections.hold_out, "the hold-out is sealed, or there is none"),
    Section("sharpes", "Sharpe ratios beside luck", sections.sharpes, "no path has a Sharpe ratio"),
    Section("degradation", "In sample and out of sample", sections.degradation, "too few trials to choose among"),
    Section("pbo", "Probability of overfitting", sections.overfitted, "too few trials to choose among"),
    Section("deflated", "Deflated Sharpe ratio", sections.deflated, "there is no Sharpe ratio to deflate"),
    Section("trials", "Trials", sections.trials, "no trial was completed"),
    Section("importance", "Which settings mattered", sections.importance, "too few trials, or all of equal value"),
    Section("stress", "Higher costs, later orders", sections.stress, "the winner was not run again"),
    Section("finalists", "Seeds of the finalists", sections.finalists, "no finalist was trained again"),
    Section("controls", "Controls", sections.controls, "neither noise nor oracle was tried"),
    Section("reward", "What the reward was made of", sections.reward_terms, "the reward's terms were not logged"),
    Section("trading", "Trades and fees", sections.trading, "the winner has no trades"),
    Section("days", "Day by day", sections.days, "there are no days"),
    Section("throughput", "Speed", sections.throughput, "nothing was timed"),
    Section("limits", "Known limits", limits, ""),
)
