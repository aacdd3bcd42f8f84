"""Learning along the path: the gradient of what a window of bars earned, through orders, fills and
costs, in the place of PPO's guess by exploration.

The market does not react to an agent beyond its costs, and the environment is differentiable: so
one pass back through a window of `n_steps` bars says how each weight of the policy would have
changed what all accounts earned. States are carried from window to window and cut from the
gradient there. What lies beyond a window is valued by the critic, which learns from TD(lambda)
targets; a `value` weight of 0 leaves it out.

Rewards are counted in basis points for the actor and in per cent for the critic, so that Adam's
epsilon is small beside their gradients. Both are clipped apart. A gradient that is not finite is
skipped and counted.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from flatout.arrays import Array, ArrayTree
from flatout.learners.agent import actor_of, bound_action, critic_of
from flatout.learners.jax_engine.noise import draw_normal, noise_key
from flatout.learners.jax_engine.optimiser import ADAM
from flatout.learners.metrics import PathwiseMetrics
from flatout.learners.rates import Program, Rates
from flatout.learners.trajectory import (
    Episodes,
    Lanes,
    Transition,
    compute_advantages,
    count_episodes,
    rollout_metrics,
    scheduled_rate,
)
from flatout.policies.network import Network

ACTOR_UNIT, CRITIC_UNIT = 1e2, 1.0


class Window(NamedTuple):
    """Where the accounts are after a window, and what happened in it."""

    environment: ArrayTree
    view: ArrayTree
    episodes: Episodes
    terms: Array  # (term,) means of the reward's terms
    steps: Transition  # rewards and final values in the critic's unit


class WindowNoise(NamedTuple):
    """All that is random in a window; (step, env, ...) each."""

    action: Array
    luck: ArrayTree
    feature: Array


class WindowCarry(NamedTuple):
    """What goes from one bar to the next."""

    environment: ArrayTree
    view: ArrayTree
    episodes: Episodes
    sums: tuple[Array, ...]
    discount: Array  # (env,) of what is earned from here on, since the window or the episode began


def update_lane(
    program: Program, data: ArrayTree, rates: Rates, state: Lanes
) -> tuple[Lanes, Array]:
    """One window, and one step along its gradient."""
    noise = draw_noise(program, state)
    objective = partial(lose_in_window, program, data, rates, state=state, noise=noise)
    (loss, window), by_actor = jax.value_and_grad(objective, has_aux=True)(state.network)
    judge = partial(lose_by_critic, program, data, rates, window=window)
    (error, explained), by_critic = jax.lax.cond(
        rates.value > 0,
        jax.value_and_grad(judge, has_aux=True),
        lambda network: ((jnp.zeros(()), jnp.zeros(())), jax.tree.map(jnp.zeros_like, network)),
        state.network,
    )
    gradient, norm = join_gradients(rates, by_actor, by_critic)
    rate = scheduled_rate(rates, state.updates, jnp)
    network, optimiser = descend(rates, rate, state, gradient, jnp.isfinite(norm))
    learned = PathwiseMetrics(
        policy_loss=loss,
        value_loss=error,
        skipped=1.0 - jnp.isfinite(norm),
        grad_norm=jnp.where(jnp.isfinite(norm), norm, 0.0),
    )
    rest = rollout_metrics(
        rate,
        jnp.ones(()),
        explained=explained,
        deviation=rates.action_noise,
        episodes=window.episodes,
        reward=window.steps.reward / CRITIC_UNIT,
        xp=jnp,
    )
    row = jnp.concatenate([jnp.stack([*learned, *rest]), window.terms])
    state = state._replace(
        network=network,
        optimiser=optimiser,
        environment=window.environment,
        view=window.view,
        episodes=window.episodes,
        updates=state.updates + 1,
    )
    return state, row


def draw_noise(program: Program, state: Lanes) -> WindowNoise:
    """The noise of a lane's next window; its seed and its updates fix it."""
    env, steps, accounts = program.environment, program.n_steps, program.n_envs

    def key(stream: int) -> Array:
        return noise_key(state.seed, state.updates, stream)

    return WindowNoise(
        action=draw_normal(key(0), (steps, accounts, env.actions.size)),
        luck=env.draw(key(1), steps, accounts),
        feature=jax.random.split(key(4), steps),
    )


def lose_in_window(
    program: Program,
    data: ArrayTree,
    rates: Rates,
    network: Network,
    state: Lanes,
    noise: WindowNoise,
) -> tuple[Array, Window]:
    """What the accounts lost per bar of a window, in basis points, discounted; what lies beyond it
    by the critic, who does not learn from that.
    """
    env, zeros = program.environment, jnp.zeros(program.n_envs)
    frozen = jax.lax.stop_gradient(network)

    def value(view: ArrayTree, wanted: Array) -> Array:
        """What the critic expects, where anybody asks it; else zeros."""
        return jax.lax.cond(
            wanted & (rates.value > 0),
            lambda view: critic_of(program, rates, frozen, env.observe(view, data), xp=jnp),
            lambda view: zeros,
            view,
        )

    def body(
        carry: WindowCarry, noise: WindowNoise
    ) -> tuple[WindowCarry, tuple[Array, Transition]]:
        seen = env.observe(carry.view, data)
        shaken = seen + rates.feature_noise * jax.random.normal(noise.feature, seen.shape)
        policy = actor_of(program, rates, network, shaken, xp=jnp)
        raw = policy.mode(jnp) + rates.action_noise * noise.action
        environment, step = env.step(
            carry.environment,
            bound_action(program, policy, raw, jnp),
            noise=noise.luck,
            data=data,
            rates=rates.environment,
        )
        arrived = env.view(step.arrived, data, rates.environment)
        final = value(arrived, jnp.any(step.truncated))
        truncated = jnp.asarray(step.truncated, final.dtype)
        reward = CRITIC_UNIT * step.reward
        gain = carry.discount * (reward + rates.gamma * truncated * final)
        ended = step.terminated | step.truncated
        after = WindowCarry(
            environment=environment,
            view=env.view(environment, data, rates.environment),
            episodes=count_episodes(carry.episodes, step.reward, ended, jnp),
            sums=tuple(total + term for total, term in zip(carry.sums, step.terms, strict=True)),
            discount=jnp.where(ended, 1.0, carry.discount * rates.gamma),
        )
        passed = Transition(
            seen=seen,
            raw=raw,
            head=raw,
            reward=reward,
            terminated=step.terminated,
            truncated=step.truncated,
            final=final,
        )
        return after, (gain, passed)

    start = WindowCarry(
        environment=state.environment,
        view=state.view,
        episodes=state.episodes._replace(ended=zeros, ended_earned=zeros, ended_length=zeros),
        sums=(zeros,) * len(env.terms),
        discount=jnp.ones(program.n_envs),
    )
    end, (gains, steps) = jax.lax.scan(body, start, noise)
    beyond = end.discount * value(end.view, jnp.asarray(True))
    gained = jnp.mean(jnp.sum(gains, axis=0) + beyond) / program.n_steps
    terms = jnp.stack([jnp.mean(x) for x in end.sums]) / program.n_steps
    window = Window(end.environment, end.view, end.episodes, terms, steps)
    return -gained * (ACTOR_UNIT / CRITIC_UNIT), jax.lax.stop_gradient(window)


def lose_by_critic(
    program: Program, data: ArrayTree, rates: Rates, network: Network, window: Window
) -> tuple[Array, Array]:
    """The critic's squared error beside TD(lambda) targets, and what it explained of them."""
    value = critic_of(program, rates, network, window.steps.seen, xp=jnp)
    known = jax.lax.stop_gradient(value)
    last = jax.lax.stop_gradient(
        critic_of(program, rates, network, program.environment.observe(window.view, data), xp=jnp)
    )
    _, returns = compute_advantages(
        rates, window.steps, known, last, reward=window.steps.reward, xp=jnp
    )
    spread = jnp.maximum(jnp.var(returns), 1e-12)
    return jnp.mean((value - returns) ** 2), 1 - jnp.var(returns - known) / spread


def join_gradients(rates: Rates, actor: Network, critic: Network) -> tuple[Array, Array]:
    """Both gradients as one long vector, each clipped by its own norm, and the norm of the actor's,
    which is not finite if any number of either is not.
    """

    def clip(tree: ArrayTree) -> tuple[ArrayTree, Array]:
        norm = jnp.sqrt(sum(jnp.sum(leaf * leaf) for leaf in jax.tree.leaves(tree)))
        factor = jnp.minimum(1.0, rates.max_grad_norm / (norm + 1e-6))
        return jax.tree.map(lambda leaf: factor * leaf, tree), norm

    one, norm = clip(actor.actor)
    other, size = clip(critic.critic)
    valued = jnp.asarray(rates.value > 0, norm.dtype)
    other = jax.tree.map(lambda leaf: valued * leaf, other)
    joined = Network(actor=one, critic=other, log_std=jnp.zeros_like(actor.log_std))
    return ravel_pytree(joined)[0], jnp.where(jnp.isfinite(size), norm, jnp.nan)


def descend(
    rates: Rates, rate: Array, state: Lanes, gradient: Array, finite: Array
) -> tuple[Network, ArrayTree]:
    """Adam's step with decoupled weight decay; nothing moves along what is not finite."""
    weights, network_of = ravel_pytree(state.network)
    change, moved = ADAM.update(jnp.where(finite, gradient, 0.0), state.optimiser)
    moved = jax.tree.map(lambda new, old: jnp.where(finite, new, old), moved, state.optimiser)
    step = rate * (change + rates.weight_decay * weights)
    return network_of(weights - jnp.where(finite, step, 0.0)), moved
