"""Environments that wait, break and hang when asked to; every observation says whose it is."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium as gym
import numpy as np

HANG, CRASH = float("inf"), float("-inf")


class Counting:
    """Observations are (environment, life, step); the reward of a step is its number. Waits come
    from a script.
    """

    observation_space = gym.spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(
        self, index: int, waits: Iterator[float], length: int = 7, truncates: bool = False
    ) -> None:
        self.index, self.waits, self.length, self.truncates = index, waits, length, truncates
        self.life, self.step_number, self.closed = -1, 0, 0
        self.answered: list[tuple[int, int]] = []  # (life, step) of each step that was answered

    @property
    def seen(self) -> np.ndarray:
        return np.array([self.index, self.life, self.step_number], np.float32)

    async def wait(self) -> None:
        seconds = next(self.waits)
        if seconds == CRASH:
            raise ConnectionError("the other side is gone")
        if seconds == HANG:
            await asyncio.Event().wait()
        await asyncio.sleep(seconds)

    async def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.life, self.step_number = self.life + 1, 0
        return self.seen, {}

    async def step(self, action: int) -> Any:
        await self.wait()
        self.answered.append((self.life, self.step_number))
        self.step_number += 1
        over = self.step_number == self.length
        return (
            self.seen,
            float(self.step_number),
            over and not self.truncates,
            over and self.truncates,
            {},
        )

    async def close(self) -> None:
        self.closed += 1


def forever(draw: Callable[[], float]) -> Iterator[float]:
    while True:
        yield draw()


def stratified(
    rng: np.random.Generator, quantile: Callable[[np.ndarray], np.ndarray], block: int
) -> Iterator[float]:
    """Draws of a distribution whose every block has its shape: one from each of `block` equal
    parts, shuffled.
    """
    while True:
        parts = (rng.permutation(block) + rng.random(block)) / block
        yield from quantile(parts).tolist()


def envs_of(n: int, mean: float = 0.05) -> list[Counting]:
    """Environments with exponential waits of this mean; half of them truncate."""
    rng = np.random.default_rng(0)
    return [
        Counting(
            k,
            stratified(rng, lambda u: -mean * np.log1p(-u), 10),
            length=5 + k,
            truncates=k % 2 == 0,
        )
        for k in range(n)
    ]
