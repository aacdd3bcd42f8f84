"""One small network for all assets: it looks at each of them in turn and gives its part of the
action.

What it sees of an asset is that asset's features and position, the account, and the mean of all
assets' features and positions. So assets that change places change places in the action, and the
number of assets is no part of the network. The share of cash is the mean of what all assets say
of it. The layers are those of `network.py`; this file knows where in an observation they look.
"""

from typing import NamedTuple

from flatout.arrays import Array, Namespace
from flatout.market.episode import ACCOUNT_FEATURES, POSITION_FEATURES, Shape
from flatout.policies.network import Network, actor, critic
from flatout.settings.train import Activation


class AssetLayout(NamedTuple):
    """Where the numbers of each asset are in an observation, and what is asked of it."""

    n_assets: int
    n_features: int  # per asset and bar
    lookback: int
    outputs: int  # numbers of the action for each asset
    cash: bool  # whether the action ends with one for cash
    deviations: int  # learned standard deviations: one for each output and for cash, or none

    @property
    def own(self) -> int:
        """Numbers that an observation holds of each asset."""
        return self.lookback * self.n_features + len(POSITION_FEATURES)

    @property
    def inputs(self) -> int:
        """Numbers that the network sees of each asset."""
        return 2 * self.own + len(ACCOUNT_FEATURES)

    @property
    def head(self) -> int:
        """Outputs of the actor for each asset."""
        return self.outputs + self.cash


def layout_of(shape: Shape) -> AssetLayout:
    """The layout of a market's observations and actions."""
    outputs = {"trade": 1, "weights": 1, "direction_amount": 2, "discrete": len(shape.levels)}
    cash = shape.action == "weights"
    return AssetLayout(
        n_assets=shape.n_assets,
        n_features=shape.n_features,
        lookback=shape.lookback,
        outputs=outputs[shape.action],
        cash=cash,
        deviations=0 if shape.levels else outputs[shape.action] + cash,
    )


def split_assets(observation: Array, layout: AssetLayout, xp: Namespace) -> Array:
    """(..., asset, input) of (..., feature) observations."""
    leading, assets = observation.shape[:-1], layout.n_assets
    market = layout.lookback * assets * layout.n_features
    private = market + len(ACCOUNT_FEATURES)
    bars = xp.reshape(
        observation[..., :market], (*leading, layout.lookback, assets, layout.n_features)
    )
    features = xp.reshape(xp.moveaxis(bars, -3, -2), (*leading, assets, -1))
    position = xp.reshape(observation[..., private:], (*leading, len(POSITION_FEATURES), assets))
    own = xp.concat([features, xp.moveaxis(position, -1, -2)], axis=-1)
    account = observation[..., None, market:private]
    shared = xp.concat([account, xp.mean(own, axis=-2, keepdims=True)], axis=-1)
    everywhere = xp.broadcast_to(shared, (*leading, assets, shared.shape[-1]))
    return xp.concat([own, everywhere], axis=-1)


def actor_of_assets(
    network: Network,
    observation: Array,
    layout: AssetLayout,
    activation: Activation,
    xp: Namespace,
    gates: Array = None,
) -> Array:
    """The distribution's parameters, (..., action): asset by asset, then cash."""
    given = actor(network, split_assets(observation, layout, xp), activation, xp=xp, gates=gates)
    parts = given[..., : layout.outputs]
    joined = xp.reshape(parts, (*parts.shape[:-2], layout.n_assets * layout.outputs))
    if not layout.cash:
        return joined
    return xp.concat([joined, xp.mean(given[..., -1], axis=-1, keepdims=True)], axis=-1)


def critic_of_assets(
    network: Network,
    observation: Array,
    layout: AssetLayout,
    activation: Activation,
    xp: Namespace,
    gates: Array = None,
) -> Array:
    """What the rewards to come are worth: (...), the mean of what it says of each asset."""
    seen = split_assets(observation, layout, xp)
    return xp.mean(critic(network, seen, activation, xp=xp, gates=gates), axis=-1)


def spread_deviations(log_std: Array, layout: AssetLayout, xp: Namespace) -> Array:
    """(action,) deviations of (output,) ones: each asset has the same."""
    parts = [log_std[: layout.outputs]] * layout.n_assets
    return xp.concat([*parts, log_std[layout.outputs :]], axis=0)
