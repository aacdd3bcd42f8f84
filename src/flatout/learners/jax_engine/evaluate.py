"""What policies earn without noise, on the device: sums over an episode in each of some
environments, or every bar of given stretches.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from flatout.arrays import Array, ArrayTree
from flatout.learners.agent import actor_of, bound_action
from flatout.learners.jax_engine.noise import noise_key
from flatout.learners.rates import Program, Rates
from flatout.policies.network import Network

# state, view, 1 for those whose episode goes on, and sums or the orders of the bars before
EvaluationCarry = tuple[ArrayTree, ArrayTree, Array, Array]


class EpisodeSums(NamedTuple):
    """Sums over one episode: (lane, env) each, terms (lane, env, term)."""

    reward: Array
    length: Array
    terms: Array


def make_evaluator(
    program: Program, n_envs: int, n_steps: int, one_by_one: bool | None = None
) -> Callable[[ArrayTree, Rates, Network, int], EpisodeSums]:
    """`evaluate(data, rates, networks, seed)`: runs the mode of each policy for at most `n_steps`
    steps.
    """
    one_by_one = jax.default_backend() == "cpu" if one_by_one is None else one_by_one

    def evaluate(data: ArrayTree, rates: Rates, networks: Network, seed: Array) -> EpisodeSums:
        one = partial(_evaluate_lane, program, n_envs, n_steps, data, seed)
        if one_by_one:
            return jax.lax.map(lambda x: one(*x), (rates, networks))
        return jax.vmap(one)(rates, networks)

    return jax.jit(evaluate)


def _evaluate_lane(
    program: Program,
    n_envs: int,
    n_steps: int,
    data: ArrayTree,
    seed: Array,
    rates: Rates,
    network: Network,
) -> EpisodeSums:
    env = program.environment
    first, luck = (
        env.draw(noise_key(seed, 0, 0), 1, n_envs),
        env.draw(noise_key(seed, 0, 1), n_steps, n_envs),
    )
    start = env.reset(jax.tree.map(lambda x: x[0], first), data, rates.environment)

    def body(carry: EvaluationCarry, luck: ArrayTree) -> tuple[EvaluationCarry, None]:
        state, view, alive, sums = carry
        policy = actor_of(program, rates, network, env.observe(view, data), xp=jnp)
        action = bound_action(program, policy, policy.mode(jnp), jnp)
        state, step = env.step(state, action, noise=luck, data=data, rates=rates.environment)
        counted = jnp.stack([step.reward, jnp.ones(n_envs), *step.terms])
        sums = sums + alive * counted
        alive = alive * (1 - jnp.asarray(step.terminated | step.truncated, jnp.float32))
        return (state, env.view(state, data, rates.environment), alive, sums), None

    sums = jnp.zeros((2 + len(env.terms), n_envs))
    carry = (start, env.view(start, data, rates.environment), jnp.ones(n_envs), sums)
    (_, _, _, sums), _ = jax.lax.scan(body, carry, luck)
    return EpisodeSums(sums[0], sums[1], sums[2:].T)


def make_tracer(
    program: Program, n_segments: int, n_steps: int, most_delay: int = 0
) -> Callable[[ArrayTree, Rates, Network, Array], Array]:
    """`trace(data, rates, networks, delay)`: every unweighted term of every bar and what the
    environment traces of its state, (lane, term, segment, bar).

    Each lane runs each of its segments once, from the first bar, flat; bars after the end are 0. An
    order is carried out `delay` (lane,) bars after it was decided, at most `most_delay`; before
    there is an old one, the first serves. All lanes advance together: this is one narrow scan,
    which many lanes make wider.
    """
    env = program.environment

    def one(data: ArrayTree, rates: Rates, network: Network, delay: Array) -> Array:
        which = (
            jnp.arange(n_segments) + 0.5
        ) / n_segments  # whole segments are equally likely starts: one each
        start = env.reset(which, data, rates.environment)
        view = env.view(start, data, rates.environment)

        def decide(view: ArrayTree) -> Array:
            policy = actor_of(program, rates, network, env.observe(view, data), xp=jnp)
            return bound_action(program, policy, policy.mode(jnp), jnp)

        def body(carry: EvaluationCarry, noise: Array) -> tuple[EvaluationCarry, Array]:
            state, view, alive, earlier = carry
            decided = jnp.concatenate([decide(view)[None], earlier])
            state, step = env.step(state, decided[delay], noise, data, rates.environment)
            terms = alive * jnp.stack([*step.terms, *env.trace(step.arrived)])
            alive = alive * (1 - jnp.asarray(step.terminated | step.truncated, jnp.float32))
            return (
                state,
                env.view(state, data, rates.environment),
                alive,
                decided[:most_delay],
            ), terms

        decided = decide(view)
        first = jnp.broadcast_to(decided, (most_delay, *decided.shape))
        unused = jnp.zeros((n_steps, n_segments))
        _, terms = jax.lax.scan(body, (start, view, jnp.ones(n_segments), first), unused)
        return jnp.moveaxis(terms, 0, -1)

    return jax.vmap(one, in_axes=(None, 0, 0, 0))
