"""Bundles for tests: fresh networks on a small market with every rule on; sharp ones, whose actions
matter.
"""

from typing import Any

import numpy as np

from flatout.bars.panel import Panel
from flatout.features.recipe import Recipe, fit
from flatout.market.market import make_shape
from flatout.market.orders import action_size, order_levels
from flatout.policies.bundle import Bundle
from flatout.policies.bundle_files import network_sizes
from flatout.policies.network import Network, Sizes, new_network
from flatout.policies.per_asset import AssetLayout, layout_of
from flatout.settings.tables import MarketSettings
from market.small_markets import COSTS, INDICATORS, LIMITS, REWARD
from scenarios import random_panel

HIDDEN = (16, 8)
LONG_ONLY = {**LIMITS, "max_short_weight": 0.0}


def market_settings(**changes: Any) -> MarketSettings:
    """Every rule on; keywords change the market's own keys."""
    values = {
        "capital": 1e6,
        "action": "weights",
        "costs": COSTS,
        "limits": LIMITS,
        "reward": REWARD,
    }
    return MarketSettings.model_validate(values | changes)


def panel_of(seed: int = 0, n_bars: int = 200, assets: int = 3) -> Panel:
    """Symbols S00, S01, ..., hourly."""
    return random_panel(seed, n_bars, assets)


def network_of(
    observation: int,
    actions: int,
    seed: int = 0,
    hidden: tuple[int, ...] = HIDDEN,
    choices: int | None = None,
) -> Network:
    """A network whose output depends on what it sees: the first policy of a training hardly
    does.
    """
    return sharpen(network_sizes(observation, hidden, actions, choices), seed)


def network_of_assets(
    layout: AssetLayout, seed: int = 0, hidden: tuple[int, ...] = HIDDEN
) -> Network:
    """Such a network that looks at each asset."""
    return sharpen(Sizes(layout.inputs, hidden, layout.head, layout.deviations), seed)


def sharpen(sizes: Sizes, seed: int) -> Network:
    """A network of these sizes with a head that matters."""
    network = new_network(sizes, seed, log_std=-0.5)
    head = network.actor.head
    rng = np.random.default_rng(seed + 1)
    sharp = head._replace(
        weight=head.weight * np.float32(100),
        bias=rng.normal(0, 0.5, head.bias.shape).astype(np.float32),
    )
    return network._replace(actor=network.actor._replace(head=sharp))


def choices_of(settings: MarketSettings) -> int | None:
    """Among how many choices each number of an action is one; None if it is none."""
    return len(order_levels(settings.action, settings.order_sizes)) or None


def bundle_of(panel: Panel | None = None, seed: int = 0, **changes: Any) -> Bundle:
    """A bundle for a panel; keywords named as its fields replace them, all others are the market's
    keys.
    """
    panel = panel_of() if panel is None else panel
    fields = {
        name: changes.pop(name) for name in tuple(changes) if name in Bundle.__dataclass_fields__
    }
    if fields.get("distribution") == "softmax":
        changes = {"limits": LONG_ONLY, **changes}
    settings = fields.pop("settings", None) or market_settings(**changes)
    recipe = fields.pop("recipe", None) or fit(
        Recipe(INDICATORS, 2, "zscore"), panel, np.arange(panel.n_bars // 2)
    )
    observation = 2 * panel.n_assets * len(INDICATORS) + 7 + 4 * panel.n_assets
    if fields.get("kind") == "per_asset":
        shape = make_shape(settings, panel.n_assets, len(INDICATORS), 2)
        network = network_of_assets(layout_of(shape), seed)
    else:
        network = network_of(
            observation,
            action_size(settings.action, panel.n_assets),
            seed,
            choices=choices_of(settings),
        )
    values = {
        "network": network,
        "activation": "tanh",
        "distribution": "gaussian",
        "notes": {"seed": seed},
    } | fields
    return Bundle(recipe=recipe, settings=settings, **values)
