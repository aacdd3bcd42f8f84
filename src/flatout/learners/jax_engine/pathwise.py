"""Learning along the path in JAX: a window of bars as a scan, its gradient, and a step of Adam.

What is computed stands in `learners/pathwise_math.py`.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from flatout.arrays import Array, ArrayTree
from flatout.learners import pathwise_math
from flatout.learners.agent import critic_of
from flatout.learners.jax_engine.noise import draw_normal, noise_key
from flatout.learners.jax_engine.optimiser import ADAM
from flatout.learners.pathwise_math import (
    CriticLoss,
    Window,
    WindowCarry,
    WindowNoise,
    close_window,
    count_gain,
    join_gradients,
    open_window,
    pass_bar,
    window_metrics,
)
from flatout.learners.rates import Program, Rates
from flatout.learners.trajectory import Lanes, Transition, scheduled_rate
from flatout.policies.network import Network


def update_lane(
    program: Program, data: ArrayTree, rates: Rates, state: Lanes
) -> tuple[Lanes, Array]:
    """One window, and one step along its gradient."""
    noise = draw_noise(program, state)
    objective = partial(lose_in_window, program, data, rates, state=state, noise=noise)
    (loss, window), by_actor = jax.value_and_grad(objective, has_aux=True)(state.network)
    judge = partial(pathwise_math.lose_by_critic, program, data, rates, window=window, xp=jnp)
    nothing = CriticLoss(jnp.zeros(()), jnp.zeros(()))
    (_, judged), by_critic = jax.lax.cond(
        rates.value > 0,
        jax.value_and_grad(judge, has_aux=True),
        lambda network: ((jnp.zeros(()), nothing), jax.tree.map(jnp.zeros_like, network)),
        state.network,
    )
    gradient, norm = join_gradients(
        rates, by_actor.actor, by_critic.critic, state.network.log_std, jnp
    )
    rate = scheduled_rate(rates, state.updates, jnp)
    network, optimiser = descend(rates, rate, state, gradient, jnp.isfinite(norm))
    row = window_metrics(rates, rate, loss, judged, norm=norm, window=window, xp=jnp)
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
    """The noise of a lane's next window; its seed and its updates fix it. Of the features' there
    are keys only: drawn within the scan it takes one bar's memory.
    """
    env, steps, accounts = program.environment, program.n_steps, program.n_envs

    def key(stream: int) -> Array:
        return noise_key(state.seed, state.updates, stream)

    return WindowNoise(
        action=draw_normal(key(0), (steps, accounts, env.actions.size)),
        luck=env.draw(key(1), steps, accounts),
        feature=jax.random.split(key(4), steps),
    )


def draw_feature_noise(program: Program, key: Array) -> Array:
    """(env, feature) of one bar."""
    return jax.random.normal(key, (program.n_envs, program.environment.observation_size))


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
        noise = noise._replace(feature=draw_feature_noise(program, noise.feature))
        carry, bar = pass_bar(program, data, rates, network, carry, noise, jnp)
        final = value(bar.arrived, jnp.any(bar.step.truncated))
        return carry, count_gain(rates, bar, final, jnp)

    start = open_window(state.environment, state.view, state.episodes, len(env.terms), jnp)
    end, (gains, steps) = jax.lax.scan(body, start, noise)
    beyond = value(end.view, jnp.asarray(True))
    return close_window(program, end, gains, steps, beyond, jnp)


def descend(
    rates: Rates, rate: Array, state: Lanes, gradient: Network, finite: Array
) -> tuple[Network, ArrayTree]:
    """Adam's step with decoupled weight decay; nothing moves along what is not finite."""
    weights, network_of = ravel_pytree(state.network)
    way = jnp.where(finite, ravel_pytree(gradient)[0], 0.0)
    change, moved = ADAM.update(way, state.optimiser)
    moved = jax.tree.map(lambda new, old: jnp.where(finite, new, old), moved, state.optimiser)
    step = rate * (change + rates.weight_decay * weights)
    return network_of(weights - jnp.where(finite, step, 0.0)), moved
