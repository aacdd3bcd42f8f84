"""Many environments that wait, as one `gymnasium.vector.VectorEnv`: all their waits overlap in one
event loop.

Plain environments may be among them (see `plain.py`). A step takes as long as its slowest
environment, as with every vector environment; what is saved is the sum of the others, and the
processes. This file knows no learner.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from functools import partial
from typing import NamedTuple, SupportsFloat, TypeVar

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate
from numpy.typing import ArrayLike, NDArray

from flatout.errors import RunError, SettingsError
from flatout.slow_envs.async_env import AsyncEnv
from flatout.slow_envs.blocking import OwnLoop
from flatout.slow_envs.choice import SteppingChoice
from flatout.slow_envs.coroutines import Work, all_of, each_of
from flatout.slow_envs.env_attributes import assign_attribute, call_attribute
from flatout.slow_envs.gymnasium_types import (
    AnyEnv,
    EnvAnswer,
    EnvInfo,
    EnvOptions,
    Maker,
    ResetTuple,
    SpaceValue,
)
from flatout.slow_envs.plain import StillBusyError, adapt_env, apply
from flatout.slow_envs.vector_inputs import (
    check_equal_spaces,
    check_makers,
    check_mask,
    spread_seeds,
    spread_values,
)

__all__ = ["AsyncioVectorEnv"]

T = TypeVar("T")


class StepResult(NamedTuple):
    """What one step of one environment led to."""

    observation: SpaceValue
    reward: SupportsFloat
    terminated: bool
    truncated: bool
    info: EnvInfo
    # of an episode that ended in this step and began anew in it
    final: EnvInfo | None = None

    @property
    def is_over(self) -> bool:
        """Whether the episode ended with this step."""
        return bool(self.terminated or self.truncated)


class AsyncioVectorEnv(VectorEnv[SpaceValue, SpaceValue, SpaceValue]):
    """Environments of these makers, stepped together.

    makers            functions that make an environment each, one that waits or a plain one
    autoreset_mode    Gymnasium's: whether an episode that ends is followed in the same step
    kind              how plain environments are stepped: "inline" one after another, "thread" or
                      "process" each in its own, or "auto", which measures the first and chooses
    step_deadline_s   seconds that a step may take, None for any number; `reset_deadline_s` is that
                      of a reset: one that needs longer is an error

    An environment that needs longer than `step_deadline_s` for a step is cancelled: its episode
    counts as truncated, with no reward and the last observation again, and "timed_out" in the info.
    Steps that are done inline cannot be cancelled. Any exception of an environment closes all of
    them and is raised as it was.

    >>> import gymnasium
    >>> from flatout import AsyncioVectorEnv
    >>> envs = AsyncioVectorEnv([lambda: gymnasium.make("CartPole-v1")] * 3, kind="inline")
    >>> observations, infos = envs.reset(seed=0)
    >>> observations.shape
    (3, 4)
    >>> envs.close()
    """

    def __init__(
        self,
        makers: Iterable[Maker],
        *,
        autoreset_mode: AutoresetMode | str = AutoresetMode.SAME_STEP,
        kind: str = "auto",
        step_deadline_s: float | None = None,
        reset_deadline_s: float | None = None,
    ) -> None:
        self.closed = True  # there is nothing to close yet, should this fail and be collected
        self.makers, self.kind = check_makers(makers), kind
        self.mode = AutoresetMode(autoreset_mode)
        self.step_deadline_s, self.reset_deadline_s = step_deadline_s, reset_deadline_s
        self.num_envs = len(self.makers)
        self.envs: list[AsyncEnv] = []
        self.choice: SteppingChoice | None = None  # what was measured, if plain environments were
        self.loop, self.closed = OwnLoop(), False
        self.run_or_close(self.make_envs())
        self.last: list[SpaceValue] = [None] * self.num_envs
        self.seen = create_empty_array(self.single_observation_space, self.num_envs, np.zeros)
        self.ended = np.zeros(self.num_envs, np.bool_)

    async def make_envs(self) -> None:
        """Make the environments: the first plain one is measured, the others are stepped in the
        same way.
        """
        for maker in self.makers:
            env = adapt_env(maker, self.choice.kind if self.choice else self.kind)
            self.envs.append(env)
            self.choice = self.choice or getattr(env, "choice", None)
        first = self.envs[0]
        self.single_observation_space, self.single_action_space = (
            first.observation_space,
            first.action_space,
        )
        check_equal_spaces(self.envs)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        face = getattr(first, "env", first)
        self.metadata = {**getattr(face, "metadata", {}), "autoreset_mode": self.mode}
        self.render_mode = getattr(face, "render_mode", None)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: EnvOptions = None
    ) -> ResetTuple:
        """Begin episodes in all environments, or in those of `options["reset_mask"]`."""
        rest = dict(options) if options is not None else None
        mask = rest.pop("reset_mask", None) if rest is not None else None
        return self.reset_each(spread_seeds(seed, self.num_envs), [rest] * self.num_envs, mask)

    def reset_each(
        self,
        seeds: Sequence[int | None],
        options: Sequence[EnvOptions],
        mask: ArrayLike | None = None,
    ) -> ResetTuple:
        """Begin episodes with a seed and options for each environment, where the mask holds."""
        self.require_open()
        which = np.flatnonzero(check_mask(mask, self.num_envs)).tolist()
        found = self.run_or_close(all_of([self.reset_env(k, seeds[k], options[k]) for k in which]))
        infos: EnvInfo = {}
        for k, (observation, info) in zip(which, found, strict=True):
            self.last[k] = observation
            infos = self._add_info(infos, info, k)
        self.ended[which] = False
        return self.stack_observations(), infos

    def step(
        self, actions: SpaceValue
    ) -> tuple[SpaceValue, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], EnvInfo]:
        """Make one step of all environments; takes as long as the slowest of them."""
        self.require_open()
        orders = list(iterate(self.action_space, actions))
        if len(orders) != self.num_envs:
            raise SettingsError(
                f"there are {len(orders)} actions for {self.num_envs} environments: give one "
                f"for each"
            )
        if self.mode == AutoresetMode.DISABLED and self.ended.any():
            raise SettingsError(
                f"the episodes of environments {np.flatnonzero(self.ended).tolist()} have ended, "
                f"and autoreset is "
                'disabled: call reset(options={"reset_mask": ...}) first'
            )
        rows = self.run_or_close(
            all_of([self.step_or_reset(k, action) for k, action in enumerate(orders)])
        )
        infos: EnvInfo = {}
        for k, row in enumerate(rows):
            self.last[k], self.ended[k] = row.observation, row.is_over
            infos = self._add_info(infos, row.final, k) if row.final else infos
            infos = self._add_info(infos, row.info, k)
        rewards = np.array([row.reward for row in rows], np.float64)
        terminated = np.array([row.terminated for row in rows], np.bool_)
        truncated = np.array([row.truncated for row in rows], np.bool_)
        return self.stack_observations(), rewards, terminated, truncated, infos

    async def step_or_reset(self, k: int, action: SpaceValue) -> StepResult:
        """Make one step of one environment; where its episode ended, what the autoreset mode
        asks for.
        """
        if self.mode == AutoresetMode.NEXT_STEP and self.ended[k]:
            observation, info = await self.reset_env(k)
            return StepResult(
                observation=observation, reward=0.0, terminated=False, truncated=False, info=info
            )
        row = await self.step_env(k, action)
        if self.mode != AutoresetMode.SAME_STEP or not row.is_over:
            return row
        final = {"final_obs": deepcopy(row.observation), "final_info": row.info}
        observation, info = await self.reset_env(k)
        return row._replace(observation=observation, info=info, final=final)

    async def step_env(self, k: int, action: SpaceValue) -> StepResult:
        """Make one step; one that takes too long is cancelled, and its episode truncated."""
        try:
            async with asyncio.timeout(self.step_deadline_s) as limit:
                return StepResult(*await self.envs[k].step(action))
        except TimeoutError:
            if not limit.expired():  # the environment's own
                raise
            return StepResult(
                observation=self.last[k],
                reward=0.0,
                terminated=False,
                truncated=True,
                info={"timed_out": True},
            )

    async def reset_env(
        self, k: int, seed: int | None = None, options: EnvOptions = None
    ) -> ResetTuple:
        """Reset one environment; one that still hangs in a thread is replaced."""
        try:
            async with asyncio.timeout(self.reset_deadline_s) as limit:
                try:
                    return await self.envs[k].reset(seed=seed, options=options)
                except StillBusyError:
                    await self.envs[k].close()
                    self.envs[k] = adapt_env(self.makers[k], "thread")
                    return await self.envs[k].reset(seed=seed, options=options)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise RunError(
                f"environment {k} was not reset within {self.reset_deadline_s} s: raise "
                "reset_deadline_s, or see what it waits for"
            ) from error

    def stack_observations(self) -> SpaceValue:
        """The last observations of all environments as one batch: a copy."""
        self.seen = concatenate(self.single_observation_space, self.last, self.seen)
        return deepcopy(self.seen)

    def apply(
        self, function: Callable[[AnyEnv], EnvAnswer], only: Iterable[int] | None = None
    ) -> tuple[EnvAnswer, ...]:
        """What a function of an environment returns for each of them (or of these)."""
        self.require_open()
        which = range(self.num_envs) if only is None else only
        found = self.loop.run(each_of([apply(self.envs[k], function) for k in which]))
        for one in found:
            if isinstance(one, BaseException):
                raise one
        return tuple(found)

    def call(self, name: str, *args: object, **kwargs: object) -> tuple[EnvAnswer, ...]:
        """An attribute of each environment, or what it returns if it is a method."""
        return self.apply(partial(call_attribute, name=name, args=args, kwargs=kwargs))

    def get_attr(self, name: str) -> tuple[EnvAnswer, ...]:
        """An attribute of each environment."""
        return self.call(name)

    def set_attr(self, name: str, values: object) -> None:
        """Set an attribute: a list or tuple has one value per environment."""
        for k, value in enumerate(spread_values(values, self.num_envs)):
            self.apply(partial(assign_attribute, name=name, value=value), [k])

    def render(self) -> tuple[EnvAnswer, ...]:
        """What the environments' own `render` returns, one for each."""
        return self.call("render")

    def require_open(self) -> None:
        """Refuse calls after `close`."""
        if self.closed:
            raise SettingsError("this vector environment is closed: make a new one")

    def run_or_close(self, work: Work[T]) -> T:
        """Wait for this; an exception closes everything."""
        try:
            return self.loop.run(work)
        except Exception as error:
            try:
                self.close()
            except Exception as other:
                error.add_note(
                    f"Closing the environments failed too: {type(other).__name__}: {other}"
                )
            raise

    def close_extras(self, **kwargs: object) -> None:
        """Close the environments and the loop; all of them, even if one of them fails."""
        self.closed = True
        try:
            results = self.loop.run(each_of([env.close() for env in self.envs]))
        finally:
            self.loop.close()
        for error in results:
            if isinstance(error, BaseException):
                raise error
