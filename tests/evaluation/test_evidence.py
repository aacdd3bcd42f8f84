"""Evidence of all trials: figures in the units that people read, probabilities that more trials
make smaller.
"""

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flatout
from flatout.evaluation.decisions import Decisions, count_decisions, measure_activity
from flatout.evaluation.deflation import (
    deflated_sharpe,
    effective_trials,
    probabilistic_sharpe,
)
from flatout.evaluation.evidence import (
    BLOCKS,
    Harder,
    Winner,
    deflation_facts,
    overfitting_facts,
    weigh_lead,
    weigh_winner,
)
from flatout.evaluation.metrics import bar_sharpe
from flatout.evaluation.overfitting import overfitting

YEAR = 8760.0
RNG = np.random.default_rng(0)
NOISE = RNG.normal(0, 0.01, (640, 12))
SKILL = NOISE + np.linspace(0, 5e-3, 12)


def deflated(paths: np.ndarray, columns: np.ndarray = NOISE, trials: int = 12) -> dict[str, Any]:
    return deflation_facts(paths, bar_sharpe(columns.T), columns, trials, YEAR)


def winner(**changes: Any) -> Winner:
    """A winner of which all figures differ."""
    rng = np.random.default_rng(2)
    targets = np.repeat(rng.uniform(0.2, 0.26, (80, 2)), 8, axis=0)
    traded = np.zeros(targets.shape, bool)
    traded[::8] = True
    made = Winner(
        skill=NOISE[:, :3].T + np.array([[1.4e-3], [1e-3], [1.2e-3]]),
        returns=NOISE[:, :3].T + np.array([[2e-4], [-3e-4], [1e-4]]),
        chosen=2,
        decisions=Decisions(targets, traded),
        columns=NOISE + 0.01 * rng.standard_normal((640, 1)),
        trials=30,
        bars_per_year=YEAR,
        baselines={name: rng.normal(0, 0.01, 640) for name in ("cash", "equal_weight")},
        harder=[Harder(1, 0, 5.5), Harder(2, 0, 4.4), Harder(1, 1, 3.3), Harder(1, 2, 2.2)],
        null_p=0.015,
        hold_out_sharpe=1.1,
    )
    return made._replace(**changes)


def test_each_figure_of_the_evidence_is_that_of_its_name() -> None:
    one = winner()
    found, plain = weigh_winner(one).evidence, overfitting(one.columns, BLOCKS)
    effective = effective_trials(one.columns) + 30 - 12
    assert 19 < effective < 29
    luck = 1 / math.sqrt(640)
    assert found.deflated_sharpe == pytest.approx(
        np.median([deflated_sharpe(path, effective, luck) for path in one.skill])
    )
    assert (found.pbo, found.probability_of_loss) == (plain.pbo, plain.probability_of_loss)
    assert found.null_p == 0.015
    assert found.leads == {n: weigh_lead(one.skill[2], o) for n, o in one.baselines.items()}
    assert found.cost_sharpes == {1: 5.5, 2: 4.4}
    assert found.delay_sharpes == {0: 5.5, 1: 3.3, 2: 2.2}
    assert found.trades == count_decisions(one.decisions) > 70
    assert found.worst_path == pytest.approx(np.prod(1 + one.returns, axis=1).min() - 1)
    assert found.hold_out_sharpe == 1.1
    assert found.activity_p == measure_activity(one.decisions).p_value
    assert 0 < found.activity_p < 1


def test_reports_show_what_the_evidence_was_made_of() -> None:
    found = weigh_winner(winner())
    assert found.deflation == deflation_facts(
        winner().skill, bar_sharpe(winner().columns.T), winner().columns, 30, YEAR
    )
    assert found.overfitting == overfitting_facts(winner().columns, YEAR)
    assert found.activity == measure_activity(winner().decisions)


def test_what_hardly_departs_from_its_average_is_not_enlarged() -> None:
    """Equal weights with a large Sharpe ratio of next to nothing do not lead."""
    path, sure = NOISE[:, 0] + 2e-3, 1e-6 + 1e-7 * NOISE[:, 1]
    assert bar_sharpe(sure) > bar_sharpe(path)
    assert weigh_lead(path, sure) < 1e-3
    assert weigh_lead(path, 1000 * sure) > weigh_lead(path, sure)
    assert weigh_lead(path, path) == 1.0
    assert weigh_lead(np.zeros(640), np.zeros(640)) == 1.0


def test_what_does_not_exist_is_no_evidence() -> None:
    found = weigh_winner(winner(columns=NOISE[:, :1], hold_out_sharpe=None))
    assert found.overfitting is None
    assert (found.evidence.pbo, found.evidence.probability_of_loss) == (None, None)
    assert found.evidence.hold_out_sharpe is None


def test_evidence_is_made_in_one_place() -> None:
    """Else the error rates of known studies would say nothing of real ones."""
    source = Path(flatout.__file__).parent
    makers = {
        str(path.relative_to(source))
        for path in source.rglob("*.py")
        if re.search(r"\bEvidence\(", path.read_text(encoding="utf-8"))
    }
    assert makers == {"evaluation/evidence.py"}


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
