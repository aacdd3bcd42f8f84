"""The optimum of known paths, against brute force over all sequences of positions."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_account import log_growth

from flatout.bars.synthetic import OneJump, Sine
from flatout.errors import RulesError
from oracles.optimum import PathPolicy, optimum, optimum_on_path

COST = 0.001

closes = st.lists(st.floats(-0.3, 0.3), min_size=1, max_size=6).map(
    lambda r: np.exp(np.cumsum([0.0, *r]))
)
costs = st.sampled_from([0.0, 0.001, 0.02, 0.2])


@settings(max_examples=60, deadline=None)
@given(close=closes, cost=costs)
def test_long_only_paths_by_brute_force(close: np.ndarray, cost: float) -> None:
    best = optimum_on_path(close, cost)
    log_return = np.diff(np.log(close))
    n = len(log_return)
    extremes = np.array(list(product([0.0, 1.0], repeat=n)))
    assert np.max(log_growth(extremes, log_return, cost)) / n == pytest.approx(
        best.value_per_bar, abs=1e-12
    )
    between = np.array(list(product([0.0, 0.5, 1.0, np.nan], repeat=n)))
    assert np.max(log_growth(between, log_return, cost)) / n <= best.value_per_bar + 1e-12


@settings(max_examples=40, deadline=None)
@given(close=closes, cost=costs)
def test_the_path_policy_earns_its_value(close: np.ndarray, cost: float) -> None:
    best = optimum_on_path(close, cost)
    assert isinstance(best.policy, PathPolicy)
    earned = log_growth(best.policy.weights, np.diff(np.log(close)), cost) / (len(close) - 1)
    assert earned == pytest.approx(best.value_per_bar, abs=1e-12)


@settings(max_examples=15, deadline=None)
@given(close=closes.filter(lambda c: len(c) <= 5), cost=costs)
def test_paths_with_shorts_are_no_worse_than_brute_force(close: np.ndarray, cost: float) -> None:
    best = optimum_on_path(close, cost, shorts=True, tolerance=0.01)
    log_return = np.diff(np.log(close))
    n = len(log_return)
    tried = np.array(list(product([-1.0, -0.5, 0.0, 1.0, np.nan], repeat=n)))
    found = np.max(log_growth(tried, log_return, cost)) / n
    assert best.value_per_bar >= found - best.tolerance - 1e-12
    assert best.value_per_bar >= optimum_on_path(close, cost).value_per_bar - best.tolerance


def test_one_jump_pays_the_jump_minus_one_purchase() -> None:
    up = optimum(OneJump(n_bars=101, size=0.1), COST)
    assert up.value_per_bar * 100 == pytest.approx(np.log(1.1) - np.log(1 + COST))
    assert optimum(OneJump(n_bars=101, size=0.1), 0.2).value_per_bar == 0
    assert optimum(OneJump(n_bars=101, size=-0.1), COST).value_per_bar == 0
    down = optimum(OneJump(n_bars=101, size=-0.1), COST, shorts=True)
    assert down.value_per_bar * 100 == pytest.approx(np.log(1.1) - np.log(1 + COST))


def test_sine_rides_every_rise() -> None:
    market = Sine(n_bars=4 * 48, amplitude=0.05, period_bars=48.0)
    free = optimum(market, 0.0)
    log_return = np.diff(np.log(market.panel().close[:, 0]))
    assert free.value_per_bar == pytest.approx(np.mean(np.maximum(log_return, 0)))
    paid, both = optimum(market, COST), optimum(market, COST, shorts=True)
    assert paid.value_per_bar < free.value_per_bar
    assert both.value_per_bar > 1.8 * paid.value_per_bar


@pytest.mark.parametrize(
    "close", [np.array([1.0]), np.ones((3, 2)), np.array([1.0, 0.0]), np.array([1.0, np.nan])]
)
def test_what_is_no_path_is_refused(close: np.ndarray) -> None:
    with pytest.raises(RulesError, match="path"):
        optimum_on_path(close, COST)
