"""The equity picture: complete in itself, and true to the histories."""

import re
from functools import cache
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
import pytest

from flatout.bars.panel import Panel
from flatout.bars.synthetic import RandomWalk
from flatout.evaluation.baselines import BASELINES, EqualWeight
from flatout.evaluation.comparison import Comparison, compare
from flatout.evaluation.picture import POINTS, draw_equity, thin_rows, write_picture
from flatout.market.market import build_market
from flatout.settings.tables import Settings
from rounding import assert_close


@cache
def panel() -> Panel:
    return RandomWalk(n_bars=120).panel()


@cache
def comparison() -> Comparison:
    market = build_market(
        panel(), Settings.model_validate({"features": {"indicators": ["return_1"]}})
    )
    others = {name: BASELINES[name] for name in ("cash", "buy_and_hold")}
    return compare(market, EqualWeight(), others, lucky=5)


@cache
def figure() -> go.Figure:
    return draw_equity(comparison(), panel(), "equal_weight", "hand-made bars")


def curves(name: str) -> list[go.Scatter]:
    return [trace for trace in figure().data if trace.name == name]


@pytest.mark.parametrize("n", [1, 2, 3, POINTS - 1, POINTS, POINTS + 1, 12_345])
def test_thinning_keeps_the_ends(n: int) -> None:
    kept = thin_rows(n)
    assert (kept[0], kept[-1]) == (0, n - 1)
    assert len(kept) == min(n, POINTS)
    assert (np.diff(kept) > 0).all()


def test_the_page_needs_nothing_from_elsewhere(tmp_path: Path) -> None:
    write_picture(tmp_path / "equity.html", figure())
    page = (tmp_path / "equity.html").read_text(encoding="utf-8")
    assert not re.search(r"<script[^>]*\ssrc\s*=", page)
    assert not re.search(r"<link[^>]*\shref\s*=", page)
    assert "Plotly.newPlot" in page
    assert len(page) > 1_000_000  # the library is inside
    for name in (
        "equal_weight",
        "cash",
        "buy_and_hold",
        "its decisions at other times",
        "hand-made bars",
    ):
        assert name in page


def test_every_policy_has_its_equity_and_its_drawdown() -> None:
    histories = {"equal_weight": comparison().chosen, **comparison().baselines}
    for name, history in histories.items():
        above, below = curves(name)
        equity = history.equity[:, 0]
        np.testing.assert_array_equal(above.y, equity)
        assert_close(
            below.y, 100 * (equity / np.maximum.accumulate(equity) - 1), roundings=8, size=100.0
        )
        assert above.line.color == below.line.color
        assert len(above.x) == len(equity)


def test_the_first_point_is_the_decision_before_the_first_bar() -> None:
    above, _ = curves("equal_weight")
    first = comparison().chosen.bars[0]
    assert np.datetime64(above.x[0]) == panel().time[first - 1]
    assert np.datetime64(above.x[-1]) == panel().time[-1]


def test_the_band_holds_nine_of_ten_copies() -> None:
    (low,) = curves("its decisions at other times (90 %)")
    high = figure().data[0]
    assert low.fill == "tonexty"
    np.testing.assert_allclose(low.y, np.quantile(comparison().luck.equity, 0.05, axis=1))
    np.testing.assert_allclose(high.y, np.quantile(comparison().luck.equity, 0.95, axis=1))


def test_a_policy_that_is_also_a_baseline_is_drawn_once() -> None:
    twice = draw_equity(comparison(), panel(), "cash", "")
    assert len([trace for trace in twice.data if trace.name == "cash"]) == 2


def test_no_baseline_is_left_out_for_want_of_a_colour() -> None:
    history = comparison().chosen
    many = comparison()._replace(baselines={f"policy_{k}": history for k in range(9)})
    names = {trace.name for trace in draw_equity(many, panel(), "equal_weight", "").data}
    assert {f"policy_{k}" for k in range(9)} <= names
