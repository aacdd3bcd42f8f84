"""One network that looks at each asset: assets that change places change places in the action."""

from typing import Any

import numpy as np
import pytest

from array_libraries import LIBRARIES, run
from flatout.market.episode import ACCOUNT_FEATURES, POSITION_FEATURES, Shape
from flatout.market.orders import action_size, order_levels
from flatout.policies.network import Network, Sizes, new_network
from flatout.policies.per_asset import (
    AssetLayout,
    actor_of_assets,
    critic_of_assets,
    layout_of,
    split_assets,
    spread_deviations,
)
from flatout.settings.tables import ActionKind
from rounding import assert_close

KINDS: tuple[ActionKind, ...] = ("trade", "weights", "direction_amount", "discrete")
ASSETS, FEATURES, LOOKBACK = 4, 3, 2


def shape_of(kind: ActionKind = "weights", assets: int = ASSETS) -> Shape:
    levels = order_levels(kind, (0.1, 0.5))
    return Shape(assets, FEATURES, LOOKBACK, kind, "next_open", levels)


def network_for(layout: AssetLayout) -> Network:
    sizes = Sizes(layout.inputs, (8, 8), layout.head, layout.deviations)
    network = new_network(sizes, seed=1)
    head = network.actor.head
    sharp = head._replace(weight=100 * head.weight, bias=head.bias + np.arange(layout.head))
    return network._replace(actor=network.actor._replace(head=sharp))


def observations(shape: Shape, count: int = 20) -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.normal(size=(count, shape.observation_size)).astype(np.float32)


def permute(observation: np.ndarray, order: list[int]) -> np.ndarray:
    """The observation of the same market with its assets in another order."""
    market = LOOKBACK * ASSETS * FEATURES
    bars = observation[:, :market].reshape(-1, LOOKBACK, ASSETS, FEATURES)[:, :, order]
    account = observation[:, market : market + len(ACCOUNT_FEATURES)]
    rest = observation[:, market + len(ACCOUNT_FEATURES) :]
    position = rest.reshape(-1, len(POSITION_FEATURES), ASSETS)[:, :, order]
    parts = [bars.reshape(len(bars), -1), account, position.reshape(len(bars), -1)]
    return np.concatenate(parts, axis=1)


@pytest.mark.parametrize("library", LIBRARIES)
def test_each_asset_is_seen_with_its_own_numbers_the_account_and_the_mean(library: str) -> None:
    shape = shape_of()
    layout, seen = layout_of(shape), observations(shape)
    found = run(library, lambda x, xp: split_assets(x, layout, xp), seen)
    assert found.shape == (20, ASSETS, layout.inputs)
    market, account = LOOKBACK * ASSETS * FEATURES, len(ACCOUNT_FEATURES)
    own = []
    for asset in range(ASSETS):
        bars = [
            seen[:, (lag * ASSETS + asset) * FEATURES :][:, :FEATURES] for lag in range(LOOKBACK)
        ]
        position = [
            seen[:, market + account + k * ASSETS + asset][:, None]
            for k in range(len(POSITION_FEATURES))
        ]
        own.append(np.concatenate([*bars, *position], axis=1))
    mean = np.mean(own, axis=0)
    for asset in range(ASSETS):
        expected = np.concatenate([own[asset], seen[:, market : market + account], mean], axis=1)
        assert_close(found[:, asset], expected, roundings=16, size=10.0, dtype=np.float32)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("kind", KINDS)
def test_assets_that_change_places_change_places_in_the_action(
    kind: ActionKind, library: str
) -> None:
    shape = shape_of(kind)
    layout, order = layout_of(shape), [2, 0, 3, 1]
    network, seen = network_for(layout), observations(shape)

    def act(seen: Any, xp: Any) -> Any:
        given = map_to(network, xp)
        return (
            actor_of_assets(given, seen, layout, "tanh", xp),
            critic_of_assets(given, seen, layout, "tanh", xp),
            spread_deviations(given.log_std, layout, xp),
        )

    head, value, log_std = run(library, act, seen)
    moved, same_value, _ = run(library, act, permute(seen, order))
    per_asset = head[:, : ASSETS * layout.outputs].reshape(-1, ASSETS, layout.outputs)
    expected = per_asset[:, order].reshape(len(head), -1)
    size = {"roundings": 500, "size": 100.0, "dtype": np.float32}
    assert_close(moved[:, : expected.shape[1]], expected, **size)
    assert_close(moved[:, expected.shape[1] :], head[:, expected.shape[1] :], **size)  # cash
    assert_close(same_value, value, **size)
    if shape.levels:
        assert head.shape[1] == ASSETS * len(shape.levels) and log_std.shape == (0,)
    else:
        assert head.shape[1] == action_size(kind, ASSETS) == len(log_std)
    assert np.ptp(per_asset, axis=1).min() > 0.01


def map_to(network: Network, xp: Any) -> Network:
    import jax

    return jax.tree.map(lambda leaf: xp.asarray(np.array(leaf)), network)


def test_the_number_of_assets_is_no_part_of_the_network() -> None:
    for kind in KINDS:
        few, many = (layout_of(shape_of(kind, assets)) for assets in (2, 12))
        assert (few.inputs, few.head, few.deviations) == (many.inputs, many.head, many.deviations)
