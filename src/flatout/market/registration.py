"""Tells Gymnasium about `flatout/Market-v0`. The classes are named by text and loaded when an
environment is made.
"""

import gymnasium

ENV_ID = "flatout/Market-v0"


def register() -> None:
    """Register the environment with its vector form."""
    gymnasium.register(
        id=ENV_ID,
        entry_point="flatout.market.gymnasium_env:MarketEnv",
        vector_entry_point="flatout.market.gymnasium_env:MarketVectorEnv",
    )
