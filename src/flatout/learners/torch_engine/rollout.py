"""Trajectories on PyTorch: one step of all environments, the tensors that keep a rollout, and what
the critic says of where its steps led.

Nothing here waits for the host.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import array_api_compat.torch as xp
import torch
from torch import Tensor

from flatout.arrays import ArrayTree, leaves_of, map_leaves
from flatout.learners.agent import actor_of, bound_action, critic_of
from flatout.learners.metrics import LossMetrics
from flatout.learners.rates import Program, Rates
from flatout.learners.trajectory import Episodes, Transition, count_episodes
from flatout.policies.network import Network


class Noise(NamedTuple):
    """All that is random in one update."""

    action: Tensor  # (step, env, action) normal, or uniform for choices
    luck: ArrayTree  # the environment's own, (step, env, ...)
    shuffle: Tensor  # (epoch, round, cell) uniform


class RolloutState(NamedTuple):
    """What goes from one step of a rollout to the next."""

    environment: ArrayTree
    view: ArrayTree
    episodes: Episodes
    sums: Tensor  # (term, env) of the reward's terms


class Kernels(NamedTuple):
    """What may be compiled: `step_environments` and `agent.loss_of`, or what computes the same."""

    step: Callable[..., tuple[RolloutState, Transition, ArrayTree]]
    loss: Callable[..., tuple[Tensor, LossMetrics]]


def step_environments(
    program: Program,
    network: Network,
    rates: Rates,
    data: ArrayTree,
    state: RolloutState,
    noise: Tensor,
    luck: ArrayTree,
) -> tuple[RolloutState, Transition, ArrayTree]:
    """The policy acts once in all environments; also where that led before any restart."""
    env = program.environment
    environment, view, episodes, sums = state
    observation = env.observe(view, data)
    policy = actor_of(program, rates, network, observation, xp=xp)
    raw = policy.sample(noise, xp)
    environment, step = env.step(
        environment,
        bound_action(program, policy, raw, xp),
        noise=luck,
        data=data,
        rates=rates.environment,
    )
    made = Transition(
        seen=view if program.index_only else observation,
        raw=raw,
        head=policy[0],
        reward=step.reward,
        terminated=step.terminated,
        truncated=step.truncated,
        final=torch.zeros_like(step.reward),
    )
    episodes = count_episodes(episodes, step.reward, step.terminated | step.truncated, xp)
    view = env.view(environment, data, rates.environment)
    sums = sums + torch.stack(step.terms) if step.terms else sums
    return RolloutState(environment, view, episodes, sums), made, step.arrived


def new_buffers(n_steps: int, made: Transition) -> Transition:
    """Tensors for the steps of a rollout that are like this one; written over again and again."""
    return map_leaves(
        lambda x: torch.zeros((n_steps, *x.shape), dtype=x.dtype, device=x.device), made
    )


def keep_step(buffers: Transition, k: int, made: Transition) -> None:
    """Write the k-th step of a rollout into its buffers."""
    for buffer, leaf in zip(leaves_of(buffers), leaves_of(made), strict=True):
        buffer[k].copy_(leaf)


def value_arrivals(
    program: Program,
    network: Network,
    rates: Rates,
    data: ArrayTree,
    buffers: Transition,
    arrivals: Sequence[ArrayTree],
    may_ask: bool,
) -> None:
    """Write the critic's view of where each step led before any restart into the buffers.

    Looked at together, at the end: which steps were truncated only the device knows. Where asking
    costs nothing (`may_ask`), those alone are looked at. As many steps go at once as their
    observations make a minibatch: that bounds the memory.
    """
    env, size = program.environment, max(1, program.minibatch // program.n_envs)
    steps = list(range(len(arrivals)))
    if may_ask:
        steps = torch.any(buffers.truncated, dim=1).nonzero().flatten().tolist()
    for some in (steps[k : k + size] for k in range(0, len(steps), size)):
        joined = join_states([arrivals[k] for k in some])
        seen = env.observe(env.view(joined, data, rates.environment), data)
        values = critic_of(program, rates, network, seen, xp=xp).reshape(len(some), -1)
        for row, k in enumerate(some):
            buffers.final[k].copy_(values[row])


def index_leaves(tree: ArrayTree, index: int | slice) -> ArrayTree:
    """Each leaf of a tree at an index of its first axis."""
    return map_leaves(lambda leaf: leaf[index], tree) if isinstance(tree, tuple) else tree[index]


def join_states(states: Sequence[ArrayTree]) -> ArrayTree:
    """States of several steps as if they were environments of one: joined along the last axis."""
    first = states[0]
    if not isinstance(first, tuple):
        return torch.cat(list(states), dim=-1)
    parts = [join_states([state[k] for state in states]) for k in range(len(first))]
    return type(first)(*parts) if hasattr(first, "_fields") else tuple(parts)
