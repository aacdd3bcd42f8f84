"""The state of a running study on disk: which trial sits in which place, and which turn comes next.

One small JSON file, replaced whole. Together with the workers' checkpoints and Optuna's storage it
is all that is needed to go on after a kill at any moment.
"""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from flatout.errors import RunError
from flatout.foreign import read_json_if_there
from flatout.runs import write_json
from flatout.search.about_study import CURE
from flatout.search.lane_layout import CREWS, Layout

FILE = "board.json"
Whole = Annotated[int, Field(ge=0, le=2**63 - 1)]
Seconds = Annotated[float, Field(ge=0, le=1e12)]
State = Literal["going", "complete", "pruned", "failed"]
MOST_LANES = 100_000
SHORTEST = 1e-9  # seconds
Scores = list[list[float | None]]  # by split and seed; None for a lane that diverged


@dataclass(frozen=True)
class Sitting:
    """A trial in its place."""

    trial: Whole  # Optuna's number
    rung: Whole  # the one that it works towards
    params: dict[str, Any]


@dataclass(frozen=True)
class Decision:
    """What became of a trial after a turn."""

    trial: Whole
    state: State
    value: float | None
    scores: Scores


@dataclass(frozen=True)
class Board:
    """Replaced, never changed."""

    layout: tuple[Whole, ...]
    turn: Whole = 0  # whose results come next
    asked: Whole = 0  # trials so far
    crews: tuple[tuple[Sitting | None, ...], ...] = ()
    # of this turn's places, until all of it is told
    decided: tuple[Decision | None, ...] | None = None
    live_knobs: bool = False  # every searched knob was shown to change something
    seconds: Seconds = 0.0  # of all runs of this study so far
    busy_seconds: Seconds = 0.0  # in which lanes trained or were judged, all workers together
    worker_seconds: Seconds = 0.0  # in which workers could have been busy
    steps: Whole = 0
    finished: list[Whole] = field(default_factory=list)  # trials in the order of their ends

    def save(self, folder: Path) -> None:
        """Replace the file."""
        write_json(folder / FILE, asdict(self))


def read_board(folder: Path) -> Board | None:
    """The board as it was left, or None for a new study."""
    path = folder / FILE
    board = read_json_if_there(path, Board, RunError, CURE)
    if board and (problem := contradiction(board)):
        raise RunError(f"{path}: {problem}; {CURE}")
    return board


def contradiction(board: Board) -> str | None:
    """What in a board cannot be, whatever the study."""
    if len(board.layout) != len(Layout._fields) or not all(
        1 <= count <= MOST_LANES for count in board.layout
    ):
        return (
            f"layout has {len(Layout._fields)} numbers from 1 to {MOST_LANES:,}, given "
            f"{list(board.layout)[:8]}"
        )
    places = Layout(*board.layout).places
    if len(board.crews) != CREWS or any(len(crew) != places for crew in board.crews):
        return f"crews are {CREWS}, of {places:,} places each"
    if board.decided is not None and len(board.decided) != places:
        return f"decided has one entry for each of {places:,} places"
    if any(one and one.state == "complete" and one.value is None for one in board.decided or ()):
        return "a trial is complete without a value"
    if any(0 < time < SHORTEST for time in (board.seconds, board.worker_seconds)):
        return "seconds are shorter than any clock measures"
    return None
