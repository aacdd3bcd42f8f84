"""What the charts of all pages share: a plotly figure with a key to its colours, and how it comes
into the page.

Colours are of middle brightness, so that they can be read on light and on dark paper; text and
rules are coloured by the page.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import plotly.graph_objects as go

from flatout.bars.panel import FloatArray
from flatout.pages.values import Html, place_chart

__all__ = ["BAD", "LUCK", "WINNER", "Chart", "draw_chart", "style_figure", "thin_values"]

POINTS = 1500  # per curve; more would only make the page heavy
WINNER, LUCK, BAD, RULE = "#3b82c4", "#96938c", "#c4553f", "rgba(128,128,128,0.55)"
FONT = '-apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif'


class Chart(NamedTuple):
    """A figure, and what its colours mean: (kind of mark, colour, words).

    >>> curve = go.Figure(go.Scatter(y=[1, 2, 4], line_color=WINNER))
    >>> Chart(curve, (("line", WINNER, "this policy"),)).key[0][2]
    'this policy'
    """

    figure: go.Figure
    key: tuple[tuple[str, str, str], ...]


def thin_values(values: Sequence[Any] | FloatArray) -> list[Any]:
    """At most `POINTS` of the values, evenly spread, first and last among them.

    >>> thinned = thin_values(range(100_000))
    >>> thinned[0], thinned[-1], len(thinned)
    (0, 99999, 1500)
    """
    keep = np.unique(np.linspace(0, len(values) - 1, min(len(values), POINTS)).astype(int))
    return [values[k] for k in keep]


def style_figure(figure: go.Figure, height: int, **layout: Any) -> go.Figure:
    """Take frame, toolbar and legend off a figure and leave thin rules: the data are the
    picture.

    >>> style_figure(go.Figure(go.Scatter(y=[1, 2])), height=240).layout.height
    240
    """
    axis = {
        "gridcolor": "rgba(128,128,128,0.16)",
        "zeroline": False,
        "fixedrange": True,
        "title_font_size": 12,
    }
    figure.update_xaxes(axis, title_standoff=8).update_yaxes(
        axis, title_standoff=8, automargin=True
    )
    return figure.update_layout(
        height=height,
        template=None,
        showlegend=False,
        dragmode=False,
        margin={"l": 46, "r": 10, "t": 8, "b": 40},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": FONT, "size": 12, "color": "#77746d"},
        hoverlabel={
            "bgcolor": "#2b2d31",
            "bordercolor": "#2b2d31",
            "font": {"color": "#f4f2ee", "size": 12},
        },
        **layout,
    )


def draw_chart(chart: Chart | None, title: str) -> Html:
    """A chart as HTML; empty without one.

    >>> chart = Chart(go.Figure(go.Scatter(y=[1, 2])), key=(("line", WINNER, "equity"),))
    >>> "equity" in draw_chart(chart, "Growth"), draw_chart(None, "Growth")
    (True, '')
    """
    return place_chart(title, chart.key, chart.figure.to_json()) if chart else Html("")
