"""The policy inside the program: networks, distributions and the noise they are given."""

import math

import jax
import jax.numpy as jnp

from flatout.arrays import Array
from flatout.learners.environment import Box
from flatout.learners.rates import Program, Rates
from flatout.policies.actions import Categorical, Distribution, Gaussian, SquashedGaussian
from flatout.policies.network import Network, actor, critic


def noise_key(seed: Array, updates: Array | int, purpose: int) -> Array:
    """The key of one purpose in one update of one seed."""
    return jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), updates), purpose)


def normal(key: Array, shape: tuple[int, ...]) -> Array:
    """Standard normal noise by Box and Muller's method, which costs a CPU a third of inverting the error function."""
    half = -(-math.prod(shape) // 2)
    uniform = jax.random.uniform(key, (2, half))
    radius, angle = jnp.sqrt(-2 * jnp.log1p(-uniform[0])), (2 * math.pi) * uniform[1]
    both = jnp.concatenate([radius * jnp.cos(angle), radius * jnp.sin(angle)])
    return jnp.reshape(both[: math.prod(shape)], shape)


def distribution_of(program: Program, network: Network, head: Array) -> Distribution:
    """The distribution that the actor's output describes."""
    if not isinstance(program.environment.actions, Box):
        return Categorical(head)
    kind = Gaussian if program.distribution == "gaussian" else SquashedGaussian
    return kind(head, network.log_std)


def actor_of(program: Program, rates: Rates, network: Network, observation: Array) -> Distribution:
    """What the policy would do."""
    gates = rates.gates if program.gated else None
    return distribution_of(program, network, actor(network, observation, program.activation, jnp, gates))


def critic_of(program: Program, rates: Rates, network: Network, observation: Array) -> Array:
    """What the critic expects."""
    return critic(network, observation, program.activation, jnp, rates.gates if program.gated else None)


def bounded(program: Program, distribution: Distribution, raw: Array) -> Array:
    """What the environment gets for a drawn action."""
    actions = program.environment.actions
    if not isinstance(actions, Box):
        return raw
    return distribution.bounded(raw, jnp.asarray(actions.low), jnp.asarray(actions.high), jnp)
