"""One small market and one PPO for it: whoever learns with these numbers runs one and the same
compiled program.
"""

from functools import cache
from typing import Any

from flatout import Market, MarketVectorEnv, Settings, build_market
from scenarios import random_panel

N_ENVS = 8
SMALL: dict[str, Any] = {
    "n_steps": 16, "batch_size": 32, "n_epochs": 2, "seed": 3,
    "policy_kwargs": {"net_arch": [16, 16]},
}  # fmt: skip
SETTINGS = Settings.model_validate({
    "features": {"indicators": ["return_1", "roc"], "lookback": 2},
    "market": {"episode_bars": 20, "action": "weights", "costs": {"half_spread_bps": 3.0}},
})  # fmt: skip


@cache
def market() -> Market:
    return build_market(random_panel(0, 200, 2), SETTINGS)


def accounts() -> MarketVectorEnv:
    return MarketVectorEnv(market(), N_ENVS)
