"""Environments for the tests of what stands between plain and async ones."""

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Composite(gymnasium.Env):
    """Every kind of space in its observation; episodes of 2 to 6 steps that end or are cut off;
    infos of many kinds.
    """

    def __init__(self) -> None:
        self.observation_space = spaces.Dict(
            {
                "place": spaces.Box(-9, 9, (2, 3), np.float32),
                "kind": spaces.Discrete(5),
                "flags": spaces.MultiBinary(4),
                "pair": spaces.Tuple(
                    (spaces.Box(0, 255, (2,), np.uint8), spaces.MultiDiscrete([3, 7]))
                ),
            }
        )
        self.action_space = spaces.MultiDiscrete([3, 4])
        self.t, self.last = 0, 0

    def look(self) -> dict[str, Any]:
        rng = self.np_random
        return {
            "place": rng.uniform(-9, 9, (2, 3)).astype(np.float32),
            "kind": np.int64(rng.integers(5)),
            "flags": rng.integers(0, 2, 4).astype(np.int8),
            "pair": (rng.integers(0, 256, 2).astype(np.uint8), rng.integers(0, (3, 7))),
        }

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.t, self.last = 0, int(self.np_random.integers(2, 7))
        return self.look(), {"last": self.last} if self.last % 2 else {}

    def step(self, action: Any) -> Any:
        self.t += 1
        over = self.t == self.last
        cut = over and self.last % 3 == 0
        info = (
            {"t": self.t, "nested": {"x": float(action[0])}}
            if self.t % 2
            else {"words": f"step {self.t}"}
        )
        return self.look(), float(self.np_random.normal() + action[1]), over and not cut, cut, info

    def twice(self, number: int) -> int:
        return 2 * number + self.t


class Awaited:
    """An async environment around a plain one, which really waits at every step."""

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 (as Gymnasium has it)

    def __init__(self, env: Any) -> None:
        self.env = env
        self.observation_space, self.action_space = env.observation_space, env.action_space
        self.closed = 0

    async def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        await asyncio.sleep(0)
        return self.env.reset(seed=seed, options=options)

    async def step(self, action: Any) -> Any:
        await asyncio.sleep(0)
        return self.env.step(action)

    async def close(self) -> None:
        self.closed += 1
        self.env.close()

    async def name(self, first: str) -> str:
        await asyncio.sleep(0)
        return f"{first} {self.closed}"


class Counting(gymnasium.Env):
    """Sees how often it was stepped; the first of the ways to fail is taken when the action says
    so.
    """

    PLAIN, RAISE, HANG, EXIT, ODD = range(5)
    observation_space = spaces.Box(0, 99, (1,), np.float32)
    action_space = spaces.Discrete(5)

    def __init__(self, folder: str = "") -> None:
        self.folder, self.count = Path(folder), 0

    def note(self, word: str) -> None:
        """Leave a trace outside of the process."""
        (self.folder / f"{word}-{os.getpid()}").touch()

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.count = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.count += 1
        if action == self.RAISE:
            raise LookupError(f"no page {self.count}")
        if action == self.ODD:
            raise Unpicklable("odd", self.count)
        if action == self.EXIT:
            raise SystemExit(7)
        if action == self.HANG:
            self.note("hangs")
            while True:
                time.sleep(60)
        return np.full(1, self.count, np.float32), 1.0, False, False, {}

    def close(self) -> None:
        if self.folder.name:
            self.note("closed")


class Unpicklable(Exception):  # noqa: N818 (what it is)
    """Cannot be made again from what pickle keeps of it."""

    def __init__(self, word: str, number: int) -> None:
        super().__init__(f"{word} {number}")


def same(left: Any, right: Any) -> bool:
    """Whether two trees of arrays, dicts and sequences are equal bit for bit, kinds of numbers
    included.
    """
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[name], right[name]) for name in left)
    if isinstance(left, tuple | list):
        return len(left) == len(right) and all(same(a, b) for a, b in zip(left, right, strict=True))
    if isinstance(left, np.ndarray):
        if left.dtype != right.dtype or left.shape != right.shape:
            return False
        if left.dtype == object:
            return all(same(a, b) for a, b in zip(left.ravel(), right.ravel(), strict=True))
        return left.tobytes() == right.tobytes()
    return type(left) is type(right) and left == right
