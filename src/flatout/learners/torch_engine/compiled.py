"""The learner's step and loss, fused by `torch.compile` where that pays; plain PyTorch where it
cannot be, said in one line.

Compiling takes half a minute, so short trainings go without. `FLATOUT_TORCH_COMPILE=0` switches it
off, 1 on.
"""

import importlib.util
import os
import shutil
import sys
from collections.abc import Callable
from typing import Any

import torch

from flatout.learners.agent import loss_of
from flatout.learners.torch_engine.ppo import Kernels, one_step

SWITCH = "FLATOUT_TORCH_COMPILE"
WORTH = 50_000  # steps of all environments together, from which fusing pays for its compilation
PLAIN = Kernels(one_step, loss_of)


def quick_kernels(steps: int, device: str) -> Kernels:
    """What a training of so many steps uses."""
    asked = os.environ.get(SWITCH)
    wanted = steps >= WORTH if asked is None else asked not in ("", "0")
    return (
        Kernels(*(Fused(function) for function in PLAIN))
        if wanted and can_compile(device)
        else PLAIN
    )


def can_compile(device: str) -> bool:
    """Whether the tools that `torch.compile` needs are there."""
    if device == "cpu":
        return any(shutil.which(name) for name in (os.environ.get("CXX", "g++"), "g++", "clang++"))
    return device.startswith("cuda") and importlib.util.find_spec("triton") is not None


class Fused:
    """A compiled function, until it fails for the first time."""

    def __init__(self, plain: Callable[..., Any]) -> None:
        self.plain = plain
        self.current: Callable[..., Any] = torch.compile(plain, fullgraph=True, dynamic=False)

    def __call__(self, *inputs: Any) -> Any:
        try:
            return self.current(*inputs)
        except (
            Exception
        ) as error:  # a compiler may fail in any way; plain PyTorch does not need one
            if self.current is self.plain:
                raise
            self.current = self.plain
            told = str(error).strip().splitlines()
            sys.stderr.write(
                f"torch.compile failed ({told[0] if told else type(error).__name__}); going on "
                f"without\n"
            )
            return self.plain(*inputs)
