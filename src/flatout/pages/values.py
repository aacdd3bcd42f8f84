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
    "draw_bars",
    "fill_in",
    "find_list",
    "find_mapping",
    "find_number",
    "find_records",
    "find_value",
    "join",
    "to_array",
    "write_decimal",
    "write_facts",
    "write_pairs",
    "write_paragraph",
    "write_percent",
    "write_table",
    "write_value",
]

DASH = "–"
MINUS = "−"


class Html(str):
    """Text that is HTML already; every other text is escaped when it is written.

    >>> write_value(Html("<b>3</b>")), write_value("<b>3</b>")
    ('<b>3</b>', '&lt;b&gt;3&lt;/b&gt;')
    """

    __slots__ = ()


def find_value(report: object, *keys: str) -> Any:
    """What stands under the keys; None where any of them is missing.

    >>> find_value({"run": {"seed": 7}}, "run", "seed"), find_value({}, "run", "seed")
    (7, None)
    """
    for key in keys:
        report = report.get(key) if isinstance(report, Mapping) else None
    return report


def find_mapping(report: object, *keys: str) -> Mapping[str, Any]:
    """The mapping under the keys; empty if there is none.

    >>> find_mapping({"run": {"seed": 7}}, "run"), find_mapping({"run": 3}, "run")
    ({'seed': 7}, {})
    """
    found = find_value(report, *keys)
    return found if isinstance(found, Mapping) else {}


def find_list(report: object, *keys: str) -> list[Any]:
    """The list under the keys; empty if there is none.

    >>> find_list({"hosts": ("a", "b")}, "hosts"), find_list({"hosts": "a"}, "hosts")
    (['a', 'b'], [])
    """
    found = find_value(report, *keys)
    return (
        list(found)
        if isinstance(found, Sequence | np.ndarray) and not isinstance(found, str)
        else []
    )


def find_records(report: object, *keys: str) -> list[Mapping[str, Any]]:
    """The mappings in the list under the keys.

    >>> find_records({"rows": [{"n": 1}, "damaged"]}, "rows")
    [{'n': 1}]
    """
    return [item for item in find_list(report, *keys) if isinstance(item, Mapping)]


def find_number(report: object, *keys: str) -> float | None:
    """The finite number under the keys, or None.

    >>> find_number({"sharpe": 1.5}, "sharpe"), find_number({"sharpe": math.nan}, "sharpe")
    (1.5, None)
    """
    found = find_value(report, *keys)
    real = not isinstance(found, bool) and isinstance(found, Real) and math.isfinite(found)
    return found if real else None


def to_array(values: Iterable[object]) -> FloatArray:
    """Numbers for drawing; what does not exist is NaN, which leaves a gap.

    >>> to_array([1, None, 2.5])
    array([1. , nan, 2.5])
    """
    found = (find_number(value) for value in values)
    return np.array([math.nan if value is None else value for value in found], dtype=np.float64)


def take_finite(values: Iterable[object]) -> FloatArray:
    """The numbers that exist."""
    every = to_array(values)
    return every[np.isfinite(every)]


def write_decimal(value: object, digits: int = 2, unit: str = "") -> Html:
    """A number with so many digits behind the point.

    >>> write_decimal(-1234.567), write_decimal(None)
    ('−1,234.57', '–')
    """
    found = find_number(value)
    # a small loss is 0.00, not -0.00
    rounded = 0.0 if found is None else round(found, digits) + 0.0
    return Html(DASH if found is None else f"{rounded:,.{digits}f}{unit}".replace("-", MINUS))


def write_percent(value: object, digits: int = 1) -> Html:
    """A share as a percentage; its sign stays in the line of its number.

    >>> write_percent(0.125).split()
    ['12.5', '%']
    """
    found = find_number(value)
    return write_decimal(None if found is None else 100 * found, digits, "\u00a0%")


def write_change(value: object) -> Html:
    """A return as a percentage, red where it is a loss."""
    kind = "bad" if (find_number(value) or 0.0) < 0 else ""
    return Html(f'<span class="{kind}">{write_percent(value, 2)}</span>')


def write_value(value: object) -> Html:
    """Any value as HTML: numbers, texts, lists and mappings of them.

    >>> write_value(12345), write_value(None), write_value("a < b"), write_value(["x", "y"])
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
            " · ".join(f"{words_of_key(key)} {write_value(part)}" for key, part in value.items())
            or DASH
        )
    if isinstance(value, Sequence) and not isinstance(value, str):
        lines = any(isinstance(part, Mapping) for part in value)
        return Html(("<br>" if lines else ", ").join(map(write_value, value)) or DASH)
    return Html(escape(str(value)))


def words_of_key(key: object) -> Html:
    """A key of a report as words: underscores become blanks."""
    return Html(DASH if key is None else escape(str(key).replace("_", " ")))


def fill_in(template: str, **values: object) -> Html:
    """A sentence with values in it.

    >>> fill_in("<p>{name} has {count}</p>", name="A & B", count=3)
    '<p>A &amp; B has 3</p>'
    """
    return Html(template.format(**{key: write_value(value) for key, value in values.items()}))


def join(parts: Iterable[Html], between: str = "") -> Html:
    """Pieces of HTML, one after the other.

    >>> join([Html("<i>a</i>"), Html("b")], between=", ")
    '<i>a</i>, b'
    """
    return Html(between.join(parts))


def write_paragraph(content: object, kind: str = "") -> Html:
    """A paragraph; nothing if there is nothing to say.

    >>> write_paragraph("3 < 4", kind="note"), write_paragraph("")
    ('<p class="note">3 &lt; 4</p>', '')
    """
    return (
        fill_in('<p class="{kind}">{content}</p>', kind=kind, content=content)
        if content
        else Html("")
    )


def write_sign(passed: object) -> Html:
    """Passed or not, as a sign that also has a word for who cannot see it."""
    sign, word, kind = ("✓", "passed", "good") if passed is True else ("✗", "failed", "bad")
    if not isinstance(passed, bool):
        sign, word, kind = DASH, "not computed", "none"
    return fill_in(
        '<span class="sign {kind}" role="img" aria-label="{word}">{sign}</span>',
        sign=sign,
        word=word,
        kind=kind,
    )


def write_table(
    headings: Sequence[str],
    rows: Iterable[Sequence[object]],
    words: Collection[int] = (0,),
    kind: str = "",
) -> Html:
    """A table that scrolls in its own box; `words` are the columns that hold text, all others hold
    numbers.

    >>> print(write_table(["host", "pages"], [["a.org", 3]]).removeprefix('<div class="box ">'))
    <table><thead><tr><th>host</th><th class="n">pages</th></tr></thead>...</table></div>
    """

    def cells(tag: str, row: Sequence[object]) -> Html:
        sides = ("" if column in words else ' class="n"' for column in range(len(row)))
        return join(
            Html(f"<{tag}{side}>{write_value(cell)}</{tag}>")
            for side, cell in zip(sides, row, strict=True)
        )

    body = join(Html(f"<tr>{cells('td', row)}</tr>") for row in rows)
    if not body:
        return Html("")
    head = Html(f"<thead><tr>{cells('th', headings)}</tr></thead>" if any(headings) else "")
    template = '<div class="box {kind}"><table>{head}<tbody>{body}</tbody></table></div>'
    return fill_in(template, kind=kind, head=head, body=body)


def write_pairs(title: str, values: Mapping[str, Any], exact: bool = False) -> Html:
    """Settings and their values under a small heading; `exact` keeps their names as they are
    written in files.

    >>> write_pairs("order", {"most_pages": 100})
    '<div class="pairs"><h3>order</h3><dl><dt>most pages</dt><dd>100</dd></dl></div>'
    """
    if not values:
        return Html("")
    line = "<dt>{key}</dt><dd>{value}</dd>"
    lines = (
        fill_in(line, key=key if exact else words_of_key(key), value=value)
        for key, value in values.items()
    )
    return fill_in(
        '<div class="pairs"><h3>{title}</h3><dl>{lines}</dl></div>', title=title, lines=join(lines)
    )


def write_facts(*triples: tuple[str, object, object], kind: str = "") -> Html:
    """A strip of label, value and note; facts whose value does not exist keep their place.

    >>> "<strong>3</strong><small>of 5</small>" in write_facts(("pages", 3, "of 5"))
    True
    """
    template = "<div><dt>{label}</dt><dd><strong>{value}</strong><small>{note}</small></dd></div>"
    every = (
        fill_in(template, label=label, value=value, note=note or "")
        for label, value, note in triples
    )
    return fill_in('<dl class="facts {kind}">{every}</dl>', kind=kind, every=join(every))


def draw_bar(value: object, largest: float) -> Html:
    """A bar in a table's cell, red where the number is below zero."""
    found = find_number(value) or 0.0
    width = 100 * min(1.0, abs(found) / largest) if largest > 0 else 0.0
    kind = "bad" if found < 0 else ""
    return Html(f'<span class="bar {kind}" style="width:{width:.1f}%"></span>')


def draw_bars(
    headings: Sequence[str], rows: Iterable[tuple[object, object, Sequence[Html]]]
) -> Html:
    """Rows of label, number, and what is written of it before its bar; empty if there is no
    number.

    >>> rows = [("a.org", 4, [write_value(4)]), ("b.org", 2, [write_value(2)])]
    >>> drawn = draw_bars(["host", "requests"], rows)
    >>> "width:100.0%" in drawn, "width:50.0%" in drawn
    (True, True)
    """
    every = list(rows)
    sizes = np.abs(take_finite(value for _, value, _ in every))
    if not len(sizes):
        return Html("")
    drawn = [
        (label, *written, draw_bar(value, float(sizes.max()))) for label, value, written in every
    ]
    return write_table((*headings, ""), drawn, words=(0, len(headings)), kind="bars")


def place_chart(title: str, key: Iterable[tuple[str, str, str]], data: str) -> Html:
    """The place of a chart: above it (kind of mark, colour, words), beside it the data that the
    page's script draws.
    """
    swatch = '<span><i class="{kind}" style="color:{colour}"></i>{words}</span>'
    swatches = join(
        fill_in(swatch, kind=kind, colour=colour, words=words) for kind, colour, words in key
    )
    harmless = Html(data.replace("<", "\\u003c"))  # no text in it can end the script element
    return fill_in(
        '<p class="key">{swatches}</p><div class="chart" role="img" aria-label="{title}"></div>'
        '<script type="application/json">{harmless}</script>',
        swatches=swatches,
        title=title,
        harmless=harmless,
    )


def add_note(content: Html, how: str, bad: str) -> Html:
    """A chart or a table with a note in the margin: how to read it, and what would be a bad
    sign.

    >>> figure = add_note(write_paragraph("3"), how="Higher is better.", bad="it falls")
    >>> "<em>Bad sign:</em> it falls" in figure
    True
    """
    template = (
        "<figure><div>{content}</div><figcaption>{how} <span><em>Bad sign:</em> "
        "{bad}</span></figcaption></figure>"
    )
    return fill_in(template, content=content, how=how, bad=bad) if content else content
