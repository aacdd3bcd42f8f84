"""Other trainers on the bench's market, for comparison only: Stable-Baselines3 and SBX, with the
environments that their users have. Imported by the benches alone; needs the `bench` extra.
"""

import warnings
from collections.abc import Sequence

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray
from stable_baselines3 import PPO
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv
from stable_baselines3.common.vec_env.base_vec_env import VecEnvIndices, VecEnvStepReturn

from flatout.arrays import NumpyArray
from flatout.bench.market_speed import Steps
from flatout.bench.scalar_account import ScalarAccount, ScalarBars, scalar_bars
from flatout.bench.workload import LearnerShape
from flatout.market.gymnasium_env import Info, MarketVectorEnv, spaces
from flatout.market.market import Market

LOOP_ENVS = 12
FAST_ENVS = 64
Floats = NDArray[np.float32]


class LoopEnv(gym.Env[Floats, NumpyArray]):
    """The market in a Python loop over assets, one account: what most trading environments are.

    Bars are NumPy arrays, as users keep them, or lists of Python's floats, as fast as such a loop
    can be; environments share them.
    """

    def __init__(self, market: Market, bars: ScalarBars) -> None:
        self.bars, self.lists = bars, isinstance(bars.rows, list)
        self.observation_space, self.action_space = spaces(market)
        segments = market.rules.segments
        self.first, self.stop, self.length = (
            int(segments.first[0]),
            int(segments.stop[0]),
            int(segments.length),
        )
        self.start(self.first, self.stop - 1)

    def start(self, first: int, last: int) -> Floats:
        """A fresh account that trades from one bar to another; returns the observation."""
        self.account, self.last = ScalarAccount(self.bars, first), last
        return self.account.observation()

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Floats, Info]:
        super().reset(seed=seed)
        first = int(
            self.np_random.integers(self.first, max(self.first + 1, self.stop - self.length))
        )
        return self.start(first, min(first + self.length, self.stop - 1)), {}

    def step(self, action: Floats) -> tuple[Floats, float, bool, bool, Info]:
        account = self.account
        reward = account.step(action.tolist() if self.lists else action.astype(float))
        return (
            account.observation(),
            reward,
            account.ruined,
            account.t >= self.last and not account.ruined,
            {},
        )


class FastVecEnv(VecEnv):  # type: ignore[misc]
    """flatout's vector environment as Stable-Baselines3 wants it."""

    def __init__(self, market: Market, n_envs: int) -> None:
        self.env = MarketVectorEnv(market, n_envs)
        super().__init__(n_envs, self.env.single_observation_space, self.env.single_action_space)

    def reset(self) -> Floats:
        return self.env.reset(seed=self._seeds[0] or 0)[0]

    def step_async(self, actions: Floats) -> None:
        self.actions = actions

    def step_wait(self) -> VecEnvStepReturn:
        observation, reward, terminated, truncated, info = self.env.step(self.actions)
        infos: list[Info] = [{} for _ in range(self.num_envs)]
        ended = terminated | truncated
        for k in np.flatnonzero(ended):
            infos[k] = {
                "terminal_observation": info["final_obs"][k],
                "TimeLimit.truncated": bool(truncated[k]),
            }
        return observation, reward, ended, infos

    def close(self) -> None:
        self.env.close()

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> Sequence[object]:
        return [getattr(self.env, attr_name, None)] * self.num_envs

    def set_attr(self, attr_name: str, value: object, indices: VecEnvIndices = None) -> None:
        raise NotImplementedError

    def env_method(
        self, method_name: str, *args: object, indices: VecEnvIndices = None, **kwargs: object
    ) -> Sequence[object]:
        raise NotImplementedError

    def env_is_wrapped(
        self, wrapper_class: type[object], indices: VecEnvIndices = None
    ) -> Sequence[bool]:
        return [False] * self.num_envs


def sb3_loop(market: Market, shape: LearnerShape) -> Steps:
    """Stable-Baselines3 as users have it now."""
    return repeat_updates(loop_model(market, scalar_bars(market, lists=False), shape))


def sb3_lists(market: Market, shape: LearnerShape) -> Steps:
    """Stable-Baselines3 with an environment made as fast as plain Python allows."""
    return repeat_updates(loop_model(market, scalar_bars(market, lists=True), shape))


def loop_model(market: Market, bars: ScalarBars, shape: LearnerShape) -> PPO:
    """Stable-Baselines3's PPO on scalar environments."""
    env = DummyVecEnv([lambda: LoopEnv(market, bars)] * LOOP_ENVS)
    return new_model(PPO, env, shape, device="cpu")


def sb3_trial(
    market: Market, shape: LearnerShape, steps: int, blocks: Sequence[tuple[int, int]]
) -> int:
    """One trial on one split as users run it: a new model, so many steps, then the test blocks,
    each from its first bar to its last. Returns the steps learned from.
    """
    bars = scalar_bars(market, lists=False)
    model = loop_model(market, bars, shape)
    model.learn(steps)
    judged = [LoopEnv(market, bars) for _ in blocks]
    seen = [env.start(*block) for env, block in zip(judged, blocks, strict=True)]
    going = [True] * len(judged)
    while any(going):
        actions, _ = model.predict(np.stack(seen), deterministic=True)
        for k, env in enumerate(judged):
            if going[k]:
                seen[k], _, ruined, ended, _ = env.step(actions[k])
                going[k] = not (ruined or ended)
    return int(model.num_timesteps)


def sb3_fast(market: Market, shape: LearnerShape) -> Steps:
    """Stable-Baselines3 on flatout's environment."""
    return repeat_updates(new_model(PPO, FastVecEnv(market, FAST_ENVS), shape, device="cpu"))


def sbx_fast(market: Market, shape: LearnerShape) -> Steps:
    """SBX (Stable-Baselines in JAX) on flatout's environment."""
    import sbx

    return repeat_updates(new_model(sbx.PPO, FastVecEnv(market, FAST_ENVS), shape))


def new_model(
    algorithm: type[OnPolicyAlgorithm], env: VecEnv, shape: LearnerShape, **options: object
) -> OnPolicyAlgorithm:
    """A fresh model whose rollout has at least so many transitions."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # SB3 warns of a last minibatch that is not full
        return algorithm(
            "MlpPolicy",
            env,
            n_steps=-(-shape.rollout // env.num_envs),
            batch_size=shape.minibatch,
            n_epochs=shape.epochs,
            policy_kwargs={"net_arch": {"pi": [shape.width] * 2, "vf": [shape.width] * 2}},
            **options,
        )


def repeat_updates(model: OnPolicyAlgorithm) -> Steps:
    """One rollout and what is learned from it, again and again."""
    model.learn(1)  # sets up, and compiles what must be compiled
    steps = model.n_steps * model.n_envs

    def run() -> int:
        model.learn(steps, reset_num_timesteps=False)
        return int(steps)

    return run
