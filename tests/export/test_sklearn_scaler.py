"""Exported scalers in scikit-learn: what joblib loads transforms as flatout scales."""

import io
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import joblib
import numpy as np
import pytest
from policies_to_export import FEATURES, PANEL, SYMBOLS, assert_same_view, policy_of
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import QuantileTransformer, RobustScaler, StandardScaler

from flatout.errors import BundleError
from flatout.export.sklearn_scaler import joblib_of
from flatout.features import indicators
from flatout.features.recipe import FittedRecipe
from flatout.features.scalers import SCALERS, Scaler, scale_column

TOLERANCE = 1e-6
VALUES = indicators.compute_indicators(PANEL, FEATURES).reshape(
    PANEL.n_bars, -1
)  # from bar 500 on never seen in fitting
KINDS = {
    "zscore": StandardScaler,
    "robust": RobustScaler,
    "quantile": QuantileTransformer,
    "quantile_uniform": QuantileTransformer,
}


def load(fitted: FittedRecipe) -> object:
    return joblib.load(io.BytesIO(joblib_of(fitted)))


def expected(fitted: FittedRecipe, values: np.ndarray) -> np.ndarray:
    """flatout's own scaling in double precision, NaN kept."""
    statistics = fitted.scaler.statistics.reshape(len(fitted.scaler.statistics), -1)
    return np.stack(
        [
            scale_column(fitted.scaler.name, *pair)
            for pair in zip(statistics.T, values.T, strict=True)
        ],
        1,
    )


@pytest.mark.parametrize("name", SCALERS)
def test_it_transforms_as_flatout_scales(name: str) -> None:
    fitted = policy_of(name).recipe
    given = np.concatenate([VALUES, VALUES * 30])
    found = load(fitted).transform(given)
    np.testing.assert_allclose(
        found, expected(fitted, given), rtol=0, atol=TOLERANCE
    )  # both in double precision
    shown = fitted.transform(PANEL).reshape(PANEL.n_bars, -1)
    assert_same_view(np.nan_to_num(found[: PANEL.n_bars]), shown)
    assert np.isnan(found).any()


@pytest.mark.parametrize("name", SCALERS)
def test_it_is_the_class_that_people_know(name: str) -> None:
    loaded = load(policy_of(name).recipe)
    inner = loaded["scale"] if isinstance(loaded, Pipeline) else loaded
    assert type(inner) is KINDS[name]
    assert loaded.flatout_columns[:6] == [
        *(f"AAA {feature}" for feature in FEATURES),
        "BBB return_1",
    ]
    assert loaded.n_features_in_ == len(SYMBOLS) * len(FEATURES)


def test_a_quantile_transformer_can_be_inverted() -> None:
    transformer = load(policy_of("quantile").recipe)
    inside = VALUES[200:400]
    np.testing.assert_allclose(
        transformer.inverse_transform(transformer.transform(inside)), inside, atol=1e-6
    )


def test_it_opens_where_there_is_no_flatout(tmp_path: Path) -> None:
    (tmp_path / "scaler.joblib").write_bytes(joblib_of(policy_of("zscore").recipe))
    code = (
        "import sys; sys.modules['flatout'] = None\nimport joblib; "
        "print(type(joblib.load('scaler.joblib')).__name__)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    assert run.stdout == "Pipeline\n"


def test_other_numbers_of_columns_are_refused_by_scikit_learn() -> None:
    with pytest.raises(ValueError, match="expecting 15 features"):
        load(policy_of().recipe).transform(VALUES[:, :7])


def test_columns_without_a_value_in_training_are_refused_by_name() -> None:
    fitted = policy_of().recipe
    statistics = fitted.scaler.statistics.copy()
    statistics[:, 1, 2] = np.nan
    with pytest.raises(BundleError, match=r"BBB obv had no value in training.* export to onnx"):
        joblib_of(replace(fitted, scaler=Scaler("quantile", statistics)))


def test_a_scaler_without_an_equal_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    fitted = policy_of().recipe
    monkeypatch.setitem(SCALERS, "ranks", SCALERS["quantile"])
    with pytest.raises(BundleError, match="the scaler 'ranks' has no equal in scikit-learn"):
        joblib_of(replace(fitted, scaler=Scaler("ranks", fitted.scaler.statistics)))
