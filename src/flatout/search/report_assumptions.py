"""The first and the last section of a study's report: what its numbers rest on, and what they
cannot know.
"""

from collections.abc import Mapping
from typing import Any

from flatout.pages.values import (
    DASH,
    Html,
    decimal,
    facts,
    join,
    list_at,
    look,
    mapping,
    number,
    pairs,
    records,
    say,
    table,
    write,
)

Report = Mapping[str, Any]

FILLS = {
    "next_open": "at the next bar's open",
    "next_close": "at the next bar's close",
    "same_close": "at the close just seen",
}
LIMITS = (
    "<b>Bars, not ticks.</b> Within a bar only open, high, low, close and volume are known. Where "
    "the order of events"
    " matters (stops), the worst case is assumed.",
    "<b>No queue.</b> A limit order's place in the order book is not modelled. The share of maker "
    "fills is an"
    " assumption, and who is filled as maker is often filled because the price is about to turn "
    "against him.",
    "<b>Impact is a convention.</b> Volatility times the root of the share of volume describes "
    "large orders in deep"
    " markets. It was not measured on these symbols.",
    "<b>Hindsight universe.</b> Unless the badge at the top says otherwise, the symbols were "
    "chosen today. Those that"
    " died are missing, which flatters everything that holds symbols, baselines included.",
    "<b>Paper fills are optimistic.</b> Nobody reacts to the orders, the exchange is never down, "
    "and every bar arrives"
    " in time. Expect live results below those of any replay.",
    "<b>The past.</b> All tests ask whether the result is luck on these bars. No test can say "
    "that the market will"
    " stay as it was.",
)


def assumptions(report: Report) -> Html:
    """The six that decide most, then all of them."""
    found = mapping(report, "assumptions")
    if not found:
        return Html("")
    market, folds = mapping(found, "market"), mapping(found, "folds")
    settings = (
        pairs("bars", mapping(found, "bars")),
        pairs("costs", mapping(market, "costs")),
        pairs("folds", {key: value for key, value in folds.items() if key != "gaps"}),
        pairs("search", mapping(found, "search")),
        pairs(
            "limits",
            {"capital": look(market, "capital"), **mapping(market, "limits")} if market else {},
        ),
        pairs("trials", mapping(found, "trials")),
    )
    notes = join(say("<li>{note}</li>", note=note) for note in list_at(found, "notes"))
    return join(
        [
            facts(*six(found)),
            say("<ul>{notes}</ul>", notes=notes) if notes else notes,
            say('<div class="settings">{every}</div>', every=join(settings)),
            say(
                '<div class="columns">{gaps}{openings}</div>',
                gaps=gaps(folds),
                openings=openings(found),
            ),
        ]
    )


def six(found: Report) -> list[tuple[str, object, object]]:
    """Fills, costs, gaps, trials, hold-out and universe, each with a note."""
    market, folds, universe = (
        mapping(found, "market"),
        mapping(found, "folds"),
        look(found, "universe"),
    )
    fill = str(look(market, "fill"))
    careless = say("{badge} no order can be that fast", badge=badge("optimistic", "bad"))
    return [
        (
            "Orders fill",
            FILLS.get(fill, look(market, "fill")),
            careless
            if fill == "same_close"
            else say("action: {kind}", kind=look(market, "action")),
        ),
        ("Trading costs", *costs(mapping(market, "costs"))),
        (
            "Bars dropped around test blocks",
            say(
                "{purge} + {embargo}",
                purge=look(folds, "purge_bars"),
                embargo=look(folds, "embargo_bars"),
            ),
            cut(folds),
        ),
        (
            "Trials ever run on these bars",
            look(found, "trials", "ever"),
            counted(mapping(found, "trials")),
        ),
        ("Hold-out", *sealed(mapping(found, "hold_out"))),
        (
            "Universe",
            badge(universe, "warn" if universe == "hindsight" else "none"),
            "symbols were chosen knowing which survived" if universe == "hindsight" else "",
        ),
    ]


def costs(found: Report) -> tuple[Html, Html]:
    """What a trade costs on one side, in bps, and what that is made of."""
    tier = next(iter(records(found, "tiers")), {})
    maker, taker, spread = (
        number(tier, "maker_bps"),
        number(tier, "taker_bps"),
        number(found, "half_spread_bps"),
    )
    if maker is None or taker is None or spread is None:
        return Html(DASH), Html("not computed: the report has no fees")
    share = number(found, "maker_share") or 0.0
    fee = share * maker + (1 - share) * taker
    made = (
        "fee {fee} + half spread {spread}, always adverse; impact {impact} × volatility × "
        "√share of volume on top"
    )
    note = say(made, fee=decimal(fee, 1), spread=decimal(spread, 1), impact=look(found, "impact"))
    return decimal(fee + spread, 1, " bps a side"), note


def cut(folds: Report) -> Html:
    """How history was divided."""
    kind, splits, paths = (look(folds, key) for key in ("kind", "splits", "paths"))
    return say(
        "purge + embargo; {kind}, {splits} splits, {paths} paths",
        kind=kind,
        splits=splits,
        paths=paths,
    )


def counted(trials: Report) -> Html:
    """What became of the trials."""
    return say(
        (
            "{n} in this study ({pruned} pruned, {failed} failed); all count like {effective} "
            "independent ones"
        ),
        n=look(trials, "this_study"),
        pruned=look(trials, "pruned"),
        failed=look(trials, "failed"),
        effective=decimal(look(trials, "effective"), 0),
    )


def sealed(found: Report) -> tuple[Html, Html]:
    """State of the hold-out, and which bars it holds."""
    word = look(found, "state")
    first, last = (str(look(found, key) or DASH)[:10] for key in ("from", "to"))
    note = say("{n} bars, {first} to {last}", n=look(found, "bars"), first=first, last=last)
    kind = {"sealed": "good", "opened": "warn"}.get(str(word), "bad")
    return badge(word, kind), note if number(found, "bars") else Html("no bar was kept apart")


def badge(word: object, kind: str) -> Html:
    """A word in a frame."""
    return say('<span class="badge {kind}">{word}</span>', kind=kind, word=word)


def gaps(folds: Report) -> Html:
    """Which bars each split drops."""
    lines = join((write(line) for line in list_at(folds, "gaps")), "\n")
    template = (
        '<div><h3>splits and their gaps</h3><div class="box gaps"><pre>{lines}</pre></div></div>'
    )
    return say(template, lines=lines) if lines else Html("")


def openings(found: Report) -> Html:
    """When the hold-out was looked at, and for what."""
    rows = [
        (look(row, "time"), look(row, "what")) for row in records(found, "hold_out", "openings")
    ]
    content = table(("time", "what"), rows, words=(0, 1), kind="times")
    return (
        say("<div><h3>the hold-out was opened</h3>{content}</div>", content=content)
        if content
        else content
    )


def limits(_: Report) -> Html:
    """What no number on the page can know."""
    return say(
        "<ul>{every}</ul>", every=join(say("<li>{text}</li>", text=Html(text)) for text in LIMITS)
    )
