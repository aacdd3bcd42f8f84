"""PPO for one agent on any PyTorch device: the same program, rates and state as the JAX learner,
driven by Python.

Everything stays on the device. A rollout writes into tensors that were made once; nothing in it
waits for the host. Of an update the host asks once per epoch whether the policy has moved too far,
and only where `target_kl` is set.
"""

import array_api_compat.torch as xp
import numpy as np
import torch
from torch import Tensor

from flatout.arrays import ArrayTree, map_leaves
from flatout.learners import shuffle
from flatout.learners.agent import critic_of, distribution_of, loss_of
from flatout.learners.environment import Box
from flatout.learners.hyperparameters import KL_TOLERANCE
from flatout.learners.metrics import MINIBATCH_METRICS
from flatout.learners.rates import Program, Rates
from flatout.learners.torch_engine.adam import step_where
from flatout.learners.torch_engine.lane import TorchLane
from flatout.learners.torch_engine.rollout import (
    Kernels,
    Noise,
    RolloutState,
    index_leaves,
    keep_step,
    new_buffers,
    step_environments,
    value_arrivals,
)
from flatout.learners.torch_engine.threads import (
    is_small_minibatch,
    is_small_rollout,
    limit_threads,
)
from flatout.learners.trajectory import (
    Batch,
    Transition,
    compute_advantages,
    scale_step,
    scheduled_rate,
    update_metrics,
)
from flatout.market.rules import OFF
from flatout.policies.network import Network

PLAIN = Kernels(step_environments, loss_of)
WORTH = 50_000  # steps of all environments together, from which fusing pays for its compilation


class TorchLearner(TorchLane):
    """One agent that learns by PPO."""

    def __init__(
        self,
        program: Program,
        data: ArrayTree,
        rates: Rates,
        network: Network,
        seed: int,
        device: str = "cpu",
        dtype: torch.dtype = torch.float32,
        kernels: Kernels | None = None,
    ) -> None:
        super().__init__(program, data, rates, network, seed=seed, device=device, dtype=dtype)
        self.kernels = kernels or PLAIN

    def draw(self) -> Noise:
        """The noise of the next update."""
        program, env = self.program, self.program.environment
        self.seed_noise(1 + self.updates)
        size = (program.n_steps, program.n_envs, env.actions.size)
        kind = torch.randn if isinstance(env.actions, Box) else torch.rand
        cells = (int(self.host_rates.epochs), *shuffle.noise_shape(program.rollout))
        options = {"generator": self.generator, "device": self.device, "dtype": self.dtype}
        luck = self.upload(env.draw(self.generator, program.n_steps, program.n_envs))
        return Noise(kind(*size, **options), luck, torch.rand(*cells, **options))

    def update(self, noise: Noise | None = None) -> Tensor:
        """One rollout and what is learned from it; the metrics are a row that is still on the
        device.
        """
        noise = self.draw() if noise is None else noise
        with torch.no_grad():
            with limit_threads(is_small_rollout(self.program), self.device):
                steps, terms = self.run_rollout(noise)
            batch = self.batch_of(steps)
        rate = float(scheduled_rate(self.host_rates, np.asarray(self.updates, np.int32), np))
        with limit_threads(is_small_minibatch(self.program), self.device):
            learned, epochs = self.learn(batch, noise.shuffle, rate)
        self.updates += 1
        with torch.no_grad():
            rates, passes = (torch.full_like(learned[0], value) for value in (rate, epochs))
            return update_metrics(
                learned,
                rate=rates,
                epochs=passes,
                network=self.network,
                episodes=self.episodes,
                batch=batch,
                reward=steps.reward,
                terms=terms,
                xp=xp,
            )

    def run_rollout(self, noise: Noise) -> tuple[Transition, Tensor]:
        """`n_steps` steps of all environments; also the mean of each reward term."""
        program, env = self.program, self.program.environment
        arrivals = []
        fresh = {
            name: torch.zeros_like(self.discounted)
            for name in ("ended", "ended_earned", "ended_length")
        }
        self.episodes = self.episodes._replace(**fresh)
        sums = self.discounted.new_zeros(len(env.terms), program.n_envs)
        state = RolloutState(self.environment, self.view, self.episodes, sums)
        for k in range(program.n_steps):
            state, made, arrived = self.kernels.step(
                program,
                self.network,
                self.rates,
                self.data,
                state,
                noise.action[k],
                index_leaves(noise.luck, k),
            )
            if self.buffers is None:
                self.buffers = new_buffers(program.n_steps, made)
            keep_step(self.buffers, k, made)
            arrivals.append(arrived)
        self.environment, self.view, self.episodes, sums = state
        assert self.buffers is not None
        value_arrivals(
            program,
            self.network,
            self.rates,
            self.data,
            buffers=self.buffers,
            arrivals=arrivals,
            may_ask=self.may_ask,
        )
        return self.buffers, torch.mean(sums, dim=1) / program.n_steps

    def batch_of(self, steps: Transition) -> Batch:
        """What the loss needs, one row per transition."""
        program = self.program
        flat = map_leaves(lambda x: x.reshape(program.rollout, *x.shape[2:]), steps)
        value = torch.cat([self.values_of(flat.seen, k) for k in range(program.minibatches)])
        value = value.reshape(program.n_steps, program.n_envs)
        last = critic_of(
            program,
            self.rates,
            self.network,
            program.environment.observe(self.view, self.data),
            xp=xp,
        )
        log_prob = distribution_of(program, self.network, flat.head, xp).log_prob(flat.raw, xp)
        advantage, returns = compute_advantages(
            self.rates, steps, value, last, reward=self.scale_rewards(steps), xp=xp
        )
        return Batch(
            flat.seen, flat.raw, log_prob, *(x.reshape(-1) for x in (value, advantage, returns))
        )

    def values_of(self, seen: ArrayTree, block: int) -> Tensor:
        """What the critic expected of one block of transitions."""
        size = self.program.minibatch
        some = index_leaves(seen, slice(block * size, (block + 1) * size))
        observation = (
            self.program.environment.observe(some, self.data) if self.program.index_only else some
        )
        return critic_of(self.program, self.rates, self.network, observation, xp=xp)

    def scale_rewards(self, steps: Transition) -> Tensor:
        """Rewards in units of the running deviation of discounted returns, if asked for."""
        if not bool(self.host_rates.normalise_reward):
            return steps.reward
        carry, rewards = (self.discounted, self.moments), []
        for reward, ended in zip(steps.reward, steps.terminated | steps.truncated, strict=True):
            carry, reward = scale_step(self.rates, carry, reward, ended, xp=xp)
            rewards.append(reward)
        self.discounted, self.moments = carry
        return torch.stack(rewards)

    def learn(self, batch: Batch, noise: Tensor, rate: float) -> tuple[Tensor, int]:
        """Epochs of minibatches until they are done or the policy has moved too far."""
        program, limited = self.program, float(self.host_rates.target_kl) < OFF
        self.optimiser.param_groups[0]["lr"] = rate
        # the switch of `step_where`, which other rates may have left on
        self.optimiser.found_inf = None
        totals = torch.zeros(len(MINIBATCH_METRICS), device=self.device, dtype=self.dtype)
        going = torch.ones((), device=self.device, dtype=torch.bool)
        epochs = 0
        for cells in noise:
            order = shuffle.permutation(cells, program.rollout, torch.int64, xp)
            for rows in order.reshape(program.minibatches, program.minibatch):
                some = map_leaves(lambda x, rows=rows: x.index_select(0, rows), batch)
                going, metrics = self.descend(some, going, limited)
                totals += metrics
            epochs += 1
            if limited and not bool(going):
                break
        return totals / (epochs * program.minibatches), epochs

    def descend(self, batch: Batch, going: Tensor, limited: bool) -> tuple[Tensor, Tensor]:
        """One step of Adam, unless the policy has moved too far.

        Whether learning goes on, and the `MINIBATCH_METRICS`; both stay on the device.
        """
        loss, parts = self.kernels.loss(
            self.program, self.data, self.rates, self.network, batch, xp
        )
        gradients = list(torch.autograd.grad(loss, self.weights))
        norm = torch.nn.utils.get_total_norm(gradients)
        torch._foreach_mul_(
            gradients, torch.clamp(self.rates.max_grad_norm / (norm + 1e-6), max=1.0)
        )
        for weight, gradient in zip(self.weights, gradients, strict=True):
            weight.grad = gradient
        if limited:
            going = going & (parts.approx_kl <= KL_TOLERANCE * self.rates.target_kl)
            step_where(self.optimiser, going)
        else:
            self.optimiser.step()
        return going, torch.stack([x.detach() for x in (*parts, loss, norm)])

    def warm_up(self) -> None:
        """Make two steps and a gradient that do not count."""
        program, noise = self.program, self.draw()
        sums = self.discounted.new_zeros(len(program.environment.terms), program.n_envs)
        state = RolloutState(self.environment, self.view, self.episodes, sums)
        given = (program, self.network, self.rates, self.data)
        with torch.no_grad(), limit_threads(is_small_rollout(program), self.device):
            for k in range(min(2, program.n_steps)):
                inputs = (noise.action[k], index_leaves(noise.luck, k))
                state, made, _ = self.kernels.step(*given, state, *inputs)
        rows = torch.arange(program.minibatch, device=self.device) % program.n_envs
        batch = map_leaves(
            lambda x: x.index_select(0, rows), Batch(made.seen, made.raw, *[made.reward] * 4)
        )
        with limit_threads(is_small_minibatch(program), self.device):
            loss, _ = self.kernels.loss(program, self.data, self.rates, self.network, batch, xp)
            torch.autograd.grad(loss, self.weights)
