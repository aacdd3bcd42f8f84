"""flatout trains reinforcement-learning agents flat out: the environment never makes the learner
wait.

The names below are the public ones. They are loaded when first used, so that `import flatout` stays
light: neither jax nor torch nor optuna is imported. Its one side effect is Gymnasium's convention:
`gymnasium.make("flatout/Market-v0")` works after the import.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from flatout.market.registration import register

if TYPE_CHECKING:
    from flatout.bars.panel import Panel
    from flatout.bars.read import read_bars
    from flatout.errors import FlatoutError
    from flatout.evaluation.backtest import backtest
    from flatout.evaluation.saved_policy import load_policy
    from flatout.export.policy_export import export_policy
    from flatout.features.recipe import FittedRecipe, Recipe
    from flatout.market.gymnasium_env import MarketEnv, MarketVectorEnv
    from flatout.market.market import Market, build_market
    from flatout.market.torch_market import TorchMarket
    from flatout.sb3.ppo import PPO
    from flatout.search.run_study import run_study
    from flatout.settings.loading import load_settings
    from flatout.settings.tables import Settings
    from flatout.slow_envs.overlap import Overlap
    from flatout.slow_envs.vector_env import AsyncioVectorEnv
    from flatout.training.train import train

HOMES = {
    "AsyncioVectorEnv": "flatout.slow_envs.vector_env",
    "FittedRecipe": "flatout.features.recipe",
    "FlatoutError": "flatout.errors",
    "Market": "flatout.market.market",
    "MarketEnv": "flatout.market.gymnasium_env",
    "MarketVectorEnv": "flatout.market.gymnasium_env",
    "Overlap": "flatout.slow_envs.overlap",
    "PPO": "flatout.sb3.ppo",
    "Panel": "flatout.bars.panel",
    "Recipe": "flatout.features.recipe",
    "Settings": "flatout.settings.tables",
    "TorchMarket": "flatout.market.torch_market",
    "backtest": "flatout.evaluation.backtest",
    "build_market": "flatout.market.market",
    "export_policy": "flatout.export.policy_export",
    "load_policy": "flatout.evaluation.saved_policy",
    "load_settings": "flatout.settings.loading",
    "read_bars": "flatout.bars.read",
    "run_study": "flatout.search.run_study",
    "train": "flatout.training.train",
}

__all__ = [  # noqa: RUF022 (plain order, as `dir` has it)
    "AsyncioVectorEnv",
    "FittedRecipe",
    "FlatoutError",
    "Market",
    "MarketEnv",
    "MarketVectorEnv",
    "Overlap",
    "PPO",
    "Panel",
    "Recipe",
    "Settings",
    "TorchMarket",
    "backtest",
    "build_market",
    "export_policy",
    "load_policy",
    "load_settings",
    "read_bars",
    "run_study",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"flatout has no public name {name!r}; there are {', '.join(__all__)}")
    return getattr(import_module(HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__


register()
