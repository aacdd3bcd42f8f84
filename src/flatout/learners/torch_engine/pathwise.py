"""Learning along the path in PyTorch: a window of bars as a Python loop whose operations are kept,
one pass back through them, and a step of Adam.

What is computed stands in `learners/pathwise_math.py`. Nothing waits for the host on a GPU. On a
CPU the critic is asked only where an episode was truncated; elsewhere after every bar.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import array_api_compat.torch as xp
import numpy as np
import torch
from torch import Tensor

from flatout.arrays import ArrayTree, freeze, leaves_of, map_leaves
from flatout.learners.agent import critic_of
from flatout.learners.pathwise_math import (
    CriticLoss,
    Passage,
    Window,
    WindowCarry,
    WindowNoise,
    close_window,
    count_gain,
    join_gradients,
    lose_by_critic,
    open_window,
    pass_bar,
    window_metrics,
)
from flatout.learners.rates import Program, Rates
from flatout.learners.torch_engine.adam import new_adam, step_where
from flatout.learners.torch_engine.lane import TorchLane
from flatout.learners.torch_engine.rollout import index_leaves
from flatout.learners.torch_engine.threads import is_small_rollout, limit_threads
from flatout.learners.trajectory import Transition, scheduled_rate
from flatout.policies.network import Network, Perceptron


class PathwiseKernels(NamedTuple):
    """What may be compiled: `pathwise_math.pass_bar`, or what computes the same."""

    bar: Callable[..., tuple[WindowCarry, Passage]]


PLAIN = PathwiseKernels(pass_bar)
WORTH = 15_000  # steps of all environments together, from which fusing pays for its compilation


class PathwiseLearner(TorchLane):
    """One agent that learns along the path."""

    def __init__(
        self,
        program: Program,
        data: ArrayTree,
        rates: Rates,
        network: Network,
        seed: int,
        device: str = "cpu",
        dtype: torch.dtype = torch.float32,
        kernels: PathwiseKernels | None = None,
    ) -> None:
        super().__init__(program, data, rates, network, seed=seed, device=device, dtype=dtype)
        self.kernels = kernels or PLAIN
        self.optimiser = new_adam(self.weights, self.device, decays=True)

    @property
    def valued(self) -> bool:
        """Whether there is a critic to be taught and asked."""
        return float(self.host_rates.value) > 0

    def draw(self) -> WindowNoise:
        """The noise of the next window."""
        program, env = self.program, self.program.environment
        self.seed_noise(1 + self.updates)
        size = (program.n_steps, program.n_envs)
        options = {"generator": self.generator, "device": self.device, "dtype": self.dtype}
        return WindowNoise(
            action=torch.randn(*size, env.actions.size, **options),
            luck=self.upload(env.draw(self.generator, *size)),
            feature=torch.randn(*size, env.observation_size, **options),
        )

    def update(self, noise: WindowNoise | None = None) -> Tensor:
        """One window, and one step along its gradient."""
        noise = self.draw() if noise is None else noise
        with limit_threads(is_small_rollout(self.program), self.device):
            loss, window, by_actor = self.follow_window(noise)
            judged, by_critic = self.judge_window(window)
            gradient, norm = join_gradients(
                self.rates, by_actor, by_critic, freeze(self.network.log_std), xp
            )
            rate = float(scheduled_rate(self.host_rates, np.asarray(self.updates, np.int32), np))
            self.descend(gradient, rate, torch.isfinite(norm))
        self.environment, self.view = window.environment, window.view
        self.episodes = window.episodes
        self.updates += 1
        rates = torch.full_like(norm, rate)
        return window_metrics(self.rates, rates, loss, judged, norm=norm, window=window, xp=xp)

    def follow_window(self, noise: WindowNoise) -> tuple[Tensor, Window, Perceptron]:
        """What the accounts lost in a window, what happened in it, and the gradient for the
        actor.
        """
        loss, window = self.lose_in_window(noise)
        actor = self.network.actor
        gradients = torch.autograd.grad(loss, leaves_of(actor))
        return freeze(loss), window, fill_tree(actor, gradients)

    def lose_in_window(self, noise: WindowNoise) -> tuple[Tensor, Window]:
        """What the accounts lost per bar of a window, in basis points, discounted; what lies beyond
        it by the critic, who does not learn from that.
        """
        program, given = self.program, (self.program, self.data, self.rates, self.network)
        terms = len(program.environment.terms)
        carry = open_window(self.environment, self.view, self.episodes, terms, xp)
        # no tensor twice: what is compiled would be so again for each way in which they may be one
        carry = map_leaves(freeze, carry)
        gains, steps = [], []
        for k in range(program.n_steps):
            carry, bar = self.kernels.bar(*given, carry, index_leaves(noise, k), xp)
            asked = not self.may_ask or bool(torch.any(bar.step.truncated))
            final = self.value_of(bar.arrived) if asked else bar.step.final
            gain, step = count_gain(self.rates, bar, final, xp)
            gains.append(gain)
            steps.append(step if self.valued else step._replace(seen=()))  # for the critic alone
        beyond = self.value_of(carry.view)
        made: Transition = stack_leaves(steps)
        return close_window(program, carry, torch.stack(gains), made, beyond, xp)

    def value_of(self, view: ArrayTree) -> Tensor:
        """What the critic expects, where there is one; else zeros."""
        if not self.valued:
            return torch.zeros_like(self.discounted)
        seen = self.program.environment.observe(view, self.data)
        frozen = map_leaves(freeze, self.network)
        return critic_of(self.program, self.rates, frozen, seen, xp=xp)

    def judge_window(self, window: Window) -> tuple[CriticLoss, Perceptron]:
        """How far the critic is off, and its gradient; zeros where there is none."""
        critic = self.network.critic
        if not self.valued:
            zero = self.discounted.new_zeros(())
            return CriticLoss(zero, zero), map_leaves(torch.zeros_like, critic)
        error, judged = lose_by_critic(
            self.program, self.data, self.rates, self.network, window, xp
        )
        return judged, fill_tree(critic, torch.autograd.grad(error, leaves_of(critic)))

    def descend(self, gradient: Network, rate: float, finite: Tensor) -> None:
        """Adam's step with decoupled weight decay; nothing moves along what is not finite."""
        [group] = self.optimiser.param_groups
        group["lr"], group["weight_decay"] = rate, float(self.host_rates.weight_decay)
        for weight, leaf in zip(leaves_of(self.network), leaves_of(gradient), strict=True):
            weight.grad = leaf
        step_where(self.optimiser, finite)

    def warm_up(self) -> None:
        """Pass some bars, back and forth."""
        with limit_threads(is_small_rollout(self.program), self.device):
            self.follow_window(self.draw())


def fill_tree(tree: Perceptron, leaves: Sequence[Tensor]) -> Perceptron:
    """A tree like this one with these leaves."""
    rest = iter(leaves)
    return map_leaves(lambda _: next(rest), tree)


def stack_leaves(trees: Sequence[ArrayTree]) -> ArrayTree:
    """Equal trees of tensors as one, with a new first axis."""
    first = trees[0]
    if not isinstance(first, tuple):
        return torch.stack(list(trees))
    parts = [stack_leaves([tree[k] for tree in trees]) for k in range(len(first))]
    return type(first)(*parts) if hasattr(first, "_fields") else tuple(parts)
