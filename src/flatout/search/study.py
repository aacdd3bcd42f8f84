"""A study as a machine that is fed results and says what to do next; it knows neither processes nor
time.

Turn t belongs to crew t mod 2. Processing a turn has three steps: decide (from the results alone,
and write that down), tell (Optuna), refill (ask Optuna). A kill between any two of them is mended
by doing the rest again: what was told is recognised, what was asked is found by its number, and
every draw depends on that number alone.
"""

import math
import shutil
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import optuna

from flatout.errors import RunError
from flatout.learners.checkpoint import read_checkpoint
from flatout.learners.jobs import Chunk, EvaluationPlan, Job, Newcomers, Order
from flatout.learners.lane_trees import stack_trees
from flatout.market.rewards import RewardTerms
from flatout.search.about_study import CURE
from flatout.search.cma_sampler import GENERATION, ReplayedCma
from flatout.search.lane_layout import CREWS, Layout, Seat
from flatout.search.market_study import LOG_RETURN, TURNOVER, LaneSpec, MarketStudy
from flatout.search.scores import joined_blocks, score
from flatout.search.space import distributions, middle, values_of
from flatout.search.storage import make_sampler
from flatout.search.study_state import FILE, Board, Decision, Sitting, State, read_board
from flatout.search.trial_files import TrialFile, write_trial

Storage = optuna.storages.BaseStorage
SCORES = "flatout:scores"  # a trial's attribute: its objective by split and seed
EXCESS = RewardTerms._fields.index("excess")


class Study:
    """Trials of one market, from the first question to the last answer."""

    def __init__(
        self,
        folder: Path,
        market: MarketStudy,
        study: optuna.Study,
        storage: Storage,
        layout: Layout,
    ) -> None:
        self.folder, self.market, self.study, self.storage, self.layout = (
            folder,
            market,
            study,
            storage,
            layout,
        )
        self.space = market.settings.search.space
        empty = ((None,) * layout.places,) * CREWS
        self.board = read_board(folder) or Board(tuple(layout), crews=empty)
        if problem := contradiction(
            self.board, study.get_trials(deepcopy=False), len(market.rungs)
        ):
            raise RunError(f"{folder / FILE}: {problem}; {CURE}")
        self.trials: dict[int, optuna.trial.Trial] = {}
        self.idle = self.market.lane(
            {name: middle(knob) for name, knob in self.space.items()}, 0, 0
        )

    @property
    def done(self) -> bool:
        """Nothing left to do."""
        return self.board.asked >= self.market.settings.search.trials and not any(
            map(any, self.board.crews)
        )

    def begin(self) -> None:
        """Bring the board to a state in which two turns are waiting to be carried out."""
        if self.board.layout != tuple(self.layout):
            self.rearrange()
        if self.board.decided is not None:
            self.conclude()
        if self.board.asked == 0 or not self.checkpoints_fit():
            self.rearrange()
        (self.folder / "checkpoints").mkdir(exist_ok=True)
        for crew in range(CREWS):  # of a study that has grown since it was over
            if not any(self.board.crews[crew]):
                self.refill(crew)
        self.save()

    def rearrange(self) -> None:
        """Seat trials anew, from their beginnings: at the start, and when the workers are not those
        of the last run.

        What has ended stays so; running trials are found again by their numbers.
        """
        finished = [
            *self.board.finished,
            *sorted(d.trial for d in self.tell() if d.state != "going"),
        ]
        shutil.rmtree(self.folder / "checkpoints", ignore_errors=True)
        (self.folder / "checkpoints").mkdir()
        empty = ((None,) * self.layout.places,) * CREWS
        self.board = replace(
            self.board,
            layout=tuple(self.layout),
            turn=0,
            asked=0,
            crews=empty,
            decided=None,
            finished=finished,
        )
        for crew in range(CREWS):
            self.refill(crew)
        self.save()

    def checkpoints_fit(self) -> bool:
        """Whether the workers' checkpoints are those from which the waiting turns go on."""
        for turn in (self.board.turn, self.board.turn + 1):
            if not any(s and s.rung for s in self.board.crews[turn % CREWS]):
                continue  # all begin: nothing is needed
            for worker in range(self.layout.workers):
                path = self.checkpoint(worker, turn % CREWS)
                last = read_checkpoint(path)[0].get("last/turn") if path.exists() else None
                if last is None or np.shape(last) or int(last) not in (turn, turn - CREWS):
                    return False
        return True

    def checkpoint(self, worker: int, crew: int) -> Path:
        """Where a worker keeps the lanes of a crew."""
        return self.folder / "checkpoints" / f"worker-{worker}-crew-{crew}.safetensors"

    def jobs(self, worker: int, data: Any) -> list[Job]:
        """A worker's lanes of each crew, all empty; `data` are the files of the tape."""
        count, market = self.layout.lanes, self.market
        plan = EvaluationPlan(
            stack_trees([self.idle.judged] * count),
            market.test_blocks,
            market.test_bars,
            traced=True,
        )
        return [
            Job(
                program=market.program,
                names=[f"lane {k}" for k in range(count)],
                rates=stack_trees([self.idle.rates] * count),
                data=data,
                seeds=[0] * count,
                log_std=[self.idle.log_std] * count,
                hidden=[self.idle.hidden] * count,
                checkpoint=self.checkpoint(worker, crew),
                evaluation=plan,
            )
            for crew in range(CREWS + 1)  # the last one shows that every knob is live
        ]

    def orders(self, turn: int) -> list[Order]:
        """What each worker shall do in a turn."""
        crew = self.board.crews[turn % CREWS]
        specs = {
            (place, split, seed): self.market.lane(
                values_of(self.space, sitting.params), split, seed
            )
            for place, sitting in enumerate(crew)
            if sitting
            for split in range(self.layout.splits)
            for seed in range(self.layout.seeds)
        }
        return [self.order(turn, worker, crew, specs) for worker in range(self.layout.workers)]

    def order(
        self,
        turn: int,
        worker: int,
        crew: Sequence[Sitting | None],
        specs: Mapping[tuple[int, int, int], LaneSpec],
    ) -> Order:
        """One worker's part of a turn."""
        lanes, until, fresh = [], [], []
        for lane in range(self.layout.lanes):
            seat = self.layout.seat(worker, lane)
            sitting = crew[seat.place] if seat else None
            lanes.append(specs[seat] if seat and sitting else self.idle)
            until.append(self.market.rungs[sitting.rung] if sitting else 0)
            if sitting and sitting.rung == 0:
                fresh.append(lane)
        return Order(tuple(until), turn=turn, newcomers=newcomers(lanes, fresh))

    def process(self, turn: int, chunks: Sequence[Chunk]) -> list[Decision]:
        """Take in what all workers answered to a turn; afterwards the crew's next turn can be
        ordered.
        """
        seated = {place: s for place, s in enumerate(self.board.crews[turn % CREWS]) if s}
        traces = {place: self.traces(place, chunks) for place in seated}
        scores = {place: self.score(found) for place, found in traces.items()}
        for (
            place,
            sitting,
        ) in (
            seated.items()
        ):  # all before the first is pruned: a kill in between changes no decision
            if np.isfinite(scores[place]).all():
                self.report(sitting, scores[place])
        decided = {
            place: self.decide(s, scores[place], traces[place]) for place, s in seated.items()
        }
        self.save(decided=tuple(decided.get(place) for place in range(self.layout.places)))
        return self.conclude()

    def traces(self, place: int, chunks: Sequence[Chunk]) -> Any:
        """(split, seed, term, block, bar) of the trial in a place."""
        layout = self.layout
        found = []
        for split in range(layout.splits):
            for seed in range(layout.seeds):
                worker, lane = layout.home(Seat(place, split, seed))
                found.append(np.asarray(chunks[worker].traces[lane]))
        return np.stack(found).reshape(layout.splits, layout.seeds, *found[0].shape)

    def decide(self, sitting: Sitting, scores: Any, traces: Any) -> Decision:
        """Judge a trial at its rung, once the pruner knows how all do; its file is written when it
        is over.
        """
        last = sitting.rung == len(self.market.rungs) - 1
        mean = float(np.mean(scores))
        state: State
        if not math.isfinite(mean):
            state = "failed"
        elif last:
            state = "complete"
        else:
            state = "pruned" if self.should_prune(sitting) else "going"
        by_lane = [
            [score if math.isfinite(score) else None for score in split]
            for split in scores.tolist()
        ]
        decision = Decision(sitting.trial, state, mean if math.isfinite(mean) else None, by_lane)
        if state != "going":
            facts = {
                "number": sitting.trial, "params": sitting.params, "state": state,
                "value": decision.value,
                "scores": by_lane, "updates": self.market.rungs[sitting.rung],
            }  # fmt: skip
            finite = np.nan_to_num(traces, posinf=0.0, neginf=0.0)
            write_trial(
                self.folder, TrialFile(finite[:, :, LOG_RETURN], -finite[:, :, TURNOVER], facts)
            )
        return decision

    def score(self, traces: Any) -> Any:
        """(split, seed): the objective in each lane."""
        search, per_year = self.market.settings.search, self.market.panel.bars_per_year
        found = np.zeros(traces.shape[:2])
        for split, about in enumerate(self.market.folds.splits):
            for seed in range(traces.shape[1]):
                log_return, excess = (
                    joined_blocks(traces[split, seed, term], about) for term in (LOG_RETURN, EXCESS)
                )
                found[split, seed] = score(search.objective, log_return, excess, per_year)
        return found

    def should_prune(self, sitting: Sitting) -> bool:
        """Ask the pruner."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return bool(self.trial(sitting.trial).should_prune())

    def report(self, sitting: Sitting, scores: Any) -> None:
        """Tell the pruner how a trial does at its rung, unless it knows: by split, or on average
        for halving.
        """
        trial = self.trial(sitting.trial)
        by_split = scores.mean(axis=1)
        halving = self.market.settings.search.pruner == "halving"
        steps = {sitting.rung + 1: float(by_split.mean())} if halving else {
            sitting.rung * len(by_split) + split: float(value) for split,
            value in enumerate(by_split)
        }  # fmt: skip
        known = self.frozen(sitting.trial).intermediate_values
        for step, value in steps.items():
            if step not in known:
                trial.report(value, step)

    def conclude(self) -> list[Decision]:
        """Tell what was decided, and seat new trials where others have ended."""
        decided = self.tell()
        crew = self.board.turn % CREWS
        ended = {d.trial for d in decided if d.state != "going"}
        seats = tuple(
            None if s is None or s.trial in ended else replace(s, rung=s.rung + 1)
            for s in self.board.crews[crew]
        )
        self.board = replace(
            self.board,
            crews=tuple(seats if k == crew else other for k, other in enumerate(self.board.crews)),
            finished=[*self.board.finished, *sorted(ended)],
        )
        self.refill(crew)
        self.save(turn=self.board.turn + 1, decided=None)
        return decided

    def tell(self) -> list[Decision]:
        """Write finished trials into the storage, unless they are there."""
        decided = [d for d in self.board.decided or () if d]
        for decision in decided:
            if decision.state == "going" or self.frozen(decision.trial).state.is_finished():
                continue
            trial = self.trial(decision.trial)
            trial.set_user_attr(SCORES, decision.scores)
            if decision.state == "complete":
                self.study.tell(trial, decision.value)
            else:
                states = {
                    "pruned": optuna.trial.TrialState.PRUNED,
                    "failed": optuna.trial.TrialState.FAIL,
                }
                self.study.tell(trial, state=states[decision.state])
            self.trials.pop(decision.trial, None)
        return decided

    def refill(self, crew: int) -> None:
        """Seat fresh trials in a crew's free places."""
        seats, asked, trials = (
            list(self.board.crews[crew]),
            self.board.asked,
            self.market.settings.search.trials,
        )
        known = self.study.get_trials(deepcopy=False)
        for place, sitting in enumerate(seats):
            while asked < min(trials, len(known)) and known[asked].state.is_finished():
                asked += 1
            if sitting is None and asked < trials:
                seats[place] = Sitting(asked, 0, self.ask(asked))
                asked += 1
        crews = tuple(
            tuple(seats) if k == crew else other for k, other in enumerate(self.board.crews)
        )
        self.board = replace(self.board, crews=crews, asked=asked)

    def ask(self, number: int) -> dict[str, Any]:
        """The parameters of a trial: a new one, or one that a killed process had asked for."""
        search = self.market.settings.search
        self.study.sampler = sampler = make_sampler(search.sampler, search.seed, number)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            existing = self.study.get_trials(deepcopy=False)
            trial = self.study.ask() if number >= len(existing) else self.revived(number)
            for knob, (name, distribution) in enumerate(distributions(self.space).items(), start=1):
                if (
                    name not in trial.relative_params
                ):  # drawn alone: those before it may have been drawn earlier
                    self.study.sampler = make_sampler(search.sampler, search.seed, number, knob)
                suggest(trial, name, distribution)
        if isinstance(sampler, ReplayedCma) and sampler.generation is not None:
            trial.set_user_attr(GENERATION, sampler.generation)
        self.trials[number] = trial
        return dict(self.frozen(number).params)

    def revived(self, number: int) -> optuna.trial.Trial:
        """A trial that a killed process left, with what it was given so far."""
        storage = self.storage
        study_id = storage.get_study_id_from_name(self.study.study_name)
        return optuna.trial.Trial(
            self.study, storage.get_trial_id_from_study_id_trial_number(study_id, number)
        )

    def trial(self, number: int) -> optuna.trial.Trial:
        """A running trial."""
        if number not in self.trials:
            search = self.market.settings.search
            self.study.sampler = make_sampler("random", search.seed, number)
            self.trials[number] = self.revived(number)
        return self.trials[number]

    def frozen(self, number: int) -> optuna.trial.FrozenTrial:
        """What the storage knows of a trial."""
        return self.study.get_trials(deepcopy=False)[number]

    def save(self, **changed: Any) -> None:
        """Write the board."""
        self.board = replace(self.board, **changed)
        self.board.save(self.folder)


def contradiction(
    board: Board, trials: Sequence[optuna.trial.FrozenTrial], rungs: int
) -> str | None:
    """What in a board is not of these trials."""
    named = [*board.finished, *(one.trial for one in board.decided or () if one)]
    sitting = [one for crew in board.crews for one in crew if one]
    if max([board.asked - 1, *named, *(one.trial for one in sitting)]) >= len(trials):
        return f"names trials that the storage does not have: it has {len(trials)}"
    for one in sitting:
        if one.params != trials[one.trial].params or one.rung >= rungs:
            return (
                f"trial {one.trial} sits there with other parameters, or at another rung, than "
                f"it can have"
            )
    return None


def suggest(
    trial: optuna.trial.Trial, name: str, wanted: optuna.distributions.BaseDistribution
) -> None:
    """Draw a parameter, unless the trial has it."""
    if isinstance(wanted, optuna.distributions.FloatDistribution):
        trial.suggest_float(name, wanted.low, wanted.high, log=wanted.log)
    elif isinstance(wanted, optuna.distributions.IntDistribution):
        trial.suggest_int(name, wanted.low, wanted.high, log=wanted.log)
    elif isinstance(wanted, optuna.distributions.CategoricalDistribution):
        trial.suggest_categorical(name, wanted.choices)


def newcomers(lanes: Sequence[LaneSpec], fresh: Sequence[int]) -> Newcomers:
    """The rates of all lanes, and who begins in some of them."""
    return Newcomers(
        rates=stack_trees([lane.rates for lane in lanes]),
        judged=stack_trees([lane.judged for lane in lanes]),
        lanes=tuple(fresh),
        seeds=tuple(lanes[k].seed for k in fresh),
        log_std=tuple(lanes[k].log_std for k in fresh),
        hidden=tuple(lanes[k].hidden for k in fresh),
    )
