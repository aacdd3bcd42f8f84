"""Scalers against scikit-learn, and what they do with NaN, constants and columns they never saw."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtri
from sklearn.preprocessing import QuantileTransformer, RobustScaler, StandardScaler

from flatout.errors import RecipeError
from flatout.features.scalers import (
    SCALERS,
    Scaler,
    check_statistics,
    fit_scaler,
    inverse_normal,
    scale,
    scale_column,
)
from rounding import assert_close


def awkward_columns(seed: int, rows: int) -> np.ndarray:
    """(time, 2 assets, 3 features): plain, tied, mostly zero, constant, skewed, and one with many
    NaN.
    """
    rng = np.random.default_rng(seed)
    plain = rng.normal(3, 2, rows)
    columns = [
        plain,
        np.round(plain),
        np.where(rng.random(rows) < 0.8, 0.0, plain),
        np.full(rows, 0.1),
        np.exp(2 * plain),
        np.where(rng.random(rows) < 0.4, np.nan, plain),
    ]
    return np.stack(columns, axis=-1).reshape(rows, 2, 3)


def unclipped(name: str, values: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """All columns in double precision, before the cast."""
    scaler = fit_scaler(name, values, rows)
    out = np.empty_like(values)
    for a, f in np.ndindex(values.shape[1:]):
        out[:, a, f] = scale_column(name, scaler.statistics[:, a, f], values[:, a, f])
    return out


def by_sklearn(transformer, values: np.ndarray, rows: np.ndarray) -> np.ndarray:
    flat = values.reshape(len(values), -1)
    return transformer.fit(flat[rows]).transform(flat).reshape(values.shape)


ORACLES = {
    "zscore": lambda n: StandardScaler(),
    "robust": lambda n: RobustScaler(),
    "quantile": lambda n: QuantileTransformer(
        n_quantiles=min(1000, n), output_distribution="normal", subsample=None
    ),
    "quantile_uniform": lambda n: QuantileTransformer(
        n_quantiles=min(1000, n), output_distribution="uniform", subsample=None
    ),
}


def test_every_scaler_has_an_oracle():
    assert set(ORACLES) == set(SCALERS)


@pytest.mark.parametrize("name", SCALERS)
@given(seed=st.integers(0, 2**32 - 1), rows=st.sampled_from([10, 157, 999, 1000, 2503]))
@settings(max_examples=20, deadline=None)
def test_equals_scikit_learn(name, seed, rows):
    values = awkward_columns(seed, rows)
    values[:3, 1, 2] = 1.0, 2.0, np.nan  # never without a value, never without NaN
    training = np.arange(int(rows * 0.7))
    want = by_sklearn(ORACLES[name](len(training)), values, training)
    if name in ("zscore", "robust"):
        want = np.clip(want, -10, 10)
    np.testing.assert_allclose(unclipped(name, values, training), want, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", SCALERS)
def test_output_is_float32_finite_and_zero_for_nan(name):
    values = awkward_columns(1, 500)
    scaled = scale(fit_scaler(name, values, np.arange(300)), values)
    assert scaled.dtype == np.float32
    assert np.isfinite(scaled).all()
    assert (scaled[np.isnan(values)] == 0).all()
    exact = unclipped(name, values, np.arange(300))
    np.testing.assert_array_equal(scaled, np.nan_to_num(exact).astype(np.float32))


@pytest.mark.parametrize(
    ("name", "limits"),
    [
        ("zscore", (-10, 10)),
        ("robust", (-10, 10)),
        ("quantile", (-5.2, 5.2)),
        ("quantile_uniform", (0, 1)),
    ],
)
def test_outliers_end_at_the_stated_limits(name, limits):
    values = np.random.default_rng(2).normal(size=(400, 1, 1))
    values[-2:, 0, 0] = -1e30, 1e30
    scaled = scale(fit_scaler(name, values, np.arange(398)), values)
    np.testing.assert_allclose(scaled[-2:, 0, 0], limits, atol=1e-3)


@pytest.mark.parametrize("name", SCALERS)
@pytest.mark.parametrize("constant", [0.0, 0.1, -7e8, 1e-17])
def test_constant_columns_stay_constant_and_finite(name, constant):
    values = np.full((60, 1, 1), constant)
    scaled = scale(fit_scaler(name, values, np.arange(50)), values)
    assert np.isfinite(scaled).all()
    assert len(np.unique(scaled)) == 1
    if name in ("zscore", "robust"):
        np.testing.assert_allclose(scaled, 0, atol=1e-6)


@pytest.mark.parametrize("name", ["zscore", "robust"])
def test_rounding_noise_is_not_blown_up(name):
    values = np.random.default_rng(3).normal(0, 1e-17, (100, 1, 1))
    assert np.abs(scale(fit_scaler(name, values, np.arange(100)), values)).max() < 1e-12


@pytest.mark.parametrize("name", SCALERS)
def test_column_without_training_values_stays_zero(name):
    values = np.random.default_rng(4).normal(5, 1, (100, 2, 1))
    values[:60, 1] = np.nan
    scaled = scale(fit_scaler(name, values, np.arange(60)), values)
    assert (scaled[:, 1] == 0).all()
    assert (scaled[:, 0] != 0).any()


@pytest.mark.parametrize("name", SCALERS)
def test_mask_and_row_numbers_agree_and_other_rows_do_not_count(name):
    values = awkward_columns(5, 300)
    mask = np.random.default_rng(5).random(300) < 0.6
    fitted = fit_scaler(name, values, mask)
    poisoned = np.where(mask[:, None, None], values, np.nan)
    poisoned[~mask] = np.random.default_rng(6).normal(0, 1e12, poisoned[~mask].shape)
    for other in (fit_scaler(name, values, np.flatnonzero(mask)), fit_scaler(name, poisoned, mask)):
        assert other.statistics.tobytes() == fitted.statistics.tobytes()


@pytest.mark.parametrize("name", SCALERS)
def test_scaling_keeps_order(name):
    values = np.sort(np.random.default_rng(7).normal(size=(500, 1, 1)), axis=0)
    scaled = scale(fit_scaler(name, values, np.arange(0, 500, 3)), values)
    assert (np.diff(scaled[:, 0, 0]) >= 0).all()


def test_columns_do_not_mix():
    values = awkward_columns(8, 200)
    both = scale(fit_scaler("quantile", values, np.arange(150)), values)
    alone = scale(fit_scaler("quantile", values[:, 1:], np.arange(150)), values[:, 1:])
    np.testing.assert_array_equal(both[:, 1:], alone)


def test_inverse_normal_equals_scipy():
    middle = np.linspace(1e-6, 1 - 1e-6, 100_001)
    tail = 10.0 ** -np.linspace(1, 300, 3000)
    share = np.concatenate([middle, tail, 1 - tail[tail > 1e-15]])
    expected = ndtri(share)
    assert_close(
        inverse_normal(share), expected, roundings=128, size=np.abs(expected) + 0.1
    )  # two rational functions
    assert np.isnan(inverse_normal(np.array([np.nan])))[0]


def test_refuses_unknown_names_and_too_few_rows():
    values = np.zeros((5, 1, 1))
    with pytest.raises(RecipeError, match=r"'quantil'; did you mean 'quantile'\?"):
        fit_scaler("quantil", values, np.arange(5))
    with pytest.raises(RecipeError, match="at least 2 training rows, got 1"):
        fit_scaler("zscore", values, np.arange(1))


@pytest.mark.parametrize("name", SCALERS)
def test_every_fit_passes_the_check_of_strangers_statistics(name):
    values = np.random.default_rng(0).normal(0, 1, (300, 2, 3)) * [1e-9, 1.0, 1e9]
    values[:, 0, 1] = 5.0  # no spread
    values[:, 1, 2] = 1e15 + np.arange(300) % 2  # next to none
    values[:, 0, 2] = np.nan
    check_statistics(fit_scaler(name, values, np.arange(200)), (2, 3))


@pytest.mark.parametrize("spread", [0.0, -1.0, 5e-324, 1e-20])
def test_a_spread_of_nothing_is_refused(spread):
    statistics = np.stack([np.zeros((1, 1)), np.full((1, 1), spread)])
    with pytest.raises(RecipeError, match="a spread is next to nothing"):
        check_statistics(Scaler("zscore", statistics), (1, 1))


@pytest.mark.parametrize("shape", [(3, 1, 1), (1, 1, 1), (2, 1), (2, 1, 2), (2, 10**9, 1)])
def test_statistics_of_another_shape_are_refused(shape):
    with pytest.raises(RecipeError, match=r"not float64 \(2, 1, 1\)"):
        check_statistics(Scaler("robust", np.broadcast_to(1.0, shape)), (1, 1))


def test_more_statistics_than_anybody_has_are_refused_before_they_are_looked_at():
    with pytest.raises(RecipeError, match="at most 50,000,000 numbers"):
        check_statistics(Scaler("quantile", np.broadcast_to(1.0, (1000, 10**6, 1))), (10**6, 1))
