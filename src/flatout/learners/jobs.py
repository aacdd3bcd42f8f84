"""The messages between a driver and its workers: jobs at the start, orders and chunks after it.

No JAX here: the driver need not load it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from flatout.arrays import Array, ArrayTree
from flatout.learners.rates import Program, Rates
from flatout.policies.network import Network

TORCH_DEVICE = "FLATOUT_TORCH_DEVICE"  # tells a worker which device PyTorch shall use


@dataclass(frozen=True)
class EvaluationPlan:
    """How lanes are judged after each chunk: the mode of their policies, without noise."""

    # the environment's rates for the bars that judge; leaves have the lane axis first
    environment: ArrayTree
    n_envs: int
    n_steps: int
    seed: int = 0
    traced: bool = False  # keep every bar: environment k runs the k-th segment from its start


class AgentSpec(NamedTuple):
    """How an agent begins: its seed, the first deviation of its actions, its layers' widths."""

    seed: int
    log_std: float
    hidden: tuple[int, ...]


@dataclass(frozen=True)
class Job:
    """The lanes that one worker advances together."""

    program: Program
    names: Sequence[str]  # of the lanes
    rates: Rates  # leaves have the lane axis first
    data: ArrayTree  # what all lanes share: NamedTuples with .npy files as leaves, or None
    seeds: Sequence[int]
    log_std: Sequence[float]
    hidden: Sequence[tuple[int, ...]]
    checkpoint: Path
    evaluation: EvaluationPlan | None = None

    def agents(self) -> Iterator[AgentSpec]:
        """How the agent of each lane begins, in the order of the lanes."""
        for agent in zip(self.seeds, self.log_std, self.hidden, strict=True):
            yield AgentSpec(*agent)


class NewLanes(NamedTuple):
    """Agents that take over some lanes, and what holds for all lanes from then on."""

    rates: Rates  # of all lanes
    judged: ArrayTree  # the environment's rates for their evaluation
    lanes: tuple[int, ...]  # which are taken over; one seed, deviation and shape for each
    seeds: tuple[int, ...] = ()
    log_std: tuple[float, ...] = ()
    hidden: tuple[tuple[int, ...], ...] = ()

    def agents(self) -> Iterator[tuple[int, AgentSpec]]:
        """Each lane that is taken over, with how its new agent begins."""
        agents = zip(self.seeds, self.log_std, self.hidden, strict=True)
        for lane, agent in zip(self.lanes, agents, strict=True):
            yield lane, AgentSpec(*agent)


class WorkOrder(NamedTuple):
    """What a worker shall do next with the lanes of one of its jobs; a chunk is the answer."""

    until: tuple[int, ...]  # per lane: advance to this many updates
    job: int = 0  # which of the worker's jobs
    round: int = 0  # the answer and its checkpoint carry this number
    new_lanes: NewLanes | None = None
    delay: int = 0  # bars by which the evaluation carries out the policies' orders late
    networks: bool = False  # answer with the networks too


class Chunk(NamedTuple):
    """What a worker answers to an order; arrays have the lane axis first."""

    updates: Array  # (lane,) made so far
    metrics: Array  # (lane, metric), see metrics.metric_names
    scores: Array  # (lane, figure), see metrics.score_names; no figure without evaluation
    steps: int  # transitions of this chunk, all lanes
    busy: float  # seconds of training
    seconds: float  # seconds in all: training, evaluation
    peak_bytes: int  # the most memory that the process has taken so far
    job: int = 0  # as ordered
    round: int = -1  # as ordered; -1 before the first
    traces: Array = None  # (lane, term, segment, bar) where they were asked for, else empty
    networks: Network | None = None  # of all lanes, where they were asked for


class Ready(NamedTuple):
    """A worker's first message, when its programs are compiled."""

    last: tuple[Chunk, ...]  # what each job's checkpoint ended with
    compile_seconds: float
    program_bytes: int  # working memory of the compiled program


class WorkerFailure(NamedTuple):
    """A worker's last message: the exception that ended it."""

    kind: str
    message: str
