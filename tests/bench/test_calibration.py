"""`flatout bench verdict` with training: which markets are judged, and what is counted."""

import json
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from flatout.bench.calibration import (
    DIRECTIONS,
    SIGNAL,
    calibrate,
    draw_markets,
    draw_walk,
    plant_signal,
    summarise,
)
from flatout.cli.main import main


def test_every_truth_gets_as_many_walks_and_signals_come_last() -> None:
    drawn = [(kind, seed) for kind, seed, _ in draw_markets(2, 1, DIRECTIONS, 60.0)]
    walks = [(truth, seed) for truth in ("flat", "rising", "falling") for seed in (0, 1)]
    assert drawn == [*walks, (SIGNAL, 0)]


@pytest.mark.parametrize(("truth", "sign"), [("rising", 1), ("falling", -1)])
def test_walks_go_where_they_are_said_to_go(truth: Any, sign: int) -> None:
    """4,000 bars of 6 bps with a deviation of 1 %: 3.8 errors of the mean; all six draws."""
    for seed in range(6):
        close = draw_walk(truth, seed).close
        assert sign * np.log(close[-1] / close[0]).mean() > 0


def test_the_signal_of_a_walk_says_nothing_and_a_planted_one_does() -> None:
    """The correlation of the signal with the next bar's return, of 12,000 pairs: chance is 0.009,
    the planted one 60 bps x 0.82 over 1.1 %.
    """

    def correlate(panel: Any) -> float:
        signal = panel.extras["signal"][:-1].ravel()
        return float(np.corrcoef(signal, np.diff(np.log(panel.close), axis=0).ravel())[0, 1])

    assert abs(correlate(draw_walk("flat", 0))) < 0.04
    assert correlate(plant_signal(0)) > 0.3


def test_refusals_are_counted_by_truth() -> None:
    rows = [
        {"market": "flat", "promotable": False},
        {"market": "flat", "promotable": True},
        {"market": "rising", "promotable": False},
        {"market": SIGNAL, "promotable": True},
    ]
    found = summarise(rows, 32, 60_000)
    assert found["refused"] == {"flat": 1, "rising": 1}
    assert (found["walks"], found["walks_refused"]) == (3, 2)
    assert (found["signals"], found["signals_promoted"]) == (1, 1)


def test_a_truth_that_is_none_is_refused_by_name() -> None:
    result = CliRunner().invoke(main, ["bench", "verdict", "--truth", "sideways"])
    assert result.exit_code == 2
    assert "'sideways' is none of flat, rising, falling" in " ".join(result.output.split())


@pytest.mark.slow
def test_whole_studies_are_judged() -> None:
    """A small one on a walk that rises: it ends with a verdict, and luck is refused."""
    told: list[str] = []
    found = calibrate(
        walks=1, signals=0, trials=4, timesteps=4096, truths=("rising",),
        on_verdict=lambda name, row: told.append(name),
    )  # fmt: skip
    assert told == ["rising 0"]
    assert found["refused"] == {"rising": 1}
    assert "deflated Sharpe" in found["rows"][0]["refused_by"]
    json.dumps(found)
