"""Learning while environments wait, at equal samples, against waiting for all of them, on CartPole.

Where the learner has time, and so may learn from a batch once more, at most a tenth of what the
synchronous learner gathers is lost; where it has none, or may not, and steps are one or two updates
old, up to three tenths. In the end all policies are equally good, within a tenth.
"""

import asyncio
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

from flatout import PPO
from flatout.slow_envs.overlap import Overlap, Reuse

STEPS, ENVS, SEEDS = 50_000, 32, (0, 1, 2)
LATENCY_S = 0.05
RULE: dict[str, Any] = {
    "n_steps": 32,
    "batch_size": 256,
    "n_epochs": 10,
    "gamma": 0.98,
    "learning_rate": 1e-3,
}
# On simulated time. An update takes about as long as it does here; or so long that the learner
# hardly ever waits.
WAYS = {
    "with time": (Overlap(learner="inline", update_s=0.3), 0.1),
    "never again": (Overlap(learner="inline", update_s=0.3, reuse=Reuse(most=0)), 0.3),
    "busy": (Overlap(learner="inline", update_s=1.4), 0.3),
}
LOST_AFTER = 0.1


class Waiting:
    """CartPole whose steps take a while."""

    def __init__(self, seed: int) -> None:
        self.env = gym.make("CartPole-v1")
        self.observation_space, self.action_space = (
            self.env.observation_space,
            self.env.action_space,
        )
        self.rng = np.random.default_rng(seed)

    async def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return self.env.reset(seed=seed, options=options)

    async def step(self, action: Any) -> Any:
        await asyncio.sleep(self.rng.exponential(LATENCY_S))
        return self.env.step(action)

    async def close(self) -> None:
        self.env.close()


class Curve:
    """A callback that keeps the lengths of all episodes, and at which step they were known."""

    def __init__(self) -> None:
        self.lengths: list[float] = []

    def __call__(self, local: dict[str, Any], _: Any) -> bool:
        self.lengths += [info["episode"]["l"] for info in local["infos"] if "episode" in info]
        return True


def learned(overlap: Overlap | None, seed: int) -> tuple[float, float, int]:
    """Mean length of an episode during training, after it, and the largest age of what taught."""
    curve, lags = Curve(), [0]
    envs: Any = [Waiting(k) for k in range(ENVS)]
    if overlap is None:
        envs = SyncVectorEnv(
            [lambda: gym.make("CartPole-v1")] * ENVS, autoreset_mode=AutoresetMode.SAME_STEP
        )
    model = PPO("MlpPolicy", envs, overlap=overlap, seed=seed, **RULE)
    model.learn(STEPS, callback=[curve, lambda local, _: lags.append(lag_of(model)) is None])
    judged = make_vec_env("CartPole-v1", 20, seed=1000)
    after = float(evaluate_policy(model, judged, n_eval_episodes=60, deterministic=True)[0])
    return float(np.mean(curve.lengths)), after, max(lags)


def lag_of(model: PPO) -> int:
    session = getattr(model.engine, "session", None)
    return max(session.lags, default=0) if session is not None else 0


@pytest.mark.slow
def test_curves_at_equal_samples() -> None:
    ways: dict[str, Overlap | None] = {
        "synchronous": None,
        **{name: way for name, (way, _) in WAYS.items()},
    }
    found = {name: [learned(way, seed) for seed in SEEDS] for name, way in ways.items()}
    for name, rows in found.items():
        print(name, [(round(during, 1), round(after, 1), lag) for during, after, lag in rows])
    during = {name: np.mean([row[0] for row in rows]) for name, rows in found.items()}
    after = {name: np.mean([row[1] for row in rows]) for name, rows in found.items()}
    for name, (way, lost) in WAYS.items():
        assert during[name] >= (1 - lost) * during["synchronous"]
        assert after[name] >= (1 - LOST_AFTER) * after["synchronous"]
        assert 0 < max(row[2] for row in found[name]) <= way.max_lag
