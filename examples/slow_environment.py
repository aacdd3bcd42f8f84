"""Environments that wait: 16 of them in one event loop, while another process learns."""

import asyncio
import time

import numpy as np
from gymnasium import spaces

import flatout


class Shop:
    """Asks a slow server for each step; here the server is a sleep. The right price is 1."""

    observation_space = spaces.Box(-1, 1, (2,))
    action_space = spaces.Discrete(2)

    async def reset(self, *, seed=None, options=None):  # type: ignore[no-untyped-def]
        self.random, self.steps = np.random.default_rng(seed), 0
        return await self.ask(), {}

    async def step(self, action):  # type: ignore[no-untyped-def]
        reward, self.steps = float(action == 1), self.steps + 1
        return await self.ask(), reward, False, self.steps >= 20, {}

    async def ask(self):  # type: ignore[no-untyped-def]
        await asyncio.sleep(0.01)
        return self.random.uniform(-1, 1, 2).astype(np.float32)

    async def close(self):  # type: ignore[no-untyped-def]
        pass


if __name__ == "__main__":  # the learner is a process of its own
    began = time.monotonic()
    model = flatout.PPO("MlpPolicy", [Shop] * 16, n_steps=16, batch_size=64, seed=1)
    model.learn(4096)
    actions, _ = model.predict(np.zeros((1, 2), np.float32), deterministic=True)
    waited = 4096 * 0.01
    print(f"{waited:.0f} s of waiting in {time.monotonic() - began:.0f} s; price {actions[0]}")
