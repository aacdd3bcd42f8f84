"""Which library computes: the fused JAX program, or PyTorch driven by Python. Nothing is loaded
before it is chosen.
"""

from collections.abc import Callable
from typing import Any, Literal, Protocol

from flatout.learners.environment import Environment
from flatout.learners.jobs import Chunk, Job, Order
from flatout.market.episode import Shape
from flatout.settings.tables import EngineName

Engine = Literal["jax", "torch"]


class LaneBatch(Protocol):
    """The lanes of one job on a worker's device; all of their state is on disk after each turn."""

    state: Any  # jobs.Saved
    compiled: Any  # what crews of one shape share; knows its working_bytes

    def advance(self, order: Order) -> Chunk: ...


def market_environment(shape: Shape, engine: EngineName = "auto") -> Environment:
    """The market as an environment of this engine; JAX's where nobody has chosen."""
    if engine != "torch":
        from flatout.learners.jax_engine.market_environment import JaxMarketEnvironment

        return JaxMarketEnvironment(shape)
    from flatout.learners.torch_engine.market_environment import TorchMarketEnvironment

    return TorchMarketEnvironment(shape)


def engine_of(environment: Environment) -> Engine:
    """Environments are JAX's unless they say otherwise."""
    return getattr(environment, "engine", "jax")


def batch_maker(environment: Environment) -> tuple[Callable[..., LaneBatch], Callable[[Job], Any]]:
    """How to make batches of lanes for this environment, and how to load their shared data."""
    if engine_of(environment) == "jax":
        from flatout.learners.jax_engine.lane_batch import JaxLaneBatch
        from flatout.learners.jax_engine.lane_batch import load_data as load_for_jax

        return JaxLaneBatch, load_for_jax
    from flatout.learners.torch_engine.lane_batch import TorchLaneBatch
    from flatout.learners.torch_engine.lane_batch import load_data as load_for_torch

    return TorchLaneBatch, load_for_torch
