"""Metrics against empyrical-reloaded and SciPy where definitions coincide, and edges where they do
not.
"""

import math
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from flatout.errors import FlatoutError
from flatout.evaluation import metrics

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import empyrical

HOURS = 365.0 * 24
DAYS = 252.0

# Multiples of 1e-6: sums of squares neither vanish nor lose all digits, so that 1e-9 is a fair
# demand.
returns_of_many_bars = arrays(
    np.int64, st.integers(2, 60), elements=st.integers(-200_000, 200_000)
).map(lambda steps: steps * 1e-6)


def by_empyrical(function: str, returns: np.ndarray, **options: Any) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return float(getattr(empyrical, function)(returns, **options))


@settings(deadline=None)
@given(returns=returns_of_many_bars)
def test_equal_to_empyrical_where_definitions_coincide(returns: np.ndarray) -> None:
    found = metrics.summarise(returns, DAYS)
    annual = {"annualization": DAYS}
    expected = {
        "total_return": by_empyrical("cum_returns_final", returns),
        "annual_return": by_empyrical("annual_return", returns, **annual),
        "annual_volatility": by_empyrical("annual_volatility", returns, **annual),
        "max_drawdown": by_empyrical("max_drawdown", returns),
        "cvar": by_empyrical("conditional_value_at_risk", returns, cutoff=0.05),
    }
    if (
        np.ptp(returns) > 0
    ):  # without volatility empyrical says NaN or inf; ours is in the tests of edges
        expected["sharpe"] = by_empyrical("sharpe_ratio", returns, **annual)
    if np.min(returns) < 0:  # without losses empyrical's Sortino is NaN or inf, its Calmar NaN
        expected["sortino"] = by_empyrical("sortino_ratio", returns, **annual)
        expected["calmar"] = by_empyrical("calmar_ratio", returns, **annual)
    for name, value in expected.items():
        np.testing.assert_allclose(getattr(found, name), value, rtol=1e-9, atol=1e-9, err_msg=name)


@settings(deadline=None)
@given(returns=returns_of_many_bars.filter(lambda r: np.ptp(r) > 0))
def test_shape_of_the_distribution_is_scipys(returns: np.ndarray) -> None:
    np.testing.assert_allclose(metrics.skew(returns), stats.skew(returns), rtol=1e-9, atol=1e-9)
    expected = stats.kurtosis(returns)
    np.testing.assert_allclose(metrics.excess_kurtosis(returns), expected, rtol=1e-9, atol=1e-9)


def test_long_random_paths_agree_with_empyrical_too() -> None:
    returns = np.random.default_rng(3).standard_t(4, size=20_000) * 0.005
    found = metrics.summarise(returns, HOURS)
    for ours, theirs in (
        ("sharpe", "sharpe_ratio"),
        ("sortino", "sortino_ratio"),
        ("calmar", "calmar_ratio"),
    ):
        assert getattr(found, ours) == pytest.approx(
            by_empyrical(theirs, returns, annualization=HOURS), rel=1e-9
        )


def test_many_paths_at_once_are_each_path_alone() -> None:
    random = np.random.default_rng(0)
    returns = random.normal(0.0, 0.01, size=(3, 4, 50))
    other = np.abs(random.normal(size=(3, 4, 50)))
    together = metrics.summarise(
        returns, DAYS, turnover=other, exposure=other / 2, costs=other / 1000
    ).as_dict()
    for place in np.ndindex(3, 4):
        one = other[place]
        alone = metrics.summarise(
            returns[place], DAYS, turnover=one, exposure=one / 2, costs=one / 1000
        )
        for name, value in alone.as_dict().items():
            assert np.asarray(together[name]).shape == (3, 4)
            np.testing.assert_allclose(
                np.asarray(together[name])[place], value, rtol=1e-12, err_msg=name
            )


def test_hand_computed_path() -> None:
    found = metrics.summarise(np.array([0.5, -0.5, 0.0, 1.0]), bars_per_year=8)
    assert found.total_return == pytest.approx(0.5)
    assert found.annual_return == pytest.approx(1.5**2 - 1)
    assert found.max_drawdown == pytest.approx(-0.5)
    assert found.calmar == pytest.approx(1.25 / 0.5)
    assert found.hit_rate == pytest.approx(2 / 3)
    assert found.bar_sharpe == pytest.approx(0.25 / math.sqrt(1.25 / 3))
    assert found.sharpe == pytest.approx(found.bar_sharpe * math.sqrt(8))
    assert found.sortino == pytest.approx(0.25 / math.sqrt(0.25 / 4) * math.sqrt(8))
    assert found.cvar == pytest.approx(-0.5)


def test_cash_is_zero_everywhere() -> None:
    assert set(metrics.summarise(np.zeros(10), DAYS).as_dict().values()) == {0.0}


def test_constant_gains_have_no_volatility() -> None:
    # The mean of equal numbers may differ from them by rounding; that is no volatility.
    found = metrics.summarise(np.full(1000, 0.001), DAYS)
    assert found.annual_volatility == 0
    assert found.sharpe == found.sortino == found.calmar == math.inf
    assert found.skew == found.excess_kurtosis == 0
    assert metrics.sharpe(np.full(1000, -0.001), DAYS) == -math.inf


def test_no_losses_but_volatility() -> None:
    found = metrics.summarise(np.array([0.01, 0.02, 0.0]), DAYS)
    assert found.max_drawdown == 0
    assert found.sortino == found.calmar == math.inf
    assert 0 < found.sharpe < math.inf


def test_one_bar_defines_no_volatility() -> None:
    found = metrics.summarise(np.array([0.01]), DAYS)
    assert math.isnan(found.annual_volatility)
    assert math.isnan(found.sharpe)
    assert math.isnan(found.bar_sharpe)
    assert found.total_return == pytest.approx(0.01)
    assert found.cvar == pytest.approx(0.01)
    assert found.skew == found.excess_kurtosis == 0


def test_total_loss_stays_lost() -> None:
    found = metrics.summarise(np.array([0.1, -1.0, 0.5]), DAYS)
    assert found.total_return == found.annual_return == found.max_drawdown == found.calmar == -1


def test_absurd_growth_is_infinite_not_an_error() -> None:
    assert metrics.annual_return(np.array([9.0]), HOURS) == math.inf


@pytest.mark.parametrize(
    "returns",
    [np.array([]), np.zeros((3, 0)), np.array(0.1), np.array([0.1, np.nan]), np.array([np.inf])],
)
def test_nothing_and_nan_are_refused(returns: np.ndarray) -> None:
    with pytest.raises(FlatoutError, match="returns"):
        metrics.summarise(returns, DAYS)


def test_losing_more_than_everything_is_refused() -> None:
    with pytest.raises(FlatoutError, match=r"-1\.5"):
        metrics.summarise(np.array([-1.5]), DAYS)


@pytest.mark.parametrize("bars_per_year", [0.0, -1.0, math.inf, math.nan])
def test_years_have_bars(bars_per_year: float) -> None:
    with pytest.raises(FlatoutError, match="bars_per_year"):
        metrics.summarise(np.array([0.1, 0.2]), bars_per_year)


def test_turnover_exposure_and_cost_share() -> None:
    returns, costs = np.array([0.02, 0.0]), np.array([0.01, 0.01])
    found = metrics.summarise(returns, 100, np.array([1.0, 0.5]), np.array([0.25, 0.75]), costs)
    assert found.bar_turnover == pytest.approx(0.75)
    assert found.annual_turnover == pytest.approx(75.0)
    assert found.exposure == pytest.approx(0.5)
    assert found.cost_share == pytest.approx(0.5)
    assert metrics.cost_share(np.array([-0.05]), np.array([0.01])) == math.inf
    assert metrics.cost_share(np.array([0.05]), np.array([0.0])) == 0


def test_absent_figures_are_left_out_of_the_dict() -> None:
    named = metrics.summarise(np.array([0.1, -0.1]), DAYS).as_dict()
    assert "sharpe" in named
    assert not {"exposure", "bar_turnover", "annual_turnover", "cost_share"} & set(named)
    assert all(type(value) is float for value in named.values())


@settings(deadline=None)
@given(returns=returns_of_many_bars)
def test_order_matters_only_to_drawdown_and_what_uses_it(returns: np.ndarray) -> None:
    forward, backward = metrics.summarise(returns, DAYS), metrics.summarise(returns[::-1], DAYS)
    for name in ("total_return", "annual_volatility", "cvar", "hit_rate", "sortino", "skew"):
        np.testing.assert_allclose(
            getattr(forward, name), getattr(backward, name), rtol=1e-9, atol=1e-9
        )
    assert -1 <= forward.max_drawdown <= 0
