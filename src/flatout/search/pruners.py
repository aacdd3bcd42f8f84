"""Which trials end before their whole training, by how they do at their rungs.

A pruner keeps no notes: it decides by what the storage knows, so a process that goes on after a
kill decides the same.
"""

import math
import warnings
from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import optuna
from numpy.typing import NDArray
from optuna.trial import FrozenTrial, TrialState

from flatout.settings.study import PrunerName

LEAST_COMPLETE = 10  # trials that teach what a rung says about the end, before any is pruned
LEAST_SURE = 0.95  # that a rung says anything at all
NORMAL = NormalDist()
Floats = NDArray[np.float64]


def make_pruner(
    name: PrunerName, rungs: Sequence[int] = (1,), finalists: int = 1
) -> optuna.pruners.BasePruner:
    """The pruner of this name, for trials that are judged after these numbers of updates and of
    which so many become finalists.
    """
    if name == "wilcoxon":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            return optuna.pruners.WilcoxonPruner(p_threshold=0.1)
    if name == "curve":
        return CurvePruner([rung / rungs[-1] for rung in rungs], finalists)
    return Halving() if name == "halving" else optuna.pruners.NopPruner()


class Halving(optuna.pruners.BasePruner):
    """At every rung the better half of the trials that were ever seen there goes on. Unlike
    Optuna's it keeps no notes, so it says the same when a process that goes on after a kill asks
    again.
    """

    def prune(self, study: optuna.Study, trial: FrozenTrial) -> bool:
        """Whether a trial is in the worse half at the rung that it reported last."""
        step = trial.last_step
        if step is None:
            return False
        known = [t.intermediate_values for t in study.get_trials(deepcopy=False)]
        values = sorted(values[step] for values in known if step in values)
        return trial.intermediate_values[step] < values[-max(1, len(values) // 2)]


class CurvePruner(optuna.pruners.BasePruner):
    """Ends a trial when the training that it still needs is better spent on a new one.

    How much a rung says about the end differs from study to study: after a few updates it may say
    nothing. So it is measured. A line through the complete trials' values at the rung and at the
    end, with the scatter about it, gives every trial's chance of reaching the finalists. A trial is
    pruned when its chance per training that is left is below a new trial's chance per whole
    training; where a rung says nothing both chances are alike, and all go on.

    It is told a trial's mean over splits and seeds at step 1 for the first rung, 2 for the second.
    """

    def __init__(self, shares: Sequence[float], finalists: int) -> None:
        self.shares = tuple(shares)  # of the whole training, at each rung
        self.finalists = finalists

    def prune(self, study: optuna.Study, trial: FrozenTrial) -> bool:
        """Whether a new trial is the better use of what this one still needs."""
        step = trial.last_step
        if step is None:
            return False
        trials = study.get_trials(deepcopy=False)
        complete = [
            one
            for one in trials
            if one.state == TrialState.COMPLETE and {1, step} <= one.intermediate_values.keys()
        ]
        if len(complete) < max(LEAST_COMPLETE, self.finalists):
            return False
        curve = fit_curve(complete, step)
        if not curve.says_something:
            return False
        places = sorted(end_of(one) for one in complete)
        bar = places[-self.finalists]
        [chance] = curve.chances(np.array([trial.intermediate_values[step]]), bar)
        begun = [one.intermediate_values[1] for one in trials if 1 in one.intermediate_values]
        new = float(np.mean(fit_curve(complete, 1).chances(np.array(begun), bar)))
        return bool(chance < (1 - self.shares[step - 1]) * new)


class Curve(NamedTuple):
    """What trials' values at one rung say about their values at the end."""

    at_rung: Floats  # (trial,) of those that have ended
    slope: float
    middle: float  # mean value at the end
    scatter: float  # standard deviation about the line

    @property
    def spread(self) -> float:
        """The values' sum of squares about their mean at the rung."""
        return float(np.sum((self.at_rung - self.at_rung.mean()) ** 2))

    @property
    def says_something(self) -> bool:
        """Whether who is better at the rung is better at the end, beyond chance."""
        if self.spread == 0:
            return False
        return self.slope * math.sqrt(self.spread) > NORMAL.inv_cdf(LEAST_SURE) * self.scatter

    def chances(self, values: Floats, bar: float) -> Floats:
        """How likely trials with these values at the rung reach `bar` at the end: (trial,)."""
        away = values - self.at_rung.mean()
        # a line through few trials is known less well the farther one is from their middle
        doubt = 1 + 1 / len(self.at_rung) + away**2 / (self.spread or 1.0)
        expected = self.middle + self.slope * away
        error = np.maximum(self.scatter * np.sqrt(doubt), np.finfo(np.float64).tiny)
        with np.errstate(over="ignore"):  # without scatter the answer is 0 or 1
            sigmas = np.clip((expected - bar) / error, -37, 37)
        return np.array([NORMAL.cdf(sigma) for sigma in sigmas.tolist()])


def fit_curve(complete: Sequence[FrozenTrial], step: int) -> Curve:
    """The line of least squares from complete trials' values at a rung to those at the end."""
    at_rung = np.array([one.intermediate_values[step] for one in complete])
    end = np.array([end_of(one) for one in complete])
    away = at_rung - at_rung.mean()
    spread = float(np.sum(away**2))
    slope = float(np.sum(away * (end - end.mean()))) / spread if spread > 0 else 0.0
    left = end - end.mean() - slope * away
    scatter = math.sqrt(float(np.sum(left**2)) / max(1, len(complete) - 2))
    return Curve(at_rung=at_rung, slope=slope, middle=float(end.mean()), scatter=scatter)


def end_of(trial: FrozenTrial) -> float:
    """A complete trial's value."""
    assert trial.value is not None
    return trial.value
