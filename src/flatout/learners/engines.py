"""Which library computes: the fused JAX program, or PyTorch driven by Python. Nothing is loaded before it is chosen."""

from collections.abc import Callable
from typing import Any, Literal, Protocol

from flatout.learners.environment import Environment
from flatout.learners.jobs import Chunk, Job, Order
from flatout.market.episode import Shape
from flatout.settings import EngineName

Engine = Literal["jax", "torch"]


class Crew(Protocol):
    """The lanes of one job on a worker's device; all of their state is on disk after each turn."""

    state: Any  # jobs.Saved
    compiled: Any  # what crews of one shape share; knows its working_bytes

    def advance(self, order: Order) -> Chunk: ...


def market_environment(shape: Shape, engine: EngineName = "auto") -> Environment:
    """The market as an environment of this engine; JAX's where nobody has chosen."""
    if engine != "torch":
        from flatout.learners.jax_market_environment import JaxMarketEnvironment

        return JaxMarketEnvironment(shape)
    from flatout.learners.torch_market_environment import TorchMarketEnvironment

    return TorchMarketEnvironment(shape)


def engine_of(environment: Environment) -> Engine:
    """Environments are JAX's unless they say otherwise."""
    return getattr(environment, "engine", "jax")


def crews_of(environment: Environment) -> tuple[Callable[..., Crew], Callable[[Job], Any]]:
    """How to make crews for this environment, and how to load their shared data."""
    if engine_of(environment) == "jax":
        from flatout.learners import jax_crew

        return jax_crew.JaxCrew, jax_crew.load_data
    from flatout.learners import torch_crew

    return torch_crew.TorchCrew, torch_crew.load_data
