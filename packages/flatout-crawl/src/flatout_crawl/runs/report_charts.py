"""The charts of a crawl's report: targets or recall against requests, with bands, beside the
baselines.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from flatout.pages.charts import LUCK, WINNER, Chart, style_figure, thin_values
from flatout.pages.values import find_list, find_mapping, to_array, write_value

COLOURS = {
    "best-first": "#c08a28",
    "breadth-first": "#8a6d3b",
    "depth-first": "#b5567d",
    "random": LUCK,
    "shark-search": "#6b8e23",
    "link-classifier": "#3b9c8b",
    "tag-path-bandit": "#a06cb4",
    "kind-bandit": "#c4553f",
    "oracle": "#5aa469",
}
# more would be a tangle
SHOWN = ("oracle", "best-first", "tag-path-bandit", "kind-bandit", "breadth-first", "random")
OTHER = "#77746d"


def shade(colour: str) -> str:
    """A colour as it fills a band: nearly transparent."""
    red, green, blue = (int(colour[k : k + 2], 16) for k in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.16)"


def add_curve(
    figure: go.Figure,
    name: str,
    requests: Sequence[Any],
    curve: Mapping[str, Any],
    colour: str,
    form: str,
) -> None:
    """Draw a mean over requests with its band."""
    x = thin_values(requests)
    mean, low, high = (
        to_array(thin_values(find_list(curve, part))) for part in ("mean", "low", "high")
    )
    if len(low) == len(high) == len(x) and (high > low).any():
        edge: dict[str, Any] = {"mode": "lines", "line": {"width": 0}, "hoverinfo": "skip"}
        figure.add_trace(go.Scatter(x=x, y=high, **edge))
        figure.add_trace(go.Scatter(x=x, y=low, fill="tonexty", fillcolor=shade(colour), **edge))
    width = 2.6 if colour == WINNER else 1.5
    figure.add_trace(
        go.Scatter(
            x=x,
            y=mean,
            name=write_value(name),
            mode="lines",
            line={"color": colour, "width": width},
            hovertemplate=form,
        )
    )


def frame_figure(figure: go.Figure, title: str) -> go.Figure:
    """Give a figure the axes that all curves share."""
    style_figure(figure, 400, hovermode="x unified")
    figure.update_yaxes(title_text=title, rangemode="tozero").update_xaxes(title_text="requests")
    return figure


def recall(report: Mapping[str, Any]) -> Chart | None:
    """Mean recall of an evaluation's choosers."""
    curves = find_mapping(report, "curves")
    requests, choosers = find_list(curves, "requests"), find_mapping(curves, "choosers")
    if not requests or "learned" not in choosers:
        return None
    figure, key = go.Figure(), []
    for name in (*[name for name in SHOWN if name in choosers], "learned"):
        colour = WINNER if name == "learned" else COLOURS.get(name, OTHER)
        add_curve(
            figure,
            name,
            requests=requests,
            curve=find_mapping(choosers, name),
            colour=colour,
            form="%{y:.0%}",
        )
        key.append(("line", colour, name))
    frame_figure(figure, "share of the targets found").update_yaxes(tickformat=".0%")
    return Chart(figure, tuple(key[::-1]))


def found(report: Mapping[str, Any]) -> Chart | None:
    """Targets found in one crawl, beside baselines where there are some."""
    curve = find_list(report, "outcome", "curve")
    if not curve:
        return None
    figure, key = go.Figure(), []
    for name, band in find_mapping(report, "outcome", "beside").items():
        colour = COLOURS.get(name, OTHER)
        add_curve(
            figure,
            name,
            requests=range(1, len(find_list(band, "mean")) + 1),
            curve=band,
            colour=colour,
            form="%{y:.1f}",
        )
        key.append(("line", colour, name))
    add_curve(
        figure,
        "this crawl",
        requests=range(1, len(curve) + 1),
        curve={"mean": curve},
        colour=WINNER,
        form="%{y}",
    )
    key.append(("line", WINNER, "this crawl"))
    return Chart(frame_figure(figure, "targets found"), tuple(key[::-1]))
