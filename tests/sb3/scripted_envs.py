"""Environments whose story does not depend on what is done in them."""

from typing import Any

import gymnasium
import numpy as np


class Scripted(gymnasium.Env):
    """Random observations and rewards from a seed; episodes of 3 to 7 steps, which end or are cut
    off in turns. Actions are a box, one of so many choices, or several such choices.
    """

    def __init__(self, seed: int = 0, choices: int = 0, components: int = 1) -> None:
        self.observation_space = gymnasium.spaces.Box(-5, 5, (3,), np.float32)
        box = gymnasium.spaces.Box(np.float32([-1, -0.5]), np.float32([1, 2]))
        several = gymnasium.spaces.MultiDiscrete([choices] * components) if choices else box
        one = choices and components == 1
        self.action_space = gymnasium.spaces.Discrete(choices) if one else several
        self.rng, self.episode, self.t = np.random.default_rng(seed), 0, 0
        self.actions: list[Any] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.t, self.episode = 0, self.episode + 1
        return self.look(), {}

    def look(self) -> Any:
        return self.rng.normal(size=3).astype(np.float32)

    def step(self, action: Any) -> Any:
        self.t += 1
        self.actions.append(action)
        over = self.t >= 3 + self.episode % 5
        cut = over and self.episode % 2 == 0
        return self.look(), float(self.rng.normal()), over and not cut, cut, {"t": self.t}


class Corridor(gymnasium.Env):
    """One-hot places 0 to 4; each step goes on by one; cut off at the last. The reward is 1 per
    step.
    """

    def __init__(self, last: int = 4) -> None:
        self.observation_space = gymnasium.spaces.Box(0, 1, (last + 1,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)
        self.last, self.place = last, 0

    def look(self) -> Any:
        return np.eye(self.last + 1, dtype=np.float32)[self.place]

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.place = 0
        return self.look(), {}

    def step(self, action: Any) -> Any:
        self.place += 1
        return self.look(), 1.0, False, self.place == self.last, {}
