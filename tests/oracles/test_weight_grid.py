"""The lattice of weights: interpolation is exact for linear functions, trades cost what the
equation says.
"""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flatout.errors import RulesError
from oracles.weight_grid import check_cost, corners, drift, log_after_trade, weight_grid

fraction = st.floats(-1, 1)


@pytest.mark.parametrize(("n_assets", "shorts"), list(product((1, 2), (False, True))))
def test_grid_holds_all_and_only_the_allowed_weights(n_assets: int, shorts: bool) -> None:
    grid = weight_grid(n_assets, 4, shorts)
    axis = [i / 4 for i in range(-4 if shorts else 0, 5)]
    allowed = {w for w in product(axis, repeat=n_assets) if sum(map(abs, w)) <= 1}
    assert {tuple(point) for point in grid.points.tolist()} == allowed
    assert len(grid.points) == len(allowed)
    assert not np.any(grid.points[grid.cash])


@pytest.mark.parametrize(("n_assets", "shorts"), list(product((1, 2), (False, True))))
def test_interpolation_is_exact_for_linear_functions_and_at_points(
    n_assets: int, shorts: bool
) -> None:
    grid = weight_grid(n_assets, 5, shorts)
    random = np.random.default_rng(0)
    weights = random.dirichlet(np.ones(n_assets + 1), size=(20, 30))[..., :n_assets]
    weights *= random.choice([-1, 1], size=weights.shape) if shorts else 1
    index, share = corners(grid, np.concatenate([weights.reshape(-1, n_assets), grid.points]))
    assert np.all(share >= -1e-12)
    np.testing.assert_allclose(np.sum(share, axis=-1), 1.0)
    found = np.sum(grid.points[index] * share[..., None], axis=-2)
    np.testing.assert_allclose(
        found, np.concatenate([weights.reshape(-1, n_assets), grid.points]), atol=1e-12
    )


@given(
    before=st.tuples(fraction, fraction),
    after=st.tuples(fraction, fraction),
    cost=st.floats(0, 0.3),
)
def test_trade_satisfies_its_equation(
    before: tuple[float, float], after: tuple[float, float], cost: float
) -> None:
    w, v = (np.array(x) / max(1.0, np.abs(x).sum()) for x in (before, after))
    left = np.exp(log_after_trade(w, v, cost))
    assert left == pytest.approx(1 - cost * np.sum(np.abs(v * left - w)), abs=1e-12)


def test_one_asset_by_hand() -> None:
    cash, all_in = np.array([0.0]), np.array([1.0])
    assert log_after_trade(cash, all_in, 0.01) == pytest.approx(-np.log(1.01))
    assert log_after_trade(all_in, cash, 0.01) == pytest.approx(np.log(0.99))
    assert log_after_trade(all_in, all_in, 0.01) == 0


def test_drift_of_long_weights_stays_inside_and_costs_nothing() -> None:
    weights = np.array([0.5, 0.3])
    growth, after = drift(weights, np.log(np.array([1.1, 0.8])), 0.01)
    assert growth == pytest.approx(np.log(0.2 + 0.55 + 0.24))
    np.testing.assert_allclose(after, np.array([0.55, 0.24]) / 0.99)


def test_a_short_that_outgrows_equity_is_scaled_back_at_cost() -> None:
    growth, after = drift(np.array([-1.0]), np.array([np.log(1.1)]), 0.01)
    # equity 0.9, short 1.1: buy back to equal sizes
    left = 0.9 * (1 - 0.01 * 1.1 / 0.9) / (1 - 0.01)
    assert after == pytest.approx([-1.0])
    assert growth == pytest.approx(np.log(left))


def test_a_short_beyond_ruin_is_refused() -> None:
    with pytest.raises(RulesError, match="sigma"):
        drift(np.array([-1.0]), np.array([1.0]), 0.0)


@pytest.mark.parametrize("cost", [-0.001, 0.6, 10.0, float("nan")])
def test_costs_are_fractions(cost: float) -> None:
    with pytest.raises(RulesError, match="fraction"):
        check_cost(cost)
