"""The evidence in a study's report: the winner beside baselines and luck. Each section is a pure
function from the report to HTML.

A section is empty where there is nothing to show. Charts and tables say how to read them and what
would be a bad sign.
"""

from flatout.pages.charts import POINTS, draw_chart
from flatout.pages.values import (
    Html,
    add_note,
    fill_in,
    join,
    take_finite,
    write_decimal,
    write_facts,
    write_pairs,
    write_paragraph,
    write_percent,
    write_table,
)
from flatout.search import report_charts as charts
from flatout.search.assumption_model import HoldOutFacts, TrialCounts
from flatout.search.report_curves import FanNames, draw_equity_curves
from flatout.search.report_model import (
    AccountFigures,
    CurveFacts,
    DeflatedFacts,
    HoldOutCurves,
    NullFacts,
    OverfittingFacts,
    StudyReport,
    WinnerFacts,
)
from flatout.search.report_part import ReportPart


def has_numbers(part: ReportPart) -> bool:
    """Whether any figure of a part was computed."""
    return len(take_finite(value for _, value in part)) > 0


def show_winner(report: StudyReport) -> Html:
    """The fan of paths, and the figures behind it."""
    curves, found = report.curves or CurveFacts(), report.winner or WinnerFacts()
    fan = draw_equity_curves(
        curves.time or (),
        curves.paths or (),
        curves.baselines or {},
        FanNames("winner, one path each", "winner, median of paths"),
    )
    chart = add_note(
        draw_chart(fan, "Equity of the winner's paths and of the baselines"),
        (
            "A path is one way to walk through all test blocks; no policy trades bars that it "
            "learned from."
        ),
        (
            "the fan is wide, its median ends below a baseline, or all gains come from one "
            "stretch of time."
        ),
    )
    paths = [path for path in found.paths or () if has_numbers(path)]
    if not (chart or paths):
        return Html("")
    headings = ("", "skill", "Sharpe", "total return", "a year", "largest drawdown")
    rows = [(f"path {k}", *list_figures(path)) for k, path in enumerate(paths, 1)]
    for name, account in (report.baselines or {}).items():
        rows.append((name.replace("_", " "), *list_figures(account)))
    known = found.known_rule.replace("_", " ") if found.known_rule else ""
    share = ("of what could be earned", write_percent(found.share_of_rule), known)
    summary = write_facts(
        ("winner", fill_in("trial {n}", n=found.trial), ""),
        ("Sharpe ratio of the median path", write_decimal(found.median_sharpe), ""),
        (
            "of its skill",
            write_decimal(found.median_skill),
            fill_in(
                "beyond its average weights, held; SD over seeds {sd}",
                sd=write_decimal(found.seeds_sd),
            ),
        ),
        *([share] if known else []),
    )
    return fill_in(
        '{summary}{chart}<div class="columns">{numbers}{parameters}</div>',
        summary=summary,
        chart=chart or write_paragraph("not computed: the paths have no equity curves", "missing"),
        numbers=write_table(headings, rows, kind="paths"),
        parameters=write_pairs("what the winner was trained with", found.params or {}, exact=True),
    )


def list_figures(account: AccountFigures) -> tuple[Html, ...]:
    """The figures of a path or a baseline, in the order of the table's columns."""
    ratios = (account.skill_sharpe, account.sharpe)
    shares = (account.total_return, account.annual_return, account.max_drawdown)
    return (*map(write_decimal, ratios), *map(write_percent, shares))


def show_hold_out(report: StudyReport) -> Html:
    """The bars that no search has seen."""
    curves = (report.curves and report.curves.hold_out) or HoldOutCurves()
    fan = draw_equity_curves(
        curves.time or (),
        curves.seeds or (),
        curves.baselines or {},
        FanNames("winner, one seed each", "winner, median of seeds"),
    )
    chart = add_note(
        draw_chart(fan, "Equity on the hold-out"),
        (
            "The end of the history, kept from the search. It can be asked once: every further "
            "look wears it out."
        ),
        "the winner does worse here than on its paths, or its seeds part ways.",
    )
    assumed = (report.assumptions and report.assumptions.hold_out) or HoldOutFacts()
    if not (chart and assumed.wear):
        return chart
    words = fill_in("<strong>Not fresh:</strong> {wear}. It is no new evidence.", wear=assumed.wear)
    return join([write_paragraph(words), chart])


def show_sharpes(report: StudyReport) -> Html:
    """Path Sharpes beside luck and the baselines."""
    chart = add_note(
        draw_chart(charts.draw_sharpes(report), "Skill of paths, of baselines and of moved copies"),
        "Sharpe ratios of returns in excess of the same average weights, held: what is left of a "
        "path when the market's direction is taken away. Above: the winner's own decisions, moved "
        "to other times. Below, on the same scale: the paths, the baselines, and what the best of "
        "all trials ever would reach without skill.",
        (
            "the line of the median path stands inside the grey hill, or left of a baseline or of "
            "luck's best."
        ),
    )
    found = report.null or NullFacts()
    if not chart:
        return chart
    if found.p_value is None:
        return join([chart, write_paragraph("not computed: copies at other times", "missing")])
    words = fill_in(
        "Of {copies} copies of its median path that decide at other times ({turnover} of equity "
        "traded a bar), <strong>{share}</strong> did at least as well, before costs.",
        copies=found.copies or found.traders,
        turnover=write_percent(found.turnover, 2),
        share=write_percent(found.p_value),
    )
    return join([write_paragraph(words), chart])


def show_degradation(report: StudyReport) -> Html:
    """In sample against out of sample."""
    found = report.overfitting or OverfittingFacts()
    chart = add_note(
        draw_chart(charts.draw_degradation(found), "Sharpe ratio in sample and out of sample"),
        "Each point: one half of the history chooses its best trial, the other half judges it.",
        "points below zero, or a line that falls: the better the choice looked, the worse it did.",
    )
    n = len(found.in_sample or ())
    words = fill_in(
        "In {loss} of {n} splits the chosen trial lost money in the other half. The "
        "degradation line has a slope of {slope} and explains {r2} of the "
        "variation.{thinned}",
        loss=write_percent(found.probability_of_loss, 0),
        n=n,
        slope=write_decimal(found.slope),
        r2=write_percent(found.r2, 0),
        thinned=f" {POINTS:,} points are drawn." if n > POINTS else "",
    )
    return join([write_paragraph(words), chart]) if chart else chart


def show_overfitting(report: StudyReport) -> Html:
    """The probability of backtest overfitting."""
    found = report.overfitting or OverfittingFacts()
    chart = add_note(
        draw_chart(charts.draw_logits(found), "Logits of the chosen trials' ranks out of sample"),
        (
            "Where the trial chosen in one half of the history ranks among all trials in the other "
            "half."
        ),
        "half of it is red: choosing the best trial is then no better than drawing lots.",
    )
    words = fill_in(
        "Probability of backtest overfitting: <strong>{pbo}</strong>. History was cut into "
        "{blocks} blocks, which can be halved in {n} ways.",
        pbo=write_percent(found.pbo),
        blocks=found.blocks,
        n=len(found.logits or ()),
    )
    return join([write_paragraph(words), chart]) if chart else chart


def show_deflated(report: StudyReport) -> Html:
    """How much of the Sharpe ratio luck explains, in words and in figures."""
    found = report.deflated or DeflatedFacts()
    if found.dsr is None or found.sharpe is None:
        return Html("")
    sharpe, best = write_decimal(found.sharpe), write_decimal(found.expected_best)
    years, dsr = write_decimal(found.years, 1), write_percent(found.dsr)
    words = fill_in(
        "{trials} trials were ever run on these bars{others}. Had none of them any skill, the best "
        "would still be expected to show a Sharpe ratio of {best}. The winner shows {sharpe} "
        "over {years} years. The probability that it is better than that luck is "
        "<strong>{dsr}</strong>. {track}",
        trials=found.trials,
        others=describe_others(report),
        best=best,
        sharpe=sharpe,
        years=years,
        dsr=dsr,
        track=describe_track_length(found),
    )
    few = fill_in("the same for {n} independent trials", n=write_decimal(found.effective, 0))
    rows = (
        ("Sharpe ratio, annual", sharpe),
        ("best that luck is expected to show", best),
        ("probability that it exceeds zero (PSR)", write_percent(found.psr)),
        ("probability that it exceeds luck's best (DSR), all trials", dsr),
        (few, write_percent(found.dsr_effective)),
        (
            "the same if luck spread as widely as these trials did",
            write_percent(found.dsr_dispersion),
        ),
        ("years of data", years),
        (
            "years that such returns need to be told from zero (MinTRL)",
            write_decimal(found.min_track_years, 1),
        ),
        (
            "years up to which luck shows this Sharpe ratio (MinBTL)",
            write_decimal(found.min_backtest_years, 1),
        ),
    )
    how = (
        "The deflated Sharpe ratio asks whether this is better than the best of so many "
        "attempts without skill."
    )
    bad = "a DSR below 95 %, or fewer years of data than the last two lines ask for."
    return join(
        [write_paragraph(words), add_note(write_table(("", ""), rows, kind="wide"), how, bad)]
    )


def describe_others(report: StudyReport) -> Html:
    """How many of the trials are those of other studies, and what these saw."""
    counts = (report.assumptions and report.assumptions.trials) or TrialCounts()
    if not counts.of_others:
        return Html("")
    return fill_in(
        " or on part of them, {n} of them by other studies, which saw {share} of the judged bars",
        n=counts.of_others,
        share=write_percent(counts.overlap, 0),
    )


def describe_track_length(found: DeflatedFacts) -> Html:
    """How long such returns must go on to mean something."""
    needed, years = found.min_track_years, found.years
    if needed is None:
        return Html("No length of such a record would show skill.")
    enough = (
        "" if years is None else " It is long enough." if years >= needed else " It is too short."
    )
    return fill_in(
        "To be told from zero, such a record needs {n} years.{enough}",
        n=write_decimal(needed, 1),
        enough=enough,
    )
