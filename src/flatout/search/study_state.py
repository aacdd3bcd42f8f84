"""The state of a running study on disk: which trial runs in which place, and which round comes
next.

One small JSON file, replaced whole. Together with the workers' checkpoints and Optuna's storage it
is all that is needed to go on after a kill at any moment. The names inside the file are older than
those of this module: a round is a `turn` there, and the batches of lanes are `crews`.
"""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from flatout.errors import RunError
from flatout.foreign import read_json_if_there
from flatout.runs import write_json
from flatout.search.about_study import CURE
from flatout.search.lane_layout import LANE_BATCHES, Layout
from flatout.settings.study import SettingValue

FILE = "board.json"
NAMES_ON_DISK = {"round": "turn", "batches": "crews", "decisions": "decided"}
Whole = Annotated[int, Field(ge=0, le=2**63 - 1)]
Seconds = Annotated[float, Field(ge=0, le=1e12)]
TrialStatus = Literal["going", "complete", "pruned", "failed"]
MOST_LANES = 100_000
SHORTEST = 1e-9  # seconds
Scores = list[list[float | None]]  # by split and seed; None for a lane that diverged


@dataclass(frozen=True)
class RunningTrial:
    """A trial that occupies a place of a batch of lanes."""

    trial: Whole  # Optuna's number
    rung: Whole  # the one that it works towards
    params: dict[str, SettingValue]


@dataclass(frozen=True)
class TrialDecision:
    """What became of a trial after a round."""

    trial: Whole
    state: TrialStatus
    value: float | None
    scores: Scores


Places = tuple[RunningTrial | None, ...]  # of one batch of lanes; None where no trial runs


@dataclass(frozen=True)
class StudyState:
    """How far a study is; replaced by a new one after each round, never changed."""

    layout: tuple[Whole, ...]
    round: Annotated[Whole, Field(validation_alias="turn")] = 0  # whose results come next
    asked: Whole = 0  # trials so far
    batches: Annotated[tuple[Places, ...], Field(validation_alias="crews")] = ()
    # of this round's places, until Optuna knows all of them
    decisions: Annotated[
        tuple[TrialDecision | None, ...] | None, Field(validation_alias="decided")
    ] = None
    live_knobs: bool = False  # every searched knob was shown to change something
    seconds: Seconds = 0.0  # of all runs of this study so far
    busy_seconds: Seconds = 0.0  # in which lanes trained or were judged, all workers together
    worker_seconds: Seconds = 0.0  # in which workers could have been busy
    steps: Whole = 0
    finished: list[Whole] = field(default_factory=list)  # trials in the order of their ends

    @property
    def running(self) -> list[RunningTrial]:
        """The trials of all batches."""
        return [trial for places in self.batches for trial in places if trial]

    def save(self, folder: Path) -> None:
        """Replace the file in a study's folder by this state."""
        facts = {NAMES_ON_DISK.get(name, name): value for name, value in asdict(self).items()}
        write_json(folder / FILE, facts)


def read_state(folder: Path) -> StudyState | None:
    """The state in which a study was left, or None for a new one."""
    path = folder / FILE
    state = read_json_if_there(path, StudyState, RunError, CURE)
    if state and (problem := find_contradiction(state)):
        raise RunError(f"{path}: {problem}; {CURE}")
    return state


def find_contradiction(state: StudyState) -> str | None:
    """What in a state cannot be, whatever the study; None if all of it can."""
    if len(state.layout) != len(Layout._fields) or not all(
        1 <= count <= MOST_LANES for count in state.layout
    ):
        return (
            f"layout has {len(Layout._fields)} numbers from 1 to {MOST_LANES:,}, given "
            f"{list(state.layout)[:8]}"
        )
    places = Layout(*state.layout).places
    if len(state.batches) != LANE_BATCHES or any(len(batch) != places for batch in state.batches):
        return f"crews are {LANE_BATCHES}, of {places:,} places each"
    if state.decisions is not None and len(state.decisions) != places:
        return f"decided has one entry for each of {places:,} places"
    if any(one and one.state == "complete" and one.value is None for one in state.decisions or ()):
        return "a trial is complete without a value"
    if any(0 < time < SHORTEST for time in (state.seconds, state.worker_seconds)):
        return "seconds are shorter than any clock measures"
    return None
