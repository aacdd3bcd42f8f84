"""One agent on any PyTorch device: its network, optimiser, accounts, noise and rates, and its state
as checkpoints of both engines have it. How it learns, `ppo.py` and `pathwise.py` say.
"""

from abc import ABC, abstractmethod

import numpy as np
import torch
from torch import Tensor

from flatout.arrays import Array, ArrayTree, leaves_of, map_leaves
from flatout.learners.ppo_math import Moments
from flatout.learners.rates import Program, Rates
from flatout.learners.torch_engine.adam import load_adam, new_adam, read_adam
from flatout.learners.trajectory import Episodes, Lanes, Transition
from flatout.policies.network import Network


class TorchLane(ABC):
    """One agent: its network, optimiser and environments on one device."""

    def __init__(
        self,
        program: Program,
        data: ArrayTree,
        rates: Rates,
        network: Network,
        seed: int,
        device: str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.program, self.data, self.seed = program, data, seed
        self.device, self.dtype = torch.device(device), dtype
        # its own values; on a GPU the host would wait for them
        self.may_ask = self.device.type == "cpu"
        self.generator = torch.Generator(self.device)
        self.set_rates(rates)
        self.network = map_leaves(lambda leaf: self.upload(leaf).clone().requires_grad_(), network)
        # choices have no deviations
        self.weights = [leaf for leaf in leaves_of(self.network) if leaf.numel()]
        self.optimiser = new_adam(self.weights, self.device)
        self.updates = 0
        self.restart()

    @abstractmethod
    def update(self) -> Tensor:
        """Learn once; the metrics are a row that is still on the device."""

    @abstractmethod
    def warm_up(self) -> None:
        """Compute a little that does not count: what is compiled at first use is compiled then."""

    def set_rates(self, rates: Rates) -> None:
        """Other rates from now on. Numbers that steer Python's loops stay on the host too."""
        self.host_rates = rates
        self.rates: Rates = map_leaves(self.upload, rates)

    def upload(self, leaf: Array) -> Tensor:
        """An array on the device; numbers with a fraction in the learner's precision."""
        tensor = torch.as_tensor(leaf, device=self.device)
        return tensor.to(self.dtype) if tensor.is_floating_point() else tensor

    def restart(self) -> None:
        """Begin fresh episodes in all environments, and forget the scale of rewards."""
        program, env = self.program, self.program.environment
        zeros = torch.zeros(program.n_envs, device=self.device, dtype=self.dtype)
        self.seed_noise(0)
        first = self.upload(env.draw(self.generator, 1, program.n_envs))[0]
        self.environment = env.reset(first, self.data, self.rates.environment)
        self.view = env.view(self.environment, self.data, self.rates.environment)
        self.episodes = Episodes(*(zeros.clone() for _ in Episodes._fields))
        self.discounted = zeros
        self.moments = Moments(zeros[0], zeros[0] + 1, zeros[0] + 1e-4)
        # tensors that updates write over again and again, where they do
        self.buffers: Transition | None = None

    def seed_noise(self, update: int) -> None:
        """All noise follows from the seed and the number of the update: a resumed training needs no
        more.
        """
        words = np.random.SeedSequence([self.seed, update]).generate_state(1, np.uint64)
        self.generator.manual_seed(int(words[0] >> np.uint64(1)))

    @property
    def state(self) -> Lanes:
        """All that changes, on the device; `load` takes it back."""
        return Lanes(
            network=map_leaves(lambda leaf: leaf.detach(), self.network),
            optimiser=read_adam(self.optimiser, self.weights),
            environment=self.environment,
            view=self.view,
            episodes=self.episodes,
            discounted=self.discounted,
            moments=self.moments,
            seed=np.asarray(self.seed, np.uint32),
            updates=np.asarray(self.updates, np.int32),
        )

    def load(self, state: Lanes) -> None:
        """Go on from a state of either engine."""
        up = self.upload
        with torch.no_grad():
            for weight, saved in zip(
                leaves_of(self.network), leaves_of(state.network), strict=True
            ):
                weight.copy_(up(saved))
        load_adam(self.optimiser, self.weights, state.optimiser, up)
        kinds = iter([leaf.dtype for leaf in leaves_of((self.environment, self.view))])
        # whole numbers are wider here than on disk; another kind would be compiled once more
        self.environment, self.view = map_leaves(
            lambda leaf: up(leaf).to(next(kinds)), (state.environment, state.view)
        )
        self.episodes, self.moments = map_leaves(up, state.episodes), map_leaves(up, state.moments)
        self.discounted = up(state.discounted)
        self.seed, self.updates = int(state.seed), int(state.updates)
