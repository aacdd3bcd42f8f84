"""Other trainers on the bench's market, for comparison only: Stable-Baselines3 and SBX, with the environments that
their users have. Imported by `flatout bench train` alone; needs the `bench` extra.
"""

import math
import warnings
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv

from flatout.evaluation.speed import ScalarMarks, Steps, ledger_observation
from flatout.market.gymnasium_env import MarketVectorEnv, spaces
from flatout.market.market import Market
from flatout.market.scalar_ledger import Ledger, plain

LOOP_ENVS = 12
FAST_ENVS = 64


class LoopEnv(gym.Env[Any, Any]):
    """The market in a Python loop over assets, one account: what most trading environments are."""

    def __init__(self, market: Market) -> None:
        tape, rules = market.arrays(np.float64)
        self.n_assets = market.shape.n_assets
        self.observation_space, self.action_space = spaces(market)
        self.given = plain(rules.costs, rules.limits)
        self.rows = tape.columns[:-1].T.reshape(len(tape.features), -1, self.n_assets).tolist()
        self.features = tape.features.tolist()
        self.memory = rules.reward.sharpe_memory.item()
        self.first, self.length = int(rules.segments.first[0]), int(rules.segments.length)
        self.start_again()

    def start_again(self) -> None:
        """A fresh account at a random bar."""
        self.ledger, self.marks = Ledger(self.n_assets, self.given), ScalarMarks(self.memory)
        self.t = int(self.np_random.integers(self.first, len(self.rows) - self.length - 1))
        self.last = self.t + self.length

    def look(self) -> Any:
        """The observation."""
        closes = self.rows[self.t][0]
        return np.asarray(ledger_observation(self.ledger, self.marks, self.features[self.t], closes), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.start_again()
        return self.look(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        before = self.marks.equity
        row = self.rows[self.t]
        order = [a * self.given["trade_size"] * before for a in action.tolist()]
        self.marks.update(max(self.ledger.step(order, row[0], row[1:]), 1e-6))
        self.t += 1
        ruined = self.marks.equity <= 0.1
        return self.look(), 100 * math.log(self.marks.equity / before), ruined, self.t >= self.last, {}


class FastVecEnv(VecEnv):  # type: ignore[misc]
    """flatout's vector environment as Stable-Baselines3 wants it."""

    def __init__(self, market: Market, n_envs: int) -> None:
        self.env = MarketVectorEnv(market, n_envs)
        super().__init__(n_envs, self.env.single_observation_space, self.env.single_action_space)

    def reset(self) -> Any:
        return self.env.reset(seed=0)[0]

    def step_async(self, actions: Any) -> None:
        self.actions = actions

    def step_wait(self) -> Any:
        observation, reward, terminated, truncated, info = self.env.step(self.actions)
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        ended = terminated | truncated
        for k in np.flatnonzero(ended):
            infos[k] = {"terminal_observation": info["final_obs"][k], "TimeLimit.truncated": bool(truncated[k])}
        return observation, reward, ended, infos

    def close(self) -> None:
        self.env.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> Sequence[Any]:
        return [getattr(self.env, attr_name, None)] * self.num_envs

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        raise NotImplementedError

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> Sequence[Any]:
        raise NotImplementedError

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> Sequence[bool]:
        return [False] * self.num_envs


def sb3_loop(market: Market, width: int, rollout: int, minibatch: int, epochs: int) -> Steps:
    """Stable-Baselines3 as users have it now."""
    env = DummyVecEnv([lambda: LoopEnv(market)] * LOOP_ENVS)
    return learner(PPO, env, width, rollout, minibatch, epochs, device="cpu")


def sb3_fast(market: Market, width: int, rollout: int, minibatch: int, epochs: int) -> Steps:
    """Stable-Baselines3 on flatout's environment."""
    return learner(PPO, FastVecEnv(market, FAST_ENVS), width, rollout, minibatch, epochs, device="cpu")


def sbx_fast(market: Market, width: int, rollout: int, minibatch: int, epochs: int) -> Steps:
    """SBX (Stable-Baselines in JAX) on flatout's environment."""
    import sbx

    return learner(sbx.PPO, FastVecEnv(market, FAST_ENVS), width, rollout, minibatch, epochs)


def learner(
    algorithm: Any, env: VecEnv, width: int, rollout: int, minibatch: int, epochs: int, **options: Any
) -> Steps:
    """One rollout and what is learned from it, again and again."""
    steps = -(-rollout // env.num_envs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # SB3 warns of a last minibatch that is not full
        model = algorithm(
            "MlpPolicy", env, n_steps=steps, batch_size=minibatch, n_epochs=epochs,
            policy_kwargs={"net_arch": {"pi": [width, width], "vf": [width, width]}}, **options,
        )  # fmt: skip
    model.learn(1)  # sets up, and compiles what must be compiled

    def run() -> int:
        model.learn(steps * env.num_envs, reset_num_timesteps=False)
        return steps * env.num_envs

    return run
