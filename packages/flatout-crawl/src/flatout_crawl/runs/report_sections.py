"""The parts of a crawl's report as HTML. Everything that is not `Html` is escaped when it is
written.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from flatout.pages.charts import draw_chart
from flatout.pages.values import (
    Html,
    add_note,
    bars,
    decimal,
    facts,
    join,
    list_at,
    look,
    mapping,
    pairs,
    paragraph,
    percent,
    records,
    say,
    table,
    write,
)
from flatout_crawl.net.scope import canonical
from flatout_crawl.runs import report_charts as charts

Report = Mapping[str, Any]


def link(url: object) -> Html:
    """A URL that can be opened, if it is one; it tells the site nothing of where it was found."""
    text = str(url)
    if canonical(text) != text:
        return write(text)
    return say('<a href="{url}" rel="noreferrer noopener nofollow">{url}</a>', url=text)


def interval(found: object, digits: int = 0) -> Html:
    """A mean with its interval."""
    low, high = decimal(look(found, "low"), digits), decimal(look(found, "high"), digits)
    return say(
        "{mean} <small>[{low}, {high}]</small>",
        mean=decimal(look(found, "mean"), digits),
        low=low,
        high=high,
    )


def found_curve(report: Report) -> Html:
    """Targets against requests."""
    beside = mapping(report, "outcome", "beside")
    chart = add_note(
        draw_chart(charts.found(report), "Targets found against requests"),
        "Each request moves one step to the right; each target found one step up. Shaded: the "
        "least and the most of several seeds.",
        "the line lies on or below that of a baseline, or has long been flat.",
    )
    if beside or not chart:
        return chart
    without = (
        "No baseline is drawn: on a live site each would cost as many requests again. Record the "
        "site, and `flatout crawl eval --archive` compares them without any."
    )
    return join([chart, paragraph(without, "quiet")])


def targets(report: Report) -> Html:
    """The pages that were found, as a table."""
    every = records(report, "targets")
    rows = [
        (
            look(row, "request"),
            decimal(look(row, "score"), 2),
            say(
                "{title}<br>{url}{path}",
                title=look(row, "title") or "",
                url=link(look(row, "url")),
                path=way(row),
            ),
        )
        for row in every
    ]
    more = look(report, "targets_in_all") or 0
    rest = f"{more - len(every):,} more are in targets.jsonl." if more > len(every) else ""
    return join([table(("request", "score", "page"), rows, words=(2,)), paragraph(rest, "quiet")])


def way(row: object) -> Html:
    """The links from the seed page to a target, folded away."""
    steps = list_at(row, "path")
    if len(steps) < 2:
        return Html("")
    lines = join(say("<br>{step}", step=str(step)) for step in steps)
    template = (
        "<details><summary><small>{count} from the seed "
        "page</small></summary><small>{lines}</small></details>"
    )
    return say(template, count=f"{len(steps) - 1} link{'s' * (len(steps) > 2)}", lines=lines)


def failures(report: Report) -> Html:
    """Requests that brought no page."""
    kinds, late = mapping(report, "outcome", "failures"), look(report, "outcome", "not_searched")
    notes = (
        f"In {late:,} pages the search for the pattern took too long; they count as not relevant."
        if late
        else ""
    )
    if not kinds:
        had = "Every page that was asked for was had." if look(report, "outcome", "pages") else ""
        return paragraph(f"{had} {notes}".strip())
    every = bars(
        ("kind", "links"), [(kind, count, [write(count)]) for kind, count in kinds.items()]
    )
    return join([every, paragraph(notes)])


def hosts(report: Report) -> Html:
    """Requests per host and how far apart they were."""
    rows = [
        (
            host,
            look(facts_of_host, "requests"),
            look(facts_of_host, "robots"),
            decimal(look(facts_of_host, "shortest_gap"), 2, " s"),
            decimal(look(facts_of_host, "median_gap"), 2, " s"),
            decimal(look(facts_of_host, "median_seconds"), 2, " s"),
            decimal(look(facts_of_host, "megabytes"), 2),
            mapping(facts_of_host, "ends"),
        )
        for host, facts_of_host in mapping(report, "audit", "hosts").items()
    ]
    headings = (
        "host",
        "requests",
        "robots.txt",
        "shortest gap",
        "median gap",
        "median answer",
        "MB",
        "how they ended",
    )
    answers = [
        say(
            "{url}: status {status}, {bytes} bytes",
            url=str(row.get("url")),
            status=row.get("status"),
            bytes=row["bytes"],
        )
        for row in records(report, "robots")
    ]
    about = paragraph(join([Html("robots.txt: "), join(answers, "; ")])) if answers else Html("")
    return join([table(headings, rows, words=(0, 7)), about]) if rows else Html("")


def show_order(report: Report) -> Html:
    """What the crawl was asked to do, and what its result rests on."""
    order = mapping(report, "run", "order")
    if not order:
        return Html("")
    shown = {name: value for name, value in order.items() if value not in ("", None, [], {})}
    live = look(report, "outcome", "is_live")
    notes = [
        (
            "A page is a target if its relevance reaches the threshold; the rule was written by "
            "hand and can be wrong."
        ),
        "Pages with equal title and text count once.",
        "No scripts were run and no forms sent: what only they show was not seen.",
        (
            "Every request, robots.txt and redirects included, counts against the budget, over all "
            "starts of this crawl."
        )
        if live
        else "Pages that are not in the recording do not exist in this crawl.",
    ]
    return join([pairs("the order", shown, exact=True), bullets(notes)])


def bullets(sentences: Sequence[object]) -> Html:
    """Sentences as a bulleted list."""
    return (
        say("<ul>{items}</ul>", items=join(say("<li>{one}</li>", one=one) for one in sentences))
        if sentences
        else Html("")
    )


def summary(report: Report) -> Html:
    """A run in numbers, for the head of the page."""
    outcome = mapping(report, "outcome")
    if not outcome:
        return Html("")
    return facts(
        ("targets", look(outcome, "found"), "different pages"),
        ("requests", look(outcome, "requests"), say("of {total}", total=look(outcome, "total"))),
        ("sent", look(outcome, "sent"), "robots.txt and lost ones included"),
        (
            "pages read",
            look(outcome, "pages"),
            say("{mb} MB brought nothing", mb=decimal(look(outcome, "wasted_mb"), 1)),
        ),
        ("links left", look(outcome, "open_links"), "known and not followed"),
        ("seconds", decimal(look(outcome, "seconds"), 1), "of the last start"),
        kind="close",
    )


def recall_curve(report: Report) -> Html:
    """Recall against requests."""
    return add_note(
        draw_chart(charts.recall(report), "Share of the targets found against requests"),
        "Mean over sites; shaded: where the mean lies in 95 of 100 draws of other sites. The "
        "oracle knows every link beforehand: nobody can beat it by much.",
        "the learned policy's line lies in or below the band of best-first or a bandit.",
    )


def choosers(report: Report) -> Html:
    """All choosers in numbers, the best first."""
    rows = [
        (
            look(row, "chooser"),
            interval(look(row, "metrics", "requests_to_90")),
            percent(look(row, "reached_90"), 0),
            interval(look(row, "metrics", "requests_to_50")),
            interval(look(row, "metrics", "auc"), 3),
            interval(look(row, "metrics", "recall"), 2),
            interval(look(row, "metrics", "wasted_mb"), 1),
        )
        for row in records(report, "choosers")
    ]
    headings = (
        "",
        "requests to 90 %",
        "reached",
        "requests to 50 %",
        "mean recall",
        "recall at the end",
        "wasted MB",
    )
    return add_note(
        table(headings, rows),
        "Means with 95 % intervals over sites and seeds. A crawl that never reached 90 % counts "
        "with its whole budget, which flatters it.",
        "a chooser is first only because it seldom reached 90 %.",
    )


def duels(report: Report) -> Html:
    """The learned policy beside those it must beat."""
    rows = [
        (
            look(row, "against"),
            decimal(look(row, "own"), 0),
            decimal(look(row, "other"), 0),
            interval(look(row, "difference")),
            percent(look(row, "own_reached"), 0),
            percent(look(row, "other_reached"), 0),
            look(row, "won"),
        )
        for row in records(report, "verdict", "duels")
    ]
    headings = (
        "against",
        "learned",
        "other",
        "difference",
        "learned reached",
        "other reached",
        "beaten",
    )
    return table(headings, rows)


def sites(report: Report) -> Html:
    """The sites on which the policy was tried."""
    rows = [
        (look(row, "name"), look(row, "pages"), look(row, "targets"))
        for row in records(report, "sites")
    ]
    return table(("site", "pages", "targets"), rows)


def grounds(report: Report) -> Html:
    """What an evaluation rests on."""
    notes = bullets([str(one) for one in list_at(report, "assumptions")])
    return join([notes, pairs("settings", mapping(report, "settings"), exact=True)])
