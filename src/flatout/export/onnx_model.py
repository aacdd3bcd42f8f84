"""A policy as one ONNX model: unscaled indicators and the account go in, the action comes out.

Scaling is part of the graph, so whoever runs it needs nothing of flatout: neither its scaler nor
its network. The graph is written operation by operation; PyTorch is not needed. Indicators are
doubles (onnx_scaling.py says why), all else is float32, as in `Bundle.act`.
"""

import json
from typing import Any

from onnx import ModelProto, TensorProto, checker, helper

from flatout.bars.bar_size import bar_name
from flatout.export.onnx_draft import Draft
from flatout.export.onnx_network import Shown, add_policy
from flatout.export.onnx_scaling import add_scaling
from flatout.market.episode import ACCOUNT_FEATURES, POSITION_FEATURES
from flatout.policies.bundle import Bundle
from flatout.runs import installed_version

OPSET, IR_VERSION = 18, 9  # of 2022 and 2023: runtimes that are years old read them


def onnx_of(bundle: Bundle) -> bytes:
    """The content of the .onnx file."""
    return model_of(bundle).SerializeToString()


def model_of(bundle: Bundle) -> ModelProto:
    """The checked model of a policy."""
    shape, private = bundle.shape, len(account_names(bundle))
    draft = Draft()
    features = add_scaling(draft, "indicators", bundle.recipe.scaler)
    market = draft.op("Flatten", features, axis=1)
    seen = draft.op("Concat", market, "account", name="observation", axis=1)
    add_policy(draft, bundle, Shown(seen, features, "account"))
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
        # where they are others than `symbols`
        **({"taught_symbols": json.dumps(bundle.taught)} if bundle.taught else {}),
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
