"""Scaling in an ONNX graph: what `features/scalers.py` does, in double precision as there.

Double precision, because single would move values across quantiles: a value tied over many
quantiles lies on their middle, and a rounding beside them. Against flatout's own scaling the
differences are those of the order of arithmetic, below 1e-9 before both become single precision.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto

from flatout.bars.panel import FloatArray
from flatout.errors import BundleError
from flatout.export.onnx_draft import Draft
from flatout.features.scalers import CENTRE, CLIP, EDGE, FAR_TAIL, TAIL, Scaler

ZERO, HALF, ONE = np.float64(0), np.float64(0.5), np.float64(1)


def add_scaling(draft: Draft, values: str, scaler: Scaler) -> str:
    """Scaled float32 of (..., asset, feature) doubles; 0 for NaN and for columns that had no value
    in training.
    """
    if scaler.name not in METHODS:
        raise BundleError(
            f"the scaler {scaler.name!r} cannot be written as ONNX; {', '.join(METHODS)} can"
        )
    known = ~np.isnan(scaler.statistics).any(axis=0)
    missing = draft.op("IsNaN", values)
    given = draft.op("Where", missing, ZERO, values)
    scaled = METHODS[scaler.name](draft, given, np.where(known, scaler.statistics, 1.0))
    seen = draft.op("And", draft.op("Not", missing), known)
    return draft.op("Cast", draft.op("Where", seen, scaled, ZERO), to=TensorProto.FLOAT)


def add_linear(draft: Draft, x: str, statistics: FloatArray) -> str:
    """Centred, divided and clipped."""
    centre, spread = statistics
    ratio = draft.op("Div", draft.op("Sub", x, centre), spread)
    return draft.op("Clip", ratio, np.float64(-CLIP), np.float64(CLIP))


def add_uniform(draft: Draft, x: str, quantiles: FloatArray) -> str:
    """The share of training values below."""
    above, below = (
        draft.op("GreaterOrEqual", x, quantiles[-1]),
        draft.op("LessOrEqual", x, quantiles[0]),
    )
    share = draft.op("Where", above, ONE, add_share_below(draft, x, quantiles))
    return draft.op("Where", below, ZERO, share)


def add_normal(draft: Draft, x: str, quantiles: FloatArray) -> str:
    """The normal deviate with the same share of training values below."""
    above = draft.op("Greater", draft.op("Add", x, np.float64(EDGE)), quantiles[-1])
    below = draft.op("Less", draft.op("Sub", x, np.float64(EDGE)), quantiles[0])
    share = draft.op("Where", above, ONE, add_share_below(draft, x, quantiles))
    share = draft.op("Where", below, ZERO, share)
    edge = EDGE - np.spacing(1)
    return add_inverse_normal(
        draft, draft.op("Clip", share, np.float64(edge), np.float64(1 - edge))
    )


METHODS: dict[str, Callable[[Draft, str, FloatArray], str]] = {
    "zscore": add_linear,
    "robust": add_linear,
    "quantile": add_normal,
    "quantile_uniform": add_uniform,
}


# --- piecewise linear interpolation ---------------------------------------------------------------


class Knots(NamedTuple):
    """Distinct quantiles of each column and the lowest and highest level of each, (column, width);
    inf ends them.
    """

    value: FloatArray
    lowest: FloatArray
    highest: FloatArray


def knots_of(quantiles: FloatArray) -> Knots:
    """From (quantile, ...) quantiles. The width is a power of two that leaves room for an end."""
    columns = quantiles.reshape(len(quantiles), -1).T
    levels = np.linspace(0, 1, len(quantiles))
    distinct = [np.unique(column) for column in columns]
    width = 1 << max(len(values) for values in distinct).bit_length()
    knots = Knots(
        np.full((len(columns), width), np.inf),
        np.ones((len(columns), width)),
        np.ones((len(columns), width)),
    )
    for k, (column, values) in enumerate(zip(columns, distinct, strict=True)):
        knots.value[k, : len(values)] = values
        knots.lowest[k, : len(values)] = levels[np.searchsorted(column, values, side="left")]
        knots.highest[k, : len(values)] = levels[np.searchsorted(column, values, side="right") - 1]
    return knots


def add_share_below(draft: Draft, x: str, quantiles: FloatArray) -> str:
    """The level of x among the quantiles; a value tied over several gets their middle. x may lie
    anywhere.
    """
    knots = knots_of(quantiles)
    width = knots.value.shape[1]
    begins = (np.arange(len(knots.value)) * width).reshape(quantiles.shape[1:])
    value, lowest, highest = (table.ravel() for table in knots)
    x = draft.op("Min", draft.op("Max", x, quantiles[0]), quantiles[-1])
    place = add_search(draft, x, table=value, begins=begins, width=width)
    after = draft.op("Add", place, np.int64(1))
    here, there = draft.op("Gather", value, place), draft.op("Gather", value, after)
    level, next_level = draft.op("Gather", highest, place), draft.op("Gather", lowest, after)
    way = draft.op("Div", draft.op("Sub", x, here), draft.op("Sub", there, here))
    between = draft.op("Add", level, draft.op("Mul", draft.op("Sub", next_level, level), way))
    tied = draft.op("Mul", HALF, draft.op("Add", draft.op("Gather", lowest, place), level))
    return draft.op("Where", draft.op("Equal", x, here), tied, between)


def add_search(
    draft: Draft, x: str, table: FloatArray, begins: NDArray[np.int64], width: int
) -> str:
    """The place of the last knot that is not above x, by halving: as many steps as the width has
    bits.
    """
    place = draft.op(
        "Add", draft.op("Cast", draft.op("Mul", x, ZERO), to=TensorProto.INT64), begins
    )
    step = width // 2
    while step:
        ahead = draft.op("Add", place, np.int64(step))
        fits = draft.op("LessOrEqual", draft.op("Gather", table, ahead), x)
        place = draft.op("Where", fits, ahead, place)
        step //= 2
    return place


# --- the normal distribution


def add_inverse_normal(draft: Draft, share: str) -> str:
    """`inverse_normal` of features/scalers.py, with its own coefficients."""
    q = draft.op("Sub", share, HALF)
    centre = draft.op(
        "Mul",
        q,
        add_rational(draft, draft.op("Sub", np.float64(0.180625), draft.op("Mul", q, q)), CENTRE),
    )
    smaller = draft.op("Min", share, draft.op("Sub", ONE, share))
    r = draft.op("Sqrt", draft.op("Neg", draft.op("Log", smaller)))
    near = add_rational(draft, draft.op("Sub", r, np.float64(1.6)), TAIL)
    far = add_rational(draft, draft.op("Sub", r, np.float64(5)), FAR_TAIL)
    size = draft.op("Where", draft.op("LessOrEqual", r, np.float64(5)), near, far)
    tail = draft.op("Where", draft.op("Less", q, ZERO), draft.op("Neg", size), size)
    return draft.op(
        "Where", draft.op("LessOrEqual", draft.op("Abs", q), np.float64(0.425)), centre, tail
    )


def add_rational(
    draft: Draft, x: str, coefficients: tuple[tuple[float, ...], tuple[float, ...]]
) -> str:
    """One polynomial over another, by Horner's scheme."""
    top, bottom = (add_polynomial(draft, x, powers) for powers in coefficients)
    return draft.op("Div", top, bottom)


def add_polynomial(draft: Draft, x: str, powers: tuple[float, ...]) -> str:
    *others, highest = map(np.float64, powers)
    total = draft.op("Add", draft.op("Mul", x, highest), others[-1])
    for coefficient in reversed(others[:-1]):
        total = draft.op("Add", draft.op("Mul", total, x), coefficient)
    return total
