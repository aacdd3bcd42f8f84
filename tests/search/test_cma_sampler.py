"""CMA-ES is rebuilt from the trials that have ended, and nothing in a storage is unpickled."""

import math
import pickle
from typing import Any

import numpy as np
import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from flatout.errors import RunError
from flatout.search.cma_sampler import (
    GENERATION,
    STARTUP,
    ReplayedCma,
    replay_trials,
    share_of,
    value_at,
)
from flatout.search.storage import make_sampler
from rounding import assert_close

SPACE: dict[str, Any] = {
    "k": IntDistribution(0, 9),
    "n": IntDistribution(1, 64, log=True),
    "x": FloatDistribution(-2.0, 3.0),
    "y": FloatDistribution(1e-5, 1e-1, log=True),
}


@pytest.fixture(autouse=True)
def quiet() -> None:
    optuna.logging.set_verbosity(optuna.logging.WARNING)


def height(params: dict[str, Any]) -> float:
    """A hill with its top at x 1, y 1e-3, n 8, k 4."""
    steps = (
        params["x"] - 1,
        math.log10(params["y"]) + 3,
        math.log(params["n"] / 8),
        (params["k"] - 4) / 3,
    )
    return -sum(step**2 for step in steps)


def searched(trials: int, seed: int = 0, study: optuna.Study | None = None) -> optuna.Study:
    """A study that asks and tells one trial after another, as a study of flatout does."""
    study = study or optuna.create_study(direction="maximize")
    for number in range(len(study.trials), trials):
        study.sampler = sampler = make_sampler("cmaes", seed, number)
        trial = study.ask(SPACE)
        assert isinstance(sampler, ReplayedCma)
        if sampler.generation is not None:
            trial.set_user_attr(GENERATION, sampler.generation)
        study.tell(trial, height(trial.params))
    return study


def test_it_climbs() -> None:
    """The last trials lie far higher than random ones, of which the first ten are a sample."""
    values = [trial.value or 0.0 for trial in searched(120).trials]
    assert np.mean(values[-20:]) > -0.2
    assert np.mean(values[:STARTUP]) < -2


def test_it_is_where_optunas_own_would_be() -> None:
    """Told the same trials, both have the same mean, covariance and step."""
    study = optuna.create_study(direction="maximize")
    for number in range(60):
        study.sampler = optuna.samplers.CmaEsSampler(seed=number, n_startup_trials=STARTUP)
        trial = study.ask(SPACE)
        study.tell(trial, height(trial.params))
    attributes = [trial.system_attrs for trial in study.trials]
    kept = max((n for n, found in enumerate(attributes) if "cma:optimizer:0" in found), default=0)
    parts = [attributes[kept][f"cma:optimizer:{k}"] for k in range(len(attributes[kept]) - 1)]
    theirs = pickle.loads(bytes.fromhex("".join(parts)))  # of this process: no foreign pickle
    ended = study.trials[:kept]
    for trial in ended:
        if "cma:generation" in trial.system_attrs:
            trial.set_user_attr(GENERATION, trial.system_attrs["cma:generation"])
    ours = replay_trials(ended, SPACE, seed=0)
    assert ours.generation == theirs.generation > 3
    # Every generation adds the roundings of a few products of matrices as large as the space.
    roundings = 100 * ours.generation * len(SPACE)
    assert_close(ours._mean, theirs._mean, size=1.0, roundings=roundings)
    assert_close(ours._C, theirs._C, size=float(np.abs(theirs._C).max()), roundings=roundings)
    assert_close(ours._sigma, theirs._sigma, size=1.0, roundings=roundings)


def test_a_study_that_goes_on_draws_the_same() -> None:
    whole = searched(50)
    begun = searched(30)
    copy = optuna.create_study(direction="maximize")
    copy.add_trials(begun.trials)
    resumed = searched(50, study=copy)
    assert [trial.params for trial in resumed.trials] == [trial.params for trial in whole.trials]


def test_trials_that_ended_late_do_not_change_a_generation() -> None:
    """A generation is what ended first, whatever the numbers."""
    study = searched(40)
    ended = study.trials
    late = next(trial for trial in ended if trial.user_attrs.get(GENERATION) == 0)
    more = optuna.trial.create_trial(
        params=late.params, distributions=late.distributions, value=1e9, user_attrs={GENERATION: 0}
    )
    more.number = 0
    assert_close(
        replay_trials([more, *ended], SPACE, 0)._mean,
        replay_trials(ended, SPACE, 0)._mean,
        size=0.0,
        roundings=0,
    )


@pytest.mark.parametrize("planted", [pickle.dumps(print).hex(), "0", 1.5, None, [], {"a": 1}])
def test_an_attribute_that_is_no_generation_is_refused_and_not_unpickled(planted: Any) -> None:
    study = searched(STARTUP)
    study.add_trial(
        optuna.trial.create_trial(
            params=study.trials[0].params, distributions=SPACE, value=0.0,
            user_attrs={GENERATION: planted},
            system_attrs={"cma:optimizer:0": planted, "cma:generation": 0},
        )
    )  # fmt: skip
    study.sampler = make_sampler("cmaes", 0, 99)
    with pytest.raises(RunError, match="its flatout:cma-generation"):
        study.ask(SPACE)


def test_what_is_no_number_or_is_alone_is_drawn_at_random() -> None:
    for space in ({"x": SPACE["x"]}, {"x": SPACE["x"], "c": CategoricalDistribution(["a", "b"])}):
        study = optuna.create_study(direction="maximize")
        for number in range(STARTUP + 3):
            study.sampler = make_sampler("cmaes", 0, number)
            trial = study.ask(space)
            assert trial.params.keys() == space.keys()
            assert not trial.relative_params
            study.tell(trial, 0.0)


@given(st.sampled_from(sorted(SPACE)), st.floats(0, 1))
def test_a_share_of_a_range_is_a_value_in_it_and_back(name: str, share: float) -> None:
    one = SPACE[name]
    value = value_at(one, share)
    assert one.low <= value <= one.high
    assert one._contains(one.to_internal_repr(value))
    again = value_at(one, share_of(one, value))
    assert_close(again, value, size=float(abs(value)) + 5.0, roundings=64)
