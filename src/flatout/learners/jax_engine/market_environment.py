"""The market as an environment of the JAX learner."""

from typing import ClassVar

import jax
import jax.numpy as jnp

from flatout.arrays import Array, Namespace
from flatout.learners.market_environment import MarketEnvironment
from flatout.market import jax_market
from flatout.market.episode import Episode
from flatout.market.rules import Rules
from flatout.market.tape import Tape


class JaxMarketEnvironment(MarketEnvironment):
    """Accounts in JAX arrays; noise from a key."""

    xp: ClassVar[Namespace] = jax_market.xp

    def draw(self, key: Array, n_steps: int, n_envs: int) -> Array:
        return jax.random.uniform(key, (n_steps, n_envs))

    def reset(self, noise: Array, data: Tape, rates: Rules) -> Episode:
        return super().reset(
            jnp.asarray(noise, noise.dtype), data, rates
        )  # a weak type would be compiled twice
