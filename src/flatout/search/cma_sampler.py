"""CMA-ES without a memory of its own: before each question it is rebuilt from the trials that have
ended.

Optuna's sampler of this name keeps its state in the storage as a pickle, and reading one runs
whatever it contains: a study that somebody else made could run anything. Given the same trials in
the same order, CMA-ES is in the same state, so nothing needs to be kept but the generation for
which each trial was drawn.
"""

import math
from collections.abc import Mapping
from datetime import datetime

import cmaes
import numpy as np
import optuna
from numpy.typing import NDArray
from optuna.distributions import (
    BaseDistribution,
    CategoricalChoiceType,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import FrozenTrial, TrialState

from flatout.foreign import validate_shape

GENERATION = "flatout:cma-generation"  # a trial's attribute
STARTUP = 10  # trials that are drawn at random before
FIRST_SIGMA = 1 / 6  # of each range
Space = dict[str, BaseDistribution]
Vector = NDArray[np.float64]


class ReplayedCma(optuna.samplers.BaseSampler):
    """Draws the numbers of a trial together; what is no number, or is one alone, is drawn at
    random.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.alone = optuna.samplers.RandomSampler(seed=seed)
        self.generation: int | None = None  # for which a trial was drawn, if it was

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> Space:
        """Ranges that all trials share; CMA-ES needs two at least."""
        shared = optuna.search_space.IntersectionSearchSpace().calculate(study)
        ranges: Space = {
            name: one
            for name, one in shared.items()
            if isinstance(one, FloatDistribution | IntDistribution) and not one.single()
        }
        return ranges if len(ranges) > 1 else {}

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: Space
    ) -> dict[str, float | int]:
        """A draw from the distribution that the complete trials lead to."""
        complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        if not search_space or len(complete) < STARTUP:
            return {}
        optimiser = replay_trials(complete, search_space, self.seed)
        self.generation = optimiser.generation
        drawn = optimiser.ask()
        return {
            name: value_at(one, share)
            for (name, one), share in zip(search_space.items(), drawn, strict=True)
        }

    def sample_independent(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> CategoricalChoiceType:
        """A value of one parameter, drawn at random."""
        return self.alone.sample_independent(study, trial, param_name, param_distribution)


def replay_trials(complete: list[FrozenTrial], space: Space, seed: int) -> cmaes.CMA:
    """CMA-ES after it was given these trials, generation by generation, in the order in which they
    ended.
    """
    size = len(space)
    middle, bounds = np.full(size, 0.5), np.tile([0.0, 1.0], (size, 1))
    optimiser = cmaes.CMA(middle, FIRST_SIGMA, bounds, n_max_resampling=10 * size, seed=seed)
    drawn: dict[int, list[tuple[Vector, float]]] = {}
    for trial in sorted(
        complete, key=lambda one: (one.datetime_complete or datetime.max, one.number)
    ):
        if (
            GENERATION in trial.user_attrs
            and space.keys() <= trial.params.keys()
            and trial.value is not None
        ):
            generation = validate_shape(
                trial.user_attrs[GENERATION], int, f"trial {trial.number}: its {GENERATION}"
            )
            drawn.setdefault(generation, []).append((place_of(space, trial.params), -trial.value))
    while len(found := drawn.get(optimiser.generation, [])) >= optimiser.population_size:
        optimiser.tell(found[: optimiser.population_size])
    return optimiser


def place_of(space: Space, params: Mapping[str, float]) -> Vector:
    """A trial's numbers as shares of their ranges."""
    return np.array([share_of(one, float(params[name])) for name, one in space.items()])


def ends_of(one: BaseDistribution) -> tuple[float, float]:
    """A range for a share to be taken of; whole numbers own half a unit on both sides."""
    assert isinstance(one, FloatDistribution | IntDistribution)
    half = 0.5 if isinstance(one, IntDistribution) else 0.0
    low, high = one.low - half, one.high + half
    return (math.log(low), math.log(high)) if one.log else (low, high)


def share_of(one: BaseDistribution, value: float) -> float:
    """Where a value lies in its range, from 0 to 1."""
    low, high = ends_of(one)
    scaled = math.log(value) if getattr(one, "log", False) else value
    return min(max((scaled - low) / (high - low), 0.0), 1.0)


def value_at(one: BaseDistribution, share: float) -> float | int:
    """The value at a share of its range."""
    assert isinstance(one, FloatDistribution | IntDistribution)
    low, high = ends_of(one)
    value = low + float(share) * (high - low)
    value = math.exp(value) if one.log else value
    nearest = round(value) if isinstance(one, IntDistribution) else value
    return min(max(nearest, one.low), one.high)
