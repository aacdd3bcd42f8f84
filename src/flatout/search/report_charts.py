"""The charts of a study's report: plotly figures with a key to their colours, or None where numbers
are missing.

Names that come from data are escaped, since plotly reads a little HTML.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from flatout.bars.panel import FloatArray
from flatout.pages.charts import BAD, LUCK, RULE, WINNER, Chart, style_figure, thin_values
from flatout.pages.values import take_finite, to_array, words_of_key, write_value
from flatout.search.report_curves import baseline_colour
from flatout.search.report_model import (
    AccountFigures,
    FinalistRow,
    OverfittingFacts,
    StudyReport,
    TrialRow,
)

BINS = 48


class TrialMark(NamedTuple):
    """How the trials of one kind are drawn."""

    symbol: str
    colour: str
    size: int
    line_width: float
    in_key: str


class SharpeRow(NamedTuple):
    """Sharpe ratios that stand in one row."""

    name: str
    values: FloatArray
    colour: str


class TrialPoint(NamedTuple):
    """A trial by its number and its value."""

    number: float
    value: float


MARKS = {
    "complete": TrialMark(symbol="circle", colour=WINNER, size=6, line_width=0.0, in_key="dot"),
    "pruned": TrialMark(symbol="x-thin", colour=LUCK, size=5, line_width=1.4, in_key="cross"),
    "failed": TrialMark(symbol="line-ns", colour=BAD, size=6, line_width=1.4, in_key="tick"),
}
WINNER_MARK = TrialMark(
    symbol="circle-open", colour="#c08a28", size=13, line_width=2.5, in_key="ring"
)
PATHS = "winner's paths"


def draw_points(
    x: Iterable[object], y: Iterable[object], hover: str, **marker: object
) -> go.Scatter:
    """Marks without a line between them."""
    return go.Scatter(
        x=x, y=y, mode="markers", marker=marker, hovertemplate=f"{hover}<extra></extra>"
    )


def draw_histogram(values: FloatArray, edges: FloatArray, shades: str | list[str]) -> go.Bar:
    """Shares of the values between the edges; counted here, so that the page need not hold them
    all.
    """
    # mirrored: a value on an edge belongs below
    share = np.histogram(-values, -edges[::-1])[0][::-1] / len(values)
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


def skill_of(account: AccountFigures) -> float | None:
    """The Sharpe ratio of skill returns; reports of earlier versions have that of all returns."""
    return account.sharpe if account.skill_sharpe is None else account.skill_sharpe


def sharpe_rows(report: StudyReport) -> list[SharpeRow]:
    """What is compared by its Sharpe ratio, from top to bottom."""
    paths = report.winner.paths if report.winner else None
    luck = report.deflated.expected_best if report.deflated else None
    baselines = [
        SharpeRow(
            words_of_key(name), take_finite([skill_of(account)]), baseline_colour(name, position)
        )
        for position, (name, account) in enumerate((report.baselines or {}).items())
    ]
    rows = [
        SharpeRow(PATHS, take_finite(map(skill_of, paths or ())), WINNER),
        *baselines,
        SharpeRow("best by luck", take_finite([luck]), BAD),
    ]
    return [row for row in rows if len(row.values)]


def draw_sharpes(report: StudyReport) -> Chart | None:
    """Copies without skill above; the paths, the baselines and the best of luck below, on the same
    axis.
    """
    rows = sharpe_rows(report)
    null = take_finite((report.null and report.null.sharpes) or ())
    if not any(row.name == PATHS for row in rows):
        return None
    upper = 0.45 if len(null) else 0.01
    figure = make_subplots(
        rows=2, cols=1, shared_xaxes=True, row_heights=[upper, 1 - upper], vertical_spacing=0.04
    )
    key = [("dot", WINNER, "one path each"), ("tick", WINNER, "their median")]
    if len(null):
        figure.add_trace(draw_histogram(null, spread_edges(null), LUCK), row=1, col=1)
        copies = "the winner's decisions at other times, before costs"
        key.append(("block", LUCK, copies))
    for row in rows:
        names = [row.name] * len(row.values)
        hover = "%{y}: %{x:.2f}"
        marks = draw_points(row.values, names, hover, color=row.colour, size=10, opacity=0.85)
        figure.add_trace(marks, row=2, col=1)
    figure.add_vline(
        x=float(np.median(rows[0].values)), line={"color": WINNER, "width": 2}, row="all", col=1
    )
    figure.add_vline(x=0, line={"color": RULE, "width": 1}, row="all", col=1)
    style_figure(figure, (200 if len(null) else 70) + 26 * len(rows), hovermode="closest", bargap=0)
    figure.update_yaxes(
        title_text="share", tickformat=".0%", nticks=4, visible=len(null) > 0, row=1, col=1
    )
    figure.update_yaxes(
        type="category", categoryarray=[row.name for row in reversed(rows)], row=2, col=1
    )
    figure.update_xaxes(title_text="annual Sharpe ratio", row=2, col=1)
    return Chart(figure, tuple(key))


def draw_degradation(overfitting: OverfittingFacts) -> Chart | None:
    """Score of the chosen trial where it was chosen, and in the other half."""
    inside, outside = (
        to_array(overfitting.in_sample or ()),
        to_array(overfitting.out_of_sample or ()),
    )
    n = min(len(inside), len(outside))
    inside, outside = inside[:n], outside[:n]
    there = np.isfinite(inside) & np.isfinite(outside)
    if not there.any():
        return None
    inside, outside = inside[there], outside[there]
    x, y = (np.array(thin_values(values), dtype=np.float32) for values in (inside, outside))
    figure = go.Figure()
    key = [("dot", WINNER, "earned in the other half"), ("dot", BAD, "lost there")]
    for shade, part in ((WINNER, y >= 0), (BAD, y < 0)):
        hover = "chosen at %{x:.2f}, then %{y:.2f}"
        figure.add_trace(draw_points(x[part], y[part], hover, color=shade, size=4.5, opacity=0.45))
    if overfitting.slope is not None:
        ends = np.array([np.min(inside), np.max(inside)])
        heights = outside.mean() + overfitting.slope * (ends - inside.mean())
        line = {"color": WINNER, "width": 2, "dash": "dash"}
        figure.add_trace(go.Scatter(x=ends, y=heights, mode="lines", line=line, hoverinfo="skip"))
        key.append(("line dash", WINNER, "degradation line"))
    figure.add_hline(y=0, line={"color": RULE, "width": 1})
    style_figure(figure, 360, hovermode="closest")
    figure.update_xaxes(title_text="Sharpe ratio where it was chosen")
    figure.update_yaxes(title_text="in the other half")
    return Chart(figure, tuple(key))


def draw_logits(overfitting: OverfittingFacts) -> Chart | None:
    """Where the chosen trials rank among all in the other half; the red part is the PBO."""
    values = take_finite(overfitting.logits or ())
    if not len(values):
        return None
    edges = spread_edges(values)
    # a logit of exactly 0 counts as overfitted
    shades = [BAD if right <= 0 else WINNER for right in edges[1:]]
    figure = go.Figure(draw_histogram(values, edges, shades))
    figure.add_vline(x=0, line={"color": RULE, "width": 1.5})
    style_figure(figure, 280, bargap=0.04)
    figure.update_xaxes(title_text="logit of the relative rank; 0 = the median trial")
    figure.update_yaxes(title_text="share", tickformat=".0%")
    return Chart(
        figure,
        (("block", BAD, "in the lower half: overfitted"), ("block", WINNER, "in the upper half")),
    )


def list_improvements(complete: Iterable[TrialPoint], last: float) -> list[TrialPoint]:
    """Where the best value so far changes, up to the last trial."""
    steps: list[TrialPoint] = []
    for point in complete:
        if not steps or point.value > steps[-1].value:
            steps.append(point)
    return [*steps, TrialPoint(last, steps[-1].value)]


def trial_points(trials: Iterable[TrialRow]) -> dict[str, list[TrialPoint]]:
    """Number and value of the trials, by what became of them; those that ended without a value
    stand at the foot.
    """
    every = [(trial.number, trial) for trial in trials if trial.number is not None]
    values = take_finite(trial.value for _, trial in every)
    foot = float(np.min(values)) if len(values) else 0.0
    found: dict[str, list[TrialPoint]] = {kind: [] for kind in MARKS}
    for number, trial in sorted(every, key=lambda pair: pair[0]):
        state = str(trial.state).lower()
        kind = next((kind for kind in MARKS if state.startswith(kind[:4])), "complete")
        if trial.value is not None or kind != "complete":  # others are still running
            found[kind].append(TrialPoint(number, foot if trial.value is None else trial.value))
    return found


def draw_trials(trials: Iterable[TrialRow], winner: int | None) -> Chart | None:
    """Value of every trial in the order they were started, and the best so far."""
    found = trial_points(trials)
    if not found["complete"]:
        return None
    last = max(each[-1].number for each in found.values() if each)
    best = list_improvements(found["complete"], last)
    figure = go.Figure(
        go.Scatter(
            x=[point.number for point in best],
            y=[point.value for point in best],
            mode="lines",
            line={"color": WINNER, "width": 2, "shape": "hv"},
            hoverinfo="skip",
        )
    )
    key = [("line", WINNER, "best so far")]
    found["winner"] = [point for point in found["complete"] if point.number == winner]
    for kind, mark in {**MARKS, "winner": WINNER_MARK}.items():
        if found[kind]:
            shown = thin_values(found[kind])
            marks = draw_points(
                [point.number for point in shown],
                [point.value for point in shown],
                f"trial %{{x}}, {kind}: %{{y:.3f}}",
                line={"color": mark.colour, "width": mark.line_width},
                symbol=mark.symbol,
                color=mark.colour,
                size=mark.size,
                opacity=0.75,
            )
            figure.add_trace(marks)
            key.append((mark.in_key, mark.colour, kind))
    style_figure(figure, 320, hovermode="closest")
    figure.update_xaxes(title_text="trial", showgrid=False)
    figure.update_yaxes(title_text="value")
    return Chart(figure, tuple(key))


def draw_finalists(finalists: Iterable[FinalistRow]) -> Chart | None:
    """Values of the seeds of each finalist, with mean and standard deviation."""
    figure, names = go.Figure(), []
    for finalist in finalists:
        seeds = take_finite(finalist.seeds or ())
        if not len(seeds):
            continue
        names.append(f"trial {write_value(finalist.trial)}")
        y = [names[-1]] * len(seeds)
        if finalist.mean is not None:
            line = {"color": LUCK, "width": 2.5}
            tick = draw_points(
                [finalist.mean], y[:1], "%{x:.3f}", symbol="line-ns", size=11, line=line
            )
            spread = [finalist.sd or 0.0]
            bar = {"array": spread, "color": LUCK, "thickness": 1.5, "width": 0}
            figure.add_trace(tick.update(error_x=bar))
        figure.add_trace(draw_points(seeds, y, "%{x:.3f}", color=WINNER, size=9, opacity=0.8))
    if not names:
        return None
    figure.add_vline(x=0, line={"color": RULE, "width": 1})
    style_figure(figure, 90 + 38 * len(names), hovermode="closest")
    figure.update_xaxes(title_text="value of the objective")
    figure.update_yaxes(type="category", categoryarray=names[::-1], range=[-0.6, len(names) - 0.4])
    return Chart(
        figure, (("dot", WINNER, "one seed each"), ("tick", LUCK, "mean ± one standard deviation"))
    )
