"""One market: NumPy = PyTorch = JAX = a scalar ledger in plain Python, with every rule
switched on.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import array_api_compat.torch as torch_namespace
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from flatout.arrays import map_leaves, to_numpy
from flatout.market.account import Account, equity, open_account
from flatout.market.execute import Bar, execute
from flatout.market.rules import OFF, Costs, Limits
from flatout.settings.tables import Fill
from ledger_paths import (
    COUNTED_ELSEWHERE,
    ENOUGH,
    WITHOUT_VALUE,
    all_rule_names,
    count_effects,
    ledger_path,
)
from rounding import tolerance
from scenarios import BAR_ROUNDINGS, Path, all_rules, cast, random_path

FILLS: tuple[Fill, ...] = ("next_open", "next_close", "same_close")
STEPS, ACCOUNTS, ASSETS = 250, 40, 7  # ten thousand steps of an account
# share of steps in which a comparison falls the other way within float32's resolution
FLOAT32_FLIPS = 0.01
StepFunction = Callable[[Account, np.ndarray, np.ndarray, Bar], Account]


@cache
def long_path(shorts: float = 0.3) -> tuple[Path, Costs, Limits]:
    """Every rule is met: some assets have lots that are larger than a forced share, some bars have
    an impact beyond the largest slippage, and where nobody is short the gross limit binds next to
    the reserve.
    """
    rng = np.random.default_rng(7)
    path = random_path(rng, STEPS, ACCOUNTS, ASSETS)
    path.bars[:, 5] *= np.where(rng.random(path.orders.shape) < 0.002, 2000.0, 1.0)
    price = path.mark[0].mean(axis=1)
    lots = np.geomspace(0.002, 0.05, ASSETS) / price
    gross = {} if shorts else {"gross_limit": np.asarray(0.948)}
    return path, *all_rules(ASSETS, price, shorts, lot_step=lots[:, None], **gross)


@cache
def long_ledger(fill: Fill, shorts: float = 0.3) -> list[Account]:
    return ledger_path(*long_path(shorts), fill)


def numpy_step(costs: Costs, limits: Limits, fill: Fill) -> StepFunction:
    return lambda account, order, mark, bar: execute(
        account, order, mark, bar, costs, limits, fill, np
    )[0]


def torch_step(costs: Costs, limits: Limits, fill: Fill) -> StepFunction:
    tensor_costs, tensor_limits = (
        map_leaves(torch.asarray, costs),
        map_leaves(torch.asarray, limits),
    )

    def run(account: Account, order: np.ndarray, mark: np.ndarray, bar: Bar) -> Account:
        account, bar = map_leaves(torch.asarray, account), map_leaves(torch.asarray, bar)
        order, mark = torch.asarray(order), torch.asarray(mark)
        after, _ = execute(
            account, order, mark, bar, tensor_costs, tensor_limits, fill, torch_namespace
        )
        return map_leaves(to_numpy, after)

    return run


@cache
def compiled(fill: Fill) -> Any:
    """The JAX step; costs and limits are arguments, so one compilation serves all markets of a
    shape.
    """

    def one(
        account: Account, order: Any, mark: Any, bar: Bar, costs: Costs, limits: Limits
    ) -> Account:
        return execute(account, order, mark, bar, costs, limits, fill, jnp)[0]

    return jax.jit(one)


def jax_step(costs: Costs, limits: Limits, fill: Fill) -> StepFunction:
    return lambda *inputs: map_leaves(to_numpy, compiled(fill)(*inputs, costs, limits))


ENGINES = {"numpy": numpy_step, "torch": torch_step, "jax": jax_step}


def engine_path(make: Any, path: Path, costs: Costs, limits: Limits, fill: Fill) -> list[Account]:
    run = make(costs, limits, fill)
    account = open_account(np.ones_like(path.mark[0]), np)
    history = []
    for order, mark, bar in zip(path.orders, path.mark, path.bars, strict=True):
        account = run(account, order, mark, Bar(*bar))
        history.append(account)
    return history


def largest_difference(found: list[Account], expected: list[Account], path: Path) -> float:
    """In roundings: of money to the capital of 1 or what it has become, of prices and counts to
    themselves. The best price means nothing where there is no position.
    """
    gaps = []
    for one, other, mark in zip(found, expected, path.mark, strict=True):
        for name in Account._fields:
            a, b = (getattr(x, name) * (mark if name == "units" else 1.0) for x in (one, other))
            scale = np.abs(b) + (0.0 if name == "best" else 1.0)
            counts = other.units != 0 if name == "best" else True
            gaps.append(np.max(np.abs(a - b) / scale, initial=0.0, where=counts))
    return float(max(gaps) / tolerance(1))


@pytest.mark.long
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("shorts", [0.3, 0.0], ids=["shorts", "long_only"])
@pytest.mark.parametrize("fill", FILLS)
def test_equals_scalar_ledger_over_ten_thousand_steps(
    engine: str, fill: Fill, shorts: float
) -> None:
    path, costs, limits = long_path(shorts)
    with jax.enable_x64(True):
        found = engine_path(ENGINES[engine], path, costs, limits, fill)
    gap = largest_difference(found, long_ledger(fill, shorts), path)
    assert gap < STEPS * BAR_ROUNDINGS  # 6e-12 of the capital


@pytest.mark.long
@pytest.mark.parametrize("shorts", [0.3, 0.0], ids=["shorts", "long_only"])
@pytest.mark.parametrize("fill", FILLS)
def test_every_rule_takes_effect_in_these_steps(fill: Fill, shorts: float) -> None:
    """What never happens is compared to nothing."""
    effects = count_effects(*long_path(shorts), fill)
    rare = {name: effects[name] for name in all_rule_names(shorts > 0) if effects[name] < ENOUGH}
    assert not rare


def test_every_field_of_the_rules_is_counted() -> None:
    assert {*Costs._fields, *Limits._fields} == {*WITHOUT_VALUE, *COUNTED_ELSEWHERE}


OFF_VALUES = {
    "min_notional": 0.0,
    "lot_step": 0.0,
    "participation": OFF,
    "trailing_stop": OFF,
    "max_held_bars": OFF,
    "reserve": 0.0,
    "max_weight": OFF,
}


class Market(NamedTuple):
    """What hypothesis draws; `build` makes the arrays, so that a failing example prints in one
    line.
    """

    seed: int
    assets: int
    order_size: float
    shorts: float
    limits_off: frozenset[str]
    costs_off: frozenset[str]
    fill: Fill

    def build(self) -> tuple[Path, Costs, Limits, Fill]:
        path = random_path(np.random.default_rng(self.seed), 12, 8, self.assets, self.order_size)
        costs, limits = all_rules(self.assets, path.mark[0].mean(axis=1), self.shorts)
        without = {
            name: np.full_like(getattr(limits, name), OFF_VALUES[name]) for name in self.limits_off
        }
        free = {name: np.zeros_like(getattr(costs, name)) for name in self.costs_off}
        return path, costs._replace(**free), limits._replace(**without), self.fill


MARKETS = st.builds(
    Market,
    seed=st.integers(0, 2**32 - 1),
    assets=st.sampled_from([1, 5]),  # few shapes: each is compiled
    order_size=st.sampled_from([0.01, 0.3, 3.0]),
    shorts=st.sampled_from([0.0, 0.4]),
    limits_off=st.frozensets(st.sampled_from(sorted(OFF_VALUES))),
    costs_off=st.frozensets(
        st.sampled_from(["maker_fee", "taker_fee", "half_spread", "impact", "borrow"])
    ),
    fill=st.sampled_from(FILLS),
)


@pytest.mark.long
@settings(max_examples=40, deadline=None)
@given(MARKETS)
def test_engines_agree_on_any_market(market: Market) -> None:
    path, costs, limits, fill = market.build()
    expected = ledger_path(path, costs, limits, fill)
    with jax.enable_x64(True):
        for make in ENGINES.values():
            found = engine_path(make, path, costs, limits, fill)
            # it draws the worst
            assert largest_difference(found, expected, path) < 10 * len(path.mark) * BAR_ROUNDINGS


def side_by_side(steps: np.ndarray) -> np.ndarray:
    """(step, ..., account) as (..., step and account)."""
    return np.concatenate(list(steps), axis=-1)


@pytest.mark.parametrize("engine", ENGINES)
def test_float32_stays_close(engine: str) -> None:
    """Each float32 step starts from the ledger's account, so the bound is per step; comparisons may
    flip, rarely.
    """
    path, costs, limits = long_path()
    expected = long_ledger("next_open")
    start, after = (
        Account(*map(side_by_side, zip(*x, strict=True))) for x in (expected[:-1:5], expected[1::5])
    )
    orders, mark, bars = (side_by_side(x[1::5]) for x in (path.orders, path.mark, path.bars))
    run = ENGINES[engine](cast(costs, np.float32), cast(limits, np.float32), "next_open")
    found = run(*cast((start, orders, mark, Bar(*bars)), np.float32))
    assert found.cash.dtype == np.float32
    worth = equity(after, bars[3], np)
    gaps = np.abs(equity(found, bars[3], np) / worth - 1), np.abs(found.cash - after.cash) / worth
    assert np.mean(np.maximum(*gaps) > tolerance(BAR_ROUNDINGS, 1.0, np.float32)) < FLOAT32_FLIPS
