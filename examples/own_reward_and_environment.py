"""A reward of your own from named terms, and an array environment of your own.

The environment follows gymnax's convention (pure functions of a key, a state and parameters), so
`flatout.PPO` compiles it, the policy and the update into one program.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from gymnasium import spaces

import flatout

# A market whose reward punishes what adds to a drawdown, and charges 10 bps more of what is traded;
# weights are data, so they may be searched, too.
settings = {"market": {"reward": {"log_return": 1.0, "drawdown": 0.05, "turnover": 0.001}}}
env = flatout.MarketEnv(settings=flatout.Settings.model_validate(settings))
env.reset(seed=0)
_, reward, _, _, info = env.step(env.action_space.sample())
print(f"reward {reward:+.3f} of a bar")


class Thermostat(NamedTuple):
    """A room that drifts; the action heats it. Reward: how near it is to 20 degrees."""

    def observation_space(self, params: Any) -> spaces.Box:
        return spaces.Box(-10.0, 10.0, (1,))

    def action_space(self, params: Any) -> spaces.Box:
        return spaces.Box(-1.0, 1.0, (1,))

    def reset_env(self, key: Any, params: Any) -> tuple[Any, Any]:
        room = jnp.stack([jax.random.uniform(key, minval=10.0, maxval=30.0), 0.0])
        return (room[:1] - 20) / 10, room

    def step_env(self, key: Any, room: Any, action: Any, params: Any) -> tuple[Any, ...]:
        degrees = room[0] + 2 * action[0] + 0.5 * jax.random.normal(key)
        after = jnp.stack([degrees, room[1] + 1])
        return (after[:1] - 20) / 10, after, -jnp.abs(degrees - 20), jnp.asarray(False), {}

    def is_truncated(self, room: Any, params: Any) -> Any:
        return room[1] >= 64


model = flatout.PPO(
    "MlpPolicy", (Thermostat(), ()), n_steps=64, batch_size=1024, learning_rate=3e-3, seed=1
)
model.learn(150_000)
cold, _ = model.predict([[-1.0]], deterministic=True)
warm, _ = model.predict([[1.0]], deterministic=True)
print(f"at 10 degrees it heats with {cold[0, 0]:+.2f}, at 30 with {warm[0, 0]:+.2f}")
