"""Gradients of a bar: those that PyTorch and JAX find are central differences of NumPy's answer,
and finite wherever an account may get.
"""

from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_markets import (
    LIMITS,
    REWARD,
    bar,
    beginner,
    biting_market,
    column,
    flat,
    owner,
    random_actions,
    rules,
    side_by_side,
    walk,
)

from array_libraries import DIFFERENTIABLE, gradient, run
from flatout.arrays import Array, Namespace
from flatout.market import episode
from flatout.market.account import Account
from flatout.market.episode import Episode, Shape
from flatout.market.execute import Bar, execute, forced_reduction, whole_lots
from flatout.market.market import Market
from flatout.market.orders import order_from
from flatout.market.rules import Costs, Limits, Rules
from flatout.market.tape import Tape
from scenarios import cast

ACTIONS = ("trade", "weights", "direction_amount")
FILLS = ("next_open", "next_close", "same_close")
SMOOTH = {
    "limits": {**LIMITS, "lot_step": 0.0},  # no stairs, whose gradient is not their slope
    # of the first bars it is so steep that nothing else would be seen beside it
    "reward": {**REWARD, "differential_sharpe": 0.001},
}
# Of differences, which are off by its size, and by eps / step; squares of returns are as small as
# the step of all others, which would not see their slope.
STEP, SMALL_STEP = 1e-8, 1e-11
# A kink between two points is noticed if slopes differ by more; if by less, it is no further off.
SLACK = 1e-3
KINKS = 0.5  # of the numbers at most: a flat position is at one, and so is an account at its peak
ACCOUNTS = 120


class Inputs(NamedTuple):
    """What a gradient is asked by: (..., account) each."""

    action: Array
    cash: Array
    units: Array
    best: Array
    volume: Array
    equity: Array
    peak: Array
    mean: Array
    mean_square: Array


def inputs_of(state: Episode, action: Array) -> Inputs:
    account, marks = state.account, state.marks
    return Inputs(action, account.cash, account.units, account.best, account.volume, *marks)


def put_into(state: Episode, inputs: Inputs) -> Episode:
    account = state.account._replace(
        cash=inputs.cash, units=inputs.units, best=inputs.best, volume=inputs.volume
    )
    return state._replace(account=account, marks=type(state.marks)(*inputs[5:]))


def worth_of_bar(
    inputs: Inputs, state: Episode, tape: Tape, given_rules: Rules, xp: Namespace, shape: Shape
) -> Array:
    """(account,): the reward, what the next observation says and what is owned, in some mixture."""
    before = put_into(state, inputs)
    arrived, outcome = episode.step(before, inputs.action, tape, shape, given_rules, xp)
    seen = episode.private_features(arrived, given_rules, xp)
    parts = xp.concat([seen, arrived.account.best, arrived.account.cash[None]], axis=0)
    return outcome.reward + sum(
        float(np.sin(k + 1)) * parts[k, ...] / (1 + k % 3) for k in range(parts.shape[0])
    )


def total_worth(*given: Any, shape: Shape) -> Array:
    """Of all accounts; in JAX as one program, or a hundred small ones would be compiled."""
    if given[-1] is jnp:
        return compiled_worth(*given[:-1], shape)
    return given[-1].sum(worth_of_bar(*given, shape))


@partial(jax.jit, static_argnums=4)
def compiled_worth(inputs: Inputs, state: Episode, tape: Tape, its: Rules, shape: Shape) -> Array:
    return jnp.sum(worth_of_bar(inputs, state, tape, its, jnp, shape))


def states_of(market: Market, seed: int, accounts: int = 6, steps: int = 40) -> Episode:
    """Where accounts that trade at random have come to, bar after bar."""
    noise = np.random.default_rng(seed).random((steps + 1, accounts))
    states = walk(market, random_actions(market, steps, accounts, seed), noise).states
    going = np.concatenate([s.t < s.last for s in states])
    return side_by_side(states, going & (np.cumsum(going) <= ACCOUNTS))


def moved(inputs: Inputs, name: str, row: int | None, by: float) -> Inputs:
    """The inputs with one number of each account moved."""
    values = np.array(getattr(inputs, name))
    values[() if row is None else row] += by
    return inputs._replace(**{name: values})


def numbers_of(inputs: Inputs) -> Iterator[tuple[str, int | None]]:
    """The numbers of an account: a field's name and the row in it."""
    for name, values in inputs._asdict().items():
        yield from ((name, k) for k in range(len(values))) if values.ndim > 1 else [(name, None)]


@pytest.mark.parametrize("fill", FILLS)
@pytest.mark.parametrize("kind", ACTIONS)
@settings(max_examples=2)
@given(seed=st.integers(0, 2**20))
def test_gradients_are_central_differences(kind: str, fill: str, seed: int) -> None:
    """Of all that a bar makes of an account, by all that goes into it, away from kinks."""
    market = biting_market(60, seed=seed, action=kind, fill=fill, **SMOOTH)
    tape, its_rules = cast(market.arrays(np.float64), np.float64)
    state = states_of(market, seed)
    rng = np.random.default_rng(seed)
    inputs = inputs_of(state, rng.uniform(-0.99, 0.99, (market.action_size, len(state.t))))
    function = partial(total_worth, shape=market.shape)
    by_torch, by_jax = (
        gradient(name, function, inputs, state, tape, its_rules) for name in DIFFERENTIABLE
    )

    def worth(inputs: Inputs) -> np.ndarray:
        return worth_of_bar(inputs, state, tape, its_rules, np, market.shape)

    middle, kinks, compared = worth(inputs), 0, 0
    for name, row in numbers_of(inputs):
        by = SMALL_STEP if name == "mean_square" else STEP
        after, before = (worth(moved(inputs, name, row, step)) for step in (by, -by))
        slopes = (after - middle) / by, (middle - before) / by
        size = 1 + np.abs(slopes[0]) + np.abs(slopes[1])
        smooth = np.abs(slopes[0] - slopes[1]) < SLACK * size
        # Of a position that is not there the libraries take other sides of a minimum.
        if name == "units":
            smooth &= inputs.units[row] != 0
        found, other = (
            getattr(tree, name)[() if row is None else row] for tree in (by_torch, by_jax)
        )
        off = np.abs(found - (slopes[0] + slopes[1]) / 2) / size
        assert off[smooth].max(initial=0) < SLACK, (name, row)
        assert (np.abs(found - other) / size)[smooth].max(initial=0) < 1e-9
        kinks, compared = kinks + np.sum(~smooth), compared + smooth.size
    assert kinks < KINKS * compared, (kinks, compared)


CORNERS = {
    "action": (-1.0, -0.3, 0.0, 0.3, 1.0),  # bounds, thresholds and nothing; whole numbers choose
    "cash": (-1e-9, 0.0, 1e-30, 0.05, 1.0),
    "units": (-1e-3, -1e-30, 0.0, 1e-30, 1e-6, 0.02),
    "best": (20.0, 50.0, 90.0),
    "volume": (0.0, 2.0, 1e6),
    "equity": (-0.5, 0.0, 1e-6, 0.7, 1.0),
    "peak": (1.0, 1.5),
    "mean": (0.0, 1e-4),
    "mean_square": (0.0, 1e-30, 1e-8),
}


def corner_inputs(market: Market, accounts: int, dtype: type) -> Inputs:
    """Accounts each of whose numbers is at some corner, impossible combinations among them."""
    rng = np.random.default_rng(3)
    rows = {"action": market.action_size, "units": 3, "best": 3}
    drawn = {
        name: rng.choice(values, (rows[name], accounts) if name in rows else accounts)
        for name, values in CORNERS.items()
    }
    drawn["action"][:, :20] = -1.0  # nothing at all is asked for
    drawn["units"][:, ::2] = 0.0
    return Inputs(**{name: values.astype(dtype) for name, values in drawn.items()})


@partial(jax.jit, static_argnums=4)
def compiled_bars(inputs: Inputs, state: Episode, tape: Tape, its: Rules, shape: Shape) -> Array:
    return worth_of_bars(inputs, state, tape, its, jnp, shape)


def worth_of_bars(
    inputs: Inputs, state: Episode, tape: Tape, its: Rules, xp: Namespace, shape: Shape
) -> Array:
    """The same order in three bars, with restarts between them."""
    state, total = put_into(state, inputs), 0.0
    for _ in range(3):
        arrived, outcome = episode.step(state, inputs.action, tape, shape, its, xp)
        ended = outcome.terminated | outcome.truncated
        state = episode.restart(arrived, ended, xp.zeros_like(state.account.cash), its, xp)
        seen = episode.private_features(state, its, xp)
        total = total + xp.sum(outcome.reward) + xp.sum(seen)
    return total


def list_corners() -> Iterator[Any]:
    """Action kind, fill and type: each is a program of its own, so most of them are slow."""
    for kind, fill, dtype in product((*ACTIONS, "discrete"), FILLS, (np.float64, np.float32)):
        narrow = dtype is np.float32 and (fill == "next_open" or kind == "weights")
        yield pytest.param(kind, fill, dtype, marks=[] if narrow else pytest.mark.slow)


@pytest.mark.parametrize(("kind", "fill", "dtype"), [*list_corners()])
def test_gradients_are_finite_at_every_corner(kind: str, fill: str, dtype: type) -> None:
    market = biting_market(60, action=kind, fill=fill)
    tape, its_rules = cast(market.arrays(dtype), dtype)
    inputs = corner_inputs(market, accounts=300, dtype=dtype)
    noise = np.random.default_rng(0).random(300).astype(dtype)
    state = episode.reset(noise, market.shape, its_rules, np)

    def total(*given: Any) -> Array:
        if given[-1] is jnp:
            return compiled_bars(*given[:-1], market.shape)
        return worth_of_bars(*given, market.shape)

    for library in DIFFERENTIABLE:
        found = gradient(library, total, inputs, state, tape, its_rules)
        for name, values in found._asdict().items():
            assert np.isfinite(values).all(), (library, name, np.argwhere(~np.isfinite(values))[:3])
        if kind == "discrete":  # choices have none
            assert not np.any(found.action)


# --- the rules that are not smooth ----------------------------------------------------------------


def bought(
    order: Array, account: Any, bar: Any, costs: Any, limits: Limits, xp: Namespace
) -> Array:
    """The units of one asset after an order at 100."""
    after, _ = execute(
        account, order, xp.ones_like(order) * 100, bar, costs, limits, "next_open", xp
    )
    return xp.sum(after.units)


@pytest.mark.parametrize("library", DIFFERENTIABLE)
@pytest.mark.parametrize(
    ("order", "changes", "slope"),
    [
        (0.3, {}, 1.0),
        (0.3, {"lot_step": 0.002}, 1.0),  # straight through the stairs
        (0.3, {"min_notional": 0.4}, 0.0),  # dropped: nothing says that more would be filled
        (0.3, {"min_notional": 0.2}, 1.0),
        (0.3, {"participation": 1e-12}, 0.0),  # the bar's volume is the limit, not the order
        (0.3, {"max_weight": 0.2}, 0.0),
        (2.0, {}, 0.0),  # more than the cash
    ],
)
def test_gradient_of_what_is_bought(
    library: str, order: float, changes: dict[str, float], slope: float
) -> None:
    costs, limits = rules(1, **changes)
    given = column(order), beginner(), flat(100.0), costs, limits
    assert gradient(library, bought, *given)[0, 0] == pytest.approx(slope / 100, abs=1e-6)


@pytest.mark.parametrize("library", DIFFERENTIABLE)
def test_gradient_in_a_cooldown_is_zero(library: str) -> None:
    resting = beginner()._replace(cooldown=column(2.0))
    given = column(0.3), resting, flat(100.0), *rules(1)
    assert gradient(library, bought, *given)[0, 0] == 0


def left_in_cash(
    best: Array, account: Account, met: Bar, costs: Costs, limits: Limits, xp: Namespace
) -> Array:
    """The cash after a bar without an order, of an account with this best price."""
    none, mark = xp.zeros_like(best), xp.ones_like(best) * 100
    held = account._replace(best=best)
    return xp.sum(execute(held, none, mark, met, costs, limits, "next_open", xp)[0].cash)


@pytest.mark.parametrize("library", DIFFERENTIABLE)
def test_gradient_of_a_stop_is_that_of_its_price(library: str) -> None:
    """A position that is stopped out is sold at a share of its best price."""
    given = owner(0.01, cash=0.0), bar(100, 100, 90, 92), *rules(1, trailing_stop=0.05)
    found = gradient(library, left_in_cash, column(102.0), *given)
    assert found[0, 0] == pytest.approx(0.01 * 0.95)


@pytest.mark.parametrize("library", DIFFERENTIABLE)
def test_gradient_of_a_forced_reduction_is_that_of_its_branch(library: str) -> None:
    _, free = rules(1, forced_share=0.25)
    _, small = rules(1, forced_share=0.25, min_notional=30.0)
    _, lots = rules(1, forced_share=0.25, lot_step=1.0)

    def sold(size: Array, price: Array, limits: Limits, xp: Namespace) -> Array:
        return xp.sum(forced_reduction(size, price, limits, xp))

    slopes = [
        float(gradient(library, sold, column(2.0), column(10.0), limits)[0, 0])
        for limits in (free, small, lots)
    ]
    assert slopes == pytest.approx([0.25, 1.0, 0.0])


@pytest.mark.parametrize("library", DIFFERENTIABLE)
def test_directions_have_no_gradient_and_amounts_have(library: str) -> None:
    _, limits = rules(1)
    account = beginner()

    def asked(action: Array, account: Any, limits: Limits, xp: Namespace) -> Array:
        one = xp.ones_like(account.cash)
        mark = xp.ones_like(account.units)
        return xp.sum(
            order_from(
                "direction_amount", action, account, worth=one, mark=mark, limits=limits, xp=xp
            )
        )

    buys = gradient(library, asked, np.array([[0.5], [0.2]]), account, limits)
    holds = gradient(library, asked, np.array([[0.1], [0.2]]), account, limits)
    assert (buys[:, 0].tolist(), holds[:, 0].tolist()) == ([0.0, 0.5], [0.0, 0.0])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@settings(max_examples=20)
@given(sizes=st.lists(st.floats(0, 1e4), min_size=1, max_size=5), step=st.floats(1e-6, 10))
def test_values_of_lots_are_those_without_a_gradient(
    dtype: type, sizes: list[float], step: float
) -> None:
    """What gradients go straight through keeps its value to the bit."""
    _, limits = rules(1, lot_step=step)
    given = np.asarray(sizes, dtype)[None]
    limits = cast(limits, dtype)
    by_numpy = whole_lots(given, limits, np)
    for library in DIFFERENTIABLE:
        np.testing.assert_array_equal(run(library, whole_lots, given, limits), by_numpy)
