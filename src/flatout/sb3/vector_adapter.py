"""Gymnasium's vector environments with the methods of Stable-Baselines3's VecEnv, whichever way
they restart episodes.
"""

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from flatout.errors import SettingsError
from flatout.sb3.environments import (
    Infos,
    Picture,
    SpaceArray,
    VecEnvAdapter,
    VecEnvIndices,
    VecEnvStep,
)
from flatout.slow_envs.gymnasium_types import EnvAnswer, EnvInfo, SpaceValue

AnyVectorEnv = VectorEnv[SpaceValue, SpaceValue, SpaceValue]


class VectorEnvAdapter(VecEnvAdapter):
    """A vector environment of Gymnasium as a VecEnv.

    Where they restart one step late (NEXT_STEP), that step takes no action: `void` marks it, and
    nobody learns from it.
    """

    def __init__(self, env: AnyVectorEnv) -> None:
        self.env, self.metadata, self.render_mode = env, env.metadata, env.render_mode
        self.observation_space, self.action_space = (
            env.single_observation_space,
            env.single_action_space,
        )
        self.mode = autoreset_mode(env)
        super().__init__(env.num_envs)
        self.ended = np.zeros(env.num_envs, np.bool_)

    def reset(self) -> SpaceArray:
        """Begin all episodes; their first observations, (env, ...)."""
        observation, info = self.env.reset(seed=self.next_seed)
        self.reset_infos, self.next_seed = unpack_infos(info, self.num_envs), None
        self.earned[:], self.length[:], self.ended[:] = 0, 0, False
        return np.array(observation)

    def step_wait(self) -> VecEnvStep:
        """Make one step of all environments; those whose episode ended show the next one's first
        observation, or restart one step late.
        """
        observation, reward, terminated, truncated, info = self.env.step(self.actions)
        self.void = self.ended if self.mode == AutoresetMode.NEXT_STEP else self.void
        dones = np.asarray(terminated | truncated, np.bool_)
        infos, rewards = unpack_infos(info, self.num_envs), np.asarray(reward, np.float32)
        finals: SpaceValue = (
            info.get("final_obs") if self.mode == AutoresetMode.SAME_STEP else np.array(observation)
        )
        for k in np.flatnonzero(dones):
            if self.mode == AutoresetMode.SAME_STEP:
                infos[k] = info_of_env(info["final_info"], int(k))
            infos[k]["terminal_observation"] = finals[k]
            infos[k]["TimeLimit.truncated"] = bool(truncated[k] and not terminated[k])
        self.count(rewards, dones, infos)
        self.ended = dones
        if self.mode == AutoresetMode.DISABLED and dones.any():
            observation, _ = self.env.reset(options={"reset_mask": dones.copy()})
        return np.array(observation), rewards, dones, infos

    def get_attr(self, name: str, indices: VecEnvIndices = None) -> list[EnvAnswer]:
        """An attribute of the environments, or of the vector itself."""
        own = (
            getattr(self.env.unwrapped, name, None)
            if not hasattr(self.env.unwrapped, "get_attr")
            else None
        )
        values = [own] * self.num_envs if own is not None else self.env.unwrapped.get_attr(name)
        return [values[k] for k in self.select_envs(indices)]

    def set_attr(self, name: str, value: object, indices: VecEnvIndices = None) -> None:
        """Set an attribute of all environments."""
        if indices is not None:
            raise SettingsError(
                "a vector environment of Gymnasium sets attributes of all environments: no indices"
            )
        self.env.unwrapped.set_attr(name, value)

    def env_method(
        self, name: str, *inputs: object, indices: VecEnvIndices = None, **named: object
    ) -> list[EnvAnswer]:
        """Call a method of the environments."""
        values = self.env.unwrapped.call(name, *inputs, **named)
        return [values[k] for k in self.select_envs(indices)]

    def render(self, mode: str | None = None) -> Picture:
        """What the environments draw, in the mode in which they were made."""
        return self.env.render()

    def close(self) -> None:
        """Close the vector environment behind the adapter."""
        self.env.close()


def autoreset_mode(env: AnyVectorEnv) -> AutoresetMode:
    """When episodes that ended begin anew, as the environment's metadata state it."""
    mode = env.metadata.get("autoreset_mode")
    if mode is None:
        raise SettingsError(
            f"{env} does not say when it restarts: set metadata['autoreset_mode'] to one of "
            f"{', '.join(f'AutoresetMode.{one.name}' for one in AutoresetMode)}"
        )
    return mode if isinstance(mode, AutoresetMode) else AutoresetMode(mode)


def unpack_infos(info: EnvInfo, n: int) -> Infos:
    """Gymnasium's dict of arrays as one dict per environment."""
    plain = {name: value for name, value in info.items() if name not in ("final_obs", "final_info")}
    return [info_of_env(plain, k) for k in range(n)] if plain else [{} for _ in range(n)]


def info_of_env(info: EnvInfo, k: int) -> EnvInfo:
    """What a dict of arrays says of environment k; names that begin with _ mark whom a value
    belongs to.
    """
    own = {}
    for name, value in info.items():
        if not name.startswith("_") and bool(
            np.all(info.get(f"_{name}", True)[k] if f"_{name}" in info else True)
        ):
            own[name] = info_of_env(value, k) if isinstance(value, dict) else value[k]
    return own
