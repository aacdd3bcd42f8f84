"""Environments as Stable-Baselines3's scripts step them: `reset()` gives observations, `step()`
four things.

`EnvFace` gives one Gymnasium environment that face, `VectorFace` a vector of them, whichever way it
restarts. Both count episodes as a Monitor does. Stable-Baselines3 need not be installed; where it
is loaded, its `isinstance` checks know these classes for what they stand in for.
"""

import sys
import time
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray

from flatout.errors import SettingsError

Infos = list[dict[str, Any]]
Stepped = tuple[NDArray[Any], NDArray[np.float32], NDArray[np.bool_], Infos]


class Face:
    """What both faces share: seeds, counters, and access to the environments behind."""

    observation_space: Any
    action_space: Any
    render_mode: str | None = None

    def __init__(self, num_envs: int) -> None:
        self.num_envs = num_envs
        self.reset_infos: Infos = [{} for _ in range(num_envs)]
        self.earned, self.length = np.zeros(num_envs), np.zeros(num_envs, np.int64)
        self.began = time.time()
        self.next_seed: int | None = None
        self.void = np.zeros(num_envs, np.bool_)  # steps that were none: see VectorFace
        known_to_sb3()

    @property
    def unwrapped(self) -> "Face":
        """Itself."""
        return self

    def step_async(self, actions: NDArray[Any]) -> None:
        """Keep the actions for `step_wait`."""
        self.actions = actions

    def step_wait(self) -> Stepped:
        """Step all environments."""
        raise NotImplementedError

    def step(self, actions: NDArray[Any]) -> Stepped:
        """Both."""
        self.step_async(actions)
        return self.step_wait()

    def seed(self, seed: int | None = None) -> list[int | None]:
        """Seeds for the next reset: that of each environment is one more than that of the one
        before.
        """
        drawn = np.random.SeedSequence().generate_state(1)[0] if seed is None else seed
        self.next_seed = int(drawn) % 2**31 if seed is None else int(drawn)
        return [self.next_seed + k for k in range(self.num_envs)]

    def count(self, rewards: NDArray[Any], dones: NDArray[np.bool_], infos: Infos) -> None:
        """Add up what episodes earn; say so in the info of their last step, unless the environment
        did.
        """
        self.earned += rewards
        self.length += ~self.void
        for k in np.flatnonzero(dones):
            told = {
                "r": round(float(self.earned[k]), 6),
                "l": int(self.length[k]),
                "t": round(time.time() - self.began, 6),
            }
            infos[k].setdefault("episode", told)
        self.earned[dones], self.length[dones] = 0, 0

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        """Episodes are counted here: that is all a Monitor is asked for."""
        wrapped = wrapper_class.__name__ == "Monitor" or self.holds(wrapper_class)
        return [wrapped] * len(self.chosen(indices))

    def holds(self, wrapper_class: Any) -> bool:
        """Whether an environment is wrapped in this class."""
        return False

    def chosen(self, indices: Any) -> Sequence[int]:
        """Which environments are meant."""
        if indices is None:
            return range(self.num_envs)
        return [indices] if isinstance(indices, int) else list(indices)

    def get_images(self) -> list[Any]:
        """Pictures of all environments."""
        image = self.render()
        return list(image) if isinstance(image, tuple | list) else [image]

    def render(self, mode: str | None = None) -> Any:
        """What the environment draws; the mode was chosen when it was made."""
        raise NotImplementedError

    def close(self) -> None:
        """Close what is behind."""
        raise NotImplementedError


class ClosedFace(Face):
    """Stands for environments that cannot be reached; `why` says what to do instead."""

    def __init__(self, observation_space: Any, action_space: Any, num_envs: int, why: str) -> None:
        self.observation_space, self.action_space, self.why = observation_space, action_space, why
        super().__init__(num_envs)

    def reset(self) -> Any:
        """They cannot be reached from here."""
        raise SettingsError(self.why)

    def step_wait(self) -> Stepped:
        """Nor here."""
        return self.reset()

    def close(self) -> None:
        """There is nothing to close."""


class EnvFace(Face):
    """One environment of Gymnasium."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        self.env, self.metadata, self.render_mode = env, env.metadata, env.render_mode
        self.observation_space, self.action_space = env.observation_space, env.action_space
        super().__init__(1)

    @property
    def envs(self) -> list[gym.Env[Any, Any]]:
        """As a list of one."""
        return [self.env]

    def reset(self) -> NDArray[Any]:
        """Begin an episode."""
        observation, info = self.env.reset(seed=self.next_seed)
        self.reset_infos, self.next_seed = [info], None
        self.earned[:], self.length[:] = 0, 0
        return np.asarray(observation)[None]

    def step_wait(self) -> Stepped:
        """One step; an episode that ended begins anew within it."""
        observation, reward, terminated, truncated, info = self.env.step(self.actions[0])
        rewards, ended = np.array([reward], np.float32), bool(terminated or truncated)
        infos, dones = (
            [{**info, "TimeLimit.truncated": bool(truncated and not terminated)}],
            np.array([ended]),
        )
        self.count(np.array([float(reward)]), dones, infos)
        if ended:
            infos[0]["terminal_observation"] = observation
            observation, self.reset_infos[0] = self.env.reset()
        return np.asarray(observation)[None], rewards, dones, infos

    def holds(self, wrapper_class: Any) -> bool:
        """Whether a wrapper of this class is among those around the environment."""
        env: Any = self.env
        while isinstance(env, gym.Wrapper):
            if isinstance(env, wrapper_class):
                return True
            env = env.env
        return False

    def get_attr(self, name: str, indices: Any = None) -> list[Any]:
        """An attribute of the environment, or of what it wraps."""
        return [self.env.get_wrapper_attr(name) for _ in self.chosen(indices)]

    def set_attr(self, name: str, value: Any, indices: Any = None) -> None:
        """Set it."""
        self.env.set_wrapper_attr(name, value)

    def env_method(self, name: str, *inputs: Any, indices: Any = None, **named: Any) -> list[Any]:
        """Call a method."""
        return [self.env.get_wrapper_attr(name)(*inputs, **named) for _ in self.chosen(indices)]

    def render(self, mode: str | None = None) -> Any:
        """What the environment draws; the mode was chosen when it was made."""
        return self.env.render()

    def close(self) -> None:
        """Close the environment."""
        self.env.close()


class VectorFace(Face):
    """Gymnasium's vector environments.

    Where they restart one step late (NEXT_STEP), that step takes no action: `void` marks it, and
    nobody learns from it.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any]) -> None:
        self.env, self.metadata, self.render_mode = env, env.metadata, env.render_mode
        self.observation_space, self.action_space = (
            env.single_observation_space,
            env.single_action_space,
        )
        self.mode = autoreset_mode(env)
        super().__init__(env.num_envs)
        self.ended = np.zeros(env.num_envs, np.bool_)

    def reset(self) -> NDArray[Any]:
        """Begin all episodes."""
        observation, info = self.env.reset(seed=self.next_seed)
        self.reset_infos, self.next_seed = unpacked(info, self.num_envs), None
        self.earned[:], self.length[:], self.ended[:] = 0, 0, False
        return np.array(observation)

    def step_wait(self) -> Stepped:
        """One step of all."""
        observation, reward, terminated, truncated, info = self.env.step(self.actions)
        self.void = self.ended if self.mode == AutoresetMode.NEXT_STEP else self.void
        dones = np.asarray(terminated | truncated, np.bool_)
        infos, rewards = unpacked(info, self.num_envs), np.asarray(reward, np.float32)
        finals: Any = (
            info.get("final_obs") if self.mode == AutoresetMode.SAME_STEP else np.array(observation)
        )
        for k in np.flatnonzero(dones):
            if self.mode == AutoresetMode.SAME_STEP:
                infos[k] = one_of(info["final_info"], int(k))
            infos[k]["terminal_observation"] = finals[k]
            infos[k]["TimeLimit.truncated"] = bool(truncated[k] and not terminated[k])
        self.count(rewards, dones, infos)
        self.ended = dones
        if self.mode == AutoresetMode.DISABLED and dones.any():
            observation, _ = self.env.reset(options={"reset_mask": dones.copy()})
        return np.array(observation), rewards, dones, infos

    def get_attr(self, name: str, indices: Any = None) -> list[Any]:
        """An attribute of the environments, or of the vector itself."""
        own = (
            getattr(self.env.unwrapped, name, None)
            if not hasattr(self.env.unwrapped, "get_attr")
            else None
        )
        values = [own] * self.num_envs if own is not None else self.env.unwrapped.get_attr(name)
        return [values[k] for k in self.chosen(indices)]

    def set_attr(self, name: str, value: Any, indices: Any = None) -> None:
        """Set it in all environments."""
        if indices is not None:
            raise SettingsError(
                "a vector environment of Gymnasium sets attributes of all environments: no indices"
            )
        self.env.unwrapped.set_attr(name, value)

    def env_method(self, name: str, *inputs: Any, indices: Any = None, **named: Any) -> list[Any]:
        """Call a method of the environments."""
        values = self.env.unwrapped.call(name, *inputs, **named)
        return [values[k] for k in self.chosen(indices)]

    def render(self, mode: str | None = None) -> Any:
        """What the environments draw."""
        return self.env.render()

    def close(self) -> None:
        """Close the environments."""
        self.env.close()


def autoreset_mode(env: VectorEnv[Any, Any, Any]) -> AutoresetMode:
    """When episodes that ended begin anew."""
    mode = env.metadata.get("autoreset_mode")
    if mode is None:
        raise SettingsError(
            f"{env} does not say when it restarts: set metadata['autoreset_mode'] to one of "
            f"{', '.join(f'AutoresetMode.{one.name}' for one in AutoresetMode)}"
        )
    return mode if isinstance(mode, AutoresetMode) else AutoresetMode(mode)


def unpacked(info: dict[str, Any], n: int) -> Infos:
    """Gymnasium's dict of arrays as one dict per environment."""
    plain = {name: value for name, value in info.items() if name not in ("final_obs", "final_info")}
    return [one_of(plain, k) for k in range(n)] if plain else [{} for _ in range(n)]


def one_of(info: dict[str, Any], k: int) -> dict[str, Any]:
    """What a dict of arrays says of one environment; names that begin with _ mark whom a value
    belongs to.
    """
    told = {}
    for name, value in info.items():
        if not name.startswith("_") and bool(
            np.all(info.get(f"_{name}", True)[k] if f"_{name}" in info else True)
        ):
            told[name] = one_of(value, k) if isinstance(value, dict) else value[k]
    return told


def known_to_sb3() -> None:
    """Where Stable-Baselines3 is loaded, let its checks take a face for a DummyVecEnv, whose
    methods it has.
    """
    module = sys.modules.get("stable_baselines3.common.vec_env")
    if module is not None:
        module.DummyVecEnv.register(Face)


def unwrapped_normaliser(env: Any) -> Any:
    """Stable-Baselines3's VecNormalize among the wrappers of a VecEnv, or None."""
    while env is not None:
        if any(kind.__name__ == "VecNormalize" for kind in type(env).__mro__):
            return env
        env = env.__dict__.get("venv")
    return None
