"""What a batch of lanes reports and keeps on disk, whichever engine runs it: arrays that all of
them name alike.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from flatout.arrays import Array
from flatout.learners.checkpoint import Arrays, check_arrays, read_checkpoint, write_checkpoint
from flatout.learners.jobs import Chunk, Job
from flatout.learners.metrics import metric_names, score_names
from flatout.learners.trajectory import Lanes
from flatout.policies.network import Network

# Arrays are named by their place in `BatchState`, but for those whose field has another name by
# now: checkpoints of earlier versions must open, and theirs must open ours.
NAMES_ON_DISK = {"last/round": "last/turn"}
SMALL_COUNTERS = ("last/job", "last/round")  # int32 on disk; Python's numbers would be wider

NamedArrays = Sequence[tuple[str, Array]]  # (name, leaf) of all arrays of a state


class Best(NamedTuple):
    """The best network of each lane by its evaluation so far."""

    score: Array  # (lane,)
    updates: Array  # (lane,) when it was found
    network: Network


class BatchState(NamedTuple):
    """All that a checkpoint holds; the fields are the first part of the arrays' names."""

    lanes: Lanes
    best: Best
    last: Chunk


class EvaluationResult(NamedTuple):
    """What an evaluation found; what was not asked for is as it was before."""

    scores: Array  # (lane, figure)
    traces: Array  # (lane, term, segment, bar)
    best: Best


def empty_chunk(job: Job) -> Chunk:
    """What a job reports before its first round."""
    program, plan, count = job.program, job.evaluation, len(job.seeds)
    env = program.environment
    traced, terms = bool(plan and plan.traced), len(env.terms) + len(env.traced)
    figures = len(score_names(program)) if plan and not traced else 0
    return Chunk(
        updates=np.zeros(count, np.int32),
        metrics=np.zeros((count, len(metric_names(program))), np.float32),
        scores=np.zeros((count, figures), np.float32),
        steps=0,
        busy=0.0,
        seconds=0.0,
        peak_bytes=0,
        job=0,
        round=-1,
        traces=np.zeros(
            (count, terms, plan.n_envs, plan.n_steps) if plan and traced else (count, 0), np.float32
        ),
    )


def no_best(lanes: int, network: Network) -> Best:
    """The best networks before any evaluation: worse than whatever comes, and any network."""
    return Best(np.full(lanes, -np.inf, np.float32), np.zeros(lanes, np.int32), network)


def drop_timings(chunk: Chunk) -> Chunk:
    """A chunk without what differs from run to run: equal trainings leave equal checkpoints."""
    return chunk._replace(
        steps=0, busy=0.0, seconds=0.0, peak_bytes=0, job=int(chunk.job), round=int(chunk.round)
    )


def save_state(job: Job, named: NamedArrays) -> None:
    """Replace the job's checkpoint by these arrays, under their names on disk."""
    arrays = {
        NAMES_ON_DISK.get(name, name): np.asarray(
            leaf, np.int32 if name in SMALL_COUNTERS else None
        )
        for name, leaf in named
    }
    write_checkpoint(job.checkpoint, arrays, {"lanes": list(job.names)})


def read_state(job: Job, fresh: NamedArrays) -> Arrays | None:
    """The arrays of the job's checkpoint by their names in `BatchState`; None where there is no
    checkpoint. They must have the shapes of a fresh state.
    """
    if not job.checkpoint.exists():
        return None
    arrays, _ = read_checkpoint(job.checkpoint)
    shapes = {NAMES_ON_DISK.get(name, name): np.shape(leaf) for name, leaf in fresh}
    check_arrays(job.checkpoint, arrays, shapes)
    return {name: arrays[NAMES_ON_DISK.get(name, name)] for name, _ in fresh}
