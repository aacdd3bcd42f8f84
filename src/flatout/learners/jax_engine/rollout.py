"""Trajectories: the policy acts in the environment for some steps, and what it earned is counted.

All noise is drawn before the scan. What can be computed for all steps at once (values,
log-probabilities) is left to the end, where it is one wide product instead of many narrow ones.
"""

import jax
import jax.numpy as jnp

from flatout.arrays import Array, ArrayTree
from flatout.learners.agent import actor_of, bound_action, critic_of
from flatout.learners.environment import Box, Step
from flatout.learners.jax_engine.noise import draw_normal, noise_key
from flatout.learners.ppo_math import Moments
from flatout.learners.rates import Program, Rates
from flatout.learners.trajectory import Episodes, Lanes, Transition, count_episodes, scale_step
from flatout.policies.network import Network

# states, views, what episodes have earned, and sums of the reward's terms
RolloutCarry = tuple[ArrayTree, ArrayTree, Episodes, tuple[Array, ...]]
ScaleCarry = tuple[Array, Moments]  # discounted returns (env,) and their moments


def run_rollout(
    program: Program, data: ArrayTree, rates: Rates, state: Lanes
) -> tuple[Lanes, Transition, Array]:
    """`n_steps` steps of all environments; also the mean of each reward term."""
    env, n_steps, n_envs = program.environment, program.n_steps, program.n_envs
    network, zeros = state.network, jnp.zeros(n_envs)
    key = noise_key(state.seed, state.updates, 0)
    size = (n_steps, n_envs, env.actions.size)
    noise = (
        draw_normal(key, size) if isinstance(env.actions, Box) else jax.random.uniform(key, size)
    )
    luck = env.draw(noise_key(state.seed, state.updates, 1), n_steps, n_envs)

    def body(
        carry: RolloutCarry, inputs: tuple[Array, ArrayTree]
    ) -> tuple[RolloutCarry, Transition]:
        environment, view, episodes, sums = carry
        noise, luck = inputs
        observation = env.observe(view, data)
        policy = actor_of(program, rates, network, observation, xp=jnp)
        raw = policy.sample(noise, jnp)
        environment, step = env.step(
            environment,
            bound_action(program, policy, raw, jnp),
            noise=luck,
            data=data,
            rates=rates.environment,
        )
        transition = Transition(
            seen=view if program.index_only else observation,
            raw=raw,
            head=policy[0],
            reward=step.reward,
            terminated=step.terminated,
            truncated=step.truncated,
            final=_final_values(program, data, rates, network, step=step),
        )
        sums = tuple(total + term for total, term in zip(sums, step.terms, strict=True))
        view = env.view(environment, data, rates.environment)
        episodes = count_episodes(episodes, step.reward, step.terminated | step.truncated, jnp)
        return (environment, view, episodes, sums), transition

    fresh = state.episodes._replace(ended=zeros, ended_earned=zeros, ended_length=zeros)
    carry = (state.environment, state.view, fresh, (zeros,) * len(env.terms))
    (environment, view, episodes, sums), steps = jax.lax.scan(body, carry, (noise, luck))
    means = jnp.stack([jnp.mean(x) for x in sums]) / n_steps if sums else jnp.zeros(0)
    return state._replace(environment=environment, view=view, episodes=episodes), steps, means


def values_of(
    program: Program, data: ArrayTree, rates: Rates, network: Network, seen: ArrayTree
) -> Array:
    """(step, env): what the critic expected, in blocks of a minibatch, which bounds the memory that
    it takes.
    """
    blocks = jax.tree.map(
        lambda x: jnp.reshape(x, (program.minibatches, program.minibatch, *x.shape[2:])), seen
    )

    def one(seen: ArrayTree) -> Array:
        observation = program.environment.observe(seen, data) if program.index_only else seen
        return critic_of(program, rates, network, observation, xp=jnp)

    return jnp.reshape(jax.lax.map(one, blocks), (program.n_steps, program.n_envs))


def _final_values(
    program: Program, data: ArrayTree, rates: Rates, network: Network, step: Step
) -> Array:
    """The critic's view of the last observations; computed only when an episode was truncated."""
    env = program.environment

    def look(arrived: ArrayTree) -> Array:
        return critic_of(
            program,
            rates,
            network,
            env.observe(env.view(arrived, data, rates.environment), data),
            xp=jnp,
        )

    return jax.lax.cond(
        jnp.any(step.truncated), look, lambda _: jnp.zeros_like(step.reward), step.arrived
    )


def scale_rewards(rates: Rates, state: Lanes, steps: Transition) -> tuple[Array, Moments, Array]:
    """Rewards in units of the running deviation of discounted returns, if asked for."""

    def body(carry: ScaleCarry, step: tuple[Array, Array]) -> tuple[ScaleCarry, Array]:
        reward, ended = step
        return scale_step(rates, carry, reward, ended, xp=jnp)

    def scale(_: None) -> tuple[Array, Moments, Array]:
        ends = steps.terminated | steps.truncated
        (discounted, moments), reward = jax.lax.scan(
            body, (state.discounted, state.moments), (steps.reward, ends)
        )
        return discounted, moments, reward

    def keep(_: None) -> tuple[Array, Moments, Array]:
        return state.discounted, state.moments, steps.reward

    return jax.lax.cond(rates.normalise_reward, scale, keep, None)
