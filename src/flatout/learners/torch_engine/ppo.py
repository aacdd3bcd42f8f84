"""PPO for one agent on any PyTorch device: the same program, rates and state as the JAX learner,
driven by Python.

Everything stays on the device. A rollout writes into tensors that were made once; nothing in it
waits for the host. Of an update the host asks once per epoch whether the policy has moved too far,
and only where `target_kl` is set.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import array_api_compat.torch as xp
import numpy as np
import torch
from torch import Tensor

from flatout.arrays import leaves_of, map_leaves
from flatout.learners import shuffle
from flatout.learners.agent import actor_of, bounded, critic_of, distribution_of, loss_of
from flatout.learners.environment import Box
from flatout.learners.ppo_math import Moments
from flatout.learners.rates import ADAM_EPSILON, KL_TOLERANCE, UPDATE_METRICS, Program, Rates
from flatout.learners.trajectory import (
    Batch,
    Episodes,
    Lanes,
    Transition,
    advantages,
    count,
    scaled_step,
    scheduled_rate,
    update_metrics,
)
from flatout.market.rules import OFF
from flatout.policies.network import Network

FEW_ENVS = 1024  # up to so many a CPU steps faster on one core than on several
# of a minibatch's widest layer: with so few, several cores gain little, and lose all when shared
FEW_UNITS = 2**18
FUSED = ("cpu", "cuda", "mps")  # devices on which PyTorch's Adam is one kernel


class Noise(NamedTuple):
    """All that is random in one update."""

    action: Tensor  # (step, env, action) normal, or uniform for choices
    luck: Any  # the environment's own, (step, env, ...)
    shuffle: Tensor  # (epoch, round, cell) uniform


class Adam(NamedTuple):
    """The optimiser's state with all weights in one vector, as optax keeps and names it."""

    count: Any
    mu: Any
    nu: Any


class Kernels(NamedTuple):
    """What may be compiled: `one_step` and `agent.loss_of`, or what computes the same."""

    step: Callable[..., Any]
    loss: Callable[..., Any]


class TorchLearner:
    """One agent: its network, optimiser and environments on one device."""

    def __init__(
        self,
        program: Program,
        data: Any,
        rates: Rates,
        network: Network,
        seed: int,
        device: str = "cpu",
        dtype: torch.dtype = torch.float32,
        kernels: "Kernels | None" = None,
    ) -> None:
        self.program, self.data, self.seed = program, data, seed
        self.device, self.dtype = torch.device(device), dtype
        # its own values; on a GPU the host would wait for them
        self.may_ask = self.device.type == "cpu"
        self.kernels = kernels or Kernels(one_step, loss_of)
        self.generator = torch.Generator(self.device)
        self.set_rates(rates)
        self.network = map_leaves(lambda leaf: self.upload(leaf).clone().requires_grad_(), network)
        self.weights = [
            leaf for leaf in leaves_of(self.network) if leaf.numel()
        ]  # choices have no deviations
        self.optimiser = torch.optim.Adam(
            self.weights, eps=ADAM_EPSILON, fused=self.device.type in FUSED
        )
        self.updates = 0
        self.restart()

    def set_rates(self, rates: Rates) -> None:
        """Other rates from now on. Numbers that steer Python's loops stay on the host."""
        self.host = rates
        self.rates: Rates = map_leaves(self.upload, rates)

    def upload(self, leaf: Any) -> Tensor:
        """An array on the device; numbers with a fraction in the learner's precision."""
        tensor = torch.as_tensor(leaf, device=self.device)
        return tensor.to(self.dtype) if tensor.is_floating_point() else tensor

    def restart(self) -> None:
        """Fresh environments."""
        program, env = self.program, self.program.environment
        zeros = torch.zeros(program.n_envs, device=self.device, dtype=self.dtype)
        self.seed_noise(0)
        first = self.upload(env.draw(self.generator, 1, program.n_envs))[0]
        self.environment = env.reset(first, self.data, self.rates.environment)
        self.view = env.view(self.environment, self.data, self.rates.environment)
        self.episodes = Episodes(*(zeros.clone() for _ in Episodes._fields))
        self.discounted = zeros
        self.moments = Moments(zeros[0], zeros[0] + 1, zeros[0] + 1e-4)
        self.buffers: Transition | None = None

    def seed_noise(self, update: int) -> None:
        """All noise follows from the seed and the number of the update: a resumed training needs no
        more.
        """
        words = np.random.SeedSequence([self.seed, update]).generate_state(1, np.uint64)
        self.generator.manual_seed(int(words[0] >> np.uint64(1)))

    def draw(self) -> Noise:
        """The noise of the next update."""
        program, env = self.program, self.program.environment
        self.seed_noise(1 + self.updates)
        size = (program.n_steps, program.n_envs, env.actions.size)
        kind = torch.randn if isinstance(env.actions, Box) else torch.rand
        cells = (int(self.host.epochs), *shuffle.noise_shape(program.rollout))
        options = {"generator": self.generator, "device": self.device, "dtype": self.dtype}
        luck = self.upload(env.draw(self.generator, program.n_steps, program.n_envs))
        return Noise(kind(*size, **options), luck, torch.rand(*cells, **options))

    def update(self, noise: Noise | None = None) -> Tensor:
        """One rollout and what is learned from it; the metrics are a row that is still on the
        device.
        """
        noise = self.draw() if noise is None else noise
        with torch.no_grad():
            with self.threads(self.program.n_envs <= FEW_ENVS):
                steps, terms = self.rollout(noise)
            batch = self.batch_of(steps)
        rate = float(scheduled_rate(self.host, np.asarray(self.updates, np.int32), np))
        with self.threads(self.program.minibatch * max(self.program.hidden) <= FEW_UNITS):
            learned, epochs = self.learn(batch, noise.shuffle, rate)
        self.updates += 1
        with torch.no_grad():
            rates, passes = (torch.full_like(learned[0], value) for value in (rate, epochs))
            return update_metrics(
                learned, rates, passes, self.network, self.episodes, batch, steps.reward, terms, xp
            )

    def rollout(self, noise: Noise) -> tuple[Transition, Tensor]:
        """`n_steps` steps of all environments; also the mean of each reward term."""
        program, env, rules = self.program, self.program.environment, self.rates.environment
        arrivals = []
        fresh = {
            name: torch.zeros_like(self.discounted)
            for name in ("ended", "ended_earned", "ended_length")
        }
        self.episodes = self.episodes._replace(**fresh)
        sums = self.discounted.new_zeros(len(env.terms), program.n_envs)
        carry = (self.environment, self.view, self.episodes, sums)
        for k in range(program.n_steps):
            carry, made, arrived = self.kernels.step(
                program,
                self.network,
                self.rates,
                self.data,
                carry,
                noise.action[k],
                map_leaf(noise.luck, k),
            )
            self.keep(k, made)
            arrivals.append(arrived)
        self.environment, self.view, self.episodes, sums = carry
        assert self.buffers is not None
        self.value_ends(arrivals, rules)
        return self.buffers, torch.mean(sums, dim=1) / program.n_steps

    @contextmanager
    def threads(self, small: bool) -> Iterator[None]:
        """One thread for small work on a CPU: handing it to others takes longer, and waits for
        whatever runs there.
        """
        usual = torch.get_num_threads()
        torch.set_num_threads(1 if small and self.device.type == "cpu" else usual)
        try:
            yield
        finally:
            torch.set_num_threads(usual)

    def warm_up(self) -> None:
        """Make two steps and a gradient that do not count: what is compiled at first use is
        compiled then.
        """
        program, noise = self.program, self.draw()
        sums = self.discounted.new_zeros(len(program.environment.terms), program.n_envs)
        carry = (self.environment, self.view, self.episodes, sums)
        with torch.no_grad(), self.threads(program.n_envs <= FEW_ENVS):
            for k in range(min(2, program.n_steps)):
                inputs = (noise.action[k], map_leaf(noise.luck, k))
                carry, made, _ = self.kernels.step(
                    program, self.network, self.rates, self.data, carry, *inputs
                )
        rows = torch.arange(program.minibatch, device=self.device) % program.n_envs
        batch = map_leaves(
            lambda x: x.index_select(0, rows), Batch(made.seen, made.raw, *[made.reward] * 4)
        )
        with self.threads(program.minibatch * max(program.hidden) <= FEW_UNITS):
            loss, _ = self.kernels.loss(program, self.data, self.rates, self.network, batch, xp)
            torch.autograd.grad(loss, self.weights)

    def keep(self, k: int, made: Transition) -> None:
        """Write a step into the buffers, which are made at the first one."""
        if self.buffers is None:
            n_steps = self.program.n_steps
            self.buffers = map_leaves(
                lambda x: torch.zeros((n_steps, *x.shape), dtype=x.dtype, device=x.device), made
            )
        for buffer, leaf in zip(leaves_of(self.buffers), leaves_of(made), strict=True):
            buffer[k].copy_(leaf)

    def value_ends(self, arrivals: Sequence[Any], rules: Any) -> None:
        """Write the critic's view of where each step led before any restart. Looked at together, at
        the end: which steps were truncated only the device knows. Where asking costs nothing, those
        alone are looked at.
        """
        assert self.buffers is not None
        env, size = self.program.environment, self.steps_at_once
        steps = list(range(len(arrivals)))
        if self.may_ask:
            steps = torch.any(self.buffers.truncated, dim=1).nonzero().flatten().tolist()
        for some in (steps[k : k + size] for k in range(0, len(steps), size)):
            seen = env.observe(
                env.view(side_by_side([arrivals[k] for k in some]), self.data, rules), self.data
            )
            values = critic_of(self.program, self.rates, self.network, seen, xp).reshape(
                len(some), -1
            )
            for row, k in enumerate(some):
                self.buffers.final[k].copy_(values[row])

    @property
    def steps_at_once(self) -> int:
        """Steps whose observations together are as many as a minibatch: that bounds the memory."""
        return max(1, self.program.minibatch // self.program.n_envs)

    def batch_of(self, steps: Transition) -> Batch:
        """What the loss needs, one row per transition."""
        program = self.program
        flat = map_leaves(lambda x: x.reshape(program.rollout, *x.shape[2:]), steps)
        value = torch.cat([self.values_of(flat.seen, k) for k in range(program.minibatches)])
        value = value.reshape(program.n_steps, program.n_envs)
        last = critic_of(
            program, self.rates, self.network, program.environment.observe(self.view, self.data), xp
        )
        log_prob = distribution_of(program, self.network, flat.head).log_prob(flat.raw, xp)
        advantage, returns = advantages(self.rates, steps, value, last, self.scaled(steps), xp)
        return Batch(
            flat.seen, flat.raw, log_prob, *(x.reshape(-1) for x in (value, advantage, returns))
        )

    def values_of(self, seen: Any, block: int) -> Tensor:
        """What the critic expected of one block of transitions."""
        size = self.program.minibatch
        some = map_leaf(seen, slice(block * size, (block + 1) * size))
        observation = (
            self.program.environment.observe(some, self.data) if self.program.index_only else some
        )
        return critic_of(self.program, self.rates, self.network, observation, xp)

    def scaled(self, steps: Transition) -> Tensor:
        """Rewards in units of the running deviation of discounted returns, if asked for."""
        if not bool(self.host.normalise_reward):
            return steps.reward
        carry, rewards = (self.discounted, self.moments), []
        for reward, ended in zip(steps.reward, steps.terminated | steps.truncated, strict=True):
            carry, reward = scaled_step(self.rates, carry, reward, ended, xp)
            rewards.append(reward)
        self.discounted, self.moments = carry
        return torch.stack(rewards)

    def learn(self, batch: Batch, noise: Tensor, rate: float) -> tuple[Tensor, int]:
        """Epochs of minibatches until they are done or the policy has moved too far."""
        program, limited = self.program, float(self.host.target_kl) < OFF
        self.optimiser.param_groups[0]["lr"] = rate
        # the switch of `step_where`, which other rates may have left on
        self.optimiser.found_inf = None
        totals = torch.zeros(UPDATE_METRICS, device=self.device, dtype=self.dtype)
        going = torch.ones((), device=self.device, dtype=torch.bool)
        epochs = 0
        for cells in noise:
            order = shuffle.permutation(cells, program.rollout, torch.int64, xp)
            for rows in order.reshape(program.minibatches, program.minibatch):
                some = map_leaves(lambda x, rows=rows: x.index_select(0, rows), batch)
                going, figures = self.descend(some, going, limited)
                totals += figures
            epochs += 1
            if limited and not bool(going):
                break
        return totals / (epochs * program.minibatches), epochs

    def descend(self, batch: Batch, going: Tensor, limited: bool) -> tuple[Tensor, Tensor]:
        """One step of Adam, unless the policy has moved too far."""
        loss, figures = self.kernels.loss(
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
            going = going & (figures[3] <= KL_TOLERANCE * self.rates.target_kl)
            self.step_where(going)
        else:
            self.optimiser.step()
        return going, torch.stack([x.detach() for x in (*figures, loss, norm)])

    def step_where(self, going: Tensor) -> None:
        """A step of Adam that the device skips by itself. Fused Adam has a switch for it, made for
        overflows.
        """
        if self.device.type in FUSED:
            self.optimiser.found_inf = 1 - going.to(torch.float32)
            self.optimiser.step()
        elif bool(going):
            self.optimiser.step()

    @property
    def state(self) -> Lanes:
        """All that changes, on the device; `load` takes it back."""
        known = [
            (self.optimiser.state[weight], torch.zeros_like(weight)) for weight in self.weights
        ]
        steps = known[0][0].get("step", torch.zeros(()))
        first, second = (
            torch.cat([moments.get(name, zeros).reshape(-1) for moments, zeros in known])
            for name in ("exp_avg", "exp_avg_sq")
        )
        return Lanes(
            network=map_leaves(lambda leaf: leaf.detach(), self.network),
            optimiser=Adam(steps.to(torch.int32), first, second),
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
        sizes = [weight.numel() for weight in self.weights]
        first, second = (
            torch.split(up(x), sizes) for x in (state.optimiser.mu, state.optimiser.nu)
        )
        for weight, mu, nu in zip(self.weights, first, second, strict=True):
            self.optimiser.state[weight] = {
                "step": torch.tensor(float(state.optimiser.count), device=self.device),
                "exp_avg": mu.reshape(weight.shape).clone(),
                "exp_avg_sq": nu.reshape(weight.shape).clone(),
            }
        self.environment, self.view = map_leaves(up, state.environment), map_leaves(up, state.view)
        self.episodes, self.moments = map_leaves(up, state.episodes), map_leaves(up, state.moments)
        self.discounted = up(state.discounted)
        self.seed, self.updates = int(state.seed), int(state.updates)


def one_step(
    program: Program,
    network: Network,
    rates: Rates,
    data: Any,
    carry: Any,
    noise: Tensor,
    luck: Any,
) -> tuple[Any, Transition, Any]:
    """The policy acts once in all environments; also where that led before any restart."""
    env = program.environment
    environment, view, episodes, sums = carry
    observation = env.observe(view, data)
    policy = actor_of(program, rates, network, observation, xp)
    raw = policy.sample(noise, xp)
    environment, step = env.step(
        environment, bounded(program, policy, raw, xp), luck, data, rates.environment
    )
    made = Transition(
        view if program.index_only else observation, raw, policy[0], step.reward, step.terminated,
        step.truncated,
        torch.zeros_like(step.reward),
    )  # fmt: skip
    episodes = count(episodes, step.reward, step.terminated | step.truncated, xp)
    view = env.view(environment, data, rates.environment)
    sums = sums + torch.stack(step.terms) if step.terms else sums
    return (environment, view, episodes, sums), made, step.arrived


def map_leaf(tree: Any, index: Any) -> Any:
    """Each leaf at an index of its first axis."""
    return map_leaves(lambda leaf: leaf[index], tree) if isinstance(tree, tuple) else tree[index]


def side_by_side(states: Sequence[Any]) -> Any:
    """States of several steps as if they were environments of one: joined along the last axis."""
    first = states[0]
    if not isinstance(first, tuple):
        return torch.cat(list(states), dim=-1)
    parts = [side_by_side([state[k] for state in states]) for k in range(len(first))]
    return type(first)(*parts) if hasattr(first, "_fields") else tuple(parts)
