"""A study's trials in Optuna: asked for, reported to the pruner, and ended there.

Everything may be done twice: a process that goes on after a kill recognises what Optuna knows
already, and finds what was asked by its number, as every draw depends on that number alone.
"""

import warnings
from collections.abc import Iterable

import numpy as np
import optuna
from numpy.typing import NDArray

from flatout.search.cma_sampler import GENERATION, ReplayedCma
from flatout.search.space import make_distributions
from flatout.search.storage import make_sampler
from flatout.search.study_state import RunningTrial, TrialDecision
from flatout.settings.study import PRUNES_BY_MEAN, SearchSettings, SettingValue

SCORES = "flatout:scores"  # a trial's attribute: its objective by split and seed


class StudyTrials:
    """The trials of one study, those that run and those that have ended."""

    def __init__(
        self,
        optuna_study: optuna.Study,
        storage: optuna.storages.BaseStorage,
        settings: SearchSettings,
    ) -> None:
        self.study, self.storage, self.settings = optuna_study, storage, settings
        self.running: dict[int, optuna.trial.Trial] = {}  # by number

    def ask(self, number: int) -> dict[str, SettingValue]:
        """The parameters of a trial: a new one, or one that a killed process had asked for."""
        name, seed = self.settings.sampler, self.settings.seed
        self.study.sampler = sampler = make_sampler(name, seed, number)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            existing = self.study.get_trials(deepcopy=False)
            trial = self.study.ask() if number >= len(existing) else self.revive(number)
            wanted = make_distributions(self.settings.space)
            for knob, (parameter, distribution) in enumerate(wanted.items(), start=1):
                # drawn alone: those before it may have been drawn earlier
                if parameter not in trial.relative_params:
                    self.study.sampler = make_sampler(name, seed, number, knob)
                suggest_parameter(trial, parameter, distribution)
        if isinstance(sampler, ReplayedCma) and sampler.generation is not None:
            trial.set_user_attr(GENERATION, sampler.generation)
        self.running[number] = trial
        return dict(self.find_stored(number).params)

    def revive(self, number: int) -> optuna.trial.Trial:
        """A trial that a killed process left, with what it was given so far."""
        study_id = self.storage.get_study_id_from_name(self.study.study_name)
        return optuna.trial.Trial(
            self.study, self.storage.get_trial_id_from_study_id_trial_number(study_id, number)
        )

    def find_running(self, number: int) -> optuna.trial.Trial:
        """A trial that has not ended, for reports and for its end."""
        if number not in self.running:
            self.study.sampler = make_sampler("random", self.settings.seed, number)
            self.running[number] = self.revive(number)
        return self.running[number]

    def find_stored(self, number: int) -> optuna.trial.FrozenTrial:
        """What the storage knows of a trial."""
        return self.study.get_trials(deepcopy=False)[number]

    def report(self, running: RunningTrial, scores: NDArray[np.float64]) -> None:
        """Let the pruner know how a trial does at its rung, unless it knows: by split, or on
        average. The scores are by split and seed.
        """
        by_split = scores.mean(axis=1)
        if self.settings.pruner in PRUNES_BY_MEAN:
            steps = {running.rung + 1: float(by_split.mean())}
        else:
            first = running.rung * len(by_split)
            steps = {first + split: float(value) for split, value in enumerate(by_split)}
        trial = self.find_running(running.trial)
        known = self.find_stored(running.trial).intermediate_values
        for step, value in steps.items():
            if step not in known:
                trial.report(value, step)

    def should_prune(self, number: int) -> bool:
        """Whether the pruner would end a trial now."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return bool(self.find_running(number).should_prune())

    def tell(self, decisions: Iterable[TrialDecision]) -> None:
        """Write the trials that have ended into the storage, unless they are there."""
        states = {
            "pruned": optuna.trial.TrialState.PRUNED,
            "failed": optuna.trial.TrialState.FAIL,
        }
        for one in decisions:
            if one.state == "going" or self.find_stored(one.trial).state.is_finished():
                continue
            trial = self.find_running(one.trial)
            trial.set_user_attr(SCORES, one.scores)
            if one.state == "complete":
                self.study.tell(trial, one.value)
            else:
                self.study.tell(trial, state=states[one.state])
            self.running.pop(one.trial, None)


def suggest_parameter(
    trial: optuna.trial.Trial, name: str, wanted: optuna.distributions.BaseDistribution
) -> None:
    """Draw a parameter of a trial, unless the trial has it."""
    if isinstance(wanted, optuna.distributions.FloatDistribution):
        trial.suggest_float(name, wanted.low, wanted.high, log=wanted.log)
    elif isinstance(wanted, optuna.distributions.IntDistribution):
        trial.suggest_int(name, wanted.low, wanted.high, log=wanted.log)
    elif isinstance(wanted, optuna.distributions.CategoricalDistribution):
        trial.suggest_categorical(name, wanted.choices)
