"""Exported models in ONNX Runtime, from unscaled indicators to actions, in the market they were
trained for.
"""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from policies_to_export import (
    FEATURES,
    LOOKBACK,
    PANEL,
    SYMBOLS,
    assert_same_actions,
    assert_same_view,
    follow,
    gated,
    policy_of,
    random_observations,
)

from flatout.bars.source import select_symbols
from flatout.export.onnx_model import account_names, model_of, onnx_of, properties
from flatout.features.recipe import Recipe, fit
from flatout.features.scalers import SCALERS
from flatout.policies.bundle import Bundle
from flatout.policies.other_symbols import move_bundle

LARGER = Recipe(("return_1", "4h:return_5", "obv", "1d:willr", "4h:volume"), LOOKBACK)
POLICIES = {name: policy_of(name) for name in SCALERS} | {
    "squashed": policy_of(distribution="squashed_gaussian", action="trade"),
    "shares": policy_of("zscore", distribution="softmax"),
    "relu": policy_of("robust", activation="relu", action="direction_amount"),
    "choices": policy_of("robust", action="discrete", order_sizes=[0.1, 0.4]),
    "silu": policy_of("zscore", activation="silu", distribution="squashed_gaussian"),
    "larger bars": policy_of(recipe=fit(LARGER, PANEL, np.arange(500))),
    "gates": gated((1, 0, 1)),
    "gates that mix": gated((1, 0.25, 0.6), activation="silu"),
}
PER_ASSET: dict[str, dict[str, Any]] = {
    "weights": {},
    "weights, squashed": {"distribution": "squashed_gaussian", "activation": "silu"},
    "shares": {"scaler": "zscore", "distribution": "softmax"},
    "shares, relu": {"scaler": "robust", "distribution": "softmax", "activation": "relu"},
    "trade": {"action": "trade", "activation": "relu"},
    "trade, squashed": {"action": "trade", "distribution": "squashed_gaussian"},
    "directions": {"action": "direction_amount", "activation": "silu"},
    "choices": {"scaler": "robust", "action": "discrete", "order_sizes": [0.1, 0.4]},
    "larger bars": {"recipe": fit(LARGER, PANEL, np.arange(500))},
}
ASSETS_SEEN = {
    name: policy_of(kind="per_asset", **changes) for name, changes in PER_ASSET.items()
} | {
    "gates": gated((1, 0, 1), kind="per_asset"),
    "gates that mix": gated((1, 0.25, 0.6), kind="per_asset", activation="silu"),
}
POLICIES |= {f"each asset: {name}": bundle for name, bundle in ASSETS_SEEN.items()}


def session_of(bundle: Bundle) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(onnx_of(bundle), providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("name", POLICIES)
def test_actions_are_those_of_the_policy_over_many_bars(name: str) -> None:
    bundle = POLICIES[name]
    seen = follow(bundle)
    given = {"indicators": seen.indicators, "account": seen.account}
    action, observation = session_of(bundle).run(["action", "observation"], given)
    assert len(action) == 800
    assert np.ptp(seen.action) > 0.1
    assert np.ptp(seen.account, axis=0).astype(bool).sum() > 10  # accounts that trade
    assert_same_view(observation, seen.observation)
    assert_same_actions(action, seen.action)


@pytest.mark.parametrize("name", ["quantile", "choices", *(f"each asset: {n}" for n in PER_ASSET)])
def test_one_row_is_a_batch_too(name: str) -> None:
    seen = follow(POLICIES[name], bars=3)
    session = session_of(POLICIES[name])
    for rows in (0, 1, 5):
        given = {"indicators": seen.indicators[:rows], "account": seen.account[:rows]}
        assert_same_actions(session.run(["action"], given)[0], seen.action[:rows])


def test_a_network_of_assets_takes_and_gives_what_a_flat_one_does() -> None:
    """So whoever runs one can run the other: names, types, sizes and what the model says."""
    for flat, other in (("quantile", "weights"), ("choices", "choices")):
        one, two = (session_of(POLICIES[name]) for name in (flat, f"each asset: {other}"))
        for kind in ("get_inputs", "get_outputs"):
            puts = [[(p.name, p.type, p.shape) for p in getattr(s, kind)()] for s in (one, two)]
            assert puts[0] == puts[1]
        assert one.get_modelmeta().custom_metadata_map == two.get_modelmeta().custom_metadata_map


def test_assets_that_change_places_change_places_in_the_models_action() -> None:
    bundle, order = POLICIES["each asset: weights"], [2, 0, 1]
    seen, scaler = follow(bundle, bars=20), bundle.recipe.scaler
    moved = replace(
        bundle.recipe,
        symbols=tuple(SYMBOLS[k] for k in order),
        scaler=scaler._replace(statistics=scaler.statistics[:, order]),
    )
    places = seen.account[:, 7:].reshape(-1, 4, 3)[:, :, order].reshape(len(seen.account), -1)
    given = {
        "indicators": seen.indicators[:, :, order],
        "account": np.concatenate([seen.account[:, :7], places], axis=1),
    }
    action = session_of(replace(bundle, recipe=moved)).run(["action"], given)[0]
    assert_same_actions(action, seen.action[:, [*order, 3]])
    assert np.ptp(seen.action[:, :3], axis=1).min() > 0.01


@pytest.mark.parametrize("distribution", ["gaussian", "squashed_gaussian", "softmax"])
def test_actions_stay_within_their_bounds(distribution: str) -> None:
    bundle = policy_of("zscore", distribution=distribution)
    head = bundle.network.actor.head
    wild = bundle.network._replace(
        actor=bundle.network.actor._replace(head=head._replace(weight=head.weight * 100))
    )
    bundle = replace(bundle, network=wild)
    account = random_observations(bundle, 300)[:, -len(account_names(bundle)) :]
    indicators = np.random.default_rng(0).normal(size=(300, LOOKBACK, len(SYMBOLS), len(FEATURES)))
    action = session_of(bundle).run(["action"], {"indicators": indicators, "account": account})[0]
    assert (action.min(), action.max()) == (-1, 1)


def test_symbols_without_a_past_are_zero() -> None:
    """CCC has no bar in the training rows: its features say nothing to this policy, whatever they
    are later.
    """
    close = PANEL.close.copy()
    close[:600, 2] = np.nan
    prices = {
        name: np.where(np.isnan(close), np.nan, getattr(PANEL, name))
        for name in ("open", "high", "low")
    }
    late = replace(PANEL, close=close, **prices, tradable=PANEL.tradable & np.isfinite(close))
    bundle = policy_of(panel=late)
    seen = follow(bundle, late, bars=100)
    action, observation = session_of(bundle).run(
        None, {"indicators": seen.indicators, "account": seen.account}
    )
    assert_same_view(observation, seen.observation)
    assert_same_actions(action, seen.action)


def test_the_model_says_by_which_calendar_larger_bars_are_over() -> None:
    bundle = POLICIES["larger bars"]
    recipes = [replace(bundle.recipe, calendar=name) for name in ("XNYS", None)]
    facts = [properties(replace(bundle, recipe=recipe)) for recipe in recipes]
    assert facts[0]["calendar"] == "XNYS"
    assert "calendar" not in facts[1]
    assert facts[0]["schema_hash"] != facts[1]["schema_hash"]


def test_the_model_says_what_its_numbers_mean() -> None:
    bundle = POLICIES["quantile"]
    session = session_of(bundle)
    facts = session.get_modelmeta().custom_metadata_map
    assert json.loads(facts["symbols"]) == list(SYMBOLS)
    assert json.loads(facts["features"]) == list(FEATURES)
    names = json.loads(facts["account"])
    assert names[:2] == ["cash", "ruin_share"]
    assert names[7:10] == ["AAA weight", "BBB weight", "CCC weight"]
    assert (facts["bar"], facts["lookback"], facts["scaler"]) == ("1h", "3", "quantile")
    assert (facts["action"], facts["fill"], facts["schema_hash"]) == (
        "weights",
        "next_open",
        bundle.schema_hash,
    )
    assert {
        put.name: (put.type, put.shape) for put in (*session.get_inputs(), *session.get_outputs())
    } == {
        "indicators": ("tensor(double)", ["batch", LOOKBACK, len(SYMBOLS), len(FEATURES)]),
        "account": ("tensor(float)", ["batch", len(names)]),
        "action": ("tensor(float)", ["batch", 4]),
        "observation": ("tensor(float)", ["batch", bundle.observation_size]),
    }


def test_a_policy_taken_to_other_symbols_is_exported_for_them() -> None:
    moved = move_bundle(POLICIES["each asset: shares"], ("NEW", "AAA"))
    facts = session_of(moved).get_modelmeta().custom_metadata_map
    assert json.loads(facts["symbols"]) == ["NEW", "AAA"]
    assert json.loads(facts["taught_symbols"]) == list(SYMBOLS)
    panel = replace(select_symbols(PANEL, ("BBB", "AAA")), symbols=("NEW", "AAA"))
    seen = follow(moved, panel, bars=50)
    given = {"indicators": seen.indicators, "account": seen.account}
    action, observation = session_of(moved).run(["action", "observation"], given)
    assert_same_view(observation, seen.observation)
    assert_same_actions(action, seen.action)


def test_skipped_layers_are_not_in_the_graph() -> None:
    kinds = [
        [node.op_type for node in model_of(gated(gates)).graph.node]
        for gates in ((1, 1, 1), (1, 0, 1))
    ]
    assert [ops.count("Gemm") for ops in kinds] == [4, 3]


def test_the_same_policy_gives_the_same_bytes() -> None:
    assert onnx_of(POLICIES["quantile"]) == onnx_of(POLICIES["quantile"])
    assert onnx.load_from_string(onnx_of(POLICIES["relu"])).producer_name == "flatout"
