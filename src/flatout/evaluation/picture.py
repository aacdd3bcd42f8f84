"""The equity picture: one self-contained HTML page that opens offline."""

from itertools import cycle
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from flatout.bars.panel import Panel
from flatout.evaluation.backtest import History
from flatout.evaluation.comparison import Comparison
from flatout.runs import write_bytes

POINTS = 2000  # more would only make the page heavy
COLOURS = ("#7f7f7f", "#1f77b4", "#2ca02c", "#9467bd", "#8c564b", "#17becf")


def thin_rows(n: int) -> np.ndarray:
    """At most `POINTS` row numbers, first and last among them."""
    return np.unique(np.linspace(0, n - 1, min(n, POINTS)).astype(int))


def add_curve(
    figure: go.Figure, history: History, panel: Panel, name: str, colour: str, width: float
) -> None:
    """Equity above, drawdown below."""
    equity = history.equity[:, 0]
    drawdown = equity / np.maximum.accumulate(equity) - 1
    keep = thin_rows(len(equity))
    times = panel.time[np.concatenate([history.bars[:1] - 1, history.bars])][keep]
    line = {"color": colour, "width": width}
    figure.add_trace(
        go.Scatter(x=times, y=equity[keep], name=name, legendgroup=name, line=line), row=1, col=1
    )
    below = go.Scatter(
        x=times, y=100 * drawdown[keep], name=name, legendgroup=name, line=line, showlegend=False
    )
    figure.add_trace(below, row=2, col=1)


def add_luck(figure: go.Figure, luck: History, panel: Panel) -> None:
    """The band in which nine of ten copies ended up that decide at other times."""
    keep = thin_rows(len(luck.equity))
    times = panel.time[np.concatenate([luck.bars[:1] - 1, luck.bars])][keep]
    low, high = np.quantile(luck.equity[keep], [0.05, 0.95], axis=1)
    edge = {"width": 0}
    figure.add_trace(
        go.Scatter(x=times, y=high, line=edge, showlegend=False, hoverinfo="skip"), row=1, col=1
    )
    band = go.Scatter(
        x=times,
        y=low,
        line=edge,
        fill="tonexty",
        fillcolor="rgba(255,127,14,0.18)",
        name="its decisions at other times (90 %)",
    )
    figure.add_trace(band, row=1, col=1)


def draw_equity(comparison: Comparison, panel: Panel, name: str, subtitle: str) -> go.Figure:
    """Equity and drawdown of the policy, the baselines and luck."""
    figure = make_subplots(
        rows=2, cols=1, shared_xaxes=True, row_heights=[0.7, 0.3], vertical_spacing=0.05
    )
    add_luck(figure, comparison.luck, panel)
    for (other, history), colour in zip(comparison.baselines.items(), cycle(COLOURS), strict=False):
        if other != name:
            add_curve(figure, history, panel=panel, name=other, colour=colour, width=1.2)
    add_curve(figure, comparison.chosen, panel=panel, name=name, colour="#d62728", width=2.4)
    figure.update_yaxes(title="equity (start = 1, log scale)", type="log", row=1, col=1)
    figure.update_yaxes(title="drawdown %", row=2, col=1)
    title = {"text": f"{name}<br><sup>{subtitle}</sup>"}
    figure.update_layout(title=title, template="plotly_white", hovermode="x unified", height=720)
    return figure


def write_picture(path: Path, figure: go.Figure) -> None:
    """Write the page with everything it needs inside, atomically."""
    write_bytes(path, figure.to_html(include_plotlyjs=True, full_html=True).encode())
