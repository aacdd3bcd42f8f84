"""What the study tried, and how the winner trades: each section is a pure function from the report
to HTML.

A section is empty where there is nothing to show. Charts and tables say how to read them and what
would be a bad sign.
"""

from flatout.pages.charts import draw_chart
from flatout.pages.values import (
    Html,
    add_note,
    draw_bars,
    fill_in,
    join,
    words_of_key,
    write_change,
    write_decimal,
    write_facts,
    write_percent,
    write_sign,
    write_table,
)
from flatout.search import report_charts as charts
from flatout.search.report_evidence import has_numbers
from flatout.search.report_model import StudyReport, ThroughputFacts, TradeFacts

DAYS = 60  # shown; the file has all


def show_trials(report: StudyReport) -> Html:
    """All that the search tried."""
    winner = report.winner.trial if report.winner else None
    return add_note(
        draw_chart(charts.draw_trials(report.trials or (), winner), "Values of the trials"),
        (
            "Each trial in the order it was started, and the best value so far. What has no value "
            "stands at the foot."
        ),
        (
            "the best is one lonely point far above a flat cloud: that is luck, not a good region "
            "of settings."
        ),
    )


def show_importance(report: StudyReport) -> Html:
    """Which settings decided the value."""
    ordered = sorted((report.importance or {}).items(), key=lambda item: -(item[1] or 0.0))
    return add_note(
        draw_bars(
            ("setting", "share"), ((key, share, [write_percent(share)]) for key, share in ordered)
        ),
        "Share of the variation of trial values that each setting explains.",
        "a penalty or a limit leads: the search then learned to trade less, not to trade well.",
    )


def show_stress(report: StudyReport) -> Html:
    """The winner with other costs and with delays."""
    dearer = [
        (
            fill_in("{n} ×", n=row.factor),
            row.sharpe,
            [write_decimal(row.sharpe), write_percent(row.total_return)],
        )
        for row in report.costs or ()
    ]
    later = [
        (
            fill_in("{n}", n=row.bars),
            row.sharpe,
            [write_decimal(row.sharpe), write_percent(row.total_return)],
        )
        for row in report.delays or ()
    ]
    sides = [
        draw_bars(("costs", "Sharpe", "return"), dearer),
        draw_bars(("bars late", "Sharpe", "return"), later),
    ]
    return add_note(
        fill_in('<div class="columns">{sides}</div>', sides=join(sides))
        if any(sides)
        else Html(""),
        "The median path again with other costs, and with orders that come later than they were "
        "decided. Bars are Sharpe ratios.",
        (
            "a little more cost or one bar of delay undoes it: the edge is then smaller than what "
            "is not known."
        ),
    )


def show_finalists(report: StudyReport) -> Html:
    """How much of a trial's value is its seed."""
    return add_note(
        draw_chart(charts.draw_finalists(report.finalists or ()), "Values of the finalists' seeds"),
        "The best trials, trained again from other random seeds.",
        "the seeds of one trial lie further apart than the trials do: their order is then chance.",
    )


def show_controls(report: StudyReport) -> Html:
    """What must fail and what must succeed, whatever the market."""
    rows = [
        (write_sign(found.passed), words_of_key(name), write_decimal(found.sharpe), found.sentence)
        for name, found in (report.controls or {}).items()
        if found.model_fields_set
    ]
    return add_note(
        write_table(("", "control", "Sharpe", ""), rows, words=(0, 1, 3), kind="wide signs"),
        (
            "The same study on bars whose answer is known: noise holds nothing to learn, an oracle "
            "shows the future."
        ),
        "skill in noise means a leak; no skill with an oracle means that the learner is broken.",
    )


def show_reward_terms(report: StudyReport) -> Html:
    """What the reward was made of."""
    terms = (report.reward_terms or {}).items()
    return add_note(
        draw_bars(
            ("term", "mean a bar"),
            ((words_of_key(key), value, [write_decimal(value, 4)]) for key, value in terms),
        ),
        "What each weighted term paid or took per bar, as the learner saw it.",
        "a penalty larger than the return: the policy then learned to avoid it, and little else.",
    )


def show_trading(report: StudyReport) -> Html:
    """How much was traded and what it cost."""
    found = report.trades or TradeFacts()
    strip = write_facts(
        ("trades in all test blocks", found.count, ""),
        ("turnover a bar", write_percent(found.turnover_per_bar, 2), "of equity"),
        ("costs a year", write_percent(found.costs_per_year), "of equity: fees, spread, impact"),
        ("exposure", write_percent(found.exposure), "of equity, on average"),
        kind="close",
    )
    return strip if has_numbers(found) else Html("")


def show_days(report: StudyReport) -> Html:
    """The last days, newest first."""
    every = (report.trades and report.trades.days) or []
    rows = [
        (
            day.date,
            write_change(day.gain),
            write_decimal(day.equity, 4),
            write_percent(day.turnover),
            write_percent(day.cost, 3),
            day.trades,
        )
        for day in reversed(every[-DAYS:])
    ]
    file = (report.files or {}).get("days") or "days.csv"
    return add_note(
        write_table(("date", "return", "equity", "turnover", "costs", "trades"), rows, kind="days"),
        f"The last {len(rows)} of {len(every):,} days, newest first; {file} has all of them.",
        "a few days made the whole result, or trades come where the bars have gaps.",
    )


def show_throughput(report: StudyReport) -> Html:
    """How much time the study took."""
    found = report.throughput or ThroughputFacts()
    minutes = None if found.seconds is None else found.seconds / 60
    strip = write_facts(
        ("environment steps", write_decimal(found.steps, 0), ""),
        ("time", write_decimal(minutes, 1, " min"), ""),
        ("steps a second", write_decimal(found.steps_per_s, 0), "learning included"),
        ("trials an hour", write_decimal(found.trials_per_hour, 0), ""),
        ("lanes at work", write_percent(found.occupancy, 0), "on average"),
        kind="close",
    )
    return strip if has_numbers(found) else Html("")
