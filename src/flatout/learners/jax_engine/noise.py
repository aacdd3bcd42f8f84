"""The noise of agents in JAX."""

import math

import jax
import jax.numpy as jnp

from flatout.arrays import Array


def noise_key(seed: Array, updates: Array | int, purpose: int) -> Array:
    """The key of one purpose in one update of one seed."""
    return jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), updates), purpose)


def draw_normal(key: Array, shape: tuple[int, ...]) -> Array:
    """Standard normal noise by Box and Muller's method, which costs a CPU a third of inverting the
    error function.
    """
    half = -(-math.prod(shape) // 2)
    uniform = jax.random.uniform(key, (2, half))
    radius, angle = jnp.sqrt(-2 * jnp.log1p(-uniform[0])), (2 * math.pi) * uniform[1]
    both = jnp.concatenate([radius * jnp.cos(angle), radius * jnp.sin(angle)])
    return jnp.reshape(both[: math.prod(shape)], shape)
