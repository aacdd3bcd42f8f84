"""The parts of a crawl's report as HTML. Everything that is not `Html` is escaped when it is
written.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from flatout.pages.charts import draw_chart
from flatout.pages.values import (
    Html,
    add_note,
    draw_bars,
    fill_in,
    find_list,
    find_mapping,
    find_records,
    find_value,
    join,
    write_decimal,
    write_facts,
    write_pairs,
    write_paragraph,
    write_percent,
    write_table,
    write_value,
)
from flatout_crawl.net.scope import canonical
from flatout_crawl.runs import report_charts as charts

Report = Mapping[str, Any]


def link(url: object) -> Html:
    """A URL that can be opened, if it is one; it tells the site nothing of where it was found."""
    text = str(url)
    if canonical(text) != text:
        return write_value(text)
    return fill_in('<a href="{url}" rel="noreferrer noopener nofollow">{url}</a>', url=text)


def interval(found: object, digits: int = 0) -> Html:
    """A mean with its interval."""
    low, high = (
        write_decimal(find_value(found, "low"), digits),
        write_decimal(find_value(found, "high"), digits),
    )
    return fill_in(
        "{mean} <small>[{low}, {high}]</small>",
        mean=write_decimal(find_value(found, "mean"), digits),
        low=low,
        high=high,
    )


def found_curve(report: Report) -> Html:
    """Targets against requests."""
    beside = find_mapping(report, "outcome", "beside")
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
    return join([chart, write_paragraph(without, "quiet")])


def targets(report: Report) -> Html:
    """The pages that were found, as a table."""
    every = find_records(report, "targets")
    rows = [
        (
            find_value(row, "request"),
            write_decimal(find_value(row, "score"), 2),
            fill_in(
                "{title}<br>{url}{path}",
                title=find_value(row, "title") or "",
                url=link(find_value(row, "url")),
                path=way(row),
            ),
        )
        for row in every
    ]
    more = find_value(report, "targets_in_all") or 0
    rest = f"{more - len(every):,} more are in targets.jsonl." if more > len(every) else ""
    return join(
        [
            write_table(("request", "score", "page"), rows, words=(2,)),
            write_paragraph(rest, "quiet"),
        ]
    )


def way(row: object) -> Html:
    """The links from the seed page to a target, folded away."""
    steps = find_list(row, "path")
    if len(steps) < 2:
        return Html("")
    lines = join(fill_in("<br>{step}", step=str(step)) for step in steps)
    template = (
        "<details><summary><small>{count} from the seed "
        "page</small></summary><small>{lines}</small></details>"
    )
    return fill_in(template, count=f"{len(steps) - 1} link{'s' * (len(steps) > 2)}", lines=lines)


def failures(report: Report) -> Html:
    """Requests that brought no page."""
    kinds, late = (
        find_mapping(report, "outcome", "failures"),
        find_value(report, "outcome", "not_searched"),
    )
    notes = (
        f"In {late:,} pages the search for the pattern took too long; they count as not relevant."
        if late
        else ""
    )
    if not kinds:
        had = (
            "Every page that was asked for was had."
            if find_value(report, "outcome", "pages")
            else ""
        )
        return write_paragraph(f"{had} {notes}".strip())
    every = draw_bars(
        ("kind", "links"), [(kind, count, [write_value(count)]) for kind, count in kinds.items()]
    )
    return join([every, write_paragraph(notes)])


def hosts(report: Report) -> Html:
    """Requests per host and how far apart they were."""
    rows = [
        (
            host,
            find_value(facts_of_host, "requests"),
            find_value(facts_of_host, "robots"),
            write_decimal(find_value(facts_of_host, "shortest_gap"), 2, " s"),
            write_decimal(find_value(facts_of_host, "median_gap"), 2, " s"),
            write_decimal(find_value(facts_of_host, "median_seconds"), 2, " s"),
            write_decimal(find_value(facts_of_host, "megabytes"), 2),
            find_mapping(facts_of_host, "ends"),
        )
        for host, facts_of_host in find_mapping(report, "audit", "hosts").items()
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
        fill_in(
            "{url}: status {status}, {bytes} bytes",
            url=str(row.get("url")),
            status=row.get("status"),
            bytes=row["bytes"],
        )
        for row in find_records(report, "robots")
    ]
    about = (
        write_paragraph(join([Html("robots.txt: "), join(answers, "; ")])) if answers else Html("")
    )
    return join([write_table(headings, rows, words=(0, 7)), about]) if rows else Html("")


def show_order(report: Report) -> Html:
    """What the crawl was asked to do, and what its result rests on."""
    order = find_mapping(report, "run", "order")
    if not order:
        return Html("")
    shown = {name: value for name, value in order.items() if value not in ("", None, [], {})}
    live = find_value(report, "outcome", "is_live")
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
    return join([write_pairs("the order", shown, exact=True), bullets(notes)])


def bullets(sentences: Sequence[object]) -> Html:
    """Sentences as a bulleted list."""
    return (
        fill_in(
            "<ul>{items}</ul>", items=join(fill_in("<li>{one}</li>", one=one) for one in sentences)
        )
        if sentences
        else Html("")
    )


def summary(report: Report) -> Html:
    """A run in numbers, for the head of the page."""
    outcome = find_mapping(report, "outcome")
    if not outcome:
        return Html("")
    return write_facts(
        ("targets", find_value(outcome, "found"), "different pages"),
        (
            "requests",
            find_value(outcome, "requests"),
            fill_in("of {total}", total=find_value(outcome, "total")),
        ),
        ("sent", find_value(outcome, "sent"), "robots.txt and lost ones included"),
        (
            "pages read",
            find_value(outcome, "pages"),
            fill_in(
                "{mb} MB brought nothing", mb=write_decimal(find_value(outcome, "wasted_mb"), 1)
            ),
        ),
        ("links left", find_value(outcome, "open_links"), "known and not followed"),
        ("seconds", write_decimal(find_value(outcome, "seconds"), 1), "of the last start"),
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
            find_value(row, "chooser"),
            interval(find_value(row, "metrics", "requests_to_90")),
            write_percent(find_value(row, "reached_90"), 0),
            interval(find_value(row, "metrics", "requests_to_50")),
            interval(find_value(row, "metrics", "auc"), 3),
            interval(find_value(row, "metrics", "recall"), 2),
            interval(find_value(row, "metrics", "wasted_mb"), 1),
        )
        for row in find_records(report, "choosers")
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
        write_table(headings, rows),
        "Means with 95 % intervals over sites and seeds. A crawl that never reached 90 % counts "
        "with its whole budget, which flatters it.",
        "a chooser is first only because it seldom reached 90 %.",
    )


def duels(report: Report) -> Html:
    """The learned policy beside those it must beat."""
    rows = [
        (
            find_value(row, "against"),
            write_decimal(find_value(row, "own"), 0),
            write_decimal(find_value(row, "other"), 0),
            interval(find_value(row, "difference")),
            write_percent(find_value(row, "own_reached"), 0),
            write_percent(find_value(row, "other_reached"), 0),
            find_value(row, "won"),
        )
        for row in find_records(report, "verdict", "duels")
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
    return write_table(headings, rows)


def sites(report: Report) -> Html:
    """The sites on which the policy was tried."""
    rows = [
        (find_value(row, "name"), find_value(row, "pages"), find_value(row, "targets"))
        for row in find_records(report, "sites")
    ]
    return write_table(("site", "pages", "targets"), rows)


def grounds(report: Report) -> Html:
    """What an evaluation rests on."""
    notes = bullets([str(one) for one in find_list(report, "assumptions")])
    return join([notes, write_pairs("settings", find_mapping(report, "settings"), exact=True)])
