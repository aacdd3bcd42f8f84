"""How many threads PyTorch uses on a CPU: one for small work, all of the worker's for the rest."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from flatout.learners.rates import Program

FEW_ENVS = 1024  # up to so many a CPU steps faster on one core than on several
# of a minibatch's widest layer: with so few, several cores gain little, and lose all when shared
FEW_UNITS = 2**18


@contextmanager
def limit_threads(small: bool, device: torch.device) -> Iterator[None]:
    """One thread for small work on a CPU: handing it to others takes longer, and waits for
    whatever runs there.
    """
    usual = torch.get_num_threads()
    torch.set_num_threads(1 if small and device.type == "cpu" else usual)
    try:
        yield
    finally:
        torch.set_num_threads(usual)


def is_small_rollout(program: Program) -> bool:
    """Whether one core steps these environments as fast as several would."""
    return program.n_envs <= FEW_ENVS


def is_small_minibatch(program: Program, rows: int | None = None) -> bool:
    """Whether one core learns from a minibatch as fast as several would; `rows` are its transitions
    where they are not those of the program.
    """
    return (rows or program.minibatch) * max(program.hidden) <= FEW_UNITS
