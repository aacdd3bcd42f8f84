"""The sections of a study's report, each a pure function from the report to HTML; empty where there is nothing to show.

Every chart says how to read it and what would be a bad sign.
"""

from collections.abc import Mapping
from typing import Any

from flatout.evaluation import report_charts as charts
from flatout.evaluation.report_values import (
    Html,
    bars,
    beside,
    decimal,
    facts,
    finite,
    join,
    listed,
    look,
    mapping,
    name,
    number,
    pairs,
    paragraph,
    percent,
    records,
    say,
    table,
    tick,
    write,
)

Report = Mapping[str, Any]

DAYS = 60  # shown; the file has all


def winner(report: Report) -> Html:
    """The fan of paths, and the figures behind it."""
    chart = charts.drawn(
        charts.equity_curves(look(report, "curves"), "paths", ("winner, one path each", "winner, median of paths")),
        "Equity of the winner's paths and of the baselines",
        "A path is one way to walk through all test blocks; no bar in it was seen by the policy that trades it.",
        "the fan is wide, its median ends below a baseline, or all gains come from one stretch of time.",
    )
    paths = [
        (f"path {k}", *figures(path))
        for k, path in enumerate(records(report, "winner", "paths"), 1)
        if len(finite(path.values()))
    ]
    others = [(name(key), *figures(value)) for key, value in mapping(report, "baselines").items()]
    headings = ("", "Sharpe", "Sortino", "total return", "a year", "largest drawdown")
    summary = facts(
        ("winner", say("trial {n}", n=look(report, "winner", "trial")), ""),
        ("median path's Sharpe ratio", decimal(look(report, "winner", "median_sharpe")), ""),
        ("standard deviation over seeds", decimal(look(report, "winner", "seeds_sd")), ""),
        kind="close",
    )
    parameters = pairs("what it was trained with", mapping(report, "winner", "params"))
    numbers = table(headings, [*paths, *others]) if paths else Html("")
    if not (chart or paths):
        return Html("")
    template = '{summary}{chart}<div class="columns">{numbers}{parameters}</div>'
    missing = Html('<p class="missing">not computed: the paths have no curves</p>')
    return say(template, summary=summary, chart=chart or missing, numbers=numbers, parameters=parameters)


def figures(account: object) -> tuple[Html, ...]:
    """Of a path or a baseline, in the order of the table's columns."""
    shares = ("total_return", "annual_return", "max_drawdown")
    ratios = (decimal(look(account, key)) for key in ("sharpe", "sortino"))
    return (*ratios, *(percent(look(account, key)) for key in shares))


def hold_out(report: Report) -> Html:
    """The bars that were sealed until the winner was chosen."""
    return charts.drawn(
        charts.equity_curves(
            look(report, "curves", "hold_out"), "seeds", ("winner, one seed each", "winner, median of seeds")
        ),
        "Equity on the hold-out",
        "Bars at the end of the history that no search has seen. They can be asked once: each further look wears them out.",
        "the winner does worse here than on its paths, or its seeds part ways.",
    )


def sharpes(report: Report) -> Html:
    """Path Sharpes beside the null and the baselines."""
    chart = charts.drawn(
        charts.sharpes(report),
        "Sharpe ratios of paths, baselines and random traders",
        "Above, traders that decide at random and trade as much as the winner; below, on the same scale, who is compared."
        " The line is the median path.",
        "the line stands inside the grey hill, left of a baseline, or left of what luck alone would reach.",
    )
    p = number(report, "null", "p_value")
    if p is None:
        return join([chart, paragraph("not computed: random traders of equal turnover", "missing")]) if chart else chart
    words = say(
        "Of {traders} random traders with the winner's turnover ({turnover} of equity a bar), {share} did at least as well.",
        traders=look(report, "null", "traders"),
        turnover=percent(look(report, "null", "turnover"), 2),
        share=percent(p),
    )
    return join([paragraph(words), chart])


def degradation(report: Report) -> Html:
    """In sample against out of sample."""
    found = mapping(report, "overfitting")
    chart = charts.drawn(
        charts.degradation(found),
        "Sharpe ratio in sample and out of sample",
        "Each point: one half of the history chooses its best trial, the other half judges it.",
        "points below zero, or a line that falls: the better the choice looked, the worse it did.",
    )
    words = say(
        "In {loss} of the splits the chosen trial lost money in the other half. The degradation line has slope {slope}"
        " (R² {r2}).",
        loss=percent(look(found, "probability_of_loss"), 0),
        slope=decimal(look(found, "slope")),
        r2=decimal(look(found, "r2")),
    )
    drawing = number(len(listed(found, "in_sample"))) or 0
    note = f"{charts.POINTS:,} of {drawing:,} splits are drawn." if drawing > charts.POINTS else ""
    return join([paragraph(words), chart, paragraph(note, "quiet")]) if chart else chart


def overfitted(report: Report) -> Html:
    """The probability of backtest overfitting."""
    found = mapping(report, "overfitting")
    chart = charts.drawn(
        charts.logits(found),
        "Logits of the chosen trials' ranks out of sample",
        "Where the trial chosen in one half ranks among all trials in the other half.",
        "much red: choosing the best trial is then no better than choosing by lot.",
    )
    words = say(
        "Probability of backtest overfitting: <strong>{pbo}</strong> (history cut into {blocks} blocks, {n} ways to halve"
        " them).",
        pbo=percent(look(found, "pbo")),
        blocks=look(found, "blocks"),
        n=len(listed(found, "logits")),
    )
    return join([paragraph(words), chart]) if chart else chart


def deflated(report: Report) -> Html:
    """How much of the Sharpe ratio luck explains, in words and in figures."""
    found = mapping(report, "deflated")
    if number(found, "dsr") is None or number(found, "sharpe") is None:
        return Html("")
    words = say(
        "{trials} trials were ever run on these bars, which count as about {effective} independent ones. Had none of"
        " them any skill, the best would still be expected to show a Sharpe ratio of {best}. The winner shows {sharpe}"
        " over {years} years. That it is better than luck's best has a probability of <strong>{dsr}</strong>. {track}",
        trials=look(found, "trials"),
        effective=decimal(look(found, "effective"), 0),
        best=decimal(look(found, "expected_best")),
        sharpe=decimal(look(found, "sharpe")),
        years=decimal(look(found, "years"), 1),
        dsr=percent(look(found, "dsr")),
        track=track_length(found),
    )
    rows = [
        ("Sharpe ratio, annual", decimal(look(found, "sharpe"))),
        ("best that luck is expected to reach", decimal(look(found, "expected_best"))),
        ("probability that it exceeds zero (PSR)", percent(look(found, "psr"))),
        ("… that it exceeds luck's best (DSR), all trials", percent(look(found, "dsr"))),
        ("… counting independent trials only", percent(look(found, "dsr_effective"))),
        ("years of data", decimal(look(found, "years"), 1)),
        ("years such returns need to differ from zero (MinTRL)", decimal(look(found, "min_track_years"), 1)),
        ("years below which luck shows this Sharpe ratio (MinBTL)", decimal(look(found, "min_backtest_years"), 1)),
    ]
    how = "The deflated Sharpe ratio asks: is this better than the best of so many attempts without skill?"
    return join(
        [
            paragraph(words),
            beside(
                table(("", ""), rows, kind="wide"), how, "below 95 %, or fewer years of data than the last two lines."
            ),
        ]
    )


def track_length(found: Report) -> Html:
    """How long such returns must go on to mean something."""
    needed, years = number(found, "min_track_years"), number(found, "years")
    if needed is None or years is None:
        return Html("" if needed is not None else "No length of such a record would show skill.")
    enough = "the record is long enough for that" if years >= needed else "the record is too short for that"
    return say("Returns like these need {y} years to be told from zero; {enough}.", y=decimal(needed, 1), enough=enough)


def trials(report: Report) -> Html:
    """What the search tried."""
    return charts.drawn(
        charts.trials(report),
        "Values of the trials",
        "Each trial in the order it was started, and the best value so far. What has no value stands at the foot.",
        "the best is one lonely point far above a flat cloud: then it is luck, not a good region of settings.",
    )


def importance(report: Report) -> Html:
    """Which settings decided the value."""
    found = mapping(report, "importance")
    ordered = sorted(found.items(), key=lambda item: -(number(item[1]) or 0.0))
    return beside(
        bars("setting", "share", ((key, share, percent(share)) for key, share in ordered)),
        "Share of the variation of trial values that each setting explains.",
        "a penalty or a limit leads: the search then found out how to trade less, not how to trade well.",
    )


def stress(report: Report) -> Html:
    """Costs and delays."""
    sides = []
    for key, unit, heading, label in (
        ("costs", "factor", "costs times", lambda value: decimal(value, 1, " ×")),
        ("delays", "bars", "bars late", lambda value: decimal(value, 0)),
    ):
        rows = [(label(row.get(unit)), row.get("sharpe"), both(row)) for row in records(report, key)]
        sides.append(bars(heading, "Sharpe, total return", rows))
    content = say('<div class="columns">{costs}{delays}</div>', costs=sides[0], delays=sides[1])
    return beside(
        content if any(sides) else Html(""),
        "The median path again with other costs, and with orders that arrive later than they were decided.",
        "a little more cost or one bar of delay turns the result: the edge is then smaller than what is not known.",
    )


def both(row: object) -> Html:
    """Sharpe ratio and total return of a row."""
    return say("{a} · {b}", a=decimal(look(row, "sharpe")), b=percent(look(row, "total_return")))


def finalists(report: Report) -> Html:
    """How much of a trial's value is its seed."""
    return charts.drawn(
        charts.finalists(report),
        "Values of the finalists' seeds",
        "The best trials, trained again from other random seeds.",
        "one trial's seeds lie further apart than the trials do: the order of the trials is then chance.",
    )


def controls(report: Report) -> Html:
    """What must fail and what must succeed, whatever the market."""
    rows = [
        (tick(look(found, "passed")), key, decimal(look(found, "sharpe")), look(found, "sentence"))
        for key, found in mapping(report, "controls").items()
        if isinstance(found, Mapping) and found
    ]
    return beside(
        table(("", "control", "Sharpe", ""), rows, words=(0, 1, 3), kind="wide"),
        "The same study on bars whose answer is known: noise holds nothing to learn, the oracle shows the future.",
        "skill in noise means a leak; no skill with the oracle means that the learner is broken.",
    )


def reward_terms(report: Report) -> Html:
    """What the reward was made of."""
    return beside(
        bars(
            "term",
            "mean a bar",
            ((name(key), value, decimal(value, 4)) for key, value in mapping(report, "reward_terms").items()),
        ),
        "What each weighted term of the reward paid or took per bar, as the learner saw it.",
        "a penalty larger than the return: the policy then learns to avoid it, and little else.",
    )


def trading(report: Report) -> Html:
    """How much was traded and what it cost."""
    found = mapping(report, "trades")
    values = [look(found, key) for key in ("count", "turnover_per_bar", "costs_per_year", "exposure")]
    if not len(finite(values)):
        return Html("")
    count, turnover, costs, exposure = values
    return facts(
        ("trades in all test blocks", write(count), ""),
        ("turnover a bar", percent(turnover, 2), "of equity"),
        ("costs a year", percent(costs), "of equity: fees, spread, impact"),
        ("exposure", percent(exposure), "of equity invested, on average"),
        kind="close",
    )


def days(report: Report) -> Html:
    """The last days, newest first."""
    every = records(report, "trades", "days")
    rows = [
        (
            day.get("date"),
            signed(day.get("return")),
            decimal(day.get("equity"), 4),
            percent(day.get("turnover")),
            percent(day.get("cost"), 3),
            day.get("trades"),
        )
        for day in reversed(every[-DAYS:])
    ]
    headings = ("date", "return", "equity", "turnover", "costs", "trades")
    note = say("The last {shown} of {n} days; ", shown=len(rows), n=len(every))
    file = say("<code>{file}</code> has all of them.", file=look(report, "files", "days") or "days.csv")
    content = table(headings, rows, kind="days")
    return join([content, paragraph(join([note, file]), "quiet")]) if content else content


def signed(value: object) -> Html:
    """A return, red where it is a loss."""
    loss = (number(value) or 0.0) < 0
    return say('<span class="{kind}">{value}</span>', kind="bad" if loss else "", value=percent(value, 2))


def throughput(report: Report) -> Html:
    """What the study took."""
    found = mapping(report, "throughput")
    if not len(finite(found.values())):
        return Html("")
    seconds = number(found, "seconds")
    minutes = None if seconds is None else seconds / 60
    return facts(
        ("environment steps", decimal(look(found, "steps"), 0), ""),
        ("time", decimal(minutes, 1, " min"), ""),
        ("steps a second", decimal(look(found, "steps_per_s"), 0), "learning included"),
        ("trials an hour", decimal(look(found, "trials_per_hour"), 0), ""),
        ("lanes in use", percent(look(found, "occupancy"), 0), "of those that were paid for"),
        kind="close",
    )
