"""What a crew reports and keeps on disk, whichever engine runs it: arrays that all of them name
alike.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from flatout.learners.checkpoint import Arrays, check_arrays, read_checkpoint, write_checkpoint
from flatout.learners.jobs import Chunk, Job
from flatout.learners.rates import metric_names


def empty_chunk(job: Job) -> Chunk:
    """What a job reports before its first turn."""
    program, plan, count = job.program, job.evaluation, len(job.seeds)
    traced, terms = bool(plan and plan.traced), len(program.environment.terms)
    return Chunk(
        updates=np.zeros(count, np.int32),
        metrics=np.zeros((count, len(metric_names(program))), np.float32),
        scores=np.zeros((count, 2 + terms if plan and not traced else 0), np.float32),
        steps=0,
        busy=0.0,
        seconds=0.0,
        peak_bytes=0,
        job=0,
        turn=-1,
        traces=np.zeros(
            (count, terms, plan.n_envs, plan.n_steps) if plan and traced else (count, 0), np.float32
        ),
    )


def untimed(chunk: Chunk) -> Chunk:
    """A chunk without what differs from run to run: equal trainings leave equal checkpoints."""
    turn, job = np.asarray(chunk.turn, np.int32), np.asarray(chunk.job, np.int32)
    return chunk._replace(steps=0, busy=0.0, seconds=0.0, peak_bytes=0, turn=turn, job=job)


def save(job: Job, named: Sequence[tuple[str, Any]]) -> None:
    """Every array of the state to disk."""
    write_checkpoint(
        job.checkpoint, {name: np.asarray(leaf) for name, leaf in named}, {"lanes": list(job.names)}
    )


def saved_arrays(job: Job, named: Sequence[tuple[str, Any]]) -> Arrays | None:
    """The checkpoint's arrays, which must be like those of a fresh state; None where there is no
    checkpoint.
    """
    if not job.checkpoint.exists():
        return None
    arrays, _ = read_checkpoint(job.checkpoint)
    check_arrays(job.checkpoint, arrays, {name: np.shape(leaf) for name, leaf in named})
    return arrays
