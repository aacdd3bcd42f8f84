"""What policies earn without noise: each lane's first episode in each of some environments, on the device."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from flatout.arrays import Array
from flatout.learners.jax_agent import actor_of, bounded, noise_key
from flatout.learners.rates import Program, Rates
from flatout.policies.network import Network


class Evaluation(NamedTuple):
    """Sums over one episode: (lane, env) each, terms (lane, env, term)."""

    reward: Array
    length: Array
    terms: Array


def evaluator(
    program: Program, n_envs: int, n_steps: int, one_by_one: bool | None = None
) -> Callable[[Any, Rates, Network, int], Evaluation]:
    """`evaluate(data, rates, networks, seed)`: runs the mode of each policy for at most `n_steps` steps."""
    one_by_one = jax.default_backend() == "cpu" if one_by_one is None else one_by_one

    def evaluate(data: Any, rates: Rates, networks: Network, seed: Array) -> Evaluation:
        one = partial(_evaluate, program, n_envs, n_steps, data, seed)
        if one_by_one:
            return jax.lax.map(lambda x: one(*x), (rates, networks))
        return jax.vmap(one)(rates, networks)

    return jax.jit(evaluate)


def _evaluate(
    program: Program, n_envs: int, n_steps: int, data: Any, seed: Array, rates: Rates, network: Network
) -> Evaluation:
    env = program.environment
    first, luck = env.draw(noise_key(seed, 0, 0), 1, n_envs), env.draw(noise_key(seed, 0, 1), n_steps, n_envs)
    start = env.reset(jax.tree.map(lambda x: x[0], first), data, rates.environment)

    def body(carry: Any, luck: Any) -> Any:
        state, view, alive, sums = carry
        policy = actor_of(program, rates, network, env.observe(view, data))
        action = bounded(program, policy, policy.mode(jnp))
        state, step = env.step(state, action, luck, data, rates.environment)
        counted = jnp.stack([step.reward, jnp.ones(n_envs), *step.terms])
        sums = sums + alive * counted
        alive = alive * (1 - jnp.asarray(step.terminated | step.truncated, jnp.float32))
        return (state, env.view(state, data, rates.environment), alive, sums), None

    sums = jnp.zeros((2 + len(env.terms), n_envs))
    carry = (start, env.view(start, data, rates.environment), jnp.ones(n_envs), sums)
    (_, _, _, sums), _ = jax.lax.scan(body, carry, luck)
    return Evaluation(sums[0], sums[1], sums[2:].T)
