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

    environment: (
        Any  # the environment's rates for the bars that judge; leaves have the lane axis first
    )
    n_envs: int
    n_steps: int
    seed: int = 0
    traced: bool = False  # keep every bar: environment k runs the k-th segment from its start


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


class Newcomers(NamedTuple):
    """Agents that take over some lanes, and what holds for all lanes from then on."""

    rates: Rates  # of all lanes
    judged: Any  # the environment's rates for their evaluation
    lanes: tuple[int, ...]  # which are taken over; one seed, deviation and shape for each
    seeds: tuple[int, ...] = ()
    log_std: tuple[float, ...] = ()
    hidden: tuple[tuple[int, ...], ...] = ()


class Order(NamedTuple):
    """What a worker shall do next."""

    until: tuple[int, ...]  # per lane: advance to this many updates
    job: int = 0  # which of the worker's jobs
    turn: int = 0  # the answer and its checkpoint carry this number
    newcomers: Newcomers | None = None
    delay: int = 0  # bars by which the evaluation carries out orders late
    networks: bool = False  # answer with the networks too


class Chunk(NamedTuple):
    """What a worker answers; arrays have the lane axis first."""

    updates: Array  # (lane,) made so far
    metrics: Array  # (lane, metric), see jax_population.metric_names
    # (lane, figure): reward and length of the evaluation, then its terms; no figure without
    # evaluation
    scores: Array
    steps: Any  # transitions of this chunk, all lanes
    busy: Any  # seconds of training
    seconds: Any  # seconds in all: training, evaluation
    peak_bytes: Any  # the most memory that the process has taken so far
    job: Any = 0  # as ordered
    turn: Any = -1  # as ordered; -1 before the first
    traces: Any = None  # (lane, figure, segment, bar) where they were asked for, see jax_evaluate
    networks: Any = None  # where they were asked for


class Ready(NamedTuple):
    """What a worker says when its program is compiled."""

    last: tuple[Chunk, ...]  # what each job's checkpoint ended with
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


TORCH_DEVICE = "FLATOUT_TORCH_DEVICE"  # tells a worker which device PyTorch shall use
