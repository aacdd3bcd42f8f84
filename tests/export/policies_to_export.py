"""Policies of a random walk for the tests of this folder, and what they see there bar by bar."""

from typing import Any, NamedTuple

import numpy as np

from flatout.bars.panel import Panel
from flatout.bars.synthetic import RandomWalk
from flatout.features import indicators
from flatout.features.recipe import Recipe, fit
from flatout.market import episode
from flatout.market.market import make_shape
from flatout.market.orders import action_size
from flatout.policies.bundle import Bundle
from flatout.policies.network import Network
from flatout.policies.per_asset import layout_of
from flatout.settings.tables import MarketSettings
from rounding import assert_close
from small_bundles import LONG_ONLY, choices_of, market_settings, network_of, network_of_assets

SYMBOLS = ("AAA", "BBB", "CCC")
FEATURES = ("return_1", "rsi", "obv", "volume", "willr")  # obv and willr have ties
LOOKBACK = 3
SIZE = LOOKBACK * len(SYMBOLS) * len(FEATURES) + 7 + 4 * len(SYMBOLS)
PANEL = RandomWalk(n_bars=700, symbols=SYMBOLS, seed=3).panel()


def policy_of(scaler: str = "quantile", panel: Panel = PANEL, **changes: Any) -> Bundle:
    """A sharp policy, fitted on the first 500 bars; keywords replace a bundle's fields, or the
    market's keys.
    """
    fields = {
        name: changes.pop(name) for name in tuple(changes) if name in Bundle.__dataclass_fields__
    }
    if fields.get("distribution") == "softmax":
        changes = {"limits": LONG_ONLY, **changes}
    settings = market_settings(**changes)
    values = {
        "network": network_for(settings, fields.get("kind", "flat")),
        "activation": "tanh",
        "distribution": "gaussian",
        "recipe": fit(Recipe(FEATURES, LOOKBACK, scaler), panel, np.arange(500)),
    }
    return Bundle(settings=settings, **(values | fields))


def network_for(settings: MarketSettings, kind: str, hidden: tuple[int, ...] = (24, 16)) -> Network:
    """A sharp network for the action of these settings."""
    if kind == "per_asset":
        shape = make_shape(settings, len(SYMBOLS), len(FEATURES), LOOKBACK)
        return network_of_assets(layout_of(shape), hidden=hidden)
    actions = action_size(settings.action, len(SYMBOLS))
    return network_of(SIZE, actions, hidden=hidden, choices=choices_of(settings))


def gated(gates: tuple[float, ...], **changes: Any) -> Bundle:
    """A policy of equally wide layers with these gates."""
    kind = changes.get("kind", "flat")
    network = network_for(market_settings(), kind, hidden=(16,) * len(gates))
    return policy_of(network=network, gates=np.array(gates), **changes)


def random_observations(bundle: Bundle, rows: int, seed: int = 0) -> np.ndarray:
    """Of the size that scaled features have, some at the observation space's edge."""
    drawn = np.random.default_rng(seed).normal(0, 2, (rows, bundle.observation_size))
    drawn[::50] *= 100
    return np.clip(drawn, -10, 10).astype(np.float32)


def assert_same_actions(found: Any, expected: Any) -> None:
    """But for the rounding of three products of at most 64 terms and their activations, in single
    precision; what is seen lies within 10, and the weights of a unit have a norm of about 1.
    """
    assert_close(found, expected, roundings=SIZE + 64, size=8.0, dtype=np.float32)


def assert_same_view(found: Any, expected: Any) -> None:
    """Both are computed in double precision, rounded once, and lie within 10."""
    assert_close(found, expected, roundings=4, size=10.0, dtype=np.float32)


class Seen(NamedTuple):
    """What accounts that follow a policy saw and did, one row per bar and account."""

    indicators: np.ndarray  # (row, lookback, asset, feature), unscaled
    account: np.ndarray  # (row, private feature)
    observation: np.ndarray
    action: np.ndarray


def follow(bundle: Bundle, panel: Panel = PANEL, bars: int = 200, accounts: int = 4) -> Seen:
    """Accounts that start at different bars and follow the policy; those that end restart."""
    market = bundle.market(panel, bundle.settings.model_copy(update={"episode_bars": 60}))
    tape, rules = market.arrays(np.float32)
    values = indicators.compute_indicators(panel, bundle.recipe.names)
    rng = np.random.default_rng(0)
    state = episode.reset(rng.random(accounts, np.float32), market.shape, rules, np)
    rows = []
    for _ in range(bars):
        observation = episode.observe(state, tape, market.shape, rules, np)
        action = bundle.act(observation)
        window = np.stack([values[state.t - lag] for lag in range(LOOKBACK)], axis=1)
        rows.append(Seen(window, episode.private_features(state, rules, np).T, observation, action))
        state, outcome = episode.step(state, action.T, tape, market.shape, rules, np)
        ended = outcome.terminated | outcome.truncated
        state = episode.restart(state, ended, rng.random(accounts, np.float32), rules, np)
    return Seen(*(np.concatenate(parts) for parts in zip(*rows, strict=True)))
