"""Environments that are arrays of one JAX program: accounts in flatout's market, and environments
in gymnax's convention.
"""

from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker

from flatout.arrays import Array, map_leaves
from flatout.errors import SettingsError
from flatout.learners.environment import Environment, Step
from flatout.learners.forecast import USUAL_ENVS
from flatout.market.gymnasium_env import MarketEnv, MarketVectorEnv
from flatout.market.gymnasium_env import spaces as market_spaces
from flatout.market.market import Market
from flatout.market.rules import Rules
from flatout.market.tape import Tape
from flatout.sb3.environments import AnySpace

GymnaxEnv = Any  # known by its methods alone: gymnax need not be installed
GymnaxParams = Any  # each environment of gymnax has a class of its own for them


class ArrayEnvs(NamedTuple):
    """Environments that run as arrays inside one JAX program."""

    environment: Environment
    data: Tape | None  # what all of them read: a market's tape
    rules: Rules | tuple[()]  # the rates of the environments
    n_envs: int
    observation_space: AnySpace
    action_space: AnySpace
    market: Market | None = None


def read_array_envs(env: object) -> ArrayEnvs | None:
    """The environments of whatever the fused engine can run; None for all else."""
    plain = env
    # what gymnasium.make adds; neither changes a step
    while isinstance(plain, OrderEnforcing | PassiveEnvChecker):
        plain = plain.env
    if isinstance(plain, Market):
        return market_envs(plain, USUAL_ENVS)
    if type(plain) is MarketEnv:
        return market_envs(plain.market, USUAL_ENVS)
    if type(plain) is MarketVectorEnv:
        return market_envs(plain.market, plain.num_envs)
    pair = env if isinstance(env, tuple) and len(env) == 2 else (env, None)
    if not isinstance(env, gym.Env) and all(
        hasattr(pair[0], name) for name in ("reset_env", "step_env")
    ):
        return gymnax_envs(*pair)
    return None


def market_envs(market: Market, n_envs: int) -> ArrayEnvs:
    """So many accounts in one market."""
    # late: JAX takes seconds to load
    from flatout.learners.jax_engine.market_environment import JaxMarketEnvironment

    tape, rules = market.arrays(np.float32)
    rules = map_leaves(np.asarray, rules)
    observation_space, action_space = market_spaces(market)
    return ArrayEnvs(
        environment=JaxMarketEnvironment(market.shape),
        data=tape,
        rules=rules,
        n_envs=n_envs,
        observation_space=observation_space,
        action_space=action_space,
        market=market,
    )


def gymnax_envs(env: GymnaxEnv, params: GymnaxParams) -> ArrayEnvs:
    """Environments in gymnax's convention; their parameters are constants of the program."""
    from flatout.learners.jax_engine.gymnax_environment import GymnaxEnvironment, Running

    class FixedGymnaxEnvironment(GymnaxEnvironment):
        """Environments that all have the same parameters, whatever their rates."""

        def reset(self, noise: Array, data: None, rates: tuple[()]) -> Running:
            return super().reset(noise, data, self.params)

        def step(
            self, state: Running, action: Array, noise: Array, data: None, rates: tuple[()]
        ) -> tuple[Running, Step]:
            return super().step(
                state=state, action=action, noise=noise, data=data, rates=self.params
            )

    params = env.default_params if params is None else params
    seen, acted = env.observation_space(params), env.action_space(params)
    if hasattr(seen, "n"):
        raise SettingsError(
            f"the observation space {seen} of {env} is a choice; the fused engine reads vectors"
        )
    observation = spaces.Box(-np.inf, np.inf, tuple(seen.shape), np.float32)
    if hasattr(acted, "n"):
        action: AnySpace = spaces.Discrete(int(acted.n))
    else:
        low, high = (
            np.broadcast_to(np.asarray(x, np.float32), acted.shape) for x in (acted.low, acted.high)
        )
        action = spaces.Box(low, high, dtype=np.float32)
    return ArrayEnvs(
        environment=FixedGymnaxEnvironment(env, params),
        data=None,
        rules=(),
        n_envs=USUAL_ENVS,
        observation_space=observation,
        action_space=action,
    )
