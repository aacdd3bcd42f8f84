"""A training: lanes handed to workers, what they report written down, checkpoints on disk at every
chunk.

It knows nothing about markets: an environment, its data and each lane's rates come from outside.
"""

import itertools
import shutil
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flatout.arrays import map_leaves
from flatout.learners.checkpoint import read_checkpoint, rebuild_tree
from flatout.learners.jobs import Chunk, EvaluationPlan, Job
from flatout.learners.lane_trees import stack_trees, take_lane
from flatout.learners.rates import Program, Rates
from flatout.policies.network import Network, new_network
from flatout.runs import hold_folder, sweep
from flatout.training.metrics_file import Journal, Row
from flatout.workers.driving import Until, drive_workers, start_workers
from flatout.workers.slots import Slot, share_lanes


class Lane(NamedTuple):
    """One agent of a training: its seed, what it learns by, and what it is judged on."""

    name: str
    seed: int
    rates: Rates
    judged: Any  # the environment's rates for its evaluation
    hidden: tuple[int, ...]
    log_std: float


@dataclass(frozen=True)
class Training:
    """What shall be trained: one program, the data that all lanes share, and the lanes."""

    program: Program
    data: Any  # NamedTuples of NumPy arrays that all lanes share, or None
    lanes: tuple[Lane, ...]
    updates: int  # of every lane
    chunk: int  # updates between two evaluations, reports and checkpoints
    eval_envs: int
    eval_steps: int

    @property
    def steps(self) -> int:
        """Transitions that all lanes together will make."""
        return self.updates * self.program.rollout * len(self.lanes)


class TrainedLane(NamedTuple):
    """A lane's networks at the end."""

    lane: Lane
    last: Network
    best: Network
    best_score: float  # -inf before the first evaluation
    best_updates: int
    updates: int


def train_lanes(
    training: Training, folder: Path, slots: Sequence[Slot], on_rows: Callable[[list[Row]], None]
) -> list[TrainedLane]:
    """Train all lanes, from their checkpoints if there are any; `on_rows` gets each chunk's
    rows.
    """
    with hold_folder(folder):
        return train_held(training, folder, slots, on_rows)


def train_held(
    training: Training, folder: Path, slots: Sequence[Slot], on_rows: Callable[[list[Row]], None]
) -> list[TrainedLane]:
    """Train all lanes in a folder that is held: no other process writes there."""
    jobs = make_jobs(training, folder, len(slots))
    logs = folder / "logs"
    logs.mkdir(exist_ok=True)
    with (
        closing(Journal(training.program, folder)) as journal,
        start_workers(slots, [[job] for job in jobs], logs) as workers,
    ):
        drive_workers(
            workers,
            lambda k, chunk: next_until(training, chunk),
            lambda k, chunk: on_rows(journal.note(jobs[k], chunk)),
        )
    shutil.rmtree(folder / "scratch", ignore_errors=True)
    sweep(folder / "checkpoints")
    return finished_lanes(training, folder, len(slots))


def make_jobs(training: Training, folder: Path, workers: int) -> list[Job]:
    """One job per worker; the shared arrays go into files that all workers map."""
    (folder / "checkpoints").mkdir(exist_ok=True)
    data = shared_files(folder / "scratch", training.data)
    jobs = []
    for k, share in enumerate(share_lanes(len(training.lanes), workers)):
        lanes = [training.lanes[n] for n in share]
        jobs.append(
            Job(
                program=training.program,
                names=[lane.name for lane in lanes],
                rates=stack_trees([lane.rates for lane in lanes]),
                data=data,
                seeds=[lane.seed for lane in lanes],
                log_std=[lane.log_std for lane in lanes],
                hidden=[lane.hidden for lane in lanes],
                checkpoint=checkpoint_path(folder, k),
                evaluation=EvaluationPlan(
                    stack_trees([lane.judged for lane in lanes]),
                    training.eval_envs,
                    training.eval_steps,
                ),
            )
        )
    return jobs


def shared_files(folder: Path, data: Any) -> Any:
    """Write each array of a tree into a file that all workers map; the tree with their paths."""
    folder.mkdir(exist_ok=True)
    numbers = itertools.count()

    def save(array: Any) -> Path:
        path = folder / f"data-{next(numbers)}.npy"
        path.unlink(missing_ok=True)  # it may be another file's second name
        write_array(path, np.require(array, requirements="C"))  # 0-d stays 0-d
        return path

    return None if data is None else map_leaves(save, data)


def write_array(path: Path, array: NDArray[Any]) -> None:
    """A new .npy file. NumPy's own writer does not tell a full disk from other errors."""
    try:
        with path.open("xb") as file:
            np.lib.format.write_array_header_1_0(
                file, np.lib.format.header_data_from_array_1_0(array)
            )
            file.write(array.reshape(-1).view(np.uint8).data)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None


def next_until(training: Training, chunk: Chunk) -> Until | None:
    """The next multiple of the chunk, whatever a lane has done so far; None at the end."""
    done = int(np.min(chunk.updates))
    if done >= training.updates:
        return None
    until = min((done // training.chunk + 1) * training.chunk, training.updates)
    return (until,) * len(chunk.updates)


def finished_lanes(training: Training, folder: Path, workers: int) -> list[TrainedLane]:
    """The networks in the checkpoints, as far as there are any."""
    template = new_network(training.program.sizes, 0)
    results = []
    for k, share in enumerate(share_lanes(len(training.lanes), workers)):
        path = checkpoint_path(folder, k)
        if not path.exists():
            continue
        arrays, _ = read_checkpoint(path)
        last, best = (
            rebuild_tree(template, arrays, name) for name in ("lanes/network", "best/network")
        )
        for n, lane in enumerate(share):
            results.append(
                TrainedLane(
                    lane=training.lanes[lane],
                    last=take_lane(last, n),
                    best=take_lane(best, n),
                    best_score=float(arrays["best/score"][n]),
                    best_updates=int(arrays["best/updates"][n]),
                    updates=int(arrays["lanes/updates"][n]),
                )
            )
    return results


def checkpoint_path(folder: Path, worker: int) -> Path:
    """Where a worker keeps its lanes."""
    return folder / "checkpoints" / f"worker-{worker}.safetensors"
