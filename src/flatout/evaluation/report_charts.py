"""The charts of a study's report. Each is a plotly figure and the key to its colours, or None where numbers are missing.

Colours are of middle brightness, so that they can be read on light and on dark paper; text and rules are coloured by
the page. Names that come from data are escaped, since plotly reads a little HTML.
"""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from flatout.bars.panel import FloatArray
from flatout.evaluation.report_values import Html, array, finite, join, listed, look, mapping, number, records, say

POINTS = 1500  # per curve; more would only make the page heavy
BINS = 48
WINNER, LUCK, BAD, RULE = "#3579b8", "#96938c", "#c4553f", "rgba(128,128,128,0.55)"
BASELINES = {"cash": "#96938c", "buy_and_hold": "#c08a28", "equal_weight": "#3b9c8b", "momentum": "#a06cb4"}
OTHERS = ("#8a6d3b", "#6b8e23", "#b5567d", "#5f7fa8")
FONT = '-apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif'


class Chart(NamedTuple):
    """A figure, and what its colours mean: (kind of mark, colour, words)."""

    figure: go.Figure
    key: tuple[tuple[str, str, str], ...]


def thin(values: Sequence[Any], most: int = POINTS) -> list[Any]:
    """At most so many of the values, evenly spread, first and last among them."""
    keep = np.unique(np.linspace(0, len(values) - 1, min(len(values), most)).astype(int))
    return [values[k] for k in keep]


def label(name: object) -> str:
    """A name from data as plotly may show it."""
    return escape(str(name).replace("_", " "))


def colour(name: str, position: int) -> str:
    """Of a baseline: the known ones always have the same."""
    return BASELINES.get(name, OTHERS[position % len(OTHERS)])


def plain(figure: go.Figure, height: int, **layout: Any) -> go.Figure:
    """No frame, no toolbar, thin rules: the data are the picture."""
    axis = {"gridcolor": "rgba(128,128,128,0.16)", "zeroline": False, "fixedrange": True, "title_standoff": 8}
    figure.update_xaxes(axis).update_yaxes({**axis, "automargin": True})
    return figure.update_layout(
        height=height,
        template=None,
        showlegend=False,
        dragmode=False,
        margin={"l": 46, "r": 10, "t": 8, "b": 40},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": FONT, "size": 12, "color": "#77746d"},
        hoverlabel={"bgcolor": "#2b2d31", "bordercolor": "#2b2d31", "font": {"color": "#f4f2ee", "size": 12}},
        **layout,
    )


def curve(times: Sequence[Any], equity: Sequence[Any], name: str, shade: str, width: float) -> go.Scatter:
    """An equity curve that says its value where one points."""
    n = min(len(times), len(equity))
    line = {"color": shade, "width": width}
    y = array(thin(equity[:n])).astype(np.float32)  # half the page's weight, and finer than a pixel
    return go.Scatter(x=thin(times[:n]), y=y, name=name, mode="lines", line=line, hovertemplate="%{y:.3f}")


def middle(paths: Sequence[Sequence[Any]]) -> list[float]:
    """The median over paths, bar by bar."""
    n = min(len(path) for path in paths)
    return list(np.median([array(path[:n]) for path in paths], axis=0))


def equity_curves(curves: object, lines: str, words: tuple[str, str]) -> Chart | None:
    """A fan of thin lines with their median, against the baselines, on a log axis."""
    times = listed(curves, "time")
    fan = [path for path in map(listed, listed(curves, lines)) if len(finite(path))]
    if not times or not fan:
        return None
    figure, key = go.Figure(), [("line thin", WINNER, words[0]), ("line", WINNER, words[1])]
    for position, (name, equity) in enumerate(mapping(curves, "baselines").items()):
        if len(finite(listed(equity))):
            shade = colour(name, position)
            figure.add_trace(curve(times, listed(equity), label(name), shade, 1.4))
            key.append(("line", shade, name.replace("_", " ")))
    for path in fan:
        figure.add_trace(curve(times, path, words[0], WINNER, 0.8).update(opacity=0.6, hoverinfo="skip"))
        figure.data[-1].hovertemplate = None
    figure.add_trace(curve(times, middle(fan), label(words[1]), WINNER, 2.4))
    figure.add_hline(y=1, line={"color": RULE, "width": 1})
    plain(figure, 400, hovermode="x unified")
    figure.update_yaxes(type="log", title="equity, start = 1, log scale", dtick="D1", tickformat=".3~g")
    figure.update_xaxes(showgrid=False, fixedrange=False)
    return Chart(figure.update_layout(dragmode="zoom"), tuple(key))


def histogram(values: FloatArray, edges: FloatArray, shades: str | list[str]) -> go.Bar:
    """Shares of the values between the edges; counted here, so that the page need not hold them all."""
    share = np.histogram(-values, -edges[::-1])[0][::-1] / len(values)  # mirrored: a value on an edge belongs below
    middles, widths = (edges[1:] + edges[:-1]) / 2, np.diff(edges)
    hover = "%{x:.2f}: %{y:.1%}<extra></extra>"
    return go.Bar(x=middles, y=share, width=widths, marker={"color": shades, "line_width": 0}, hovertemplate=hover)


def spread_edges(values: FloatArray) -> FloatArray:
    """Equal bins over all values, one of whose edges is zero: no bar may be good and bad at once."""
    low, high = min(0.0, float(values.min())), max(0.0, float(values.max()))
    step = (high - low) / BINS or 1.0
    return np.asarray(step * np.arange(np.floor(low / step), np.ceil(high / step) + 1), dtype=np.float64)


def sharpe_rows(report: Mapping[str, Any]) -> list[tuple[str, FloatArray, str]]:
    """What is compared by its Sharpe ratio, from top to bottom."""
    paths = finite(look(path, "sharpe") for path in records(report, "winner", "paths"))
    luck = finite([look(report, "deflated", "expected_best")])
    baselines = [
        (label(name), finite([look(figures, "sharpe")]), colour(name, position))
        for position, (name, figures) in enumerate(mapping(report, "baselines").items())
    ]
    rows = [("winner's paths", paths, WINNER), *baselines, ("best by luck", luck, BAD)]
    return [row for row in rows if len(row[1])]


def sharpes(report: Mapping[str, Any]) -> Chart | None:
    """Traders without skill above; the paths, the baselines and the best of luck below, on the same axis."""
    rows, null = sharpe_rows(report), finite(listed(report, "null", "sharpes"))
    if not any(name == "winner's paths" for name, _, _ in rows):
        return None
    figure = make_subplots(rows=2, cols=1, shared_xaxes=True, row_heights=[0.45, 0.55], vertical_spacing=0.04)
    key = [("dot", WINNER, "one path each"), ("tick", WINNER, "their median"), ("dot", BAD, "best by luck")]
    if len(null):
        figure.add_trace(histogram(null, spread_edges(null), LUCK), row=1, col=1)
        key.append(("block", LUCK, "random traders of equal turnover"))
    for name, values, shade in rows:
        dots = {"color": shade, "size": 10, "opacity": 0.75}
        hover = "%{y}: %{x:.2f}<extra></extra>"
        trace = go.Scatter(x=values, y=[name] * len(values), mode="markers", marker=dots, hovertemplate=hover)
        figure.add_trace(trace, row=2, col=1)
    half = float(np.median(rows[0][1]))
    line = {"color": WINNER, "width": 2}
    figure.add_vline(x=half, line=line, row="all", col=1)
    figure.add_vline(x=0, line={"color": RULE, "width": 1}, row="all", col=1)
    plain(figure, 200 + 26 * len(rows), hovermode="closest", bargap=0)
    figure.update_yaxes(title="share", tickformat=".0%", nticks=4, row=1, col=1)
    figure.update_yaxes(categoryarray=[name for name, _, _ in reversed(rows)], row=2, col=1)
    figure.update_xaxes(title="annual Sharpe ratio", row=2, col=1)
    return Chart(figure, tuple(key))


def degradation(overfitting: object) -> Chart | None:
    """Score of the chosen trial where it was chosen, and in the other half."""
    both = array(listed(overfitting, "in_sample")), array(listed(overfitting, "out_of_sample"))
    n = min(map(len, both))
    inside, outside = both[0][:n], both[1][:n]
    there = np.isfinite(inside) & np.isfinite(outside)
    if not there.any():
        return None
    inside, outside = inside[there], outside[there]
    x, y = (np.array(thin(values), dtype=np.float32) for values in (inside, outside))
    dots = {"color": np.where(y < 0, BAD, WINNER), "size": 4.5, "opacity": 0.45}
    hover = "chosen at %{x:.2f}, then %{y:.2f}<extra></extra>"
    figure = go.Figure(go.Scatter(x=x, y=y, mode="markers", marker=dots, hovertemplate=hover))
    key = [("dot", WINNER, "earned in the other half"), ("dot", BAD, "lost there")]
    slope = number(overfitting, "slope")
    if slope is not None:
        ends = np.array([inside.min(), inside.max()])
        heights = outside.mean() + slope * (ends - inside.mean())
        line = {"color": WINNER, "width": 2, "dash": "dash"}
        figure.add_trace(go.Scatter(x=ends, y=heights, mode="lines", line=line, hoverinfo="skip"))
        key.append(("line dash", WINNER, "degradation line"))
    figure.add_hline(y=0, line={"color": RULE, "width": 1})
    plain(figure, 360, hovermode="closest")
    figure.update_xaxes(title="Sharpe ratio where it was chosen")
    figure.update_yaxes(title="in the other half")
    return Chart(figure, tuple(key))


def logits(overfitting: object) -> Chart | None:
    """Where the chosen trials rank among all in the other half; the red part is the PBO."""
    values = finite(listed(overfitting, "logits"))
    if not len(values):
        return None
    edges = spread_edges(values)
    shades = [BAD if right <= 0 else WINNER for right in edges[1:]]  # a logit of exactly 0 counts as overfitted
    figure = go.Figure(histogram(values, edges, shades))
    figure.add_vline(x=0, line={"color": RULE, "width": 1.5})
    plain(figure, 280, bargap=0.04)
    figure.update_xaxes(title="logit of the relative rank; 0 = the median trial")
    figure.update_yaxes(title="share", tickformat=".0%")
    return Chart(figure, (("block", BAD, "in the lower half: overfitted"), ("block", WINNER, "in the upper half")))


def improvements(done: Iterable[tuple[float, float]], last: float) -> tuple[list[float], list[float]]:
    """Where the best value so far changes, up to the last trial."""
    x: list[float] = []
    y: list[float] = []
    for position, value in done:
        if not y or value > y[-1]:
            x.append(position)
            y.append(value)
    return [*x, last], [*y, y[-1]]


def trials(report: Mapping[str, Any]) -> Chart | None:
    """Value of every trial in the order they were asked for, and the best so far."""
    kinds: dict[str, list[tuple[float, float]]] = {"complete": [], "pruned": [], "failed": []}
    every = [trial for trial in records(report, "trials") if number(trial, "number") is not None]
    values = finite(look(trial, "value") for trial in every)
    for trial in sorted(every, key=lambda trial: trial["number"]):
        state, value = str(look(trial, "state")).lower(), number(trial, "value")
        kind = "failed" if state.startswith("fail") else "pruned" if state == "pruned" else "complete"
        if value is None and (kind == "complete" or not len(values)):
            continue  # still running, or nothing to stand below
        kinds[kind].append((trial["number"], float(values.min()) if value is None else value))
    if not kinds["complete"]:
        return None
    x, y = improvements(kinds["complete"], max(trial["number"] for trial in every))
    steps = go.Scatter(x=x, y=y, mode="lines", line={"color": WINNER, "width": 2, "shape": "hv"}, hoverinfo="skip")
    figure, key = go.Figure(steps), [("line", WINNER, "best so far")]
    signs = {"complete": ("circle", WINNER), "pruned": ("x-thin", LUCK), "failed": ("line-ns", BAD)}
    for kind, points in kinds.items():
        if points:
            sign, shade = signs[kind]
            marker = {"symbol": sign, "color": shade, "size": 6, "opacity": 0.7, "line": {"color": shade, "width": 1.4}}
            marker |= {"line_width": 0} if kind == "complete" else {}
            x, y = (list(side) for side in zip(*thin(points), strict=True))
            hover = f"trial %{{x}}, {kind}: %{{y:.3f}}<extra></extra>"
            figure.add_trace(go.Scatter(x=x, y=y, mode="markers", marker=marker, hovertemplate=hover))
            key.append(({"complete": "dot", "pruned": "cross", "failed": "tick"}[kind], shade, kind))
    plain(figure, 320, hovermode="closest")
    figure.update_xaxes(title="trial", showgrid=False)
    figure.update_yaxes(title="value")
    return Chart(figure, tuple(key))


def finalists(report: Mapping[str, Any]) -> Chart | None:
    """Values of the seeds of each finalist, with mean and standard deviation."""
    figure, names = go.Figure(), []
    for finalist in records(report, "finalists"):
        seeds, mean = finite(listed(finalist, "seeds")), number(finalist, "mean")
        if not len(seeds):
            continue
        names.append(f"trial {label(look(finalist, 'trial'))}")
        dots = {"color": WINNER, "size": 9, "opacity": 0.55}
        hover = "%{x:.3f}<extra></extra>"
        y = [names[-1]] * len(seeds)
        figure.add_trace(go.Scatter(x=seeds, y=y, mode="markers", marker=dots, hovertemplate=hover))
        if mean is not None:
            bars = {"array": [number(finalist, "sd") or 0.0], "color": BAD, "thickness": 1.6, "width": 5}
            mark = {"symbol": "diamond", "color": BAD, "size": 8}
            point = go.Scatter(x=[mean], y=names[-1:], mode="markers", marker=mark, error_x=bars, hovertemplate=hover)
            figure.add_trace(point)
    if not names:
        return None
    figure.add_vline(x=0, line={"color": RULE, "width": 1})
    plain(figure, 90 + 38 * len(names), hovermode="closest")
    figure.update_xaxes(title="value of the objective")
    figure.update_yaxes(categoryarray=names[::-1], range=[-0.6, len(names) - 0.4])
    return Chart(figure, (("dot", WINNER, "one seed each"), ("dot", BAD, "mean ± one standard deviation")))


def drawn(chart: Chart | None, title: str, how: str, bad: str) -> Html:
    """A chart, the key to its colours, and its note; empty without a chart."""
    if chart is None:
        return Html("")
    swatch = '<span><i class="{kind}" style="color:{colour}"></i>{words}</span>'
    key = join(say(swatch, kind=kind, colour=colour, words=words) for kind, colour, words in chart.key)
    data = Html(chart.figure.to_json().replace("<", "\\u003c"))  # no text in it can end the script element
    return say(
        '<figure><div><p class="key">{key}</p><div class="chart" role="img" aria-label="{title}"></div>'
        '<script type="application/json">{data}</script></div>'
        "<figcaption>{how} <span><em>Bad sign:</em> {bad}</span></figcaption></figure>",
        key=key,
        title=title,
        data=data,
        how=how,
        bad=bad,
    )
