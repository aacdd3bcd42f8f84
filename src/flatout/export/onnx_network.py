"""A policy's network in an ONNX graph: from what it sees to its action, in single precision.

A flat network is one row of layers over the observation. One that looks at each asset is the same
row of layers over a row per asset, which `policies/per_asset.py` puts together; here that happens
with ONNX's operations. Nothing here knows how indicators are scaled.
"""

from typing import NamedTuple

import numpy as np

from flatout.export.layers import shares_of
from flatout.export.onnx_draft import Draft
from flatout.market.episode import ACCOUNT_FEATURES, POSITION_FEATURES
from flatout.policies.bundle import Bundle
from flatout.policies.network import Perceptron
from flatout.policies.per_asset import AssetLayout

HALF, ONE, TWO = np.float32(0.5), np.float32(1), np.float32(2)
BATCH, REST = 0, -1  # in the sizes that a Reshape is given: as it was, and all that is left


class Shown(NamedTuple):
    """Names of what is shown to the network, all at once and part by part."""

    observation: str  # (batch, observation)
    features: str  # (batch, lookback, asset, feature)
    account: str  # (batch, private feature)


def add_policy(draft: Draft, bundle: Bundle, shown: Shown) -> None:
    """The output `action`, as `Bundle.act` gives it."""
    if layout := bundle.layout:
        head = add_actor_of_assets(draft, bundle, shown, layout)
    else:
        head = add_perceptron(draft, shown.observation, bundle.network.actor, bundle)
    if bundle.choices:
        add_choices(draft, head, bundle.action_size, bundle.choices)
    else:
        add_action(draft, head, bundle.distribution)


# --- a network that looks at each asset


def add_actor_of_assets(draft: Draft, bundle: Bundle, shown: Shown, layout: AssetLayout) -> str:
    """The distribution's parameters, (batch, action): asset by asset, then cash."""
    seen = draft.op("Reshape", add_rows(draft, shown, layout), sizes(REST, layout.inputs))
    given = add_perceptron(draft, seen, bundle.network.actor, bundle)
    if not layout.cash:
        return draft.op("Reshape", given, sizes(REST, layout.n_assets * layout.outputs))
    given = draft.op("Reshape", given, sizes(REST, layout.n_assets, layout.head))
    parts = draft.op(
        "Reshape",
        add_slice(draft, given, 0, layout.outputs, axis=2),
        sizes(BATCH, layout.n_assets * layout.outputs),
    )
    cash = add_slice(draft, given, layout.outputs, layout.head, axis=2)
    mean = draft.op("ReduceMean", cash, sizes(1), keepdims=0)
    return draft.op("Concat", parts, mean, axis=1)


def add_rows(draft: Draft, shown: Shown, layout: AssetLayout) -> str:
    """(batch, asset, input): each asset's own numbers, the account, the mean of all assets' own."""
    account, assets = len(ACCOUNT_FEATURES), layout.n_assets
    private = account + len(POSITION_FEATURES) * assets
    bars = draft.op("Transpose", shown.features, perm=[0, 2, 1, 3])
    features = draft.op("Reshape", bars, sizes(BATCH, assets, layout.lookback * layout.n_features))
    places = draft.op(
        "Reshape",
        add_slice(draft, shown.account, account, private, axis=1),
        sizes(BATCH, len(POSITION_FEATURES), assets),
    )
    own = draft.op("Concat", features, draft.op("Transpose", places, perm=[0, 2, 1]), axis=2)
    common = draft.op(
        "Reshape", add_slice(draft, shown.account, 0, account, axis=1), sizes(BATCH, 1, account)
    )
    mean = draft.op("ReduceMean", own, sizes(1), keepdims=1)
    shared = draft.op("Concat", common, mean, axis=2)
    everywhere = draft.op("Expand", shared, sizes(1, assets, 1))
    return draft.op("Concat", own, everywhere, axis=2)


def add_slice(draft: Draft, x: str, first: int, stop: int, axis: int) -> str:
    """The part first..stop-1 along an axis."""
    return draft.op("Slice", x, sizes(first), sizes(stop), sizes(axis))


def sizes(*numbers: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Whole numbers as ONNX takes sizes, axes and places."""
    return np.array(numbers, np.int64)


# --- layers and distributions


def add_perceptron(draft: Draft, x: str, perceptron: Perceptron, bundle: Bundle) -> str:
    """What the actor's last layer says of (row, input)."""
    for layer, share in shares_of(perceptron, bundle.gates):
        new = add_activation(
            draft, draft.op("Gemm", x, layer.weight, layer.bias), bundle.activation
        )
        if share != 1:
            kept = draft.op("Mul", x, ONE - np.float32(share))
            new = draft.op("Add", draft.op("Mul", new, np.float32(share)), kept)
        x = new
    return draft.op("Gemm", x, perceptron.head.weight, perceptron.head.bias, transB=1)


def add_activation(draft: Draft, x: str, activation: str) -> str:
    """One of the network's activations, as `policies/network.py` computes it."""
    if activation == "silu":
        logistic = draft.op("Mul", HALF, draft.op("Tanh", draft.op("Mul", HALF, x)))
        return draft.op("Mul", x, draft.op("Add", logistic, HALF))
    return draft.op({"tanh": "Tanh", "relu": "Relu"}[activation], x)


def add_choices(draft: Draft, head: str, assets: int, choices: int) -> None:
    """The likeliest choice for each asset, as whole numbers from 0."""
    parts = draft.op("Reshape", head, sizes(BATCH, assets, choices))
    draft.op("ArgMax", parts, name="action", axis=2, keepdims=0)


def add_action(draft: Draft, mean: str, distribution: str) -> str:
    """The mode within [-1, 1]: clipped, through tanh, or as shares."""
    if distribution == "squashed_gaussian":
        mean = draft.op("Tanh", mean)
    elif distribution == "softmax":
        shares = draft.op("Softmax", mean, axis=1)
        mean = draft.op("Sub", draft.op("Mul", shares, TWO), ONE)
    return draft.op("Clip", mean, -ONE, ONE, name="action")
