"""The optimum against closed forms, brute force, and a Monte Carlo that shares no code with it."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from plain_account import after_trade, one_bar
from threadpoolctl import threadpool_limits

from flatout.bars.panel import Panel
from flatout.bars.synthetic import (
    MeanRevertingPair,
    OneJump,
    OracleFeature,
    PlantedSignal,
    RandomWalk,
    SyntheticMarket,
)
from flatout.errors import RulesError
from oracles.chains import signal_chain
from oracles.optimum import ChainPolicy, Optimum, optimum, share_of_optimum
from oracles.weight_grid import prepare, solve, weight_grid

COST = 0.001
PAIR = MeanRevertingPair(persistence=0.7, sigma_common=0.005)


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Threads of a BLAS wait for each other in busy loops: where the cores are taken, that is all
    they do.
    """
    with threadpool_limits(1):
        yield


def follow(policy: ChainPolicy, state: np.ndarray, held: np.ndarray) -> np.ndarray:
    """The policy's weights: from the nearest state and point to its target, or exactly what is
    held.
    """
    k = np.argmin(np.sum((policy.states - state[:, None]) ** 2, axis=-1), axis=1)
    point = np.argmin(np.sum((policy.points - held[:, None]) ** 2, axis=-1), axis=1)
    goal = policy.target[k, point]
    return np.where((goal == point)[:, None], held, policy.points[goal])


def seen_and_expected(market: SyntheticMarket, panel: Panel) -> tuple[np.ndarray, np.ndarray]:
    """What the policy sees (time, feature), and the next bar's expected log return (time,
    asset).
    """
    extras = panel.extras
    match market:
        case PlantedSignal():
            return extras["signal"], market.strength * extras["signal"]
        case OracleFeature():
            return extras["oracle"], extras["oracle"]
        case MeanRevertingPair():
            half = 0.5 * (1 - market.persistence) * extras["spread"]
            return extras["spread"][:, :1], market.drift + half * np.array([-1, 1])
    raise AssertionError(market)


def monte_carlo(
    market: SyntheticMarket, best: Optimum, cost: float, n_paths: int
) -> tuple[float, float]:
    """Mean log growth per bar of the policy on the market's own panels, and its standard error.

    What the weights earn from pure noise has mean zero and is subtracted, which leaves a far
    smaller error.
    """
    assert isinstance(best.policy, ChainPolicy)
    panels = [replace(market, seed=1000 + i).panel() for i in range(n_paths)]
    seen, expected = (
        np.stack(x)
        for x in zip(*(seen_and_expected(market, panel) for panel in panels), strict=True)
    )
    log_return = np.stack([np.diff(np.log(panel.close), axis=0) for panel in panels])
    held, total = np.zeros((n_paths, market.n_assets)), np.zeros(n_paths)
    for t in range(market.n_bars - 1):
        wanted = follow(best.policy, seen[:, t], held)
        growth, after = one_bar(wanted, log_return[:, t], cost)
        noise = np.sum(wanted * (log_return[:, t] - expected[:, t]), axis=-1)
        total += np.log(after_trade(held, wanted, cost) * growth) - noise
        held = after
    per_bar = total / (market.n_bars - 1)
    return float(np.mean(per_bar)), float(np.std(per_bar, ddof=1) / np.sqrt(n_paths))


@pytest.mark.long
@pytest.mark.parametrize(
    ("market", "shorts", "tolerance"),
    [
        (PlantedSignal(n_bars=1500), False, 1e-6),
        (PlantedSignal(n_bars=1500), True, 1e-6),
        (PlantedSignal(n_bars=1500, strength_bps=4.0), False, 1e-6),
        (PlantedSignal(n_bars=1500, symbols=("A", "B"), levels=(-1.0, 1.0)), False, 2e-6),
        (OracleFeature(n_bars=1500), False, 1e-6),
        (OracleFeature(n_bars=1500), True, 1e-6),
        pytest.param(replace(PAIR, n_bars=1500), False, 1e-5, marks=pytest.mark.slow),
    ],
    ids=lambda x: type(x).__name__ if isinstance(x, SyntheticMarket) else str(x),
)
def test_simulating_the_policy_earns_the_value(
    market: SyntheticMarket, shorts: bool, tolerance: float
) -> None:
    best = optimum(market, COST, shorts, tolerance)
    assert 0 < best.tolerance <= tolerance
    earned, error = monte_carlo(market, best, COST, n_paths=100)
    # the run starts in cash; the long-run average does not see that
    entry = 2 * COST / market.n_bars
    assert error < 0.05 * best.value_per_bar
    assert abs(earned - best.value_per_bar) < 4 * error + best.tolerance + entry


# --- closed forms


def kelly_growth(mean: float, sigma: float) -> float:
    """max over w in [0, 1] of E log(1 + w (e^r - 1)), by plain summation over a fine grid of
    returns.
    """
    z = np.linspace(-8, 8, 2001)
    density = np.exp(-0.5 * z**2) / np.sum(np.exp(-0.5 * z**2))
    weights = np.linspace(0, 1, 1001)
    return float(np.max(np.log1p(weights[:, None] * np.expm1(mean + sigma * z)) @ density))


def test_free_trading_on_a_strong_signal_is_all_in_by_sign() -> None:
    best = optimum(PlantedSignal(levels=(-1.0, 1.0), strength_bps=50.0), 0.0)
    assert best.value_per_bar == pytest.approx(0.5 * 0.005, abs=best.tolerance)


def test_free_trading_on_a_weak_signal_is_kelly_in_each_state() -> None:
    market = PlantedSignal(strength_bps=2.0, sigma=0.03)
    best = optimum(market, 0.0)
    expected = np.mean([kelly_growth(market.strength * level, 0.03) for level in market.levels])
    assert best.value_per_bar == pytest.approx(expected, abs=best.tolerance)
    assert isinstance(best.policy, ChainPolicy)
    held = best.policy.points[best.policy.target[:, 0], 0]
    assert np.all((held > 0.2) & (held < 0.8))
    assert np.all(np.diff(held) > 0)


def test_costs_make_the_trader_hold_through_silence() -> None:
    # Buy at signal 1, sell at -1, hold at 0: one purchase and one sale in sixty bars, by symmetry.
    best = optimum(PlantedSignal(levels=(-1.0, 0.0, 1.0), strength_bps=20.0, persistence=0.9), COST)
    expected = 0.002 / 3 - (np.log1p(COST) - np.log1p(-COST)) / 60
    assert best.value_per_bar == pytest.approx(expected, abs=best.tolerance)


def test_free_trading_with_an_oracle_earns_every_rise() -> None:
    best = optimum(OracleFeature(sigma=0.01), 0.0)
    rises = 0.01 / np.sqrt(2 * np.pi) - 0.5 * 0.5 * 0.01**2  # E max(r, 0) to second order in sigma
    assert best.value_per_bar == pytest.approx(rises, abs=best.tolerance + 1e-8)


@pytest.mark.long
def test_free_trading_of_the_pair_lies_between_all_in_and_jensen() -> None:
    best = optimum(PAIR, 0.0)
    s = np.linspace(-8, 8, 4001) * PAIR.stationary_spread
    density = np.exp(-0.5 * (s / PAIR.stationary_spread) ** 2)
    edge = 0.5 * (1 - PAIR.persistence) * np.abs(s)
    all_in = np.average(np.maximum(PAIR.drift + edge, 0), weights=density)
    jensen = np.average(edge, weights=density)  # log of the cheap asset's expected simple return
    assert all_in - best.tolerance < best.value_per_bar < jensen + best.tolerance


def test_costs_beyond_any_gain_leave_cash() -> None:
    losing = PlantedSignal(levels=(-1.0, 0.5), strength_bps=100.0, persistence=0.5)
    for market in (losing, OracleFeature(sigma=0.05)):
        best = optimum(market, 0.5)
        assert abs(best.value_per_bar) <= best.tolerance
        assert isinstance(best.policy, ChainPolicy)
        assert not np.any(best.policy.points[best.policy.target[:, 0]])


@pytest.mark.parametrize(
    ("cost", "shorts"), [(0.0, False), (0.001, False), (0.001, True), (0.05, False)]
)
def test_a_random_walk_is_best_left_alone(cost: float, shorts: bool) -> None:
    best = optimum(RandomWalk(sigma=0.02), cost, shorts)
    assert abs(best.value_per_bar) <= best.tolerance <= 1e-6
    assert isinstance(best.policy, ChainPolicy)
    cash = int(np.flatnonzero(best.policy.points[:, 0] == 0)[0])
    assert best.policy.target[0, cash] == cash


# --- more cost is worse, more signal is better, finer is closer


def falls(values: list[Optimum]) -> bool:
    return all(a.value_per_bar + a.tolerance > b.value_per_bar for a, b in pairwise(values))


def test_value_falls_with_cost() -> None:
    values = [optimum(PlantedSignal(), cost) for cost in (0.0, 0.0005, 0.001, 0.005, 0.02)]
    assert falls(values)
    assert values[0].value_per_bar > 2 * values[-1].value_per_bar


def test_value_rises_with_strength_and_with_shorts() -> None:
    values = [optimum(PlantedSignal(strength_bps=bps), COST) for bps in (5.0, 10.0, 20.0, 40.0)]
    assert falls(values[::-1])
    assert values[-1].value_per_bar > 4 * values[0].value_per_bar
    assert optimum(PlantedSignal(), COST, shorts=True).value_per_bar > 1.5 * values[2].value_per_bar


def test_two_assets_earn_more_than_one_and_less_than_twice_as_much() -> None:
    one = optimum(PlantedSignal(levels=(-1.0, 1.0)), COST)
    two = optimum(PlantedSignal(levels=(-1.0, 1.0), symbols=("A", "B")), COST, tolerance=2e-6)
    assert 1.2 * one.value_per_bar < two.value_per_bar < 2 * one.value_per_bar


def value_on_grid(steps: int) -> float:
    chain = signal_chain(PlantedSignal(strength_bps=4.0), 7)
    low, high, _ = solve(prepare(chain, weight_grid(1, steps, shorts=True), COST), 1e-10)
    assert high - low <= 1e-10
    return 0.5 * (low + high)


def test_error_shrinks_with_the_grid() -> None:
    finest = value_on_grid(160)
    errors = np.array([abs(value_on_grid(steps) - finest) for steps in (5, 20, 80)])
    assert np.all(errors[1:] < 0.5 * errors[:-1])


def test_a_loose_answer_holds_what_it_promises() -> None:
    market = PlantedSignal(strength_bps=4.0)
    loose, tight = (optimum(market, COST, shorts=True, tolerance=t) for t in (2e-5, 2e-7))
    assert tight.tolerance < loose.tolerance
    assert abs(loose.value_per_bar - tight.value_per_bar) <= loose.tolerance + tight.tolerance


# --- what is refused


def test_shares() -> None:
    best = optimum(OneJump(n_bars=11), COST)
    assert share_of_optimum(0.5 * best.value_per_bar, best) == pytest.approx(0.5)
    with pytest.raises(RulesError, match="nothing to have a share of"):
        share_of_optimum(0.0, optimum(RandomWalk(), COST))


class Unheard(SyntheticMarket):
    """A market that nobody has solved."""

    def log_returns(self) -> np.ndarray:
        return np.zeros((self.n_bars, self.n_assets))


def test_what_is_not_known_is_refused() -> None:
    with pytest.raises(RulesError, match="Unheard"):
        optimum(Unheard(), COST)
    with pytest.raises(RulesError, match="3 assets"):
        optimum(PlantedSignal(symbols=("A", "B", "C")), COST)
    with pytest.raises(RulesError, match="2 assets"):
        optimum(OracleFeature(symbols=("A", "B")), COST)
    with pytest.raises(RulesError, match="reached"):
        optimum(OracleFeature(), COST, tolerance=1e-14)
    with pytest.raises(RulesError, match="fraction"):
        optimum(PlantedSignal(), 10.0)
