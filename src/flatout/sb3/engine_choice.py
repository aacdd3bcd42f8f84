"""Which engine runs the environments that `flatout.PPO` was given."""

from typing import Any

import gymnasium as gym
from gymnasium.vector import VectorEnv

from flatout.errors import SettingsError
from flatout.sb3.environments import EnvFace, VectorFace
from flatout.sb3.fused_engine import array_envs
from flatout.sb3.waiting_engine import waiting_envs

VEC_ENV = ("num_envs", "step_async", "step_wait", "reset", "observation_space", "action_space")


def source_of(env: Any, overlap: Any = None) -> Any:
    """`ArrayEnvs` for the fused engine, `WaitingEnvs` for overlapping waits, else environments with
    Stable-Baselines3's face.
    """
    waiting = waiting_envs(env, overlap)
    if waiting is not None:
        return waiting
    if overlap is not None:
        raise SettingsError(
            f"overlap is for a list of environments that wait, and env is {env!r}: leave it out"
        )
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
        f"env is {env!r}; give the name of a Gymnasium environment, a gymnasium.Env, a "
        f"gymnasium.vector.VectorEnv, a "
        "VecEnv of Stable-Baselines3, a flatout.Market, an environment in gymnax's convention, or "
        "a list of "
        "environments whose steps are coroutines (or of functions that make environments)"
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
