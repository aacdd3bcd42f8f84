"""The market as an environment of the PyTorch learner."""

from typing import ClassVar

import array_api_compat.torch
import torch
from torch import Tensor

from flatout.arrays import Namespace
from flatout.learners.market_environment import MarketEnvironment


class TorchMarketEnvironment(MarketEnvironment):
    """Accounts in tensors; noise from a generator, on its device."""

    engine: ClassVar[str] = "torch"
    xp: ClassVar[Namespace] = array_api_compat.torch

    def draw(self, key: torch.Generator, n_steps: int, n_envs: int) -> Tensor:
        return torch.rand(n_steps, n_envs, generator=key, device=key.device)
