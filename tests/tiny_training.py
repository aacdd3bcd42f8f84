"""Trainings in real worker processes that take seconds: an environment of a few lines, tiny
networks.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import flatout
from flatout.learners.rates import program_of, rates_of
from flatout.training.metrics_file import Row
from flatout.training.training import Lane, TrainedLane, Training, train_lanes
from flatout.workers.slots import ONE_THREAD, Slot
from small_learners import ClockEnvironment, biting_settings, clock

# where processes find these modules, and the flatout that is tested
FOLDERS = (*Path(__file__).parents[:2], Path(flatout.__file__).parents[1])
PATHS = os.pathsep.join(map(str, FOLDERS))
SETTINGS = biting_settings(hidden=(8, 8), n_steps=8, minibatches=2)
N_ENVS = 4


class Shared(NamedTuple):
    """What all lanes read."""

    scale: Any


class TinyEnvironment(ClockEnvironment):
    """A clock whose data is a tuple of arrays, as a training wants it."""

    def observe(self, view: Any, data: Shared) -> Any:
        return super().observe(view, data.scale)


class DyingEnvironment(TinyEnvironment):
    """Ends its process without a word."""

    def reset(self, *_: Any) -> Any:
        os._exit(7)


class FailingEnvironment(TinyEnvironment):
    """Raises an exception."""

    def reset(self, *_: Any) -> Any:
        raise ValueError("the well is poisoned")


def tiny_training(
    updates: int = 1200,
    chunk: int = 200,
    lanes: int = 2,
    environment: Any = None,
    n_envs: int = N_ENVS,
) -> Training:
    """Lanes that differ in their seeds and rules."""
    program = program_of(SETTINGS, environment or TinyEnvironment(), n_envs)
    made = tuple(
        Lane(
            f"lane{k}",
            k,
            rates_of(SETTINGS, updates, clock(5 + k)),
            clock(6),
            SETTINGS.hidden,
            SETTINGS.log_std,
        )
        for k in range(lanes)
    )
    return Training(
        program,
        Shared(np.array([1.0, 2.0], np.float32)),
        made,
        updates,
        chunk,
        eval_envs=2,
        eval_steps=8,
    )


def tiny_slots(cache: Path, count: int = 1) -> list[Slot]:
    """Workers with one thread each, which find this module and keep what they compiled."""
    environment = {
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": ONE_THREAD,
        "PYTHONPATH": PATHS,
        "JAX_COMPILATION_CACHE_DIR": str(cache),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    return [Slot(f"cpu {k}", (), environment) for k in range(count)]


def run_tiny(
    folder: Path,
    cache: Path,
    workers: int = 1,
    on_rows: Callable[[list[Row]], None] = lambda rows: None,
    **changes: Any,
) -> list[TrainedLane]:
    """Train, or go on, in this folder."""
    folder.mkdir(exist_ok=True)
    return train_lanes(tiny_training(**changes), folder, tiny_slots(cache, workers), on_rows)


def checkpoints(folder: Path) -> dict[str, bytes]:
    """The files by name."""
    return {path.name: path.read_bytes() for path in sorted((folder / "checkpoints").iterdir())}
