"""The first and the last section of a study's report: what its numbers rest on, and what they
cannot know.
"""

from typing import NamedTuple

from flatout.pages.values import (
    DASH,
    Html,
    fill_in,
    join,
    write_decimal,
    write_facts,
    write_pairs,
    write_percent,
    write_table,
    write_value,
)
from flatout.search.assumption_model import (
    AssumptionFacts,
    CostFacts,
    FoldFacts,
    HoldOutFacts,
    MarketFacts,
    TrialCounts,
)
from flatout.search.report_model import StudyReport

FILLS = {
    "next_open": "at the next bar's open",
    "next_close": "at the next bar's close",
    "same_close": "at the close just seen",
}
LIMITS = (
    "<b>Bars, not ticks.</b> Within a bar only open, high, low, close and volume are known. "
    "Where the order of events within a bar matters (stops), the adverse extreme comes first.",
    "<b>No queue.</b> A limit order's place in the order book is not modelled. The share of "
    "maker fills is an assumption, and who is filled as maker is often filled because the price "
    "is about to turn against him.",
    "<b>Impact is a convention.</b> Volatility times the root of the share of volume describes "
    "large orders in deep markets. It was not measured on these symbols.",
    "<b>Hindsight universe.</b> Unless the badge at the top says otherwise, the symbols were "
    "chosen today. Those that died are missing, which flatters everything that holds symbols, "
    "baselines included.",
    "<b>Paper fills are optimistic.</b> Nobody reacts to the orders, the exchange is never down, "
    "and every bar arrives in time. Expect live results below those of any replay.",
    "<b>The past.</b> All tests ask whether the result is luck on these bars. No test can say "
    "that the market will stay as it was.",
)


class Assumption(NamedTuple):
    """One of the facts that decide most, with a note."""

    label: str
    value: object
    note: object


class NotedValue(NamedTuple):
    """A value as it is written, and a note about it."""

    value: Html
    note: Html


def show_assumptions(report: StudyReport) -> Html:
    """The section: the six assumptions that decide most, then all of them."""
    found = report.assumptions
    if found is None or not found.model_fields_set:
        return Html("")
    market, folds = found.market or MarketFacts(), found.folds or FoldFacts()
    divided = {key: value for key, value in folds.facts().items() if key != "gaps"}
    limits = {"capital": market.capital, **(market.limits or {})} if found.market else {}
    settings = (
        write_pairs("bars", found.bars.facts() if found.bars else {}),
        write_pairs("costs", market.costs.facts() if market.costs else {}),
        write_pairs("folds", divided),
        write_pairs("search", found.search or {}),
        write_pairs("limits", limits),
        write_pairs("trials", found.trials.facts() if found.trials else {}),
    )
    notes = join(fill_in("<li>{note}</li>", note=note) for note in found.notes or ())
    return join(
        [
            write_facts(*list_main_assumptions(found)),
            fill_in("<ul>{notes}</ul>", notes=notes) if notes else notes,
            fill_in('<div class="settings">{every}</div>', every=join(settings)),
            fill_in(
                '<div class="columns">{gaps}{openings}</div>',
                gaps=show_gaps(folds),
                openings=show_openings(found.hold_out or HoldOutFacts()),
            ),
            show_other_studies(found),
        ]
    )


def list_main_assumptions(found: AssumptionFacts) -> list[Assumption]:
    """Fills, costs, gaps, trials, hold-out and universe, each with a note."""
    market, folds = found.market or MarketFacts(), found.folds or FoldFacts()
    trials, universe = found.trials or TrialCounts(), found.universe
    careless = fill_in("{badge} no order can be that fast", badge=show_badge("optimistic", "bad"))
    action = fill_in("action: {kind}", kind=market.action)
    dropped = fill_in("{purge} + {embargo}", purge=folds.purge_bars, embargo=folds.embargo_bars)
    hindsight = universe == "hindsight"
    return [
        Assumption(
            "Orders fill",
            FILLS.get(str(market.fill), market.fill),
            careless if market.fill == "same_close" else action,
        ),
        Assumption("Trading costs", *show_costs(market.costs or CostFacts())),
        Assumption("Bars dropped around test blocks", dropped, show_splits(folds)),
        Assumption("Trials ever run on these bars", trials.ever, show_trial_counts(trials)),
        Assumption("Hold-out", *show_seal(found.hold_out or HoldOutFacts())),
        Assumption(
            "Universe",
            show_badge(universe, "warn" if hindsight else "none"),
            "symbols were chosen knowing which survived" if hindsight else "",
        ),
    ]


def show_costs(costs: CostFacts) -> NotedValue:
    """What a trade costs on one side, in bps, and what that is made of."""
    tier = next(iter(costs.tiers or ()), None)
    maker, taker = (tier.maker_bps, tier.taker_bps) if tier else (None, None)
    spread = costs.half_spread_bps
    if maker is None or taker is None or spread is None:
        return NotedValue(Html(DASH), Html("not computed: the report has no fees"))
    share = costs.maker_share or 0.0
    fee = share * maker + (1 - share) * taker
    made = (
        "fee {fee} + half spread {spread}, always adverse; impact {impact} × volatility × "
        "√share of volume on top"
    )
    note = fill_in(
        made, fee=write_decimal(fee, 1), spread=write_decimal(spread, 1), impact=costs.impact
    )
    return NotedValue(write_decimal(fee + spread, 1, " bps a side"), note)


def show_splits(folds: FoldFacts) -> Html:
    """How history was divided."""
    return fill_in(
        "purge + embargo; {kind}, {splits} splits, {paths} paths",
        kind=folds.kind,
        splits=folds.splits,
        paths=folds.paths,
    )


def show_trial_counts(trials: TrialCounts) -> Html:
    """What became of the trials, and how many are others'."""
    others = fill_in(
        ", {n} of others, which saw {share} of the judged bars",
        n=trials.of_others,
        share=write_percent(trials.overlap, 0),
    )
    return fill_in(
        (
            "{n} in this study ({pruned} pruned, {failed} failed){others}; all count like "
            "{effective} independent ones"
        ),
        others=others if trials.of_others else Html(""),
        n=trials.this_study,
        pruned=trials.pruned,
        failed=trials.failed,
        effective=write_decimal(trials.effective, 0),
    )


def show_seal(found: HoldOutFacts) -> NotedValue:
    """State of the hold-out, and which bars it holds."""
    first, last = (str(time or DASH)[:10] for time in (found.first, found.last))
    note = fill_in("{n} bars, {first} to {last}", n=found.bars, first=first, last=last)
    kind = {"sealed": "good", "opened": "warn"}.get(str(found.state), "bad")
    none = Html("no bar was kept apart")
    worn = fill_in("{note}; {wear}", note=note, wear=found.wear) if found.wear else note
    return NotedValue(show_badge(found.state, kind), worn if found.bars else none)


def show_badge(word: object, kind: str) -> Html:
    """A word in a coloured frame."""
    return fill_in('<span class="badge {kind}">{word}</span>', kind=kind, word=word)


def show_gaps(folds: FoldFacts) -> Html:
    """Which bars each split drops."""
    lines = join((write_value(line) for line in folds.gaps or ()), "\n")
    template = (
        '<div><h3>splits and their gaps</h3><div class="box gaps"><pre>{lines}</pre></div></div>'
    )
    return fill_in(template, lines=lines) if lines else Html("")


def show_openings(found: HoldOutFacts) -> Html:
    """When the hold-out was opened, and for what."""
    rows = [(opening.time, opening.what) for opening in found.openings or ()]
    content = write_table(("time", "what"), rows, words=(0, 1), kind="times")
    return (
        fill_in("<div><h3>the hold-out was opened</h3>{content}</div>", content=content)
        if content
        else content
    )


def show_other_studies(found: AssumptionFacts) -> Html:
    """Which other studies saw the judged bars, and how much of them."""
    rows = [
        (
            row.folder,
            str(row.begun or DASH)[:10],
            row.bar,
            row.trials,
            write_percent(row.overlap),
            "yes" if row.counts else "no",
        )
        for row in found.other_studies or ()
    ]
    headings = ("study", "begun", "bar", "trials", "saw of these bars", "counts")
    content = write_table(headings, rows, words=(0, 1, 2, 5), kind="wide")
    return (
        fill_in("<div><h3>other studies on the judged bars</h3>{content}</div>", content=content)
        if content
        else content
    )


def show_limits(_: StudyReport) -> Html:
    """The section that says what no number on the page can know."""
    return fill_in(
        "<ul>{every}</ul>",
        every=join(fill_in("<li>{text}</li>", text=Html(text)) for text in LIMITS),
    )
