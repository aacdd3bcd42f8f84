"""Which engine runs the environments that `flatout.PPO` was given."""

from typing import Any

import gymnasium as gym
from gymnasium.vector import VectorEnv

from flatout.errors import SettingsError
from flatout.interop.ppo_envs import EnvFace, VectorFace
from flatout.interop.ppo_fused import array_envs

VEC_ENV = ("num_envs", "step_async", "step_wait", "reset", "observation_space", "action_space")


def source_of(env: Any) -> Any:
    """`ArrayEnvs` for the fused engine, else environments with Stable-Baselines3's face."""
    env = made(env) if isinstance(env, str) else env
    arrays = array_envs(env)
    if arrays is not None:
        return arrays
    if isinstance(env, VectorEnv):
        return VectorFace(env)
    if isinstance(env, gym.Env):
        return EnvFace(env)
    if all(hasattr(env, name) for name in VEC_ENV):
        return env
    raise SettingsError(
        f"env is {env!r}; give the name of a Gymnasium environment, a gymnasium.Env, a gymnasium.vector.VectorEnv, a "
        "VecEnv of Stable-Baselines3, a flatout.Market, or an environment in gymnax's convention"
    )


def made(name: str) -> Any:
    """The environment of this name; one that can draw pictures, if it knows how."""
    try:
        env = gym.make(name)
        if "rgb_array" not in env.metadata.get("render_modes", []):
            return env
        env.close()
        return gym.make(name, render_mode="rgb_array")
    except gym.error.Error as error:
        raise SettingsError(f"env is {name!r}, which Gymnasium cannot make: {error}") from error
