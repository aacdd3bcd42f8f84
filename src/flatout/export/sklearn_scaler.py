"""A fitted scaler as scikit-learn's own objects, for `joblib.load`.

One column per (asset, feature), asset by asset. Nothing is fitted here: the statistics are set, so
the numbers are flatout's. NaN stays NaN, as scikit-learn's scalers leave it; flatout shows a policy
0 there.
"""

import io
from typing import Any

import joblib
import numpy as np
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)

from flatout.bars.panel import FloatArray
from flatout.errors import BundleError
from flatout.features.recipe import FittedRecipe
from flatout.features.scalers import CLIP

QUANTILES = {
    "quantile": "normal",
    "quantile_uniform": "uniform",
}  # as QuantileTransformer calls the outcome


def joblib_of(fitted: FittedRecipe) -> bytes:
    """The content of the .joblib file."""
    file = io.BytesIO()
    joblib.dump(transformer_of(fitted), file)
    return file.getvalue()


def transformer_of(fitted: FittedRecipe) -> Any:
    """What `transform`s (row, asset x feature) indicators as flatout does; `flatout_columns` of it
    names them.
    """
    name, statistics = (
        fitted.scaler.name,
        fitted.scaler.statistics.reshape(len(fitted.scaler.statistics), -1),
    )
    columns = columns_of(fitted)
    check_known(statistics, columns)
    if name in QUANTILES:
        transformer = quantile_transformer(statistics, QUANTILES[name])
    elif name in LINEAR:
        clip = FunctionTransformer(np.clip, kw_args={"a_min": -CLIP, "a_max": CLIP})
        transformer = Pipeline([("scale", LINEAR[name](*statistics)), ("clip", clip)])
    else:
        known = ", ".join((*QUANTILES, *LINEAR))
        raise BundleError(
            f"the scaler {name!r} has no equal in scikit-learn; those that have: {known}"
        )
    transformer.flatout_columns = columns
    return transformer


def columns_of(fitted: FittedRecipe) -> list[str]:
    """The names of the columns in order, as in `BTCUSDT rsi`."""
    return [f"{symbol} {feature}" for symbol in fitted.symbols for feature in fitted.names]


def check_known(statistics: FloatArray, columns: list[str]) -> None:
    """Refuse columns that had no value in training: flatout keeps them at 0, and scikit-learn has
    no word for that.
    """
    empty = [
        column
        for column, values in zip(columns, statistics.T, strict=True)
        if np.isnan(values).any()
    ]
    if empty:
        raise BundleError(
            f"{', '.join(empty)} had no value in training, and flatout shows 0 there; "
            "scikit-learn cannot say so: train on bars of all symbols, or export to onnx"
        )


def quantile_transformer(quantiles: FloatArray, outcome: str) -> Any:
    """A fitted QuantileTransformer with these (quantile, column) quantiles."""
    count, columns = quantiles.shape
    transformer = QuantileTransformer(
        n_quantiles=count, output_distribution=outcome, subsample=None
    )
    transformer.quantiles_ = quantiles.copy()
    transformer.references_ = np.linspace(0, 1, count)
    transformer.n_quantiles_, transformer.n_features_in_ = count, columns
    return transformer


def standard_scaler(centre: FloatArray, spread: FloatArray) -> Any:
    """A fitted StandardScaler with these centres and spreads."""
    scaler = StandardScaler()
    with np.errstate(over="ignore"):  # nothing is computed from it
        scaler.mean_, scaler.scale_, scaler.var_ = centre.copy(), spread.copy(), spread**2
    scaler.n_features_in_ = len(centre)
    return scaler


def robust_scaler(centre: FloatArray, spread: FloatArray) -> Any:
    """A fitted RobustScaler with these centres and spreads."""
    scaler = RobustScaler()
    scaler.center_, scaler.scale_, scaler.n_features_in_ = centre.copy(), spread.copy(), len(centre)
    return scaler


LINEAR = {"zscore": standard_scaler, "robust": robust_scaler}
