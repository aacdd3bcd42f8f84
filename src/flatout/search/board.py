"""The state of a running study on disk: which trial sits in which place, and which turn comes next.

One small JSON file, replaced whole. Together with the workers' checkpoints and Optuna's storage it is all that is
needed to go on after a kill at any moment.
"""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from flatout.errors import RunError
from flatout.run_directory import write_json

FILE = "board.json"


@dataclass(frozen=True)
class Sitting:
    """A trial in its place."""

    trial: int  # Optuna's number
    rung: int  # the one that it works towards
    params: dict[str, Any]


@dataclass(frozen=True)
class Decision:
    """What became of a trial after a turn."""

    trial: int
    state: str  # going, complete, pruned or failed
    value: float | None
    scores: list[list[float | None]]  # by split and seed; None for a lane that diverged


@dataclass(frozen=True)
class Board:
    """Replaced, never changed."""

    layout: tuple[int, ...]
    turn: int = 0  # whose results come next
    asked: int = 0  # trials so far
    crews: tuple[tuple[Sitting | None, ...], ...] = ()
    decided: tuple[Decision | None, ...] | None = None  # of this turn's places, until all of it is told
    live_knobs: bool = False  # every searched knob was shown to change something
    seconds: float = 0.0  # of all runs of this study so far
    busy_seconds: float = 0.0  # in which lanes trained or were judged, all workers together
    worker_seconds: float = 0.0  # in which workers could have been busy
    steps: int = 0
    finished: list[int] = field(default_factory=list)  # trials in the order of their ends

    def save(self, folder: Path) -> None:
        """Replace the file."""
        write_json(folder / FILE, asdict(self))


def read_board(folder: Path) -> Board | None:
    """The board as it was left, or None for a new study."""
    path = folder / FILE
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise RunError(f"{path} cannot be read: {error}; restore it, or start the study under another name") from None
    facts["layout"] = tuple(facts["layout"])
    facts["crews"] = tuple(tuple(s and Sitting(**s) for s in crew) for crew in facts["crews"])
    decided = facts["decided"]
    facts["decided"] = decided and tuple(d and Decision(**d) for d in decided)
    return Board(**facts)
