"""The charts of a study's report: plotly figures with a key to their colours, or None where numbers
are missing.

Names that come from data are escaped, since plotly reads a little HTML.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from flatout.bars.panel import FloatArray
from flatout.pages.charts import BAD, LUCK, RULE, WINNER, Chart, style_figure, thin_values
from flatout.pages.values import (
    array,
    finite,
    list_at,
    look,
    mapping,
    number,
    records,
    words_of_key,
    write,
)

BINS = 48
BASELINES = {
    "cash": "#96938c",
    "buy_and_hold": "#c08a28",
    "equal_weight": "#3b9c8b",
    "momentum": "#a06cb4",
}
OTHERS = ("#8a6d3b", "#6b8e23", "#b5567d", "#5f7fa8")
TRIALS = {  # symbol, colour, size, width of its line, mark in the key
    "complete": ("circle", WINNER, 6, 0.0, "dot"),
    "pruned": ("x-thin", LUCK, 5, 1.4, "cross"),
    "failed": ("line-ns", BAD, 6, 1.4, "tick"),
}
RING = ("circle-open", "#c08a28", 13, 2.5, "ring")


def colour(name: str, position: int) -> str:
    """Of a baseline: the known ones always have the same."""
    return BASELINES.get(name, OTHERS[position % len(OTHERS)])


def curve(
    times: Sequence[Any], equity: Sequence[Any], name: str, shade: str, width: float
) -> go.Scatter:
    """An equity curve that says its value where one points."""
    n = min(len(times), len(equity))
    line = {"color": shade, "width": width}
    y = array(thin_values(equity[:n])).astype(
        np.float32
    )  # half the page's weight, and finer than a pixel
    return go.Scatter(
        x=thin_values(times[:n]), y=y, name=name, mode="lines", line=line, hovertemplate="%{y:.3f}"
    )


def points(x: Iterable[Any], y: Iterable[Any], hover: str, **marker: Any) -> go.Scatter:
    """Marks without a line between them."""
    return go.Scatter(
        x=x, y=y, mode="markers", marker=marker, hovertemplate=f"{hover}<extra></extra>"
    )


def middle(paths: Sequence[Sequence[Any]]) -> list[float]:
    """The median over paths, bar by bar."""
    n = min(len(path) for path in paths)
    return list(np.median([array(path[:n]) for path in paths], axis=0))


def log_ticks(low: float, high: float) -> list[float]:
    """Round numbers for a log axis: even steps over a short range, else as many of a decade as
    leave it calm.
    """
    if high / low < 3:
        size = 10 ** np.floor(np.log10(max(high - low, 1e-6)))
        step = next(
            float(part * size) for part in (0.2, 0.5, 1, 2, 5) if high - low <= 7 * part * size
        )
        return [step * k for k in range(int(np.ceil(low / step)), int(high / step) + 1)]
    for marks in ((1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1,)):
        every = (mark * 10.0**power for power in range(-12, 13) for mark in marks)
        ticks = [tick for tick in every if low <= tick <= high]
        if len(ticks) <= 9:
            break
    return ticks


def equity_curves(curves: object, lines: str, words: tuple[str, str]) -> Chart | None:
    """A fan of thin lines with their median, against the baselines, on a log axis."""
    times = list_at(curves, "time")
    fan = [path for path in map(list_at, list_at(curves, lines)) if len(finite(path))]
    if not times or not fan:
        return None
    figure, key = go.Figure(), [("line thin", WINNER, words[0]), ("line", WINNER, words[1])]
    for position, (name, equity) in enumerate(mapping(curves, "baselines").items()):
        if len(finite(list_at(equity))):
            shade = colour(name, position)
            figure.add_trace(curve(times, list_at(equity), words_of_key(name), shade, 1.4))
            key.append(("line", shade, words_of_key(name)))
    faint = {"opacity": 0.7 if len(fan) < 10 else 0.35, "hoverinfo": "skip", "hovertemplate": None}
    figure.add_traces([curve(times, path, words[0], WINNER, 0.9).update(faint) for path in fan])
    figure.add_trace(curve(times, middle(fan), words[1], WINNER, 2.4))
    figure.add_hline(y=1, line={"color": RULE, "width": 1})
    style_figure(figure, 400, hovermode="x unified")
    reach = np.concatenate([trace.y[trace.y > 0] for trace in figure.data])
    ticks = log_ticks(float(reach.min()), float(reach.max())) if len(reach) else []
    figure.update_yaxes(
        type="log", title_text="equity, start = 1, log scale", tickvals=ticks, tickformat=".3~g"
    )
    figure.update_xaxes(showgrid=False, fixedrange=False)
    return Chart(figure.update_layout(dragmode="zoom", margin_b=26), tuple(key))


def histogram(values: FloatArray, edges: FloatArray, shades: str | list[str]) -> go.Bar:
    """Shares of the values between the edges; counted here, so that the page need not hold them
    all.
    """
    share = np.histogram(-values, -edges[::-1])[0][::-1] / len(
        values
    )  # mirrored: a value on an edge belongs below
    middles, widths = (edges[1:] + edges[:-1]) / 2, np.diff(edges)
    hover = "%{x:.2f}: %{y:.1%}<extra></extra>"
    return go.Bar(
        x=middles,
        y=share,
        width=widths,
        marker={"color": shades, "line_width": 0},
        hovertemplate=hover,
    )


def spread_edges(values: FloatArray) -> FloatArray:
    """Equal bins beyond all values, one of whose edges is zero: no bar may be good and bad at
    once.
    """
    low, high = min(0.0, float(np.min(values))), max(0.0, float(np.max(values)))
    step = (high - low) / BINS or 1.0
    return np.asarray(
        step * np.arange(np.floor(low / step) - 1, np.ceil(high / step) + 2), dtype=np.float64
    )


def sharpe_rows(report: Mapping[str, Any]) -> list[tuple[str, FloatArray, str]]:
    """What is compared by its Sharpe ratio, from top to bottom."""
    paths = finite(look(path, "sharpe") for path in records(report, "winner", "paths"))
    luck = finite([look(report, "deflated", "expected_best")])
    baselines = [
        (words_of_key(name), finite([look(figures, "sharpe")]), colour(name, position))
        for position, (name, figures) in enumerate(mapping(report, "baselines").items())
    ]
    rows = [("winner's paths", paths, WINNER), *baselines, ("best by luck", luck, BAD)]
    return [row for row in rows if len(row[1])]


def sharpes(report: Mapping[str, Any]) -> Chart | None:
    """Traders without skill above; the paths, the baselines and the best of luck below, on the same
    axis.
    """
    rows, null = sharpe_rows(report), finite(list_at(report, "null", "sharpes"))
    if not any(name == "winner's paths" for name, _, _ in rows):
        return None
    upper = 0.45 if len(null) else 0.01
    figure = make_subplots(
        rows=2, cols=1, shared_xaxes=True, row_heights=[upper, 1 - upper], vertical_spacing=0.04
    )
    key = [("dot", WINNER, "one path each"), ("tick", WINNER, "their median")]
    if len(null):
        figure.add_trace(histogram(null, spread_edges(null), LUCK), row=1, col=1)
        key.append(("block", LUCK, "random traders of equal turnover"))
    for name, values, shade in rows:
        row = points(
            values, [name] * len(values), "%{y}: %{x:.2f}", color=shade, size=10, opacity=0.85
        )
        figure.add_trace(row, row=2, col=1)
    figure.add_vline(
        x=float(np.median(rows[0][1])), line={"color": WINNER, "width": 2}, row="all", col=1
    )
    figure.add_vline(x=0, line={"color": RULE, "width": 1}, row="all", col=1)
    style_figure(figure, (200 if len(null) else 70) + 26 * len(rows), hovermode="closest", bargap=0)
    figure.update_yaxes(
        title_text="share", tickformat=".0%", nticks=4, visible=len(null) > 0, row=1, col=1
    )
    figure.update_yaxes(
        type="category", categoryarray=[name for name, _, _ in reversed(rows)], row=2, col=1
    )
    figure.update_xaxes(title_text="annual Sharpe ratio", row=2, col=1)
    return Chart(figure, tuple(key))


def degradation(overfitting: object) -> Chart | None:
    """Score of the chosen trial where it was chosen, and in the other half."""
    inside, outside = (
        array(list_at(overfitting, "in_sample")),
        array(list_at(overfitting, "out_of_sample")),
    )
    n = min(len(inside), len(outside))
    inside, outside = inside[:n], outside[:n]
    there = np.isfinite(inside) & np.isfinite(outside)
    if not there.any():
        return None
    inside, outside = inside[there], outside[there]
    x, y = (np.array(thin_values(values), dtype=np.float32) for values in (inside, outside))
    figure, key = (
        go.Figure(),
        [("dot", WINNER, "earned in the other half"), ("dot", BAD, "lost there")],
    )
    for (_, shade, _), part in zip(key, (y >= 0, y < 0), strict=True):
        hover = "chosen at %{x:.2f}, then %{y:.2f}"
        figure.add_trace(points(x[part], y[part], hover, color=shade, size=4.5, opacity=0.45))
    slope = number(overfitting, "slope")
    if slope is not None:
        ends = np.array([np.min(inside), np.max(inside)])
        heights = outside.mean() + slope * (ends - inside.mean())
        line = {"color": WINNER, "width": 2, "dash": "dash"}
        figure.add_trace(go.Scatter(x=ends, y=heights, mode="lines", line=line, hoverinfo="skip"))
        key.append(("line dash", WINNER, "degradation line"))
    figure.add_hline(y=0, line={"color": RULE, "width": 1})
    style_figure(figure, 360, hovermode="closest")
    figure.update_xaxes(title_text="Sharpe ratio where it was chosen")
    figure.update_yaxes(title_text="in the other half")
    return Chart(figure, tuple(key))


def logits(overfitting: object) -> Chart | None:
    """Where the chosen trials rank among all in the other half; the red part is the PBO."""
    values = finite(list_at(overfitting, "logits"))
    if not len(values):
        return None
    edges = spread_edges(values)
    shades = [
        BAD if right <= 0 else WINNER for right in edges[1:]
    ]  # a logit of exactly 0 counts as overfitted
    figure = go.Figure(histogram(values, edges, shades))
    figure.add_vline(x=0, line={"color": RULE, "width": 1.5})
    style_figure(figure, 280, bargap=0.04)
    figure.update_xaxes(title_text="logit of the relative rank; 0 = the median trial")
    figure.update_yaxes(title_text="share", tickformat=".0%")
    return Chart(
        figure,
        (("block", BAD, "in the lower half: overfitted"), ("block", WINNER, "in the upper half")),
    )


def improvements(done: Iterable[tuple[float, float]], last: float) -> list[tuple[float, float]]:
    """Where the best value so far changes, up to the last trial."""
    steps: list[tuple[float, float]] = []
    for position, value in done:
        if not steps or value > steps[-1][1]:
            steps.append((position, value))
    return [*steps, (last, steps[-1][1])]


def trial_points(report: Mapping[str, Any]) -> dict[str, list[tuple[float, float]]]:
    """Number and value of the trials, by what became of them; those that ended without a value
    stand at the foot.
    """
    every = [trial for trial in records(report, "trials") if number(trial, "number") is not None]
    values = finite(look(trial, "value") for trial in every)
    foot = float(np.min(values)) if len(values) else 0.0
    found: dict[str, list[tuple[float, float]]] = {kind: [] for kind in TRIALS}
    for trial in sorted(every, key=lambda trial: trial["number"]):
        state, value = str(look(trial, "state")).lower(), number(trial, "value")
        kind = next((kind for kind in TRIALS if state.startswith(kind[:4])), "complete")
        if value is not None or kind != "complete":  # others are still running
            found[kind].append((trial["number"], foot if value is None else value))
    return found


def trials(report: Mapping[str, Any]) -> Chart | None:
    """Value of every trial in the order they were started, and the best so far."""
    found, chosen = trial_points(report), number(report, "winner", "trial")
    if not found["complete"]:
        return None
    x, y = zip(
        *improvements(found["complete"], max(each[-1][0] for each in found.values() if each)),
        strict=True,
    )
    line = {"color": WINNER, "width": 2, "shape": "hv"}
    figure = go.Figure(go.Scatter(x=x, y=y, mode="lines", line=line, hoverinfo="skip"))
    key = [("line", WINNER, "best so far")]
    found["winner"] = [point for point in found["complete"] if point[0] == chosen]
    for kind, (sign, shade, size, width, mark) in {**TRIALS, "winner": RING}.items():
        if found[kind]:
            x, y = zip(*thin_values(found[kind]), strict=True)
            style = {"symbol": sign, "color": shade, "size": size, "opacity": 0.75}
            edge = {"color": shade, "width": width}
            figure.add_trace(points(x, y, f"trial %{{x}}, {kind}: %{{y:.3f}}", line=edge, **style))
            key.append((mark, shade, kind))
    style_figure(figure, 320, hovermode="closest")
    figure.update_xaxes(title_text="trial", showgrid=False)
    figure.update_yaxes(title_text="value")
    return Chart(figure, tuple(key))


def finalists(report: Mapping[str, Any]) -> Chart | None:
    """Values of the seeds of each finalist, with mean and standard deviation."""
    figure, names = go.Figure(), []
    for finalist in records(report, "finalists"):
        seeds, mean = finite(list_at(finalist, "seeds")), number(finalist, "mean")
        if not len(seeds):
            continue
        names.append(f"trial {write(look(finalist, 'trial'))}")
        y = [names[-1]] * len(seeds)
        if mean is not None:
            bar = {
                "array": [number(finalist, "sd") or 0.0],
                "color": LUCK,
                "thickness": 1.5,
                "width": 0,
            }
            tick = points(
                [mean],
                y[:1],
                "%{x:.3f}",
                symbol="line-ns",
                size=11,
                line={"color": LUCK, "width": 2.5},
            )
            figure.add_trace(tick.update(error_x=bar))
        figure.add_trace(points(seeds, y, "%{x:.3f}", color=WINNER, size=9, opacity=0.8))
    if not names:
        return None
    figure.add_vline(x=0, line={"color": RULE, "width": 1})
    style_figure(figure, 90 + 38 * len(names), hovermode="closest")
    figure.update_xaxes(title_text="value of the objective")
    figure.update_yaxes(type="category", categoryarray=names[::-1], range=[-0.6, len(names) - 0.4])
    return Chart(
        figure, (("dot", WINNER, "one seed each"), ("tick", LUCK, "mean ± one standard deviation"))
    )
