"""A policy as one ONNX model: unscaled indicators and the account go in, the action comes out.

Scaling is part of the graph, so whoever runs it needs nothing of flatout: neither its scaler nor
its network. The graph is written operation by operation; PyTorch is not needed. Indicators are
doubles (onnx_scaling.py says why), all else is float32, as in `Bundle.act`.
"""

import json
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, checker, helper

from flatout.bars.bar_size import bar_name
from flatout.errors import BundleError
from flatout.export.layers import shares_of
from flatout.export.onnx_draft import Draft
from flatout.export.onnx_scaling import add_scaling
from flatout.market.episode import ACCOUNT_FEATURES, POSITION_FEATURES
from flatout.policies.bundle import Bundle
from flatout.policies.network import Perceptron
from flatout.runs import installed_version

OPSET, IR_VERSION = 18, 9  # of 2022 and 2023: runtimes that are years old read them
HALF, ONE, TWO = np.float32(0.5), np.float32(1), np.float32(2)


def onnx_of(bundle: Bundle) -> bytes:
    """The content of the .onnx file."""
    return model_of(bundle).SerializeToString()


def model_of(bundle: Bundle) -> ModelProto:
    """The checked model of a policy."""
    check_onnx(bundle)
    shape, private = bundle.shape, len(account_names(bundle))
    draft = Draft()
    market = draft.op("Flatten", add_scaling(draft, "indicators", bundle.recipe.scaler), axis=1)
    seen = draft.op("Concat", market, "account", name="observation", axis=1)
    head = add_perceptron(draft, seen, bundle.network.actor, bundle)
    if bundle.choices:
        add_choices(draft, head, bundle.choices)
    else:
        add_action(draft, head, bundle.distribution)
    graph = helper.make_graph(
        draft.nodes,
        "flatout policy",
        [
            tensor(
                "indicators", TensorProto.DOUBLE, shape.lookback, shape.n_assets, shape.n_features
            ),
            tensor("account", TensorProto.FLOAT, private),
        ],
        [
            tensor(
                "action",
                TensorProto.INT64 if bundle.choices else TensorProto.FLOAT,
                bundle.action_size,
            ),
            tensor("observation", TensorProto.FLOAT, bundle.observation_size),
        ],
        list(draft.constants.values()),
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION,
        producer_name="flatout",
        producer_version=installed_version("flatout") or "",
    )  # fmt: skip
    helper.set_model_props(model, properties(bundle))
    checker.check_model(model, full_check=True)
    return model


def check_onnx(bundle: Bundle) -> None:
    """Refuse a network that the graph here cannot be."""
    if bundle.kind != "flat":
        raise BundleError(
            "networks that look at each asset cannot be written as ONNX yet: train with "
            'train.network = "flat"'
        )


def tensor(name: str, kind: int, *sizes: int) -> Any:
    """The description of an input or output; the first axis is a batch of any size."""
    return helper.make_tensor_value_info(name, kind, ["batch", *sizes])


def properties(bundle: Bundle) -> dict[str, str]:
    """What the numbers mean; lists are JSON."""
    return {
        "symbols": json.dumps(bundle.recipe.symbols),
        "features": json.dumps(bundle.recipe.names),
        "account": json.dumps(account_names(bundle)),
        "lookback": str(bundle.recipe.recipe.lookback),
        "bar": bar_name(bundle.recipe.bar_seconds),
        # by which larger bars are over
        **({"calendar": bundle.recipe.calendar} if bundle.recipe.calendar else {}),
        "scaler": bundle.recipe.recipe.scaler,
        "action": bundle.settings.action,
        "fill": bundle.settings.fill,
        **(
            {"levels": json.dumps(bundle.shape.levels)}
            if bundle.choices
            else {"distribution": bundle.distribution}
        ),
        "schema_hash": bundle.schema_hash,
    }


def account_names(bundle: Bundle) -> list[str]:
    """The names of the account's numbers in order, as in `cash` or `BTCUSDT weight`."""
    positions = [
        f"{symbol} {feature}" for feature in POSITION_FEATURES for symbol in bundle.recipe.symbols
    ]
    return [*ACCOUNT_FEATURES, *positions]


# --- the network


def add_perceptron(draft: Draft, x: str, perceptron: Perceptron, bundle: Bundle) -> str:
    """The distribution's parameters."""
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


def add_choices(draft: Draft, head: str, choices: int) -> None:
    """The likeliest choice for each asset, as whole numbers from 0."""
    parts = draft.op("Reshape", head, np.array([0, -1, choices], np.int64))
    draft.op("ArgMax", parts, name="action", axis=2, keepdims=0)


def add_action(draft: Draft, mean: str, distribution: str) -> str:
    """The mode within [-1, 1]: clipped, through tanh, or as shares."""
    if distribution == "squashed_gaussian":
        mean = draft.op("Tanh", mean)
    elif distribution == "softmax":
        shares = draft.op("Softmax", mean, axis=1)
        mean = draft.op("Sub", draft.op("Mul", shares, TWO), ONE)
    return draft.op("Clip", mean, -ONE, ONE, name="action")
