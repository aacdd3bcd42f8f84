"""What a training is asked to do, kept in the run's folder so that it can go on after any
interruption.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from flatout.bars.source import MOST_SEED
from flatout.foreign import read_json
from flatout.runs import check_links, create_run, runs_folder
from flatout.settings.loading import Resolved
from flatout.workers.devices import MOST_WORKERS

MOST_TIMESTEPS, MOST_SEEDS, MOST_EVALUATIONS = 10**15, 10_000, 10**6
LEAST_SHARE_HELD_OUT, MOST_SHARE_HELD_OUT = 0.01, 0.9
NOT_A_RUN = "give `resume` the folder of a training that can go on"


@dataclass(frozen=True)
class TrainRequest:
    """What decides a training beside its settings; `about.json` holds it under these names."""

    bars: str | None  # a file or folder; None is the built-in market
    symbols: list[str] | None
    portfolio: bool
    bar: str | None
    timesteps: Annotated[int, Field(ge=1, le=MOST_TIMESTEPS)]
    updates: Annotated[int, Field(ge=1, le=MOST_TIMESTEPS)] | None  # instead of timesteps
    seed: Annotated[int, Field(ge=0, le=MOST_SEED)]
    seeds: Annotated[int, Field(ge=1, le=MOST_SEEDS)]
    held_out: Annotated[float, Field(ge=LEAST_SHARE_HELD_OUT, le=MOST_SHARE_HELD_OUT)]
    evaluations: Annotated[int, Field(ge=1, le=MOST_EVALUATIONS)]
    workers: Annotated[int, Field(ge=1, le=MOST_WORKERS)] | None
    device: str | None = None
    calendar: str | None = None  # None = from the bars
    index_only: bool | None = None  # trajectories; None = let the memory decide
    fingerprints: dict[str, str] | None = None  # of the bars of each agent


class AboutTraining(BaseModel):
    """What `about.json` must say."""

    verb: Literal["train"]
    request: TrainRequest


def read_request(run: Path) -> tuple[TrainRequest, Resolved]:
    """What a run was asked to do, and with which settings."""
    about = read_json(run / "about.json", AboutTraining, cure=NOT_A_RUN)
    resolved = read_json(run / "settings.json", Resolved, cure=NOT_A_RUN)
    check_links(run)
    return about.request, resolved


def write_request(out: Path, name: str, request: TrainRequest, resolved: Resolved) -> Path:
    """A new run folder that knows what was asked."""
    runs_folder(out)
    about = {"verb": "train", "request": asdict(request)}
    return create_run(out, f"train-{name}", resolved, about)
