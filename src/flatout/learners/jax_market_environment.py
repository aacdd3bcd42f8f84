"""The market as an environment of the JAX learner: data = tape, rates = rules."""

from typing import NamedTuple

import jax

from flatout.arrays import Array, first_axis_last
from flatout.learners.environment import Box, Step
from flatout.market import episode, jax_market
from flatout.market.episode import Episode, Shape
from flatout.market.orders import action_size
from flatout.market.rewards import RewardTerms
from flatout.market.rules import Rules
from flatout.market.tape import Tape


class View(NamedTuple):
    """What an observation is made of beside the tape."""

    t: Array  # (...) the bar
    private: Array  # (..., feature) of the account


class MarketEnvironment(NamedTuple):
    """A batch of accounts in markets of one shape."""

    shape: Shape

    @property
    def observation_size(self) -> int:
        return self.shape.observation_size

    @property
    def view_size(self) -> int:
        shape = self.shape
        return 1 + shape.observation_size - shape.lookback * shape.n_assets * shape.n_features

    @property
    def actions(self) -> Box:
        size = action_size(self.shape.action, self.shape.n_assets)
        return Box((-1.0,) * size, (1.0,) * size)

    @property
    def terms(self) -> tuple[str, ...]:
        return RewardTerms._fields

    def draw(self, key: Array, n_steps: int, n_envs: int) -> Array:
        return jax.random.uniform(key, (n_steps, n_envs))

    def reset(self, noise: Array, data: Tape, rates: Rules) -> Episode:
        return jax_market.reset(noise, rates, self.shape)

    def view(self, state: Episode, data: Tape, rates: Rules) -> View:
        return View(state.t, first_axis_last(episode.private_features(state, rates, jax_market.xp), jax_market.xp))

    def observe(self, view: View, data: Tape) -> Array:
        return episode.join(view.t, view.private, data, self.shape, jax_market.xp)

    def step(self, state: Episode, action: Array, noise: Array, data: Tape, rates: Rules) -> tuple[Episode, Step]:
        state, step = jax_market.step(state, action, noise, data, rates, self.shape)
        outcome = step.outcome
        return state, Step(outcome.reward, outcome.terminated, outcome.truncated, outcome.terms, step.arrived)
