"""Values of a report that may not exist: read without failing, written as HTML. All text but `Html`
is escaped here.

A number that is None does not exist; it is written as a dash. This file does not know what the
values mean.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from html import escape
from numbers import Real
from typing import Any

import numpy as np

from flatout.bars.panel import FloatArray

__all__ = [
    "Html",
    "add_note",
    "array",
    "bars",
    "decimal",
    "facts",
    "join",
    "list_at",
    "look",
    "mapping",
    "number",
    "pairs",
    "paragraph",
    "percent",
    "records",
    "say",
    "table",
    "write",
]

DASH = "–"
MINUS = "−"


class Html(str):
    """Text that is HTML already; every other text is escaped when it is written.

    >>> write(Html("<b>3</b>")), write("<b>3</b>")
    ('<b>3</b>', '&lt;b&gt;3&lt;/b&gt;')
    """

    __slots__ = ()


def look(report: object, *keys: str) -> Any:
    """What stands under the keys; None where any of them is missing.

    >>> look({"run": {"seed": 7}}, "run", "seed"), look({}, "run", "seed")
    (7, None)
    """
    for key in keys:
        report = report.get(key) if isinstance(report, Mapping) else None
    return report


def mapping(report: object, *keys: str) -> Mapping[str, Any]:
    """The mapping under the keys; empty if there is none.

    >>> mapping({"run": {"seed": 7}}, "run"), mapping({"run": 3}, "run")
    ({'seed': 7}, {})
    """
    found = look(report, *keys)
    return found if isinstance(found, Mapping) else {}


def list_at(report: object, *keys: str) -> list[Any]:
    """The list under the keys; empty if there is none.

    >>> list_at({"hosts": ("a", "b")}, "hosts"), list_at({"hosts": "a"}, "hosts")
    (['a', 'b'], [])
    """
    found = look(report, *keys)
    return (
        list(found)
        if isinstance(found, Sequence | np.ndarray) and not isinstance(found, str)
        else []
    )


def records(report: object, *keys: str) -> list[Mapping[str, Any]]:
    """The mappings in the list under the keys.

    >>> records({"rows": [{"n": 1}, "damaged"]}, "rows")
    [{'n': 1}]
    """
    return [item for item in list_at(report, *keys) if isinstance(item, Mapping)]


def number(report: object, *keys: str) -> float | None:
    """The finite number under the keys, or None.

    >>> number({"sharpe": 1.5}, "sharpe"), number({"sharpe": math.nan}, "sharpe")
    (1.5, None)
    """
    found = look(report, *keys)
    real = not isinstance(found, bool) and isinstance(found, Real) and math.isfinite(found)
    return found if real else None


def array(values: Iterable[object]) -> FloatArray:
    """Numbers for drawing; what does not exist is NaN, which leaves a gap.

    >>> array([1, None, 2.5])
    array([1. , nan, 2.5])
    """
    found = (number(value) for value in values)
    return np.array([math.nan if value is None else value for value in found], dtype=np.float64)


def finite(values: Iterable[object]) -> FloatArray:
    """The numbers that exist."""
    every = array(values)
    return every[np.isfinite(every)]


def decimal(value: object, digits: int = 2, unit: str = "") -> Html:
    """A number with so many digits behind the point.

    >>> decimal(-1234.567), decimal(None)
    ('−1,234.57', '–')
    """
    found = number(value)
    # a small loss is 0.00, not -0.00
    rounded = 0.0 if found is None else round(found, digits) + 0.0
    return Html(DASH if found is None else f"{rounded:,.{digits}f}{unit}".replace("-", MINUS))


def percent(value: object, digits: int = 1) -> Html:
    """A share as a percentage; its sign stays in the line of its number.

    >>> percent(0.125).split()
    ['12.5', '%']
    """
    found = number(value)
    return decimal(None if found is None else 100 * found, digits, "\u00a0%")


def change(value: object) -> Html:
    """A return as a percentage, red where it is a loss."""
    kind = "bad" if (number(value) or 0.0) < 0 else ""
    return Html(f'<span class="{kind}">{percent(value, 2)}</span>')


def write(value: object) -> Html:
    """Any value as HTML: numbers, texts, lists and mappings of them.

    >>> write(12345), write(None), write("a < b"), write(["x", "y"])
    ('12,345', '–', 'a &lt; b', 'x, y')
    """
    if isinstance(value, Html):
        return value
    if value is None:
        return Html(DASH)
    if isinstance(value, bool):
        return Html("yes" if value else "no")
    if isinstance(value, int | float):
        whole = math.isfinite(value) and value == int(value) and abs(value) < 1e15
        return Html((f"{int(value):,}" if whole else f"{value:.5g}").replace("-", MINUS))
    if isinstance(value, Mapping):
        return Html(
            " · ".join(f"{words_of_key(key)} {write(part)}" for key, part in value.items()) or DASH
        )
    if isinstance(value, Sequence) and not isinstance(value, str):
        lines = any(isinstance(part, Mapping) for part in value)
        return Html(("<br>" if lines else ", ").join(map(write, value)) or DASH)
    return Html(escape(str(value)))


def words_of_key(key: object) -> Html:
    """A key of a report as words: underscores become blanks."""
    return Html(DASH if key is None else escape(str(key).replace("_", " ")))


def say(template: str, **values: object) -> Html:
    """A sentence with values in it.

    >>> say("<p>{name} has {count}</p>", name="A & B", count=3)
    '<p>A &amp; B has 3</p>'
    """
    return Html(template.format(**{key: write(value) for key, value in values.items()}))


def join(parts: Iterable[Html], between: str = "") -> Html:
    """Pieces of HTML, one after the other.

    >>> join([Html("<i>a</i>"), Html("b")], between=", ")
    '<i>a</i>, b'
    """
    return Html(between.join(parts))


def paragraph(content: object, kind: str = "") -> Html:
    """A paragraph; nothing if there is nothing to say.

    >>> paragraph("3 < 4", kind="note"), paragraph("")
    ('<p class="note">3 &lt; 4</p>', '')
    """
    return (
        say('<p class="{kind}">{content}</p>', kind=kind, content=content) if content else Html("")
    )


def tick(passed: object) -> Html:
    """Passed or not, as a sign that also has a word for who cannot see it."""
    sign, word, kind = ("✓", "passed", "good") if passed is True else ("✗", "failed", "bad")
    if not isinstance(passed, bool):
        sign, word, kind = DASH, "not computed", "none"
    return say(
        '<span class="sign {kind}" role="img" aria-label="{word}">{sign}</span>',
        sign=sign,
        word=word,
        kind=kind,
    )


def table(
    headings: Sequence[str],
    rows: Iterable[Sequence[object]],
    words: Collection[int] = (0,),
    kind: str = "",
) -> Html:
    """A table that scrolls in its own box; `words` are the columns that hold text, all others hold
    numbers.

    >>> print(table(["host", "pages"], [["a.org", 3]]).removeprefix('<div class="box ">'))
    <table><thead><tr><th>host</th><th class="n">pages</th></tr></thead>...</table></div>
    """

    def cells(tag: str, row: Sequence[object]) -> Html:
        sides = ("" if column in words else ' class="n"' for column in range(len(row)))
        return join(
            Html(f"<{tag}{side}>{write(cell)}</{tag}>")
            for side, cell in zip(sides, row, strict=True)
        )

    body = join(Html(f"<tr>{cells('td', row)}</tr>") for row in rows)
    if not body:
        return Html("")
    head = Html(f"<thead><tr>{cells('th', headings)}</tr></thead>" if any(headings) else "")
    template = '<div class="box {kind}"><table>{head}<tbody>{body}</tbody></table></div>'
    return say(template, kind=kind, head=head, body=body)


def pairs(title: str, values: Mapping[str, Any], exact: bool = False) -> Html:
    """Settings and their values under a small heading; `exact` keeps their names as they are
    written in files.

    >>> pairs("order", {"most_pages": 100})
    '<div class="pairs"><h3>order</h3><dl><dt>most pages</dt><dd>100</dd></dl></div>'
    """
    if not values:
        return Html("")
    line = "<dt>{key}</dt><dd>{value}</dd>"
    lines = (
        say(line, key=key if exact else words_of_key(key), value=value)
        for key, value in values.items()
    )
    return say(
        '<div class="pairs"><h3>{title}</h3><dl>{lines}</dl></div>', title=title, lines=join(lines)
    )


def facts(*triples: tuple[str, object, object], kind: str = "") -> Html:
    """A strip of label, value and note; facts whose value does not exist keep their place.

    >>> "<strong>3</strong><small>of 5</small>" in facts(("pages", 3, "of 5"))
    True
    """
    template = "<div><dt>{label}</dt><dd><strong>{value}</strong><small>{note}</small></dd></div>"
    every = (
        say(template, label=label, value=value, note=note or "") for label, value, note in triples
    )
    return say('<dl class="facts {kind}">{every}</dl>', kind=kind, every=join(every))


def bar(value: object, largest: float) -> Html:
    """A bar in a table's cell, red where the number is below zero."""
    found = number(value) or 0.0
    width = 100 * min(1.0, abs(found) / largest) if largest > 0 else 0.0
    kind = "bad" if found < 0 else ""
    return Html(f'<span class="bar {kind}" style="width:{width:.1f}%"></span>')


def bars(headings: Sequence[str], rows: Iterable[tuple[object, object, Sequence[Html]]]) -> Html:
    """Rows of label, number, and what is written of it before its bar; empty if there is no
    number.

    >>> drawn = bars(["host", "requests"], [("a.org", 4, [write(4)]), ("b.org", 2, [write(2)])])
    >>> "width:100.0%" in drawn, "width:50.0%" in drawn
    (True, True)
    """
    every = list(rows)
    sizes = np.abs(finite(value for _, value, _ in every))
    if not len(sizes):
        return Html("")
    drawn = [(label, *written, bar(value, float(sizes.max()))) for label, value, written in every]
    return table((*headings, ""), drawn, words=(0, len(headings)), kind="bars")


def place_chart(title: str, key: Iterable[tuple[str, str, str]], data: str) -> Html:
    """The place of a chart: above it (kind of mark, colour, words), beside it the data that the
    page's script draws.
    """
    swatch = '<span><i class="{kind}" style="color:{colour}"></i>{words}</span>'
    swatches = join(
        say(swatch, kind=kind, colour=colour, words=words) for kind, colour, words in key
    )
    harmless = Html(data.replace("<", "\\u003c"))  # no text in it can end the script element
    return say(
        '<p class="key">{swatches}</p><div class="chart" role="img" aria-label="{title}"></div>'
        '<script type="application/json">{harmless}</script>',
        swatches=swatches,
        title=title,
        harmless=harmless,
    )


def add_note(content: Html, how: str, bad: str) -> Html:
    """A chart or a table with a note in the margin: how to read it, and what would be a bad
    sign.

    >>> figure = add_note(paragraph("3"), how="Higher is better.", bad="it falls")
    >>> "<em>Bad sign:</em> it falls" in figure
    True
    """
    template = (
        "<figure><div>{content}</div><figcaption>{how} <span><em>Bad sign:</em> "
        "{bad}</span></figcaption></figure>"
    )
    return say(template, content=content, how=how, bad=bad) if content else content
