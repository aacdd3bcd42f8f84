"""Environments in gymnax's convention train as they are: pure `reset_env`, `step_env` and
`is_truncated`.

Only that convention is used (one environment, a key, parameters), so that gymnax itself need not be
installed.
"""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from flatout.arrays import Array, ArrayTree
from flatout.learners.environment import Box, Discrete, Step

Observed = tuple[Array, ArrayTree]  # an observation and the state that it was made from


class GymnaxSpace(Protocol):
    """What is asked of a space of gymnax: its shape, and either bounds or a number of choices."""

    shape: tuple[int, ...]
    low: Array
    high: Array
    n: int


class GymnaxConvention(Protocol):
    """What is asked of an environment in gymnax's convention."""

    def observation_space(self, params: ArrayTree) -> GymnaxSpace: ...

    def action_space(self, params: ArrayTree) -> GymnaxSpace: ...

    def reset_env(self, key: Array, params: ArrayTree) -> Observed: ...

    def step_env(
        self, key: Array, state: ArrayTree, action: Array, params: ArrayTree
    ) -> tuple[Array, ArrayTree, Array, Array, Mapping[str, object]]: ...

    def is_truncated(self, state: ArrayTree, params: ArrayTree) -> Array: ...


class Running(NamedTuple):
    """A batch of states with their observations."""

    state: ArrayTree
    observation: Array  # (env, feature)


class GymnaxEnvironment(NamedTuple):
    """A batch of environments of one kind; `rates` are gymnax's parameters, `data` is not used."""

    env: GymnaxConvention
    params: ArrayTree  # those that fix the spaces

    @property
    def observation_size(self) -> int:
        return int(np.prod(self.env.observation_space(self.params).shape))

    @property
    def view_size(self) -> int:
        return self.observation_size

    @property
    def actions(self) -> Box | Discrete:
        space = self.env.action_space(self.params)
        if hasattr(space, "n"):
            return Discrete(int(space.n))
        bounds = (
            np.broadcast_to(np.asarray(bound, float), space.shape).reshape(-1)
            for bound in (space.low, space.high)
        )
        low, high = (tuple(bound.tolist()) for bound in bounds)
        return Box(low, high)

    @property
    def terms(self) -> tuple[str, ...]:
        return ()

    @property
    def traced(self) -> tuple[str, ...]:
        return ()

    def trace(self, state: Running) -> tuple[Array, ...]:
        return ()

    def draw(self, key: Array, n_steps: int, n_envs: int) -> Array:
        return jax.random.split(key, (n_steps, n_envs))

    def reset(self, noise: Array, data: ArrayTree, rates: ArrayTree) -> Running:
        observation, state = jax.vmap(lambda key: self.env.reset_env(key, rates))(noise)
        return Running(state, flatten_observations(observation))

    def view(self, state: Running, data: ArrayTree, rates: ArrayTree) -> Array:
        return state.observation

    def observe(self, view: Array, data: ArrayTree) -> Array:
        return view

    def step(
        self, state: Running, action: Array, noise: Array, data: ArrayTree, rates: ArrayTree
    ) -> tuple[Running, Step]:
        def one(
            key: Array, state: ArrayTree, action: Array
        ) -> tuple[Observed, Observed, Array, Array, Array]:
            step_key, reset_key = jax.random.split(key)
            observation, arrived, reward, terminated, _ = self.env.step_env(
                step_key, state, action, rates
            )
            truncated = self.env.is_truncated(arrived, rates) & ~terminated
            fresh = self.env.reset_env(reset_key, rates)
            ended = terminated | truncated
            after = jax.tree.map(
                lambda new, old: jnp.where(ended, new, old), fresh, (observation, arrived)
            )
            return (
                after,
                (observation, arrived),
                jnp.asarray(reward, jnp.float32),
                terminated,
                truncated,
            )

        after, arrived, reward, terminated, truncated = jax.vmap(one)(noise, state.state, action)
        step = Step(
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            terms=(),
            arrived=Running(arrived[1], flatten_observations(arrived[0])),
        )
        return Running(after[1], flatten_observations(after[0])), step


def flatten_observations(observation: Array) -> Array:
    """(env, feature) of observations of any shape."""
    return jnp.reshape(observation, (observation.shape[0], -1))
