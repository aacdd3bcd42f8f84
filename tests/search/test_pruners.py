"""Pruners: halving beside Optuna's, and the one that measures what a rung says about the end."""

import itertools
from typing import Any

import numpy as np
import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optuna.trial import TrialState

from flatout.search.pruners import CurvePruner, Halving, fit_curve, make_pruner

RUNGS, FINALISTS = (4, 9, 13), 3


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("none", optuna.pruners.NopPruner),
        ("wilcoxon", optuna.pruners.WilcoxonPruner),
        ("halving", Halving),
        ("curve", CurvePruner),
    ],
)
def test_pruners_have_names(name: Any, kind: type) -> None:
    assert isinstance(make_pruner(name), kind)


def test_halving_is_optunas_where_optuna_is_asked_once() -> None:
    """Of many trials that are reported one after another the same ones go on, rung by rung."""
    values = iter([0.3, 0.9, 0.1, 0.5, 0.7, 0.2, 0.8, 0.4, 0.6, 0.95, 0.35, 0.85])
    theirs = optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=2)
    studies = [optuna.create_study(direction="maximize", pruner=p) for p in (Halving(), theirs)]
    pruned = []
    for value in values:
        trials = [study.ask() for study in studies]
        for step in (1, 2):
            for trial in trials:
                trial.report(value * step, step)
            ours, expected = (trial.should_prune() for trial in trials)
            assert ours == expected
            if ours:
                pruned.append(value)
                break
        for study, trial in zip(studies, trials, strict=True):
            study.tell(
                trial,
                state=TrialState.PRUNED if ours else TrialState.COMPLETE,
                values=None if ours else value,
            )
    assert 3 < len(pruned) < 10


def test_halving_says_the_same_when_it_is_asked_again() -> None:
    study = optuna.create_study(direction="maximize", pruner=Halving())
    for value in (0.1, 0.9, 0.5):
        trial = study.ask()
        assert not trial.should_prune()  # nothing is known of it
        trial.report(value, 1)
        assert len({trial.should_prune() for _ in range(3)}) == 1


def run_trials(name: Any, rho: float, budget: float, seed: int) -> tuple[list[float], int]:
    """What complete trials came to, and how many were begun, in a study that may spend `budget`
    whole trainings. Values at the end are standard normal; those at the first rung correlate with
    them by `rho`, those at the second by its root.
    """
    draw = np.random.default_rng(seed).standard_normal
    study = optuna.create_study(
        direction="maximize",
        pruner=make_pruner(name, RUNGS, FINALISTS),
        sampler=optuna.samplers.RandomSampler(seed=0),
    )
    spent, ends = 0.0, []
    for begun in itertools.count(1):
        end, trial = float(draw()), study.ask()
        for step, (rung, share) in enumerate(zip(RUNGS[:-1], (rho, rho**0.5), strict=True), 1):
            trial.report(share * end + (1 - share**2) ** 0.5 * float(draw()), step)
            if trial.should_prune():
                study.tell(trial, state=TrialState.PRUNED)
                spent += rung / RUNGS[-1]
                break
        else:
            trial.report(end, len(RUNGS))
            study.tell(trial, end)
            spent += 1
            ends.append(end)
        if spent >= budget:
            return ends, begun
    raise AssertionError


def mean_of_finalists(name: str, rho: float) -> tuple[float, float]:
    """The mean value of the finalists of 20 studies with the same budget, and its error."""
    best = [
        np.mean(sorted(run_trials(name, rho, 60.0, seed)[0])[-FINALISTS:]) for seed in range(20)
    ]
    return float(np.mean(best)), float(np.std(best) / len(best) ** 0.5)


def test_where_rungs_say_nothing_hardly_a_trial_is_pruned() -> None:
    """A rung has to be sure of itself at 5 %, so it may be wrong now and then."""
    shares = [
        len(ends) / begun for ends, begun in (run_trials("curve", 0, 40, k) for k in range(20))
    ]
    assert np.median(shares) == 1.0 and np.mean(shares) > 0.85


def test_where_rungs_say_all_only_finalists_go_on() -> None:
    ends, begun = run_trials("curve", 1.0, 40.0, 0)
    assert begun > 2 * len(ends)


@pytest.mark.parametrize("rho", [0.0, 0.3, 0.9])
def test_finalists_are_never_worse_than_without_pruning(rho: float) -> None:
    """By more than the error of the comparison; halving is, where rungs say nothing."""
    plain, plain_error = mean_of_finalists("none", rho)
    found, error = mean_of_finalists("curve", rho)
    assert found > plain - 2 * float(np.hypot(error, plain_error))
    if rho == 0.0:
        halved, error = mean_of_finalists("halving", rho)
        assert halved < plain - 2 * float(np.hypot(error, plain_error))
    if rho == 0.9:
        assert found > plain + error


def frozen(at_rung: float, end: float) -> optuna.trial.FrozenTrial:
    return optuna.trial.create_trial(value=end, intermediate_values={1: at_rung})


def test_the_line_and_its_errors_are_those_of_textbooks() -> None:
    """Slope, scatter and the error of a prediction, from NumPy's covariance matrix of a fit."""
    rng = np.random.default_rng(3)
    x, noise = rng.normal(size=(2, 30))
    y = 0.5 * x + 0.2 + 0.3 * noise
    curve = fit_curve([frozen(*pair) for pair in zip(x.tolist(), y.tolist(), strict=True)], 1)
    (slope, cut), covariance = np.polyfit(x, y, 1, cov=True)
    assert curve.slope == pytest.approx(slope, rel=1e-9)
    assert curve.says_something == (slope > 1.6448536 * covariance[0, 0] ** 0.5)
    at = np.array([-1.0, 0.3, 2.5])
    design = np.stack([at, np.ones(3)])
    error = (curve.scatter**2 + np.einsum("if,ij,jf->f", design, covariance, design)) ** 0.5
    expected = [
        1 - normal_share(0.4, float(mean), float(deviation))
        for mean, deviation in zip(slope * at + cut, error, strict=True)
    ]
    assert curve.chances(at, 0.4) == pytest.approx(expected, rel=1e-6)


def normal_share(value: float, mean: float, deviation: float) -> float:
    """The normal distribution function, of SciPy."""
    stats = pytest.importorskip("scipy.stats")
    return float(stats.norm.cdf(value, mean, deviation))


value = st.floats(-1e6, 1e6)


@settings(max_examples=200)
@given(st.lists(st.tuples(value, value), min_size=10, max_size=30), value)
def test_any_finite_values_get_an_answer(pairs: list[tuple[float, float]], last: float) -> None:
    """Ties and values far apart, too; and the same answer when it is asked again."""
    study = optuna.create_study(direction="maximize", pruner=CurvePruner((0.3, 1.0), 3))
    study.add_trials([frozen(*pair) for pair in pairs])
    trial = study.ask()
    assert not trial.should_prune()
    trial.report(last, 1)
    assert len({trial.should_prune() for _ in range(2)}) == 1


def test_few_complete_trials_teach_nothing() -> None:
    study = optuna.create_study(direction="maximize", pruner=CurvePruner((0.3, 1.0), 3))
    for k in range(9):
        study.add_trial(frozen(float(k), float(k)))
    trial = study.ask()
    trial.report(-100.0, 1)
    assert not trial.should_prune()
    study.add_trial(frozen(9.0, 9.0))
    assert trial.should_prune()
