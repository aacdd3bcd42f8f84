"""Every reward term against its formula, and no knob of the rules without an effect."""

from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_markets import column

from array_libraries import DIFFERENTIABLE, gradient
from flatout.arrays import map_leaves
from flatout.market import episode
from flatout.market.episode import Shape
from flatout.market.rewards import (
    LEAST_VARIANCE,
    Marks,
    RewardTerms,
    first_marks,
    reward_terms,
    weigh_terms,
)
from flatout.market.rules import Costs, Limits, RewardWeights, Rules, Segments
from flatout.market.tape import Tape, make_tape
from scenarios import random_panel, rules_of

near = pytest.approx


def weights(**given: float) -> RewardWeights:
    """All weights 0 but these; the Sharpe ratio's averages forget 2 % per bar."""
    values = (
        dict.fromkeys(RewardWeights._fields, 0.0) | {"scale": 1.0, "sharpe_memory": 0.98} | given
    )
    return RewardWeights(**{name: np.asarray(value) for name, value in values.items()})


def marks(equity: float, peak: float, mean: float = 0.0, mean_square: float = 0.0) -> Marks:
    return Marks(*(np.array([x]) for x in (equity, peak, mean, mean_square)))


def terms_of(
    before: Marks,
    worth: float,
    values: list[float],
    moves: list[float] | None = None,
    traded: float = 0.0,
    benchmark: float = 0.0,
    **given: float,
) -> Any:
    moved = column(np.zeros(len(values)) if moves is None else moves)
    inputs = np.array([worth]), column(values), moved, np.array([traded]), np.array([benchmark])
    return reward_terms(before, *inputs, weights(**given), np)


def test_terms_by_hand() -> None:
    """Equity 1.1 -> 0.99 under a peak of 1.2, 0.33 traded, positions of 0.495 and -0.198 whose
    prices moved by 3 % and -5 %; weights count from 0.15 on.
    """
    after, terms = terms_of(
        marks(1.1, 1.2),
        0.99,
        [0.495, -0.198, 0.01],
        moves=[0.03, -0.05, 0.5],
        traded=0.33,
        benchmark=0.02,
        concentration_above=0.15,
    )
    assert terms.log_return == near(np.log(0.9))
    assert terms.excess == near(np.log(0.9) - 0.02)
    assert terms.drawdown == near(-(1.1 - 0.99) / 1.2)
    assert terms.turnover == near(-0.33 / 1.1)
    assert terms.concentration == near(-(0.35 * 0.03 + 0.05 * 0.05))
    assert (after.equity, after.peak) == (0.99, 1.2)


@pytest.mark.parametrize("worth", [1.3, 1.2, 1.15, 1.1])
def test_a_bar_that_adds_nothing_to_the_loss_has_no_drawdown(worth: float) -> None:
    """A new peak, the old one, a part of the way back, and standing still below it."""
    after, terms = terms_of(marks(1.1, 1.2), worth, [0.0])
    assert (terms.drawdown, after.peak) == (0, max(worth, 1.2))


@given(st.lists(st.floats(-0.5, 0.5), min_size=1, max_size=40))
def test_drawdowns_sum_to_all_falls_and_are_at_least_the_largest(returns: list[float]) -> None:
    equity = [1.0, *np.exp(np.cumsum(returns)).tolist()]
    state, total, falls, peak, deepest = first_marks(np.ones(1), np), 0.0, 0.0, 1.0, 0.0
    for before, after in pairwise(equity):
        state, terms = terms_of(state, after, [0.0])
        total += float(terms.drawdown[0])
        falls += max(before - after, 0.0) / peak
        peak = max(peak, after)
        deepest = max(deepest, 1 - after / peak)
    assert -total == near(falls, abs=1e-12)
    assert -total >= deepest - 1e-12


@given(st.lists(st.floats(0.0, 0.5), min_size=1), st.lists(st.floats(0.0, 0.5), min_size=1))
def test_one_rise_and_one_fall_cost_the_largest_drawdown(
    rises: list[float], falls: list[float]
) -> None:
    state, total = first_marks(np.ones(1), np), 0.0
    for change in [*rises, *(-fall for fall in falls)]:
        state, terms = terms_of(state, float(state.equity[0] * np.exp(change)), [0.0])
        total += float(terms.drawdown[0])
    assert total == near(state.equity[0] / state.peak[0] - 1, abs=1e-12)


@pytest.mark.parametrize("library", DIFFERENTIABLE)
def test_gradients_at_the_kinks_lie_between_those_on_either_side(library: str) -> None:
    """By the positions: at the weight from which they count, and by the equity: where it stays."""
    before, given = marks(1.0, 1.0), weights(concentration_above=0.5)

    def total(changing: Any, traded: Any, xp: Any) -> Any:
        worth, values = changing
        state, rule = (type(tree)(*(xp.asarray(leaf) for leaf in tree)) for tree in (before, given))
        moves = xp.zeros_like(values) + 0.02
        _, terms = reward_terms(state, worth, values, moves, traded, traded, rule, xp)
        return xp.sum(terms.drawdown + terms.concentration)

    by_worth, by_values = gradient(
        library, total, (np.ones(1), column([0.5, 0.4, 0.6])), np.zeros(1)
    )
    assert 0 - 0.02 <= by_worth[0] <= 1 + 0.02
    assert -0.02 <= by_values[0, 0] <= 0
    np.testing.assert_allclose(by_values[1:, 0], [0.0, -0.02])


def sharpe(mean: float, mean_square: float) -> float:
    return mean / np.sqrt(mean_square - mean**2)


def test_differential_sharpe_is_the_derivative_by_the_pace_of_forgetting() -> None:
    """Moody and Saffell: A and B move by eta x (R - A) and eta x (R^2 - B); the term is dS / d eta
    at 0 times the deviation, and so a return.
    """
    rng, pace, nudge = np.random.default_rng(0), 0.02, 1e-5
    state, a, b, compared = first_marks(np.ones(1), np), 0.0, 0.0, 0
    for r in rng.normal(0.002, 0.01, 300):
        state, terms = terms_of(state, float(state.equity[0] * np.exp(r)), [0.0])
        if b - a * a > LEAST_VARIANCE:
            up, down = (sharpe(a + e * (r - a), b + e * (r * r - b)) for e in (nudge, -nudge))
            expected = (up - down) / (2 * nudge) * np.sqrt(b - a * a)
            assert terms.differential_sharpe[0] == near(expected, rel=1e-4, abs=1e-8)
            compared += 1
        a, b = a + pace * (r - a), b + pace * (r * r - b)
        assert (state.mean[0], state.mean_square[0]) == near((a, b))
    assert compared > 290


def test_first_bar_of_an_episode_has_a_small_sharpe_term() -> None:
    """Without any history the variance is 0 and its least value keeps the term finite."""
    _, terms = terms_of(first_marks(np.ones(1), np), 1.1, [0.0])
    assert terms.differential_sharpe == 0


@pytest.mark.parametrize("worth", [-0.5, 0.0, 1e-30])
def test_finite_after_ruin(worth: float) -> None:
    state = marks(0.5, 1.0)
    for value in (worth, 2 * worth, 0.3):
        state, terms = terms_of(state, value, [1.5, -2.0], traded=3.0)
        assert all(np.isfinite(x).all() for x in (*terms, *state))


def test_reward_is_the_scaled_weighted_sum() -> None:
    rng = np.random.default_rng(1)
    terms = RewardTerms(*rng.normal(size=(6, 4)))
    given = dict(zip(terms._fields, rng.normal(size=6), strict=True))
    expected = sum(given[name] * getattr(terms, name) for name in terms._fields)
    assert weigh_terms(terms, weights(**given)) == near(expected)
    assert weigh_terms(terms, weights(**given, scale=-3.0)) == near(-3 * expected)
    for name in terms._fields:
        assert weigh_terms(terms, weights(**{name: 1.0})) == near(getattr(terms, name))


# --- a knob that changes nothing is an error ------------------------------------------------------

BARS, ASSETS, ACCOUNTS = 300, 3, 16
KNOBS = [
    (group, name)
    for group, kind in zip(Rules._fields, (Costs, Limits, RewardWeights, Segments), strict=True)
    for name in kind._fields
]


def biting_rules() -> Rules:
    """All rules on; tight where the random orders below would not reach them otherwise."""
    found = rules_of(ASSETS, random_panel(0, BARS, ASSETS).close.mean(axis=0), BARS)
    tight = {"gross_limit": np.asarray(0.6), "ruin": np.asarray(0.9), "reserve": np.asarray(0.5)}
    two = Segments(*(np.array(x, np.int32) for x in ([0, 150], [130, BARS], 40)))
    return found._replace(limits=found.limits._replace(**tight), segments=two)


@cache
def tape_of_bars() -> Tape:
    return make_tape(
        random_panel(0, BARS, ASSETS), np.zeros((BARS, ASSETS, 1), np.float32), capital=1e6
    )


def outcomes(rules: Rules) -> np.ndarray:
    """Accounts, rewards and ends of 16 accounts that trade at random for 120 bars."""
    tape, rng = tape_of_bars(), np.random.default_rng(5)
    shape = Shape(ASSETS, 1, 1, "trade", "next_open")
    state, seen = episode.reset(rng.random(ACCOUNTS), shape, rules, np), []
    for _ in range(120):
        state, outcome = episode.step(
            state, rng.uniform(-1, 1, (ASSETS, ACCOUNTS)), tape, shape, rules, np
        )
        ended = outcome.terminated | outcome.truncated
        seen += [*state.account, outcome.reward, outcome.terminated, outcome.truncated]
        state = episode.restart(state, ended, rng.random(ACCOUNTS), rules, np)
    return np.concatenate([x.ravel() for x in seen])


@cache
def usual_outcomes() -> np.ndarray:
    return outcomes(biting_rules())


def test_equal_rules_give_equal_outcomes() -> None:
    assert np.array_equal(outcomes(map_leaves(np.copy, biting_rules())), usual_outcomes())


def changed(name: str, value: np.ndarray) -> np.ndarray:
    """A tenth more, or a bar more or less."""
    if name in Segments._fields:
        return value - 1 if name == "stop" else value + 1
    return value * 0.99 if name == "sharpe_memory" else value * 1.1


@pytest.mark.parametrize(("group", "name"), KNOBS, ids=[f"{group}.{name}" for group, name in KNOBS])
def test_every_knob_changes_something(group: str, name: str) -> None:
    """More than rounding, that is."""
    rules = biting_rules()
    part = getattr(rules, group)
    turned = rules._replace(**{group: part._replace(**{name: changed(name, getattr(part, name))})})
    assert np.max(np.abs(outcomes(turned) - usual_outcomes())) > 1e-7
