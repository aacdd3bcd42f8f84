"""Adam on PyTorch: its state in the form that checkpoints have, and a step that the device may
skip.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from flatout.arrays import Array
from flatout.learners.hyperparameters import ADAM_EPSILON

FUSED = ("cpu", "cuda", "mps")  # devices on which PyTorch's Adam is one kernel


class AdamState(NamedTuple):
    """The optimiser's state with all weights in one vector, as optax keeps and names it."""

    count: Array
    mu: Array
    nu: Array


def new_adam(
    weights: Sequence[Tensor], device: torch.device, decays: bool = False
) -> torch.optim.Adam:
    """An optimiser of these weights that has not stepped yet; `decays` if it shall shrink them
    beside its steps, by the `weight_decay` of its only group.
    """
    kind = torch.optim.AdamW if decays else torch.optim.Adam
    return kind(weights, eps=ADAM_EPSILON, weight_decay=0.0, fused=device.type in FUSED)


def read_adam(optimiser: torch.optim.Adam, weights: Sequence[Tensor]) -> AdamState:
    """The optimiser's state; zeros for weights that it has not moved yet."""
    known = [(optimiser.state[weight], torch.zeros_like(weight)) for weight in weights]
    steps = known[0][0].get("step", torch.zeros(()))
    first, second = (
        torch.cat([moments.get(name, zeros).reshape(-1) for moments, zeros in known])
        for name in ("exp_avg", "exp_avg_sq")
    )
    return AdamState(steps.to(torch.int32), first, second)


def load_adam(
    optimiser: torch.optim.Adam,
    weights: Sequence[Tensor],
    state: AdamState,
    upload: Callable[[Array], Tensor],
) -> None:
    """Let the optimiser go on from a state of either engine."""
    sizes = [weight.numel() for weight in weights]
    first, second = (torch.split(upload(x), sizes) for x in (state.mu, state.nu))
    for weight, mu, nu in zip(weights, first, second, strict=True):
        optimiser.state[weight] = {
            "step": torch.tensor(float(state.count), device=weight.device),
            "exp_avg": mu.reshape(weight.shape).clone(),
            "exp_avg_sq": nu.reshape(weight.shape).clone(),
        }


def step_where(optimiser: torch.optim.Adam, going: Tensor) -> None:
    """A step of Adam that the device skips by itself where `going` is false. Fused Adam has a
    switch for it, made for overflows.
    """
    if going.device.type in FUSED:
        optimiser.found_inf = 1 - going.to(torch.float32)
        optimiser.step()
    elif bool(going):
        optimiser.step()
