"""Evidence of all trials: figures in the units that people read, probabilities that more trials
make smaller.
"""

import json
import math
from typing import Any

import numpy as np
import pytest

from flatout.evaluation.deflation import deflated_sharpe, probabilistic_sharpe
from flatout.evaluation.evidence import BLOCKS, deflation_facts, overfitting_facts
from flatout.evaluation.metrics import bar_sharpe
from flatout.evaluation.overfitting import overfitting

YEAR = 8760.0
RNG = np.random.default_rng(0)
NOISE = RNG.normal(0, 0.01, (640, 12))
SKILL = NOISE + np.linspace(0, 5e-3, 12)


def deflated(paths: np.ndarray, columns: np.ndarray = NOISE, trials: int = 12) -> dict[str, Any]:
    return deflation_facts(paths, bar_sharpe(columns.T), columns, trials, YEAR)


def test_overfitting_is_told_in_sharpe_ratios_per_year() -> None:
    facts, plain = overfitting_facts(NOISE, YEAR), overfitting(NOISE, BLOCKS)
    assert facts is not None
    assert facts["pbo"] == plain.pbo
    assert facts["probability_of_loss"] == plain.probability_of_loss
    assert facts["slope"] == plain.slope
    assert facts["logits"] == plain.logits.tolist()
    np.testing.assert_allclose(facts["in_sample"], plain.in_sample * math.sqrt(YEAR))
    np.testing.assert_allclose(facts["out_of_sample"], plain.out_of_sample * math.sqrt(YEAR))
    line = facts["intercept"] + facts["slope"] * np.mean(facts["in_sample"])
    np.testing.assert_allclose(line, np.mean(facts["out_of_sample"]))


def test_skill_is_told_from_luck() -> None:
    lucky, skilled = overfitting_facts(NOISE, YEAR), overfitting_facts(SKILL, YEAR)
    assert lucky is not None
    assert skilled is not None
    assert skilled["pbo"] < 0.1 < 0.25 < lucky["pbo"]


@pytest.mark.parametrize("shape", [(640, 1), (2 * BLOCKS - 1, 5)])
def test_too_little_says_nothing(shape: tuple[int, int]) -> None:
    assert overfitting_facts(np.random.default_rng(1).normal(0, 0.01, shape), YEAR) is None


def test_as_little_as_possible_says_something() -> None:
    assert (
        overfitting_facts(np.random.default_rng(1).normal(0, 0.01, (2 * BLOCKS, 2)), YEAR)
        is not None
    )


def test_probabilities_are_medians_over_the_paths() -> None:
    paths = np.stack([NOISE[:, 0] + shift for shift in (0.0, 5e-4, 2e-3)])
    found = deflated(paths)
    assert found["psr"] == np.median([probabilistic_sharpe(path) for path in paths])
    luck = 1 / math.sqrt(paths.shape[1])
    assert found["dsr"] == np.median([deflated_sharpe(path, 12, luck) for path in paths])
    assert found["sharpe"] == pytest.approx(np.median(bar_sharpe(paths)) * math.sqrt(YEAR))
    assert found["years"] == 640 / YEAR


def test_more_trials_make_luck_likelier() -> None:
    paths = NOISE[:, :1].T + 1.5e-3
    found = [deflated(paths, trials=trials) for trials in (12, 100, 10_000)]
    assert found[0]["dsr"] > found[1]["dsr"] > found[2]["dsr"]
    assert found[0]["dsr"] < found[0]["psr"] == found[2]["psr"]
    assert found[0]["expected_best"] < found[1]["expected_best"] < found[2]["expected_best"]
    assert found[0]["min_backtest_years"] < found[2]["min_backtest_years"]
    assert [one["trials"] for one in found] == [12, 100, 10_000]


def test_one_trial_is_not_deflated() -> None:
    paths = NOISE[:, :1].T + 1.5e-3
    found = deflated(paths, paths.T, trials=1)
    assert found["dsr"] == pytest.approx(found["psr"])
    assert found["effective"] == 1.0
    assert found["expected_best"] == 0.0


def test_trials_that_are_alike_count_as_few() -> None:
    """Those of other studies, of which only the number is known, count in full."""
    alike = np.repeat(NOISE[:, :1], 12, axis=1)
    paths = NOISE[:, :1].T + 1.5e-3
    assert deflated(paths, alike)["effective"] == pytest.approx(1.0, abs=1e-6)
    assert 9 < deflated(paths, NOISE)["effective"] <= 12
    found = deflated(paths, alike, trials=112)
    assert found["effective"] == pytest.approx(101.0, abs=1e-6)
    assert found["dsr"] < found["dsr_effective"]


def test_trials_that_differ_more_than_luck_raise_the_other_figure_only() -> None:
    paths = NOISE[:, :1].T + 1.5e-3
    plain, wild = deflated(paths, NOISE), deflated(paths, SKILL)
    assert wild["dsr"] == plain["dsr"]
    assert wild["dsr_dispersion"] < plain["dsr_dispersion"]


def test_a_winner_that_never_traded_can_be_told() -> None:
    found = deflated(np.zeros((3, 640)))
    assert found["sharpe"] == 0.0
    assert found["psr"] == 0.5
    assert found["dsr"] < 0.5
    assert found["min_track_years"] is None
    assert found["min_backtest_years"] is None
    json.dumps(found, allow_nan=False)


def test_all_of_it_is_json() -> None:
    json.dumps(overfitting_facts(NOISE, YEAR), allow_nan=False)
    json.dumps(overfitting_facts(np.zeros((640, 3)), YEAR), allow_nan=False)
    json.dumps(deflated(NOISE[:, :2].T), allow_nan=False)
