"""The last choices of a study: who becomes a finalist, under which conditions they are judged, and
who wins.
"""

import os
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from fake_workers import Lane, earned, made_study, play
from small_studies import SPACE

from flatout.errors import RunError
from flatout.search.dead_knobs import values_at_both_ends
from flatout.search.finalist_results import Condition, conditions_of
from flatout.search.finalists import choose_finalists, rank_finalists, trial_values
from flatout.search.forecast import make_study_plan
from flatout.search.market_study import FINAL, TERMS
from flatout.search.run import open_study_folder
from flatout.search.spare_agents import SpareAgent, order_agents, train_agents
from flatout.search.spare_lanes import SpareLanes
from flatout.search.study import Study
from flatout.workers.slots import cpu_slots
from rounding import assert_close


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda file: None)
    optuna.logging.set_verbosity(optuna.logging.WARNING)


@pytest.fixture
def study(tmp_path: Path) -> Study:
    """Eight trials, all complete."""
    return play(
        tmp_path / "study", made_study(search={"trials": 8, "pruner": "none", "finalists": 3})
    ).study


def test_finalists_are_the_best_complete_trials(study: Study) -> None:
    values = {t.number: t.value for t in study.optuna_study.get_trials()}
    best = sorted(values, key=lambda number: -values[number])
    assert choose_finalists(study) == best[:3]


def test_of_equals_the_earlier_ones_come_first(tmp_path: Path) -> None:
    def alike(lane: Lane, blocks: int, bars: int) -> np.ndarray:
        return earned(lane._replace(learning_rate=1e-3), blocks, bars)

    made = made_study(search={"trials": 5, "pruner": "none", "finalists": 3})
    assert choose_finalists(play(tmp_path / "study", made, alike).study) == [0, 1, 2]


def test_pruned_and_failed_trials_are_no_finalists(tmp_path: Path) -> None:
    """Not even where a pruned one was better when it was seen last."""
    played = play(tmp_path / "study", made_study(search={"trials": 14, "finalists": 14}))
    complete = [row["number"] for row in played.table if row["state"] == "COMPLETE"]
    assert 0 < len(complete) < 14
    assert sorted(choose_finalists(played.study)) == complete


def test_without_a_complete_trial_there_is_a_sentence(tmp_path: Path) -> None:
    def broken(lane: Lane, blocks: int, bars: int) -> np.ndarray:
        return earned(lane, blocks, bars) * np.nan

    played = play(tmp_path / "study", made_study(search={"trials": 3}), broken)
    assert {row["state"] for row in played.table} == {"FAIL"}
    with pytest.raises(
        RunError, match="no trial was completed: all were pruned or failed; give more trials"
    ):
        choose_finalists(played.study)


def test_what_a_trial_tried_comes_back(study: Study) -> None:
    for trial in study.optuna_study.get_trials():
        assert trial_values(study, trial.number) == trial.params


@pytest.mark.parametrize(
    ("gates", "costs", "delays"),
    [
        ({}, [0.0, 2.0, 3.0], [1, 2]),
        ({"cost_factor": 1.5, "delay_bars": 5}, [0.0, 1.5, 2.0, 3.0], [1, 2, 5]),
        ({"cost_factor": "off", "delay_bars": "off"}, [0.0, 2.0, 3.0], [1, 2]),
        ({"cost_factor": 1.0, "delay_bars": 0}, [0.0, 2.0, 3.0], [1, 2]),
    ],
)
def test_what_the_gates_ask_for_is_among_the_conditions(
    tmp_path: Path, gates: dict[str, Any], costs: list[float], delays: list[int]
) -> None:
    (tmp_path / "study").mkdir()
    with open_study_folder(made_study(gates=gates), tmp_path / "study", None) as study:
        found = conditions_of(study)
    plain = Condition(1.0, 0)
    assert found == (plain, *(Condition(c, 0) for c in costs), *(Condition(1.0, d) for d in delays))


def terms_of(study: Study, skills: list[float]) -> np.ndarray:
    """(finalist, condition, split, seed, term or weight, block, bar) of finalists that hold
    nothing.
    """
    rng = np.random.default_rng(0)
    shape = (len(skills), 2, 2, 2, TERMS, study.market.test_blocks, study.market.test_bars)
    terms = rng.normal(0, 1e-2, shape) + np.reshape(skills, (-1, 1, 1, 1, 1, 1, 1))
    nothing = np.zeros((*shape[:4], study.market.panel.n_assets, *shape[5:]))
    return np.concatenate([terms, nothing], axis=4).astype(np.float32)


def test_the_best_finalist_wins(study: Study) -> None:
    assert rank_finalists(study, terms_of(study, [1e-3, 5e-3, 3e-3])) == [1, 2, 0]
    equal = terms_of(study, [1e-3])
    assert rank_finalists(study, np.concatenate([equal, equal])) == [0, 1]


@pytest.mark.parametrize("condition", [0, 1])
def test_a_finalist_that_diverges_is_none_any_more(study: Study, condition: int) -> None:
    """Under plain conditions or harder ones; whoever else there is wins."""
    terms = terms_of(study, [1e-3, 5e-3, 3e-3])
    terms[1, condition, 0, 1, 0, 0, 5] = np.nan
    assert rank_finalists(study, terms) == [2, 0]
    with pytest.raises(RunError, match="all finalists diverged"):
        rank_finalists(study, terms[1:2])


def test_agents_are_trained_once_and_judged_under_each_condition(study: Study) -> None:
    values = trial_values(study, 0)
    agents = [SpareAgent(FINAL, values, 0)]
    lanes = SpareLanes(study, [], 2)
    first = order_agents(lanes, agents, Condition(1.0, 0), begin=True, networks=True)
    later = order_agents(lanes, agents, Condition(2.0, 1), begin=False, networks=False)
    assert (first.job, first.networks, first.delay) == (2, True, 0)
    assert first.until == later.until == (study.market.updates, 0)  # one agent for two lanes
    assert first.new_lanes is not None
    assert later.new_lanes is not None
    assert first.new_lanes.lanes == (0,)
    assert later.new_lanes.lanes == ()
    assert later.delay == 1
    fees = [order.new_lanes.judged.costs.taker_fee[0] for order in (first, later)]  # type: ignore[union-attr]
    assert_close(fees[1], 2 * fees[0], roundings=4, size=fees[0])


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_groups_of_agents_fill_the_lanes_evenly(
    study: Study, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripts: list[list[Any]] = []

    def carried(workers: Any, given: list[list[Any]]) -> list[list[Any]]:
        scripts.extend(given)
        return given

    monkeypatch.setattr("flatout.search.spare_lanes.run_scripts", carried)
    agents = [SpareAgent(FINAL, trial_values(study, k), 0) for k in range(count)]
    found = train_agents(SpareLanes(study, [], 2), agents, conditions_of(study))
    assert len(found) == count
    assert all(len(script) == len(conditions_of(study)) for script in scripts)
    sizes = [sum(until > 0 for until in script[0].until) for script in scripts]
    assert sum(sizes) == count
    assert len(sizes) == -(-count // study.layout.lanes)
    assert max(sizes) - min(sizes) <= 1


def test_a_knob_is_tried_at_both_ends_with_the_others_fixed(study: Study) -> None:
    low, high = values_at_both_ends(study, "train.gamma")
    assert (low["train.gamma"], high["train.gamma"]) == (0.88, 0.99)
    assert {**low, "train.gamma": 0} == {**high, "train.gamma": 0}
    # large steps make limits bite
    assert low["train.learning_rate"] == SPACE["train.learning_rate"]["high"]
    assert low["market.limits.reserve"] == pytest.approx(0.175)


def test_a_forecast_counts_every_lane(tmp_path: Path) -> None:
    made = made_study(search={"trials": 10, "seeds": 2})
    plan = make_study_plan(made, cpu_slots(4, 2), measure=False)
    assert plan.trial_steps == 4 * 64 * 2 * 2  # updates, rollout, splits, seeds
    assert plan.seconds is None
    facts = plan.facts()
    assert (facts["trials"], facts["splits"], facts["seeds"], facts["paths"]) == (10, 2, 2, 1)
    assert facts["lanes_per_worker"] == made.layout.lanes
    assert facts["memory_bytes"] > 0
    assert "10 trials x 2 splits x 2 seeds" in plan.lines()[0]
