"""Environments with the methods of Stable-Baselines3's VecEnv: `reset()` gives observations,
`step()` gives observations, rewards, dones and infos.

`SingleEnvAdapter` gives them to one Gymnasium environment; `VectorEnvAdapter` in vector_adapter.py
gives them to a vector. Both count episodes as a Monitor does. Stable-Baselines3 need not be
installed; where it is loaded, its `isinstance` checks take an adapter for a DummyVecEnv.
"""

import sys
import time
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn, Protocol

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from flatout.errors import SettingsError
from flatout.slow_envs.env_attributes import is_wrapped_in
from flatout.slow_envs.gymnasium_types import EnvAnswer, EnvInfo, PlainEnv

Infos = list[EnvInfo]
AnySpace = gym.Space[object]  # `flat_spaces.check_spaces` refuses those that are not known
SpaceArray = NDArray[Any]  # observations or actions of all environments, of their space's type
VecEnvStep = tuple[SpaceArray, NDArray[np.float32], NDArray[np.bool_], Infos]
VecEnvIndices = None | int | Iterable[int]  # which environments; None means all of them
# An adapter, or a VecEnv of Stable-Baselines3, which need not be installed: no type covers both,
# and scripts call all methods of a VecEnv on it.
VecEnvLike = Any
Picture = Any  # what `render` returns: Gymnasium leaves it to each environment and its mode


class SteppedEnvs(Protocol):
    """What an engine calls on environments with the methods of Stable-Baselines3's VecEnv."""

    @property
    def num_envs(self) -> int: ...

    @property
    def observation_space(self) -> AnySpace: ...

    @property
    def action_space(self) -> AnySpace: ...

    def reset(self) -> SpaceArray: ...
    def step(self, actions: SpaceArray) -> VecEnvStep: ...
    def seed(self, seed: int | None = None) -> Sequence[int | None]: ...


class VecEnvAdapter:
    """What all adapters share: seeds, counters of episodes, and access to the environments."""

    observation_space: AnySpace
    action_space: AnySpace
    render_mode: str | None = None

    def __init__(self, num_envs: int) -> None:
        self.num_envs = num_envs
        self.reset_infos: Infos = [{} for _ in range(num_envs)]
        self.earned, self.length = np.zeros(num_envs), np.zeros(num_envs, np.int64)
        self.began = time.time()
        self.next_seed: int | None = None
        self.void = np.zeros(num_envs, np.bool_)  # steps that were none: see VectorEnvAdapter
        register_with_sb3()

    @property
    def unwrapped(self) -> "VecEnvAdapter":
        """The adapter itself: wrappers of Stable-Baselines3 ask for it."""
        return self

    def step_async(self, actions: SpaceArray) -> None:
        """Keep the actions for `step_wait`."""
        self.actions = actions

    def step_wait(self) -> VecEnvStep:
        """Make one step of all environments with the actions that were kept."""
        raise NotImplementedError

    def step(self, actions: SpaceArray) -> VecEnvStep:
        """Make one step of all environments: `step_async`, then `step_wait`."""
        self.step_async(actions)
        return self.step_wait()

    def seed(self, seed: int | None = None) -> list[int | None]:
        """Seeds for the next reset: that of each environment is one more than that of the one
        before.
        """
        drawn = np.random.SeedSequence().generate_state(1)[0] if seed is None else seed
        self.next_seed = int(drawn) % 2**31 if seed is None else int(drawn)
        return [self.next_seed + k for k in range(self.num_envs)]

    def count(self, rewards: NDArray[np.floating], dones: NDArray[np.bool_], infos: Infos) -> None:
        """Add up what episodes earn, and put it into the info of their last step under `episode`,
        unless the environment has done so.
        """
        self.earned += rewards
        self.length += ~self.void
        for k in np.flatnonzero(dones):
            episode = {
                "r": round(float(self.earned[k]), 6),
                "l": int(self.length[k]),
                "t": round(time.time() - self.began, 6),
            }
            infos[k].setdefault("episode", episode)
        self.earned[dones], self.length[dones] = 0, 0

    def env_is_wrapped(self, wrapper_class: type, indices: VecEnvIndices = None) -> list[bool]:
        """Whether each environment is wrapped in this class. A Monitor always is around it:
        episodes are counted here.
        """
        wrapped = wrapper_class.__name__ == "Monitor" or self.is_wrapped_in(wrapper_class)
        return [wrapped] * len(self.select_envs(indices))

    def is_wrapped_in(self, wrapper_class: type) -> bool:
        """Whether a wrapper of this class is around the environments."""
        return False

    def select_envs(self, indices: VecEnvIndices) -> Sequence[int]:
        """The numbers of the environments that `indices` mean: all of them for None."""
        if indices is None:
            return range(self.num_envs)
        return [indices] if isinstance(indices, int) else list(indices)

    def get_images(self) -> list[Picture]:
        """Pictures of all environments, as `render` draws them."""
        image = self.render()
        return list(image) if isinstance(image, tuple | list) else [image]

    def render(self, mode: str | None = None) -> Picture:
        """What the environment draws; the mode was chosen when it was made."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the environments behind the adapter."""
        raise NotImplementedError


class UnreachableEnvs(VecEnvAdapter):
    """Stands for environments that cannot be stepped from here; `why` says what to do instead."""

    def __init__(
        self,
        observation_space: AnySpace,
        action_space: AnySpace,
        num_envs: int,
        why: str,
    ) -> None:
        self.observation_space, self.action_space, self.why = observation_space, action_space, why
        super().__init__(num_envs)

    def reset(self) -> NoReturn:
        """Refuse, with what to do instead."""
        raise SettingsError(self.why)

    def step_wait(self) -> VecEnvStep:
        """Refuse, with what to do instead."""
        self.reset()

    def close(self) -> None:
        """Do nothing: whoever runs these environments closes them."""


class SingleEnvAdapter(VecEnvAdapter):
    """One environment of Gymnasium as a vector of one."""

    def __init__(self, env: PlainEnv) -> None:
        self.env, self.metadata, self.render_mode = env, env.metadata, env.render_mode
        self.observation_space, self.action_space = env.observation_space, env.action_space
        super().__init__(1)

    @property
    def envs(self) -> list[PlainEnv]:
        """The environment in a list, as a DummyVecEnv has it."""
        return [self.env]

    def reset(self) -> SpaceArray:
        """Begin an episode; its first observation, (1, ...)."""
        observation, info = self.env.reset(seed=self.next_seed)
        self.reset_infos, self.next_seed = [info], None
        self.earned[:], self.length[:] = 0, 0
        return np.asarray(observation)[None]

    def step_wait(self) -> VecEnvStep:
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

    def is_wrapped_in(self, wrapper_class: type) -> bool:
        """Whether a wrapper of this class is among those around the environment."""
        return is_wrapped_in(self.env, wrapper_class)

    def get_attr(self, name: str, indices: VecEnvIndices = None) -> list[EnvAnswer]:
        """An attribute of the environment, or of what it wraps."""
        return [self.env.get_wrapper_attr(name) for _ in self.select_envs(indices)]

    def set_attr(self, name: str, value: object, indices: VecEnvIndices = None) -> None:
        """Set an attribute of the environment, or of what it wraps."""
        self.env.set_wrapper_attr(name, value)

    def env_method(
        self, name: str, *inputs: object, indices: VecEnvIndices = None, **named: object
    ) -> list[EnvAnswer]:
        """Call a method of the environment, or of what it wraps."""
        return [
            self.env.get_wrapper_attr(name)(*inputs, **named) for _ in self.select_envs(indices)
        ]

    def render(self, mode: str | None = None) -> Picture:
        """What the environment draws; the mode was chosen when it was made."""
        return self.env.render()

    def close(self) -> None:
        """Close the environment behind the adapter."""
        self.env.close()


def register_with_sb3() -> None:
    """Where Stable-Baselines3 is loaded, let its checks take an adapter for a DummyVecEnv, whose
    methods it has.
    """
    module = sys.modules.get("stable_baselines3.common.vec_env")
    if module is not None:
        module.DummyVecEnv.register(VecEnvAdapter)


def find_normaliser(env: VecEnvLike) -> VecEnvLike:
    """Stable-Baselines3's VecNormalize among the wrappers of a VecEnv, or None."""
    while env is not None:
        if any(kind.__name__ == "VecNormalize" for kind in type(env).__mro__):
            return env
        env = env.__dict__.get("venv")
    return None
