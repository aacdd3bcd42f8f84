"""PPO over environments that are stepped on the host: the policy acts in NumPy, PyTorch learns from
what came of it.

One observation is too little work for PyTorch, whose calls cost more than the products in them; so
the actor runs in NumPy on the same weights. Whoever steps the environments hands in what happened;
this file knows no library of them.
"""

from collections.abc import Callable
from typing import NamedTuple

import array_api_compat.torch as xp
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from flatout.arrays import Array, ArrayTree, map_leaves, to_numpy
from flatout.learners.agent import distribution_of
from flatout.learners.environment import Actions, Box, Step
from flatout.learners.metrics import MINIBATCH_METRICS
from flatout.learners.ppo_math import explained_variance
from flatout.learners.rates import Program, Rates
from flatout.learners.torch_engine.adam import AdamState
from flatout.learners.torch_engine.ppo import TorchLearner
from flatout.learners.torch_engine.threads import is_small_minibatch, limit_threads
from flatout.learners.trajectory import Batch, Transition
from flatout.market.rules import OFF
from flatout.policies.network import Network, actor, critic

Floats = NDArray[np.float32]
Flags = NDArray[np.bool_]


class HostView(NamedTuple):
    """What the policy acts on next."""

    observation: Tensor  # (env, feature)


class HostEnvironment(NamedTuple):
    """What a program needs to know of environments that somebody else steps; states and views are
    `Seen`.
    """

    observation_size: int
    actions: Actions

    @property
    def view_size(self) -> int:
        return self.observation_size

    @property
    def terms(self) -> tuple[str, ...]:
        return ()

    @property
    def traced(self) -> tuple[str, ...]:
        return ()

    def trace(self, state: HostView) -> tuple[Tensor, ...]:
        return ()

    def draw(self, key: Array, n_steps: int, n_envs: int) -> Tensor:
        return torch.zeros(n_steps, n_envs)

    def reset(self, noise: Tensor, data: ArrayTree, rates: ArrayTree) -> HostView:
        return HostView(noise.new_zeros(noise.shape[0], self.observation_size))

    def view(self, state: HostView, data: ArrayTree, rates: ArrayTree) -> HostView:
        return state

    def observe(self, view: HostView, data: ArrayTree) -> Tensor:
        return view.observation

    def step(
        self, state: HostView, action: Array, noise: ArrayTree, data: ArrayTree, rates: ArrayTree
    ) -> tuple[HostView, Step]:
        raise NotImplementedError(
            "these environments are stepped on the host: see HostLearner.gather"
        )


class Arrival(NamedTuple):
    """Where one step of all environments led."""

    seen: Floats  # (env, feature) what the policy acts on next
    reward: Floats  # (env,)
    terminated: Flags
    truncated: Flags
    last: Floats | None  # (env, feature) last observations of episodes, read where truncated
    void: Flags | None = (
        # steps that were none: a vector environment that restarts one step late ignores actions
        None
    )
    going: bool = True  # False: stop here


class HostNoise(NamedTuple):
    """All that is random in one update."""

    action: Floats  # (step, env, action) normal, or uniform for choices
    order: NDArray[np.int64]  # (epoch, transition)


class HostLearner:
    """One agent, its optimiser and the trajectories it has seen."""

    def __init__(
        self,
        program: Program,
        batch_size: int,
        rates: Rates,
        network: Network,
        seed: int,
        device: str = "cpu",
    ) -> None:
        whole = program._replace(
            minibatches=1
        )  # minibatches are made here: the last one may be smaller
        self.core = TorchLearner(whole, None, rates, network, seed=seed, device=device)
        self.program, self.batch_size = whole, batch_size
        self.seen = np.zeros((program.n_envs, program.environment.observation_size), np.float32)
        self.steps = new_steps(program)
        self.views: Network | None = None
        # weights are changed in place
        self.views = self.network if self.core.device.type == "cpu" else None
        self.void = np.zeros((program.n_steps, program.n_envs), np.bool_)

    @property
    def network(self) -> Network:
        """The weights for NumPy: views of them on a CPU, copies from elsewhere."""
        return self.views or map_leaves(to_numpy, self.core.network)

    def recall(self, network: Network, adam: AdamState, seed: int, updates: int) -> None:
        """Go on from these weights and this memory of Adam's."""
        self.core.load(
            self.core.state._replace(network=network, optimiser=adam, seed=seed, updates=updates)
        )

    def draw(self) -> HostNoise:
        """The noise of the next update; it follows from the seed and the number of updates."""
        program, core = self.program, self.core
        rng = np.random.default_rng([core.seed, 1 + core.updates])
        actions = program.environment.actions
        kind = rng.standard_normal if isinstance(actions, Box) else rng.random
        noise = kind((program.n_steps, program.n_envs, actions.size), np.float32)
        return HostNoise(
            noise,
            np.stack(
                [rng.permutation(program.rollout) for _ in range(int(core.host_rates.epochs))]
            ),
        )

    def gather(self, step: Callable[[Array], Arrival], noise: Floats) -> bool:
        """`n_steps` steps with drawn actions; False if it was stopped before."""
        program, network, steps = self.program, self.network, self.steps
        steps.final[:], self.void[:] = 0, False
        for k in range(program.n_steps):
            head = actor(network, self.seen, program.activation, np)
            raw = distribution_of(program, network, head, np).sample(noise[k], np)
            arrival = step(raw)
            for buffer, made in zip(
                steps,
                (self.seen, raw, head, arrival.reward, arrival.terminated, arrival.truncated),
                strict=False,
            ):
                buffer[k] = made
            if arrival.last is not None and arrival.truncated.any():
                ended = arrival.truncated
                steps.final[k, ended] = critic(network, arrival.last[ended], program.activation, np)
            if arrival.void is not None:
                self.void[k] = arrival.void
            self.seen = arrival.seen
            if not arrival.going:
                return False
        return True

    def learn(self, orders: NDArray[np.int64], rate: float) -> dict[str, float]:
        """Epochs of minibatches over what was gathered, until they are done or the policy has moved
        too far.
        """
        core = self.core
        core.optimiser.param_groups[0]["lr"] = rate
        core.view = HostView(core.upload(self.seen))
        with torch.no_grad():
            batch = self.without_void(core.batch_of(map_leaves(core.upload, self.steps)))
        rows, epochs = [], 0
        with limit_threads(is_small_minibatch(self.program, self.batch_size), core.device):
            for order in torch.as_tensor(orders, device=core.device):
                figures, going = self.epoch(batch, order)
                rows += figures
                epochs += 1
                if not going:
                    break
        core.updates += 1
        return self.report(torch.stack(rows).mean(dim=0), batch) | {
            "learning_rate": rate,
            "epochs": epochs,
        }

    def epoch(self, batch: Batch, order: Tensor) -> tuple[list[Tensor], bool]:
        """One pass; False if the policy has moved too far amid it."""
        core, limited = self.core, float(self.core.host_rates.target_kl) < OFF
        going, rows = torch.ones((), device=core.device, dtype=torch.bool), []
        for some in torch.split(order, self.batch_size):
            chosen = map_leaves(lambda x, some=some: x.index_select(0, some), batch)
            going, figures = core.descend(chosen, going, limited)
            rows.append(figures)
            if limited and not bool(going):
                return rows, False
        return rows, True

    def without_void(self, batch: Batch) -> Batch:
        """The batch with other transitions in the place of steps that were none, spread evenly."""
        void = self.void.reshape(-1)
        if not void.any():
            return batch
        real, places = np.flatnonzero(~void), np.arange(void.size)
        places[void] = real[np.linspace(0, real.size - 1, int(void.sum())).astype(np.int64)]
        rows = torch.as_tensor(places, device=self.core.device)
        return map_leaves(lambda x: x.index_select(0, rows), batch)

    def report(self, learned: Tensor, batch: Batch) -> dict[str, float]:
        """What was learned, by the names of `rates.METRICS`."""
        with torch.no_grad():
            known = explained_variance(batch.value, batch.returns, xp)
        figures = dict(zip(MINIBATCH_METRICS, learned.tolist(), strict=True))
        deviations = to_numpy(self.core.network.log_std)
        spread = {"std": float(np.exp(deviations).mean())} if deviations.size else {}
        return figures | {"explained_variance": float(known)} | spread


def new_steps(program: Program) -> Transition:
    """Arrays for the steps of a rollout, written over again and again."""
    env, size = program.environment, (program.n_steps, program.n_envs)
    box = isinstance(env.actions, Box)
    return Transition(
        seen=np.zeros((*size, env.observation_size), np.float32),
        raw=np.zeros((*size, *env.actions.drawn_shape), np.float32 if box else np.int64),
        head=np.zeros((*size, env.actions.size), np.float32),
        reward=np.zeros(size, np.float32),
        terminated=np.zeros(size, np.bool_),
        truncated=np.zeros(size, np.bool_),
        final=np.zeros(size, np.float32),
    )
