"""What a driver and its workers tell each other. No JAX here: the driver need not load it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from flatout.arrays import Array
from flatout.learners.rates import Program, Rates


@dataclass(frozen=True)
class EvaluationPlan:
    """How lanes are judged after each chunk: the mode of their policies, without noise."""

    environment: Any  # the environment's rates for the bars that judge; leaves have the lane axis first
    n_envs: int
    n_steps: int
    seed: int = 0


@dataclass(frozen=True)
class Job:
    """The lanes of one worker."""

    program: Program
    names: Sequence[str]  # of the lanes
    rates: Rates  # leaves have the lane axis first
    data: Any  # what all lanes share: NamedTuples with .npy files as leaves, or None
    seeds: Sequence[int]
    log_std: Sequence[float]
    hidden: Sequence[tuple[int, ...]]
    checkpoint: Path
    evaluation: EvaluationPlan | None = None


class Chunk(NamedTuple):
    """What a worker answers; arrays have the lane axis first."""

    updates: Array  # (lane,) made so far
    metrics: Array  # (lane, metric), see jax_population.metric_names
    scores: Array  # (lane, figure): reward and length of the evaluation, then its terms; no figure without evaluation
    steps: Any  # transitions of this chunk, all lanes
    busy: Any  # seconds of training
    seconds: Any  # seconds in all: training, evaluation
    peak_bytes: Any  # the most memory that the process has taken so far


class Ready(NamedTuple):
    """What a worker says when its program is compiled."""

    last: Chunk  # what the checkpoint ended with
    compile_seconds: float
    program_bytes: int  # working memory of the compiled program


class Best(NamedTuple):
    """The best network of each lane by its evaluation so far."""

    score: Array  # (lane,)
    updates: Array  # (lane,) when it was found
    network: Any


class Saved(NamedTuple):
    """All that a checkpoint holds."""

    lanes: Any
    best: Best
    last: Chunk


class Failure(NamedTuple):
    """An exception in a worker."""

    kind: str
    message: str
