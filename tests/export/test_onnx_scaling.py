"""Scaling in ONNX against flatout's own, on awkward columns: ties, constants, NaN, edges and
columns never seen.
"""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

from flatout.errors import BundleError
from flatout.export.onnx_draft import Draft
from flatout.export.onnx_model import IR_VERSION, OPSET
from flatout.export.onnx_scaling import add_scaling, knots_of
from flatout.features.scalers import SCALERS, Scaler, fit_scaler, scale
from rounding import assert_close

NEARLY_ZERO = 1e-5  # both sides compute in double precision, here in another order, and round once


def awkward(rows: int, seed: int = 0) -> np.ndarray:
    """(row, 2 assets, 4 features): plain, rounded, mostly zero, constant, skewed, tiny, with NaN,
    and all NaN.
    """
    rng = np.random.default_rng(seed)
    plain = rng.normal(3, 2, rows)
    columns = [
        plain, np.round(plain), np.where(rng.random(rows) < 0.8, 0.1, plain), np.full(rows, 0.1),
        np.exp(3 * plain),
        1e-9 * plain, np.where(rng.random(rows) < 0.4, np.nan, plain), np.full(rows, np.nan),
    ]  # fmt: skip
    return np.stack(columns, axis=-1).reshape(rows, 2, 4)


def run(scaler: Scaler, values: np.ndarray) -> np.ndarray:
    """The scaling of a graph that does nothing else."""
    draft = Draft()
    result = add_scaling(draft, "values", scaler)
    graph = helper.make_graph(
        draft.nodes,
        "scaling",
        [helper.make_tensor_value_info("values", TensorProto.DOUBLE, ["row", *values.shape[1:]])],
        [helper.make_tensor_value_info(result, TensorProto.FLOAT, ["row", *values.shape[1:]])],
        list(draft.constants.values()),
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION
    )
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return session.run(None, {"values": values})[0]


def asked(values: np.ndarray) -> np.ndarray:
    """The training values, their neighbours in floating point, values between and far beyond them,
    and NaN.
    """
    others = [
        np.nextafter(values, np.inf),
        np.nextafter(values, -np.inf),
        values + 5e-8,
        values - 5e-8,
    ]
    others += [
        (values[:-1] + values[1:]) / 2,
        values * 1e6,
        -values * 1e6,
        np.full_like(values[:1], np.nan),
    ]
    return np.concatenate([values, *others])


@pytest.mark.parametrize("rows", [2, 7, 300, 1500])
@pytest.mark.parametrize("name", SCALERS)
def test_it_is_flatouts_scaling(name: str, rows: int) -> None:
    values = awkward(rows)
    scaler = fit_scaler(name, values, np.arange(rows))
    given = asked(values)
    found, expected = run(scaler, given), scale(scaler, given)
    assert found.dtype == np.float32
    assert_close(found, expected, roundings=2, size=np.maximum(np.abs(expected), NEARLY_ZERO))


@pytest.mark.parametrize("name", SCALERS)
def test_nothing_known_is_zero(name: str) -> None:
    values = awkward(50)
    scaler = fit_scaler(name, values, np.arange(50))
    found = run(scaler, np.concatenate([values, np.full_like(values[:1], np.nan)]))
    assert not found[:, 1, 3].any()  # no value in training
    assert not found[-1].any()  # no value now


def test_single_precision_would_not_do() -> None:
    """A tie at 0.1, which single precision cannot hold: the value falls off the middle of its
    quantiles.
    """
    values = awkward(1500)
    scaler = fit_scaler("quantile", values, np.arange(1500))
    rounded = run(scaler, values.astype(np.float32).astype(np.float64))
    assert np.abs(rounded - scale(scaler, values)).max() > 1


def test_knots_are_distinct_and_remember_their_levels() -> None:
    knots = knots_of(np.array([[1.0, 5.0], [2.0, 5.0], [2.0, 5.0], [2.0, 5.0], [3.0, 5.0]]))
    assert knots.value.tolist() == [[1, 2, 3, np.inf], [5, np.inf, np.inf, np.inf]]
    assert knots.lowest.tolist() == [[0, 0.25, 1, 1], [0, 1, 1, 1]]
    assert knots.highest.tolist() == [[0, 0.75, 1, 1], [1, 1, 1, 1]]


def test_an_unknown_scaler_is_refused() -> None:
    with pytest.raises(
        BundleError, match="the scaler 'minmax' cannot be written as ONNX; zscore, robust, quantile"
    ):
        add_scaling(Draft(), "values", Scaler("minmax", np.zeros((2, 1, 1))))
