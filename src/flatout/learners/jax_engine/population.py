"""A population of agents in one compiled program, nothing of which leaves the device: PPO's
rollout, advantages and updates, or the windows of `pathwise.py`.

Every leaf of state and rates has the lane axis first; `data` is shared. On a GPU the lanes are
vmapped; on a CPU core they run one after another, each within the cache. The program has no
callbacks; it returns one row of metrics per lane.
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

from flatout.arrays import Array, ArrayTree
from flatout.learners import shuffle
from flatout.learners.agent import critic_of, distribution_of, loss_of
from flatout.learners.hyperparameters import KL_TOLERANCE
from flatout.learners.jax_engine import pathwise
from flatout.learners.jax_engine.noise import noise_key
from flatout.learners.jax_engine.optimiser import ADAM
from flatout.learners.jax_engine.rollout import run_rollout, scale_rewards, values_of
from flatout.learners.metrics import MINIBATCH_METRICS, mean_metrics, metric_names
from flatout.learners.ppo_math import Moments
from flatout.learners.rates import Program, Rates
from flatout.learners.trajectory import (
    Batch,
    Episodes,
    Lanes,
    compute_advantages,
    scheduled_rate,
    update_metrics,
)
from flatout.policies.network import Network


class DescentCarry(NamedTuple):
    """What goes from one minibatch to the next."""

    weights: Array
    optimiser: ArrayTree
    going: Array  # whether the policy has not moved too far yet
    totals: Array  # sums of the metrics
    made: Array  # minibatches so far


def init_lanes(
    program: Program,
    data: ArrayTree,
    rates: Rates,
    networks: Sequence[Network],
    seeds: Sequence[int],
) -> Lanes:
    """Fresh lanes, one per network and seed; `rates` has as many."""
    network = jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)), *networks)
    return jax.jit(_init_lanes, static_argnums=0)(
        program, data, rates, network, jnp.asarray(seeds, jnp.uint32)
    )


def _init_lanes(
    program: Program, data: ArrayTree, rates: Rates, network: Network, seeds: Array
) -> Lanes:
    env, n_envs = program.environment, program.n_envs

    def one(network: Network, rates: Rates, seed: Array) -> Lanes:
        noise = env.draw(noise_key(seed, 0, 3), 1, n_envs)
        state = env.reset(jax.tree.map(lambda x: x[0], noise), data, rates.environment)
        state = jax.tree.map(
            lambda x: jnp.asarray(x, x.dtype), state
        )  # weak types would be compiled a second time
        zeros = jnp.zeros(n_envs)
        return Lanes(
            network=network,
            optimiser=new_optimiser(network),
            environment=state,
            view=env.view(state, data, rates.environment),
            episodes=Episodes(
                earned=zeros, length=zeros, ended=zeros, ended_earned=zeros, ended_length=zeros
            ),
            discounted=zeros,
            moments=Moments(jnp.zeros(()), jnp.ones(()), jnp.asarray(1e-4)),
            seed=seed,
            updates=jnp.zeros((), jnp.int32),
        )

    return jax.lax.map(lambda x: one(*x), (network, rates, seeds))


def new_optimiser(network: Network) -> ArrayTree:
    """Adam's state for a network's weights as one long vector: one loop on the device, not one per
    layer.
    """
    return ADAM.init(ravel_pytree(network)[0])


def take_lane(tree: ArrayTree, k: int) -> ArrayTree:
    """One lane of a state, of rates or of metrics."""
    return jax.tree.map(lambda leaf: leaf[k], tree)


def make_chunk_runner(program: Program, one_by_one: bool | None = None) -> jax.stages.Wrapped:
    """`run_chunk(data, rates, state) -> (state, metrics)`, jitted: advances every lane to its
    `rates.until` updates.

    The state is donated. Metrics are (lane, metric): means over the updates made, 0 where none was;
    episodes are counted, and their returns and lengths are means over those that ended.
    """
    one_by_one = jax.default_backend() == "cpu" if one_by_one is None else one_by_one

    def run_chunk(data: ArrayTree, rates: Rates, state: Lanes) -> tuple[Lanes, Array]:
        advance = partial(_advance, program, data)
        if one_by_one:
            return jax.lax.map(lambda x: advance(*x), (rates, state))
        return jax.vmap(advance)(rates, state)

    return jax.jit(run_chunk, donate_argnums=2)


def _advance(program: Program, data: ArrayTree, rates: Rates, state: Lanes) -> tuple[Lanes, Array]:
    """One lane to its `until`."""
    start = state.updates
    total = jnp.zeros(len(metric_names(program)))

    def going(carry: tuple[Lanes, Array]) -> Array:
        return carry[0].updates < rates.until

    update = pathwise.update_lane if program.algorithm == "pathwise" else _update

    def body(carry: tuple[Lanes, Array]) -> tuple[Lanes, Array]:
        state, metrics = update(program, data, rates, carry[0])
        return state, carry[1] + metrics

    state, total = jax.lax.while_loop(going, body, (state, total))
    return state, mean_metrics(program, total, state.updates - start, jnp)


def _update(program: Program, data: ArrayTree, rates: Rates, state: Lanes) -> tuple[Lanes, Array]:
    """One rollout and what is learned from it."""
    state, steps, terms = run_rollout(program, data, rates, state)
    value = values_of(program, data, rates, state.network, seen=steps.seen)
    log_prob = distribution_of(program, state.network, steps.head, jnp).log_prob(steps.raw, jnp)
    last = critic_of(
        program, rates, state.network, program.environment.observe(state.view, data), xp=jnp
    )
    discounted, moments, reward = scale_rewards(rates, state, steps)
    advantage, returns = compute_advantages(rates, steps, value, last, reward=reward, xp=jnp)
    batch = Batch(
        seen=steps.seen,
        raw=steps.raw,
        log_prob=log_prob,
        value=value,
        advantage=advantage,
        returns=returns,
    )
    batch = jax.tree.map(lambda x: jnp.reshape(x, (program.rollout, *x.shape[2:])), batch)
    rate = scheduled_rate(rates, state.updates, jnp)
    key = noise_key(state.seed, state.updates, 2)
    network, optimiser, learned, epochs = _learn(
        program,
        data,
        rates,
        rate=rate,
        key=key,
        network=state.network,
        optimiser=state.optimiser,
        batch=batch,
    )
    metrics = update_metrics(
        learned,
        rate,
        epochs,
        network=network,
        episodes=state.episodes,
        batch=batch,
        reward=steps.reward,
        terms=terms,
        xp=jnp,
    )
    state = state._replace(
        network=network,
        optimiser=optimiser,
        discounted=discounted,
        moments=moments,
        updates=state.updates + 1,
    )
    return state, metrics


def _learn(
    program: Program,
    data: ArrayTree,
    rates: Rates,
    rate: Array,
    key: Array,
    network: Network,
    optimiser: ArrayTree,
    batch: Batch,
) -> tuple[Network, ArrayTree, Array, Array]:
    """Epochs of minibatches until they are done or the policy has moved too far."""
    count, size = program.minibatches, program.minibatch
    grad = jax.value_and_grad(partial(loss_of, program, data, rates, xp=jnp), has_aux=True)
    weights, network_of = ravel_pytree(network)

    def minibatch(carry: DescentCarry, rows: Array) -> tuple[DescentCarry, None]:
        weights, optimiser, going, totals, made = carry
        (loss, parts), gradient = grad(network_of(weights), _rows(batch, rows))
        gradient = ravel_pytree(gradient)[0]
        norm = optax.tree.norm(gradient)
        going = going & (parts.approx_kl <= KL_TOLERANCE * rates.target_kl)
        gradient = gradient * jnp.minimum(1.0, rates.max_grad_norm / (norm + 1e-6))
        change, moved = ADAM.update(gradient, optimiser)
        weights = jnp.where(going, weights - rate * change, weights)
        optimiser = jax.tree.map(lambda new, old: jnp.where(going, new, old), moved, optimiser)
        totals = totals + jnp.stack([*parts, loss, norm])
        return DescentCarry(weights, optimiser, going, totals, made + 1), None

    def epoch(carry: tuple[Array, DescentCarry]) -> tuple[Array, DescentCarry]:
        k, inner = carry
        noise = jax.random.uniform(jax.random.fold_in(key, k), shuffle.noise_shape(program.rollout))
        order = shuffle.permutation(noise, program.rollout, jnp.int32, jnp)
        inner, _ = jax.lax.scan(minibatch, inner, jnp.reshape(order, (count, size)))
        return k + 1, inner

    def more(carry: tuple[Array, DescentCarry]) -> Array:
        return (carry[0] < rates.epochs) & carry[1].going

    start = DescentCarry(
        weights,
        optimiser,
        going=jnp.asarray(True),
        totals=jnp.zeros(len(MINIBATCH_METRICS)),
        made=jnp.zeros(()),
    )
    epochs, inner = jax.lax.while_loop(more, epoch, (jnp.zeros((), jnp.int32), start))
    learned = inner.totals / jnp.maximum(inner.made, 1)
    return network_of(inner.weights), inner.optimiser, learned, epochs


def _rows(batch: Batch, rows: Array) -> Batch:
    """Some transitions of a batch; the rows are known to exist."""
    return jax.tree.map(lambda x: x.at[rows].get(mode="promise_in_bounds"), batch)
