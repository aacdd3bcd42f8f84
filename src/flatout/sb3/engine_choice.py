"""Which engine runs the environments that `flatout.PPO` was given."""

from typing import TypeGuard

import gymnasium as gym
from gymnasium.vector import VectorEnv

from flatout.errors import SettingsError
from flatout.sb3.array_envs import read_array_envs
from flatout.sb3.engine import EngineSource
from flatout.sb3.environments import SingleEnvAdapter, SteppedEnvs
from flatout.sb3.fused_engine import fused_source
from flatout.sb3.host_engine import host_source
from flatout.sb3.vector_adapter import VectorEnvAdapter
from flatout.sb3.waiting_engine import are_waiting, step_together, waiting_source
from flatout.slow_envs.gymnasium_types import PlainEnv
from flatout.slow_envs.overlap import Overlap

VEC_ENV = ("num_envs", "step_async", "step_wait", "reset", "observation_space", "action_space")


def read_envs(env: object, overlap: Overlap | None = None) -> EngineSource:
    """The environments in whatever form they were given, with their engine; a form that no engine
    runs is refused.
    """
    if are_waiting(env):
        overlap = overlap or Overlap()
        if overlap.serial:
            return host_source(step_together(env, overlap))
        return waiting_source(env, overlap)
    if overlap is not None:
        raise SettingsError(
            f"overlap is for a list of environments that wait, and env is {env!r}: leave it out"
        )
    env = make_env(env) if isinstance(env, str) else env
    arrays = read_array_envs(env)
    if arrays is not None:
        return fused_source(arrays)
    if isinstance(env, VectorEnv):
        return host_source(VectorEnvAdapter(env))
    if isinstance(env, gym.Env):
        return host_source(SingleEnvAdapter(env))
    if has_vec_env_methods(env):
        return host_source(env)
    raise SettingsError(
        f"env is {env!r}; give the name of a Gymnasium environment, a gymnasium.Env, a "
        "gymnasium.vector.VectorEnv, a VecEnv of Stable-Baselines3, a flatout.Market, an "
        "environment in gymnax's convention, or a list of environments whose steps are "
        "coroutines (or of functions that make environments)"
    )


def has_vec_env_methods(env: object) -> TypeGuard[SteppedEnvs]:
    """Whether this is a VecEnv of Stable-Baselines3, or has what an engine calls on one."""
    return all(hasattr(env, name) for name in VEC_ENV)


def make_env(name: str) -> PlainEnv:
    """The environment of this name; one that can draw pictures, if it knows how."""
    try:
        env = gym.make(name)
        if "rgb_array" not in env.metadata.get("render_modes", []):
            return env
        env.close()
        return gym.make(name, render_mode="rgb_array")
    except gym.error.Error as error:
        raise SettingsError(f"env is {name!r}, which Gymnasium cannot make: {error}") from error
