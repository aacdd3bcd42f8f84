"""The market as an environment of a learner: data = tape, rates = rules; engines add their arrays
and their noise.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from flatout.arrays import Array, Namespace, first_axis_last, last_axis_first
from flatout.learners.environment import Box, MultiDiscrete, Step
from flatout.market import episode
from flatout.market.episode import Episode, Shape
from flatout.market.orders import action_size
from flatout.market.rewards import RewardTerms
from flatout.market.rules import Rules
from flatout.market.tape import Tape


class View(NamedTuple):
    """What an observation is made of beside the tape."""

    t: Array  # (...) the bar
    private: Array  # (..., feature) of the account


@dataclass(frozen=True)
class MarketEnvironment:
    """A batch of accounts in markets of one shape."""

    shape: Shape
    xp: ClassVar[Namespace]

    @property
    def observation_size(self) -> int:
        return self.shape.observation_size

    @property
    def view_size(self) -> int:
        shape = self.shape
        return 1 + shape.observation_size - shape.lookback * shape.n_assets * shape.n_features

    @property
    def actions(self) -> Box | MultiDiscrete:
        if self.shape.action == "discrete":
            return MultiDiscrete(self.shape.n_assets, len(self.shape.levels))
        size = action_size(self.shape.action, self.shape.n_assets)
        return Box((-1.0,) * size, (1.0,) * size)

    @property
    def terms(self) -> tuple[str, ...]:
        return RewardTerms._fields

    @property
    def traced(self) -> tuple[str, ...]:
        return tuple(f"weight of asset {k}" for k in range(self.shape.n_assets))

    def trace(self, state: Episode) -> tuple[Array, ...]:
        weights = episode.weights_of(state, self.xp)
        return tuple(weights[k, ...] for k in range(self.shape.n_assets))

    def reset(self, noise: Array, data: Tape, rates: Rules) -> Episode:
        return episode.reset(noise, self.shape, rates, self.xp)

    def view(self, state: Episode, data: Tape, rates: Rules) -> View:
        return View(
            state.t, first_axis_last(episode.private_features(state, rates, self.xp), self.xp)
        )

    def observe(self, view: View, data: Tape) -> Array:
        return episode.join(view.t, view.private, tape=data, shape=self.shape, xp=self.xp)

    def step(
        self, state: Episode, action: Array, noise: Array, data: Tape, rates: Rules
    ) -> tuple[Episode, Step]:
        arrived, outcome = episode.step(
            state,
            last_axis_first(action, self.xp),
            tape=data,
            shape=self.shape,
            rules=rates,
            xp=self.xp,
        )
        ended = outcome.terminated | outcome.truncated
        after = episode.restart(arrived, ended, noise=noise, rules=rates, xp=self.xp)
        return after, Step(
            reward=outcome.reward,
            terminated=outcome.terminated,
            truncated=outcome.truncated,
            terms=outcome.terms,
            arrived=arrived,
        )
