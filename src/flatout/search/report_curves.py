"""The equity curves of a study's report: a fan of lines with their median, against the baselines.

Names that come from data are escaped, since plotly reads a little HTML.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import plotly.graph_objects as go

from flatout.pages.charts import RULE, WINNER, Chart, style_figure, thin_values
from flatout.pages.values import take_finite, to_array, words_of_key
from flatout.search.report_part import Curve

BASELINES = {
    "cash": "#96938c",
    "buy_and_hold": "#c08a28",
    "equal_weight": "#3b9c8b",
    "momentum": "#a06cb4",
}
OTHERS = ("#8a6d3b", "#6b8e23", "#b5567d", "#5f7fa8")


class FanNames(NamedTuple):
    """What the lines of a fan are called."""

    each: str
    median: str


def baseline_colour(name: str, position: int) -> str:
    """The colour of a baseline: the known ones always have the same."""
    return BASELINES.get(name, OTHERS[position % len(OTHERS)])


def draw_curve(
    times: Sequence[str | None], equity: Sequence[float | None], name: str, shade: str, width: float
) -> go.Scatter:
    """An equity curve that says its value where one points."""
    n = min(len(times), len(equity))
    line = {"color": shade, "width": width}
    # half the page's weight, and finer than a pixel
    y = to_array(thin_values(equity[:n])).astype(np.float32)
    return go.Scatter(
        x=thin_values(times[:n]), y=y, name=name, mode="lines", line=line, hovertemplate="%{y:.3f}"
    )


def median_curve(paths: Sequence[Curve]) -> list[float]:
    """The median over paths, bar by bar."""
    n = min(len(path) for path in paths)
    return list(np.median([to_array(path[:n]) for path in paths], axis=0))


def choose_log_ticks(low: float, high: float) -> list[float]:
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


def draw_equity_curves(
    times: Sequence[str | None],
    paths: Sequence[Curve],
    baselines: Mapping[str, Curve],
    names: FanNames,
) -> Chart | None:
    """A fan of thin lines with their median, against the baselines, on a log axis; None without
    lines.
    """
    fan = [path for path in paths if len(take_finite(path))]
    if not times or not fan:
        return None
    figure = go.Figure()
    key = [("line thin", WINNER, names.each), ("line", WINNER, names.median)]
    for position, (name, equity) in enumerate(baselines.items()):
        if len(take_finite(equity)):
            shade = baseline_colour(name, position)
            figure.add_trace(draw_curve(times, equity, words_of_key(name), shade, width=1.4))
            key.append(("line", shade, words_of_key(name)))
    faint = {"opacity": 0.7 if len(fan) < 10 else 0.35, "hoverinfo": "skip", "hovertemplate": None}
    thin = [draw_curve(times, path, names.each, WINNER, width=0.9).update(faint) for path in fan]
    figure.add_traces(thin)
    figure.add_trace(draw_curve(times, median_curve(fan), names.median, WINNER, width=2.4))
    figure.add_hline(y=1, line={"color": RULE, "width": 1})
    style_figure(figure, 400, hovermode="x unified")
    reach = np.concatenate([trace.y[trace.y > 0] for trace in figure.data])
    ticks = choose_log_ticks(float(reach.min()), float(reach.max())) if len(reach) else []
    figure.update_yaxes(
        type="log", title_text="equity, start = 1, log scale", tickvals=ticks, tickformat=".3~g"
    )
    figure.update_xaxes(showgrid=False, fixedrange=False)
    return Chart(figure.update_layout(dragmode="zoom", margin_b=26), tuple(key))
