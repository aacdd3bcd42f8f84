"""What policies earn without noise, in PyTorch: see jax_evaluate.py, whose figures these are."""

from typing import Any

import array_api_compat.torch as xp
import torch
from torch import Tensor

from flatout.learners.agent import actor_of
from flatout.learners.rates import Program, Rates
from flatout.learners.torch_ppo import bounded
from flatout.policies.network import Network


@torch.no_grad()  # type: ignore[untyped-decorator]
def evaluate(
    program: Program, n_envs: int, n_steps: int, data: Any, rates: Rates, network: Network, generator: Any
) -> Tensor:
    """(figure,): reward, length and terms of the first episode, summed over it; means over the environments."""
    env, like = program.environment, rates.gamma
    alive = like.new_ones(n_envs)
    state = env.reset(env.draw(generator, 1, n_envs)[0].to(like.dtype), data, rates.environment)
    luck = env.draw(generator, n_steps, n_envs).to(like.dtype)
    sums = like.new_zeros(2 + len(env.terms), n_envs)
    for k in range(n_steps):
        action = decide(program, data, rates, network, env.view(state, data, rates.environment))
        state, step = env.step(state, action, luck[k], data, rates.environment)
        sums = sums + alive * torch.stack([step.reward, torch.ones_like(alive), *step.terms])
        alive = alive * (1 - (step.terminated | step.truncated).to(alive.dtype))
    return torch.mean(sums, dim=1)


@torch.no_grad()  # type: ignore[untyped-decorator]
def trace(
    program: Program, n_segments: int, n_steps: int, data: Any, rates: Rates, network: Network, delay: int = 0
) -> Tensor:
    """(term, segment, bar): every unweighted term of every bar of each segment; orders are carried out `delay` bars
    after they were decided, the first one until there is an old one.
    """
    env, like = program.environment, rates.gamma
    which = (torch.arange(n_segments, device=like.device, dtype=like.dtype) + 0.5) / n_segments
    state = env.reset(which, data, rates.environment)
    alive, unused = like.new_ones(n_segments), torch.zeros_like(which)
    decided: list[Tensor] = []
    found = []
    for _ in range(n_steps):
        decided.append(decide(program, data, rates, network, env.view(state, data, rates.environment)))
        decided = decided[-(delay + 1) :]
        state, step = env.step(state, decided[0], unused, data, rates.environment)
        found.append(alive * torch.stack(step.terms))
        alive = alive * (1 - (step.terminated | step.truncated).to(alive.dtype))
    return torch.stack(found, dim=-1)


def decide(program: Program, data: Any, rates: Rates, network: Network, view: Any) -> Tensor:
    """The mode of the policy."""
    policy = actor_of(program, rates, network, program.environment.observe(view, data), xp)
    return bounded(program, policy, policy.mode(xp))
