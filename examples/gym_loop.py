"""The market as a Gymnasium environment: one account, then 256 at once."""

import gymnasium
import numpy as np

import flatout

env = gymnasium.make("flatout/Market-v0")  # bars="candles.parquet" for your own
observation, info = env.reset(seed=1)
earned, over = 0.0, False
while not over:
    action = env.action_space.sample()  # target weights, the last one is cash
    observation, reward, terminated, truncated, info = env.step(action)
    earned += float(reward)
    over = terminated or truncated
print(
    f"one account: {observation.shape[0]} numbers seen, reward {earned:.2f}, {info['equity']:.3f}"
)

envs = flatout.MarketVectorEnv(env.unwrapped.market, 256)  # the same bars, on NumPy
observations, _ = envs.reset(seed=1)
total = np.zeros(256)
for _ in range(100):
    actions = np.zeros(envs.action_space.shape, np.float32)
    observations, rewards, terminated, truncated, infos = envs.step(actions)
    total += rewards
print(f"256 accounts, equal weights: mean reward {total.mean():.2f} in 100 bars")
