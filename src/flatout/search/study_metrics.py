"""`metrics.jsonl` of a study: one row per trial, split, seed and rung, as trainings write them."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import optuna
from numpy.typing import NDArray

from flatout.learners.jobs import Chunk
from flatout.market.rewards import RewardTerms
from flatout.search.lane_layout import LaneSlot, Layout
from flatout.search.market_study import MarketStudy
from flatout.search.scores import Traces
from flatout.search.study_state import StudyState
from flatout.training.metrics_file import MetricsFile, Row, make_row

LANE = re.compile(r"trial-([0-9]{1,18})/split-[0-9]+/seed-[0-9]+")


class TrialResults(NamedTuple):
    """What a trial's lanes came to in a round."""

    trial: int
    place: int
    traces: Traces
    scores: NDArray[np.float64]  # (split, seed): the objective


def name_lane(trial: int, split: int, seed: int) -> str:
    """What a lane of a trial is called in `metrics.jsonl`."""
    return f"trial-{trial}/split-{split:02d}/seed-{seed}"


def open_metrics(
    folder: Path,
    state: StudyState,
    trials: Sequence[optuna.trial.FrozenTrial],
    rungs: Sequence[int],
) -> MetricsFile:
    """The file of a study that goes on in this state. Trials that have ended keep their rows,
    running ones those of the rungs behind them.
    """
    running = {one.trial: rungs[one.rung - 1] if one.rung else 0 for one in state.running}

    def known_updates(lane: str) -> float:
        """How far a lane is, as Optuna and the state of the study know it."""
        found = LANE.fullmatch(lane)
        number = int(found[1]) if found else len(trials)
        if number < len(trials) and trials[number].state.is_finished():
            return rungs[-1]
        return running.get(number, 0)

    return MetricsFile(folder, known_updates)


def list_rows(
    market: MarketStudy, layout: Layout, chunks: Sequence[Chunk], results: Sequence[TrialResults]
) -> list[Row]:
    """The rows of a round, from the answers of all workers. The scores of a lane are its objective,
    the number of bars that judged it, and the sums of the reward's terms over them.
    """
    objective, rows = market.settings.search.objective, []
    for one in results:
        for split, about in enumerate(market.folds.splits):
            length = sum(block.length for block in about.test)
            for seed in range(layout.seeds):
                at = layout.lane_of(LaneSlot(one.place, split, seed))
                # bars after a block's end are 0
                terms = one.traces[split, seed, : len(RewardTerms._fields)]
                sums = terms.sum(axis=(1, 2), dtype=np.float64).tolist()
                scores = {objective: float(one.scores[split, seed]), "length": float(length)}
                scores |= dict(zip(RewardTerms._fields, sums, strict=True))
                name = name_lane(one.trial, split, seed)
                chunk = chunks[at.worker]
                rows.append(make_row(market.program, chunk, at.lane, name=name, scores=scores))
    return rows
