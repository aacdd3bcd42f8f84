"""Train one agent on a market in which something can be earned, and see what it does unseen."""

import flatout
from flatout.bars.synthetic import PlantedSignal

bars = PlantedSignal(n_bars=6000, seed=1).panel()  # or a path, a Polars or a pandas frame
result = flatout.train(
    bars,
    timesteps=60_000,  # bars that it trades; a few seconds
    settings={
        "train": {"n_envs": 32, "learning_rate": 1e-3},
        "features": {"indicators": ["return_1", "extra:signal"]},
    },
    progress=False,
)
figures = result.agents["portfolio"].metrics
for name in ("portfolio-seed0", "equal_weight"):
    print(f"{name}: Sharpe {figures[name]['sharpe']:.1f} on the bars that were held out")

policy = result.load_policy()  # NumPy alone runs it
env = flatout.MarketEnv(bars, fitted=policy.bundle.recipe)
observation, _ = env.reset(seed=0)
action = policy.predict(observation)  # from -1, nothing, to 1, all of it
print("action, the last is cash:", action.round(2))

later = PlantedSignal(n_bars=3000, seed=2).panel()  # bars that neither taught nor judged
test = policy.backtest(later, progress=False)
print(f"on other bars: Sharpe {test.metrics[test.policy]['sharpe']:.1f}")
print(f"p = {test.luck['p_value']:.2f} that luck does as well")
