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
from typing import Any, Generic, ParamSpec, TypeVar

import torch

from flatout.arrays import map_leaves

SWITCH = "FLATOUT_TORCH_COMPILE"
Inputs = ParamSpec("Inputs")
Output = TypeVar("Output")
KernelsT = TypeVar("KernelsT", bound=tuple[Callable[..., Any], ...])


def choose_kernels(plain: KernelsT, worth: bool, device: str) -> KernelsT:
    """What a training uses: the plain functions, or the same compiled where that is worth it."""
    asked = os.environ.get(SWITCH)
    wanted = worth if asked is None else asked not in ("", "0")
    if not (wanted and can_compile(device)):
        return plain
    return map_leaves(FusedFunction, plain)


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
