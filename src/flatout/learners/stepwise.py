"""What policies earn without noise, one bar after another in Python: the same figures as those of
jax_engine/evaluate.py.

Written for any array library: NumPy is three times as fast as PyTorch with the few accounts that an
evaluation has, so PyTorch does it only where the arrays are on a GPU.
"""

from typing import ClassVar

import numpy as np

from flatout.arrays import Array, ArrayTree, Namespace
from flatout.learners.agent import actor_of, bound_action
from flatout.learners.market_environment import MarketEnvironment
from flatout.learners.rates import Program, Rates
from flatout.policies.network import Network


class NumpyMarketEnvironment(MarketEnvironment):
    """Accounts in NumPy arrays; noise from NumPy's generator."""

    xp: ClassVar[Namespace] = np

    def draw(self, key: np.random.Generator, n_steps: int, n_envs: int) -> Array:
        return key.random((n_steps, n_envs), np.float32)


def evaluate(
    program: Program,
    data: ArrayTree,
    rates: Rates,
    network: Network,
    *,
    n_envs: int,
    n_steps: int,
    key: Array,
    xp: Namespace,
) -> Array:
    """(figure,): reward, length and terms of the first episode, summed over it; means over the
    environments. See `metrics.score_names`.

    `key` is what the environment draws from: of its own kind, as its library has it.
    """
    env = program.environment
    luck = env.draw(key, 1 + n_steps, n_envs)
    state = env.reset(luck[-1], data, rates.environment)
    alive = xp.ones_like(luck[0])
    sums = xp.stack([xp.zeros_like(alive)] * (2 + len(env.terms)))
    for k in range(n_steps):
        action = decide(program, data, rates, network, state=state, xp=xp)
        state, step = env.step(state, action, noise=luck[k], data=data, rates=rates.environment)
        sums = sums + alive * xp.stack([step.reward, xp.ones_like(alive), *step.terms])
        alive = alive * (1 - xp.astype(step.terminated | step.truncated, alive.dtype))
    return xp.mean(sums, axis=1)


def trace(
    program: Program,
    data: ArrayTree,
    rates: Rates,
    network: Network,
    *,
    n_steps: int,
    which: Array,
    delay: int,
    xp: Namespace,
) -> Array:
    """(term, segment, bar): every unweighted term of every bar of each segment; bars after its end
    are 0.

    `which` (segment,) is the noise that starts an account in each. Orders are carried out `delay`
    bars after they were decided, the first one until there is an old one.
    """
    env = program.environment
    state = env.reset(which, data, rates.environment)
    alive, unused = xp.ones_like(which), xp.zeros_like(which)
    decided: list[Array] = []
    found = []
    for _ in range(n_steps):
        decided = [*decided, decide(program, data, rates, network, state=state, xp=xp)][
            -(delay + 1) :
        ]
        state, step = env.step(state, decided[0], noise=unused, data=data, rates=rates.environment)
        found.append(alive * xp.stack([*step.terms, *env.trace(step.arrived)]))
        alive = alive * (1 - xp.astype(step.terminated | step.truncated, alive.dtype))
    return xp.stack(found, axis=-1)


def decide(
    program: Program,
    data: ArrayTree,
    rates: Rates,
    network: Network,
    state: ArrayTree,
    xp: Namespace,
) -> Array:
    """The mode of the policy in these states, in the environment's bounds."""
    env = program.environment
    seen = env.observe(env.view(state, data, rates.environment), data)
    policy = actor_of(program, rates, network, seen, xp=xp)
    return bound_action(program, policy, policy.mode(xp), xp)
