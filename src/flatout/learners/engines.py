"""Which library computes: the fused JAX program, or PyTorch driven by Python. Nothing is loaded
before it is chosen.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, Protocol

from flatout.arrays import ArrayTree
from flatout.learners.batch_state import BatchState
from flatout.learners.environment import Environment
from flatout.learners.jobs import Chunk, Job, WorkOrder
from flatout.market.episode import Shape
from flatout.settings.train import EngineName

Engine = Literal["jax", "torch"]


class Programs(Protocol):
    """Compiled programs, which batches of lanes of one shape share."""

    @property
    def working_bytes(self) -> int:
        """Memory that they take while they run, beside what they are given; 0 where unknown."""
        ...


class LaneBatch(Protocol):
    """The lanes of one job on a worker's device; all of their state is on disk after each round."""

    state: BatchState

    @property
    def programs(self) -> Programs:
        """What advances and judges the lanes."""
        ...

    def advance(self, order: WorkOrder) -> Chunk:
        """Carry out an order; what it led to is on disk when this returns."""
        ...


class BatchMaker(NamedTuple):
    """How an engine makes batches of lanes."""

    # from a job, its data, and programs of the engine's own kind or None
    make: Callable[[Job, ArrayTree, Any], LaneBatch]
    load_data: Callable[[Job], ArrayTree]  # the arrays that all lanes share, on the device


def market_environment(shape: Shape, engine: EngineName = "auto") -> Environment:
    """The market as an environment of this engine; JAX's where nobody has chosen."""
    if engine != "torch":
        from flatout.learners.jax_engine.market_environment import JaxMarketEnvironment

        return JaxMarketEnvironment(shape)
    from flatout.learners.torch_engine.market_environment import TorchMarketEnvironment

    return TorchMarketEnvironment(shape)


def engine_of(environment: Environment) -> Engine:
    """The engine of an environment: JAX's unless it says otherwise."""
    return getattr(environment, "engine", "jax")


def choose_batch_maker(environment: Environment) -> BatchMaker:
    """How to make batches of lanes for this environment; loads its engine."""
    if engine_of(environment) == "jax":
        from flatout.learners.jax_engine.lane_batch import JaxLaneBatch
        from flatout.learners.jax_engine.lane_batch import load_data as load_for_jax

        return BatchMaker(JaxLaneBatch, load_for_jax)
    from flatout.learners.torch_engine.lane_batch import TorchLaneBatch
    from flatout.learners.torch_engine.lane_batch import load_data as load_for_torch

    return BatchMaker(TorchLaneBatch, load_for_torch)
