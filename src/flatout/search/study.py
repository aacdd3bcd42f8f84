"""A study as a machine that is fed results and decides what to do next; it knows neither processes
nor time.

Round r belongs to batch r mod 2 of the lanes. Processing a round has three steps: decide (from the
results alone, and write that down), tell Optuna, and refill (ask Optuna). A kill between any two of
them is mended by doing the rest again.
"""

import math
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from optuna.storages.journal import JournalStorage

from flatout.errors import RunError
from flatout.evaluation.trial_registry import StudyEntry
from flatout.learners.checkpoint import read_checkpoint
from flatout.learners.jobs import Chunk
from flatout.search.about_study import CURE
from flatout.search.lane_layout import LANE_BATCHES, Layout
from flatout.search.market_study import LOG_RETURN, TURNOVER, MarketStudy
from flatout.search.scores import collect_traces, score_lanes, sum_trial_weights
from flatout.search.space import middle_value
from flatout.search.storage import JOURNAL
from flatout.search.study_metrics import TrialResults, list_rows, open_metrics
from flatout.search.study_state import (
    FILE,
    Places,
    RunningTrial,
    StudyState,
    TrialDecision,
    TrialStatus,
    read_state,
)
from flatout.search.study_trials import StudyTrials
from flatout.search.trial_files import TrialFacts, TrialFile, write_trial
from flatout.training.metrics_file import MetricsFile


class Study:
    """Trials of one market, from the first question to the last answer."""

    metrics: MetricsFile  # once it has begun

    def __init__(
        self,
        folder: Path,
        market: MarketStudy,
        optuna_study: optuna.Study,
        storage: optuna.storages.BaseStorage,
        layout: Layout,
        entry: StudyEntry,
    ) -> None:
        self.folder, self.market, self.layout = folder, market, layout
        self.entry = entry
        self.optuna_study = optuna_study
        self.trials = StudyTrials(optuna_study, storage, market.settings.search)
        self.space = market.settings.search.space
        self.state = read_state(folder) or StudyState(tuple(layout), batches=self.empty_batches())
        known = optuna_study.get_trials(deepcopy=False)
        if (named := count_named(self.state)) > len(known):
            own = isinstance(storage, JournalStorage)
            raise RunError(
                f"{folder / JOURNAL if own else 'the storage'}: holds {len(known):,} of the "
                f"{named:,} trials that {FILE} names, as if it was emptied or replaced; {CURE}"
            )
        if problem := find_contradiction(self.state, known, len(market.rungs)):
            raise RunError(f"{folder / FILE}: {problem}; {CURE}")
        middle = {name: middle_value(knob) for name, knob in self.space.items()}
        self.idle = market.lane(middle, split=0, seed=0)  # what fills a lane that has no trial

    @property
    def name(self) -> str:
        """What the study is called in its storage."""
        return self.optuna_study.study_name

    @property
    def done(self) -> bool:
        """Whether all trials have ended."""
        asked = self.state.asked >= self.market.settings.search.trials
        return asked and not self.state.running

    @property
    def untried(self) -> bool:
        """Whether no trial was ever asked for, so that nothing binds the study yet."""
        return self.state.asked == 0 and not self.optuna_study.get_trials(deepcopy=False)

    def empty_batches(self) -> tuple[Places, ...]:
        """Batches of lanes in which no trial runs."""
        return ((None,) * self.layout.places,) * LANE_BATCHES

    def checkpoint_path(self, worker: int, batch: int) -> Path:
        """Where a worker keeps a batch of lanes."""
        return self.folder / "checkpoints" / f"worker-{worker}-crew-{batch}.safetensors"

    def begin(self) -> None:
        """Bring the study to a state in which two rounds are waiting to be carried out."""
        if self.state.layout != tuple(self.layout):
            self.rearrange()
        if self.state.decisions is not None:
            self.conclude()
        if self.state.asked == 0 or not self.checkpoints_fit():
            self.rearrange()
        (self.folder / "checkpoints").mkdir(exist_ok=True)
        for batch in range(LANE_BATCHES):  # of a study that has grown since it was over
            if not any(self.state.batches[batch]):
                self.refill(batch)
        self.save()
        trials = self.optuna_study.get_trials(deepcopy=False)
        self.entry.note_trials(len(trials))  # of a study that comes from elsewhere
        self.metrics = open_metrics(self.folder, self.state, trials, self.market.rungs)

    def rearrange(self) -> None:
        """Place trials anew, from their beginnings: at the start, and when the workers are not
        those of the last run.

        What has ended stays so; running trials are found again by their numbers.
        """
        ended = sorted(one.trial for one in self.tell() if one.state != "going")
        shutil.rmtree(self.folder / "checkpoints", ignore_errors=True)
        (self.folder / "checkpoints").mkdir()
        self.state = replace(
            self.state,
            layout=tuple(self.layout),
            round=0,
            asked=0,
            batches=self.empty_batches(),
            decisions=None,
            finished=[*self.state.finished, *ended],
        )
        for batch in range(LANE_BATCHES):
            self.refill(batch)
        self.save()

    def checkpoints_fit(self) -> bool:
        """Whether the workers' checkpoints are those from which the waiting rounds go on."""
        for waiting in (self.state.round, self.state.round + 1):
            batch = waiting % LANE_BATCHES
            if not any(running and running.rung for running in self.state.batches[batch]):
                continue  # all begin: nothing is needed
            for worker in range(self.layout.workers):
                path = self.checkpoint_path(worker, batch)
                last = read_checkpoint(path)[0].get("last/turn") if path.exists() else None
                if last is None or np.shape(last):
                    return False
                if int(last) not in (waiting, waiting - LANE_BATCHES):
                    return False
        return True

    def process(self, round_number: int, chunks: Sequence[Chunk]) -> list[TrialDecision]:
        """Take in what all workers answered to a round; afterwards the next round of its batch can
        be ordered.
        """
        places = self.state.batches[round_number % LANE_BATCHES]
        running = {place: trial for place, trial in enumerate(places) if trial}
        results = {
            place: self.collect_results(trial, place, chunks) for place, trial in running.items()
        }
        # all before the first is pruned: a kill in between changes no decision
        for place, trial in running.items():
            if np.isfinite(results[place].scores).all():
                self.trials.report(trial, results[place].scores)
        decided = {place: self.decide(trial, results[place]) for place, trial in running.items()}
        # before the state: rows that it does not know of are dropped when the study goes on
        self.metrics.append(list_rows(self.market, self.layout, chunks, [*results.values()]))
        self.save(decisions=tuple(decided.get(place) for place in range(self.layout.places)))
        return self.conclude()

    def collect_results(
        self, running: RunningTrial, place: int, chunks: Sequence[Chunk]
    ) -> TrialResults:
        """What the lanes of the trial in a place came to."""
        traces = collect_traces(self.layout, place, chunks)
        return TrialResults(running.trial, place, traces, score_lanes(self.market, traces))

    def decide(self, running: RunningTrial, results: TrialResults) -> TrialDecision:
        """Judge a trial at its rung, once the pruner knows how all do; its file is written when it
        is over.
        """
        mean = float(np.mean(results.scores))
        status: TrialStatus
        if not math.isfinite(mean):
            status = "failed"
        elif running.rung == len(self.market.rungs) - 1:
            status = "complete"
        else:
            status = "pruned" if self.trials.should_prune(running.trial) else "going"
        by_lane = [
            [score if math.isfinite(score) else None for score in split]
            for split in results.scores.tolist()
        ]
        value = mean if math.isfinite(mean) else None
        if status != "going":
            facts: TrialFacts = {
                "number": running.trial, "params": running.params, "state": status, "value": value,
                "scores": by_lane, "updates": self.market.rungs[running.rung],
            }  # fmt: skip
            finite = np.nan_to_num(results.traces, posinf=0.0, neginf=0.0)
            earned = TrialFile(
                log_return=finite[:, :, LOG_RETURN],
                turnover=-finite[:, :, TURNOVER],
                weight_sums=sum_trial_weights(self.market, finite),
                facts=facts,
            )
            write_trial(self.folder, earned)
        return TrialDecision(running.trial, status, value, by_lane)

    def conclude(self) -> list[TrialDecision]:
        """Tell Optuna what was decided, and begin new trials where others have ended."""
        decisions = self.tell()
        batch = self.state.round % LANE_BATCHES
        ended = {one.trial for one in decisions if one.state != "going"}
        places = tuple(
            None if one is None or one.trial in ended else replace(one, rung=one.rung + 1)
            for one in self.state.batches[batch]
        )
        self.replace_batch(batch, places)
        self.state = replace(self.state, finished=[*self.state.finished, *sorted(ended)])
        self.refill(batch)
        self.save(round=self.state.round + 1, decisions=None)
        return decisions

    def tell(self) -> list[TrialDecision]:
        """Tell Optuna what was decided in this round, if it does not know; the decisions."""
        decisions = [one for one in self.state.decisions or () if one]
        self.trials.tell(decisions)
        return decisions

    def refill(self, batch: int) -> None:
        """Begin new trials in a batch's free places; they are in the registry before they train."""
        places, asked = list(self.state.batches[batch]), self.state.asked
        trials = self.market.settings.search.trials
        known = self.optuna_study.get_trials(deepcopy=False)
        for place, running in enumerate(places):
            while asked < min(trials, len(known)) and known[asked].state.is_finished():
                asked += 1
            if running is None and asked < trials:
                places[place] = RunningTrial(asked, 0, self.trials.ask(asked))
                asked += 1
        self.entry.note_trials(max(asked, len(known)))
        self.replace_batch(batch, tuple(places))
        self.state = replace(self.state, asked=asked)

    def replace_batch(self, batch: int, places: Places) -> None:
        """Put other trials into the places of a batch of lanes."""
        batches = (places if k == batch else other for k, other in enumerate(self.state.batches))
        self.state = replace(self.state, batches=tuple(batches))

    def save(self, **changes: Any) -> None:
        """Write the state to disk, with these fields changed."""
        self.state = replace(self.state, **changes)
        self.state.save(self.folder)


def count_named(state: StudyState) -> int:
    """How many trials a storage must have, for a state to be of it."""
    named = [*state.finished, *(one.trial for one in state.decisions or () if one)]
    return 1 + max([state.asked - 1, *named, *(one.trial for one in state.running)])


def find_contradiction(
    state: StudyState, trials: Sequence[optuna.trial.FrozenTrial], rungs: int
) -> str | None:
    """What in a state is not of these trials; None if all of it is."""
    for one in state.running:
        if one.params != trials[one.trial].params or one.rung >= rungs:
            return (
                f"trial {one.trial} is there with other parameters, or at another rung, than it "
                f"can have"
            )
    return None
