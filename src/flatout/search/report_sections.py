"""The evidence in a study's report: each section is a pure function from the report to HTML.

A section is empty where there is nothing to show. Charts and tables say how to read them and what
would be a bad sign.
"""

from collections.abc import Mapping

from flatout.pages.charts import POINTS, draw_chart
from flatout.pages.values import (
    Html,
    add_note,
    bars,
    change,
    decimal,
    facts,
    finite,
    join,
    list_at,
    look,
    mapping,
    number,
    pairs,
    paragraph,
    percent,
    records,
    say,
    table,
    tick,
    words_of_key,
)
from flatout.search import report_charts as charts
from flatout.search.report_assumptions import Report

DAYS = 60  # shown; the file has all


def winner(report: Report) -> Html:
    """The fan of paths, and the figures behind it."""
    curves, words = look(report, "curves"), ("winner, one path each", "winner, median of paths")
    chart = add_note(
        draw_chart(
            charts.equity_curves(curves, "paths", words),
            "Equity of the winner's paths and of the baselines",
        ),
        (
            "A path is one way to walk through all test blocks; no policy trades bars that it "
            "learned from."
        ),
        (
            "the fan is wide, its median ends below a baseline, or all gains come from one "
            "stretch of time."
        ),
    )
    found, others = mapping(report, "winner"), mapping(report, "baselines")
    paths = [path for path in records(found, "paths") if len(finite(path.values()))]
    if not (chart or paths):
        return Html("")
    headings = ("", "Sharpe", "Sortino", "total return", "a year", "largest drawdown")
    rows = [(f"path {k}", *figures(path)) for k, path in enumerate(paths, 1)]
    rows += [(str(key).replace("_", " "), *figures(account)) for key, account in others.items()]
    summary = facts(
        ("winner", say("trial {n}", n=look(found, "trial")), ""),
        ("Sharpe ratio of the median path", decimal(look(found, "median_sharpe")), ""),
        ("its standard deviation over seeds", decimal(look(found, "seeds_sd")), ""),
    )
    return say(
        '{summary}{chart}<div class="columns">{numbers}{parameters}</div>',
        summary=summary,
        chart=chart or paragraph("not computed: the paths have no equity curves", "missing"),
        numbers=table(headings, rows, kind="paths"),
        parameters=pairs("what the winner was trained with", mapping(found, "params"), exact=True),
    )


def figures(account: object) -> tuple[Html, ...]:
    """Of a path or a baseline, in the order of the table's columns."""
    shares = (
        percent(look(account, key)) for key in ("total_return", "annual_return", "max_drawdown")
    )
    return (*(decimal(look(account, key)) for key in ("sharpe", "sortino")), *shares)


def hold_out(report: Report) -> Html:
    """The bars that no search has seen."""
    curves, words = (
        look(report, "curves", "hold_out"),
        ("winner, one seed each", "winner, median of seeds"),
    )
    return add_note(
        draw_chart(charts.equity_curves(curves, "seeds", words), "Equity on the hold-out"),
        (
            "The end of the history, kept from the search. It can be asked once: every further "
            "look wears it out."
        ),
        "the winner does worse here than on its paths, or its seeds part ways.",
    )


def sharpes(report: Report) -> Html:
    """Path Sharpes beside luck and the baselines."""
    chart = add_note(
        draw_chart(charts.sharpes(report), "Sharpe ratios of paths, baselines and random traders"),
        "Above: traders that decide at random and trade as much as the winner. Below, on the same "
        "scale: the paths,"
        " the baselines, and what the best of all trials ever would reach without skill.",
        (
            "the line of the median path stands inside the grey hill, or left of a baseline or of "
            "luck's best."
        ),
    )
    found = mapping(report, "null")
    if not chart or number(found, "p_value") is None:
        return (
            join([chart, paragraph("not computed: random traders of equal turnover", "missing")])
            if chart
            else chart
        )
    words = say(
        "Of {traders} random traders with the winner's turnover ({turnover} of equity a bar), "
        "<strong>{share}</strong>"
        " did at least as well as its median path.",
        traders=look(found, "traders"),
        turnover=percent(look(found, "turnover"), 2),
        share=percent(look(found, "p_value")),
    )
    return join([paragraph(words), chart])


def degradation(report: Report) -> Html:
    """In sample against out of sample."""
    found = mapping(report, "overfitting")
    chart = add_note(
        draw_chart(charts.degradation(found), "Sharpe ratio in sample and out of sample"),
        "Each point: one half of the history chooses its best trial, the other half judges it.",
        "points below zero, or a line that falls: the better the choice looked, the worse it did.",
    )
    n = len(list_at(found, "in_sample"))
    words = say(
        "In {loss} of {n} splits the chosen trial lost money in the other half. The degradation "
        "line has a slope of"
        " {slope} and explains {r2} of the variation.{thinned}",
        loss=percent(look(found, "probability_of_loss"), 0),
        n=n,
        slope=decimal(look(found, "slope")),
        r2=percent(look(found, "r2"), 0),
        thinned=f" {POINTS:,} points are drawn." if n > POINTS else "",
    )
    return join([paragraph(words), chart]) if chart else chart


def overfitted(report: Report) -> Html:
    """The probability of backtest overfitting."""
    found = mapping(report, "overfitting")
    chart = add_note(
        draw_chart(charts.logits(found), "Logits of the chosen trials' ranks out of sample"),
        (
            "Where the trial chosen in one half of the history ranks among all trials in the other "
            "half."
        ),
        "half of it is red: choosing the best trial is then no better than drawing lots.",
    )
    words = say(
        "Probability of backtest overfitting: <strong>{pbo}</strong>. History was cut into "
        "{blocks} blocks, which can"
        " be halved in {n} ways.",
        pbo=percent(look(found, "pbo")),
        blocks=look(found, "blocks"),
        n=len(list_at(found, "logits")),
    )
    return join([paragraph(words), chart]) if chart else chart


def deflated(report: Report) -> Html:
    """How much of the Sharpe ratio luck explains, in words and in figures."""
    found = mapping(report, "deflated")
    if number(found, "dsr") is None or number(found, "sharpe") is None:
        return Html("")
    sharpe, best = decimal(look(found, "sharpe")), decimal(look(found, "expected_best"))
    years, dsr = decimal(look(found, "years"), 1), percent(look(found, "dsr"))
    few = decimal(look(found, "effective"), 0)
    words = say(
        "{trials} trials were ever run on these bars. Had none of them any skill, the best would "
        "still be expected to"
        " show a Sharpe ratio of {best}. The winner shows {sharpe} over {years} years. The "
        "probability that it is"
        " better than that luck is <strong>{dsr}</strong>. {track}",
        trials=look(found, "trials"),
        best=best,
        sharpe=sharpe,
        years=years,
        dsr=dsr,
        track=track_length(found),
    )
    rows = (
        ("Sharpe ratio, annual", sharpe),
        ("best that luck is expected to show", best),
        ("probability that it exceeds zero (PSR)", percent(look(found, "psr"))),
        ("probability that it exceeds luck's best (DSR), all trials", dsr),
        (say("the same for {n} independent trials", n=few), percent(look(found, "dsr_effective"))),
        (
            "the same if luck spread as widely as these trials did",
            percent(look(found, "dsr_dispersion")),
        ),
        ("years of data", years),
        (
            "years that such returns need to be told from zero (MinTRL)",
            decimal(look(found, "min_track_years"), 1),
        ),
        (
            "years up to which luck shows this Sharpe ratio (MinBTL)",
            decimal(look(found, "min_backtest_years"), 1),
        ),
    )
    how = (
        "The deflated Sharpe ratio asks whether this is better than the best of so many "
        "attempts without skill."
    )
    bad = "a DSR below 95 %, or fewer years of data than the last two lines ask for."
    return join([paragraph(words), add_note(table(("", ""), rows, kind="wide"), how, bad)])


def track_length(found: Report) -> Html:
    """How long such returns must go on to mean something."""
    needed, years = number(found, "min_track_years"), number(found, "years")
    if needed is None:
        return Html("No length of such a record would show skill.")
    enough = (
        "" if years is None else " It is long enough." if years >= needed else " It is too short."
    )
    return say(
        "To be told from zero, such a record needs {n} years.{enough}",
        n=decimal(needed, 1),
        enough=enough,
    )


def trials(report: Report) -> Html:
    """What the search tried."""
    return add_note(
        draw_chart(charts.trials(report), "Values of the trials"),
        (
            "Each trial in the order it was started, and the best value so far. What has no value "
            "stands at the foot."
        ),
        (
            "the best is one lonely point far above a flat cloud: that is luck, not a good region "
            "of settings."
        ),
    )


def importance(report: Report) -> Html:
    """Which settings decided the value."""
    ordered = sorted(
        mapping(report, "importance").items(), key=lambda item: -(number(item[1]) or 0.0)
    )
    return add_note(
        bars(("setting", "share"), ((key, share, [percent(share)]) for key, share in ordered)),
        "Share of the variation of trial values that each setting explains.",
        "a penalty or a limit leads: the search then learned to trade less, not to trade well.",
    )


def stress(report: Report) -> Html:
    """The winner with other costs and with delays."""
    kinds = (("costs", "factor", "costs", "{n} ×"), ("delays", "bars", "bars late", "{n}"))
    sides = []
    for kind, key, heading, unit in kinds:
        every = records(report, kind)
        rows = [
            (say(unit, n=look(row, key)), look(row, "sharpe"), figures(row)[:3:2]) for row in every
        ]
        sides.append(bars((heading, "Sharpe", "return"), rows))
    return add_note(
        say('<div class="columns">{sides}</div>', sides=join(sides)) if any(sides) else Html(""),
        "The median path again with other costs, and with orders that come later than they were "
        "decided. Bars are"
        " Sharpe ratios.",
        (
            "a little more cost or one bar of delay undoes it: the edge is then smaller than what "
            "is not known."
        ),
    )


def finalists(report: Report) -> Html:
    """How much of a trial's value is its seed."""
    return add_note(
        draw_chart(charts.finalists(report), "Values of the finalists' seeds"),
        "The best trials, trained again from other random seeds.",
        "the seeds of one trial lie further apart than the trials do: their order is then chance.",
    )


def controls(report: Report) -> Html:
    """What must fail and what must succeed, whatever the market."""
    rows = [
        (
            tick(look(found, "passed")),
            words_of_key(key),
            decimal(look(found, "sharpe")),
            look(found, "sentence"),
        )
        for key, found in mapping(report, "controls").items()
        if isinstance(found, Mapping) and found
    ]
    return add_note(
        table(("", "control", "Sharpe", ""), rows, words=(0, 1, 3), kind="wide signs"),
        (
            "The same study on bars whose answer is known: noise holds nothing to learn, an oracle "
            "shows the future."
        ),
        "skill in noise means a leak; no skill with an oracle means that the learner is broken.",
    )


def reward_terms(report: Report) -> Html:
    """What the reward was made of."""
    terms = mapping(report, "reward_terms").items()
    return add_note(
        bars(
            ("term", "mean a bar"),
            ((words_of_key(key), value, [decimal(value, 4)]) for key, value in terms),
        ),
        "What each weighted term paid or took per bar, as the learner saw it.",
        "a penalty larger than the return: the policy then learned to avoid it, and little else.",
    )


def trading(report: Report) -> Html:
    """How much was traded and what it cost."""
    found = mapping(report, "trades")
    strip = facts(
        ("trades in all test blocks", look(found, "count"), ""),
        ("turnover a bar", percent(look(found, "turnover_per_bar"), 2), "of equity"),
        ("costs a year", percent(look(found, "costs_per_year")), "of equity: fees, spread, impact"),
        ("exposure", percent(look(found, "exposure")), "of equity, on average"),
        kind="close",
    )
    return strip if len(finite(found.values())) else Html("")


def days(report: Report) -> Html:
    """The last days, newest first."""
    every = records(report, "trades", "days")
    rows = [
        (
            look(day, "date"),
            change(look(day, "return")),
            decimal(look(day, "equity"), 4),
            percent(look(day, "turnover")),
            percent(look(day, "cost"), 3),
            look(day, "trades"),
        )
        for day in reversed(every[-DAYS:])
    ]
    file = look(report, "files", "days") or "days.csv"
    return add_note(
        table(("date", "return", "equity", "turnover", "costs", "trades"), rows, kind="days"),
        f"The last {len(rows)} of {len(every):,} days, newest first; {file} has all of them.",
        "a few days made the whole result, or trades come where the bars have gaps.",
    )


def throughput(report: Report) -> Html:
    """What the study took."""
    found = mapping(report, "throughput")
    seconds = number(found, "seconds")
    strip = facts(
        ("environment steps", decimal(look(found, "steps"), 0), ""),
        ("time", decimal(None if seconds is None else seconds / 60, 1, " min"), ""),
        ("steps a second", decimal(look(found, "steps_per_s"), 0), "learning included"),
        ("trials an hour", decimal(look(found, "trials_per_hour"), 0), ""),
        ("lanes at work", percent(look(found, "occupancy"), 0), "on average"),
        kind="close",
    )
    return strip if len(finite(found.values())) else Html("")
