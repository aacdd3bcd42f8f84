"""Environments that wait, for Stable-Baselines3: its algorithms step all of them in one event loop,
without processes.

    model = PPO("MlpPolicy", AsyncioVecEnv([make_env] * 32))

The environments may be async or plain (`flatout.slow_envs.plain`). Rewards, ends and infos are
those of `VectorEnvAdapter`; this file adds what only Stable-Baselines3's own classes ask for.
"""

from collections.abc import Iterable
from functools import partial

import gymnasium as gym
from stable_baselines3.common.vec_env import VecEnv

from flatout.sb3.environments import Picture, SpaceArray, VecEnvIndices, VecEnvStep
from flatout.sb3.vector_adapter import VectorEnvAdapter, unpack_infos
from flatout.slow_envs.env_attributes import (
    assign_attribute,
    call_attribute,
    is_wrapped_in,
    read_attribute,
)
from flatout.slow_envs.gymnasium_types import EnvAnswer, Maker
from flatout.slow_envs.vector_env import AsyncioVectorEnv
from flatout.slow_envs.vector_inputs import spread_seeds


class AsyncioVecEnv(VectorEnvAdapter, VecEnv):  # type: ignore[misc]
    """Environments of these makers as a VecEnv; episodes are counted as a Monitor does."""

    env: AsyncioVectorEnv

    def __init__(
        self,
        makers: Iterable[Maker],
        *,
        kind: str = "auto",
        step_deadline_s: float | None = None,
        reset_deadline_s: float | None = None,
    ) -> None:
        VectorEnvAdapter.__init__(
            self,
            AsyncioVectorEnv(
                makers,
                kind=kind,
                step_deadline_s=step_deadline_s,
                reset_deadline_s=reset_deadline_s,
            ),
        )
        self._reset_seeds()
        self._reset_options()

    def reset(self) -> SpaceArray:
        """Begin all episodes, with the seeds and options that were set."""
        observation, info = self.env.reset_each(
            spread_seeds(self.next_seed, self.num_envs), [one or None for one in self._options]
        )
        self.reset_infos, self.next_seed = unpack_infos(info, self.num_envs), None
        self._reset_options()
        self.earned[:], self.length[:], self.ended[:] = 0, 0, False
        return observation

    def step_wait(self) -> VecEnvStep:
        """Make one step of all environments. Observations that are dicts come out of the adapter in
        an array without axes.
        """
        seen, rewards, dones, infos = super().step_wait()
        if isinstance(self.observation_space, gym.spaces.Dict):
            seen = seen.item()
        return seen, rewards, dones, infos

    def get_attr(self, name: str, indices: VecEnvIndices = None) -> list[EnvAnswer]:
        """An attribute of each environment, None for a drawing mode that it does not have."""
        if name == "render_mode":
            return [self.render_mode for _ in self.select_envs(indices)]
        return list(self.env.apply(partial(read_attribute, name=name), self.select_envs(indices)))

    def set_attr(self, name: str, value: object, indices: VecEnvIndices = None) -> None:
        """Set an attribute of each environment."""
        self.env.apply(partial(assign_attribute, name=name, value=value), self.select_envs(indices))

    def env_method(
        self, name: str, *inputs: object, indices: VecEnvIndices = None, **named: object
    ) -> list[EnvAnswer]:
        """Call a method of each environment."""
        return list(
            self.env.apply(
                partial(call_attribute, name=name, args=inputs, kwargs=named),
                self.select_envs(indices),
            )
        )

    def env_is_wrapped(self, wrapper_class: type, indices: VecEnvIndices = None) -> list[bool]:
        """Whether each environment is wrapped so; what a Monitor does is done here."""
        if wrapper_class.__name__ == "Monitor":
            return [True for _ in self.select_envs(indices)]
        return list(
            self.env.apply(
                partial(is_wrapped_in, wrapper_class=wrapper_class), self.select_envs(indices)
            )
        )

    def get_images(self) -> list[Picture]:
        """Pictures of all environments, one each."""
        return list(self.env.render())

    def render(self, mode: str | None = None) -> Picture:
        """All pictures in one, as VecEnv makes it."""
        return VecEnv.render(self, mode)
