"""The learner's step and loss, fused by `torch.compile` where that pays; plain PyTorch where it
cannot be, with one line that says so.

Compiling takes half a minute, so short trainings go without. `FLATOUT_TORCH_COMPILE=0` switches it
off, 1 on.
"""

import importlib.util
import os
import shutil
import sys
from collections.abc import Callable
from typing import Generic, ParamSpec, TypeVar

import array_api_compat.torch as xp
import torch

from flatout.arrays import map_leaves
from flatout.learners.agent import loss_of
from flatout.learners.torch_engine.ppo import TorchLearner
from flatout.learners.torch_engine.rollout import (
    Kernels,
    RolloutState,
    index_leaves,
    step_environments,
)
from flatout.learners.torch_engine.threads import (
    is_small_minibatch,
    is_small_rollout,
    limit_threads,
)
from flatout.learners.trajectory import Batch

SWITCH = "FLATOUT_TORCH_COMPILE"
WORTH = 50_000  # steps of all environments together, from which fusing pays for its compilation
PLAIN = Kernels(step_environments, loss_of)
Inputs = ParamSpec("Inputs")
Output = TypeVar("Output")


def choose_kernels(steps: int, device: str) -> Kernels:
    """What a training of so many steps uses."""
    asked = os.environ.get(SWITCH)
    wanted = steps >= WORTH if asked is None else asked not in ("", "0")
    return (
        Kernels(FusedFunction(PLAIN.step), FusedFunction(PLAIN.loss))
        if wanted and can_compile(device)
        else PLAIN
    )


def can_compile(device: str) -> bool:
    """Whether the tools that `torch.compile` needs are there."""
    if device == "cpu":
        return any(shutil.which(name) for name in (os.environ.get("CXX", "g++"), "g++", "clang++"))
    return device.startswith("cuda") and importlib.util.find_spec("triton") is not None


class FusedFunction(Generic[Inputs, Output]):
    """A compiled function, until it fails for the first time."""

    def __init__(self, plain: Callable[Inputs, Output]) -> None:
        self.plain = plain
        self.current: Callable[Inputs, Output] = torch.compile(plain, fullgraph=True, dynamic=False)

    def __call__(self, *inputs: Inputs.args, **options: Inputs.kwargs) -> Output:
        try:
            return self.current(*inputs, **options)
        except Exception as error:  # a compiler may fail anyhow; plain PyTorch needs none
            if self.current is self.plain:
                raise
            self.current = self.plain
            lines = str(error).strip().splitlines()
            sys.stderr.write(
                f"torch.compile failed ({lines[0] if lines else type(error).__name__}); going on "
                f"without\n"
            )
            return self.plain(*inputs, **options)


def warm_up(learner: TorchLearner) -> None:
    """Make two steps and a gradient that do not count: what is compiled at first use is compiled
    then.
    """
    program, noise = learner.program, learner.draw()
    sums = learner.discounted.new_zeros(len(program.environment.terms), program.n_envs)
    state = RolloutState(learner.environment, learner.view, learner.episodes, sums)
    given = (program, learner.network, learner.rates, learner.data)
    with torch.no_grad(), limit_threads(is_small_rollout(program), learner.device):
        for k in range(min(2, program.n_steps)):
            inputs = (noise.action[k], index_leaves(noise.luck, k))
            state, made, _ = learner.kernels.step(*given, state, *inputs)
    rows = torch.arange(program.minibatch, device=learner.device) % program.n_envs
    batch = map_leaves(
        lambda x: x.index_select(0, rows), Batch(made.seen, made.raw, *[made.reward] * 4)
    )
    with limit_threads(is_small_minibatch(program), learner.device):
        loss, _ = learner.kernels.loss(
            program, learner.data, learner.rates, learner.network, batch, xp
        )
        torch.autograd.grad(loss, learner.weights)
