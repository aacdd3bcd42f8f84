"""Hundreds of environments in one event loop: each lives on its own, breaks on its own, and is
mended on its own.

An environment asks for an action, waits for its step, writes down what came of it, and goes on. A
step that takes too long is cancelled; an environment that breaks is restarted after a pause that
doubles, and left out for good when that does not help. When too few are left the run stops with the
error that the last of them ended with.
"""

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

import numpy as np
from gymnasium import spaces

from flatout.errors import FlatoutError, RunError, SettingsError
from flatout.slow_envs.async_env import AsyncEnv, waits
from flatout.slow_envs.batcher import Floats, RawActions, SampledAction
from flatout.slow_envs.gymnasium_types import EnvInfo, Maker, SpaceValue
from flatout.slow_envs.overlap import Care
from flatout.slow_envs.plain import adapt_env
from flatout.slow_envs.tape import Format, Segment, SegmentTape

__all__ = ["FinishedEpisode"]

PLAIN = (spaces.Box, spaces.MultiBinary)
KEPT_TIMES = 10_000  # of steps, for percentiles


class FinishedEpisode(NamedTuple):
    """An episode that has ended: who played it, what it earned and how long it took.

    >>> FinishedEpisode(env=0, earned=1.5, length=20, info={"recall": 0.9}).info["recall"]
    0.9
    """

    env: int
    earned: float
    length: int
    info: EnvInfo  # of its last step


class EnvSlot:
    """One environment, its tape, and how often it failed."""

    def __init__(self, index: int, maker: Maker | None, env: AsyncEnv, form: Format) -> None:
        self.index, self.maker, self.env, self.tape = index, maker, env, SegmentTape(form, index)
        self.failures = self.restarts = self.steps = 0
        self.begun = self.quarantined = False
        self.seen: Floats | None = None  # that a step was asked for and has not answered
        self.earned, self.length = 0.0, 0


class Pool:
    """Runs environments until it is cancelled; `events` counts what happened to them."""

    def __init__(
        self,
        envs: Sequence[object],
        form: Format,
        ask: Callable[[Floats], Awaitable[SampledAction]],
        ship: Callable[[Segment], Awaitable[None]],
        care: Care | None = None,
        seed: int | None = None,
        plain: str = "auto",
    ) -> None:
        self.care, self.ask, self.ship, self.seed, self.plain = (
            care or Care(),
            ask,
            ship,
            seed,
            plain,
        )
        if not envs:
            raise SettingsError("there are no environments: give at least one")
        self.slots = [self.new_slot(k, given, form) for k, given in enumerate(envs)]
        first = self.slots[0].env
        self.observation_space, self.action_space = first.observation_space, first.action_space
        self.events: Counter[str] = Counter()
        self.episodes: deque[FinishedEpisode] = deque(maxlen=KEPT_TIMES)
        self.step_times: deque[float] = deque(maxlen=KEPT_TIMES)
        self.waiting = 0  # environments whose step is on its way

    def new_slot(self, index: int, given: object, form: Format) -> EnvSlot:
        """A place for an environment, or for what makes one."""
        if isinstance(given, AsyncEnv) and waits(given):
            return EnvSlot(index, None, given, form)
        if callable(given):
            return EnvSlot(index, given, self.make_env(given), form)
        raise SettingsError(
            f"environment {index} is {given!r}; give an AsyncEnv, or a function that makes one"
        )

    def make_env(self, maker: Maker) -> AsyncEnv:
        """What a maker makes; the first plain one is measured, and the others are stepped as
        it is.
        """
        env = adapt_env(maker, self.plain)
        choice = getattr(env, "choice", None)
        self.plain = self.plain if choice is None else choice.kind
        return env

    async def run(self) -> None:
        """Live until cancelled, or until too few environments are alive."""
        try:
            async with asyncio.TaskGroup() as group:
                for slot in self.slots:
                    group.create_task(self.live(slot), name=f"environment {slot.index}")
        except* FlatoutError as errors:
            raise errors.exceptions[0] from errors.exceptions[0].__cause__

    async def live(self, slot: EnvSlot) -> None:
        """One environment: episodes, and restarts when it breaks."""
        while not slot.quarantined:
            try:
                await self.play(slot)
            # Whatever an environment raises is its own failure, not the run's.
            except Exception as error:
                await self.recover(slot, error)

    async def play(self, slot: EnvSlot) -> None:
        """Play episode after episode; ends only by an exception."""
        seen = await self.reset(slot)
        while True:
            action = await self.ask(seen)
            slot.seen = seen
            then, reward, terminated, truncated, info = await self.step(slot, action)
            slot.seen, slot.failures = None, 0
            full = slot.tape.add_step(
                seen=seen,
                action=action,
                reward=reward,
                then=then,
                terminated=terminated,
                truncated=truncated,
            )
            slot.steps += 1
            slot.earned, slot.length = slot.earned + reward, slot.length + 1
            self.events["steps"] += 1
            if terminated or truncated:
                self.note_episode(slot, info)
            for segment in full:
                await self.ship(segment)
            seen = await self.reset(slot) if terminated or truncated else then

    async def step(
        self, slot: EnvSlot, action: SampledAction
    ) -> tuple[Floats, float, bool, bool, EnvInfo]:
        """Make one step within the deadline; returns what Gymnasium's `step` does."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        self.waiting += 1
        try:
            async with asyncio.timeout(self.care.step_deadline_s):
                then, reward, terminated, truncated, info = await slot.env.step(
                    convert_action(self.action_space, action.raw)
                )
        finally:
            self.waiting -= 1
        self.step_times.append(loop.time() - begun)
        return self.read_observation(then), float(reward), bool(terminated), bool(truncated), info

    async def reset(self, slot: EnvSlot) -> Floats:
        """Begin an episode, within the deadline."""
        seed = None
        if not slot.begun and self.seed is not None:
            seed = int(
                np.random.SeedSequence([self.seed, slot.index, slot.restarts]).generate_state(1)[0]
                >> 1
            )
        async with asyncio.timeout(self.care.reset_deadline_s):
            seen, _ = await slot.env.reset(seed=seed)
        slot.begun = True
        self.events["resets"] += 1
        return self.read_observation(seen)

    def read_observation(self, observation: SpaceValue) -> Floats:
        """An observation as the policy reads it; a copy, since environments may write into
        theirs.
        """
        return flatten_observation(self.observation_space, observation)

    def note_episode(self, slot: EnvSlot, info: EnvInfo) -> None:
        """Count an episode that has ended, and begin to count the next."""
        self.episodes.append(FinishedEpisode(slot.index, slot.earned, slot.length, info))
        self.events["episodes"] += 1
        slot.earned, slot.length = 0.0, 0

    async def recover(self, slot: EnvSlot, error: Exception) -> None:
        """An environment broke or hung: what it owes is struck out, and it is started again or left
        out.
        """
        self.events["timeouts" if isinstance(error, TimeoutError) else "crashes"] += 1
        full = slot.tape.add_end(slot.seen) if slot.seen is not None else []
        slot.tape.continuing = False
        slot.seen, slot.earned, slot.length = None, 0.0, 0
        slot.failures += 1
        for segment in full:
            await self.ship(segment)
        self.check_anyone_began(error)
        if slot.failures > self.care.most_failures:
            self.quarantine(slot, error)
            return
        await asyncio.sleep(self.care.pause(slot.failures))
        try:
            await self.restart(slot)
        except Exception as again:  # its maker failed: the same as a failing environment
            await self.recover(slot, again)

    async def restart(self, slot: EnvSlot) -> None:
        """A new environment in the old one's place; one that nobody can make again begins a new
        episode.
        """
        slot.restarts += 1
        slot.begun = False
        self.events["restarts"] += 1
        if slot.maker is not None:
            await self.close_env(slot)
            slot.env = self.make_env(slot.maker)

    def check_anyone_began(self, error: Exception) -> None:
        """Refuse to go on when every environment failed before a single one began."""
        if all(slot.failures and not slot.steps and not slot.begun for slot in self.slots):
            raise RunError(
                f"none of the {len(self.slots)} environments could begin an episode; the first "
                f"failure of the last one: {describe_error(error)}. Nothing was trained: see to "
                "what they wait for, and start again"
            ) from error

    def quarantine(self, slot: EnvSlot, error: Exception) -> None:
        """Leave an environment out; stop the run when too few are left."""
        slot.quarantined = True
        self.events["quarantined"] += 1
        alive = sum(not other.quarantined for other in self.slots)
        if alive < max(1, self.care.least_alive * len(self.slots)):
            raise RunError(
                f"{alive} of {len(self.slots)} environments are alive, fewer than the share of "
                f"{self.care.least_alive} that must be; environment {slot.index} failed "
                f"{slot.failures} times in a row, at last with {describe_error(error)}"
            ) from error

    async def close(self) -> None:
        """Close all environments, those that are broken too."""
        await asyncio.gather(*(self.close_env(slot) for slot in self.slots))

    async def close_env(self, slot: EnvSlot) -> None:
        """Close one; it may be broken, and then there is nothing to save."""
        with contextlib.suppress(Exception):
            async with asyncio.timeout(self.care.reset_deadline_s):
                await slot.env.close()


def describe_error(error: Exception) -> str:
    """The kind of an error and its message, in one line."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def flatten_observation(space: spaces.Space[object], observation: SpaceValue) -> Floats:
    """What `gymnasium.spaces.flatten` makes of it, in float32; without its detours for boxes and
    dicts of them.
    """
    if isinstance(space, spaces.Dict) and all(
        isinstance(part, PLAIN) for part in space.spaces.values()
    ):
        parts = [np.ravel(observation[name]) for name in space.spaces]
        return np.concatenate(parts, dtype=np.float32, casting="unsafe")
    return np.array(spaces.flatten(space, observation), np.float32)


def convert_action(space: spaces.Space[object], raw: RawActions | np.int64) -> RawActions | int:
    """The action that the environment gets for what the policy drew: clipped to its bounds."""
    if isinstance(space, spaces.Box):
        return np.clip(np.reshape(raw, space.shape), space.low, space.high).astype(space.dtype)
    return int(raw)
