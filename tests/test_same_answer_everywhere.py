"""One market: NumPy = PyTorch = JAX = a scalar ledger in plain Python, with every rule switched on."""

from collections import Counter
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
from flatout.market.scalar_ledger import Ledger, plain
from flatout.settings import Fill
from scenarios import Path, all_rules, cast, random_path

FILLS: tuple[Fill, ...] = ("next_open", "next_close", "same_close")
FLOAT32_STEP_BOUND = 5e-6  # of the equity, after one step from the same account
FLOAT32_FLIPS = 1e-3  # share of steps in which a comparison falls the other way within float32's resolution
StepFunction = Callable[[Account, np.ndarray, np.ndarray, Bar], Account]


def ledger_path(path: Path, costs: Costs, limits: Limits, fill: Fill) -> tuple[list[Account], Counter[str]]:
    """The accounts after every step by the ledger, and how often each rule took effect."""
    steps, assets, accounts = path.orders.shape
    rules = plain(costs, limits)
    ledgers = [Ledger(assets, rules, fill) for _ in range(accounts)]
    events: Counter[str] = Counter()
    history = []
    for k in range(steps):
        for i, ledger in enumerate(ledgers):
            before = [p.units for p in ledger.positions]
            tier = ledger.fee()
            ledger.step(*(x[k, ..., i].tolist() for x in (path.orders, path.mark, path.bars)))
            count_events(events, ledger, before, tier, path.orders[k, :, i])
        history.append(account_of(ledgers))
    return history, events


def count_events(events: Counter[str], ledger: Ledger, before: list[float], tier: float, order: np.ndarray) -> None:
    events["fee tier changed"] += ledger.fee() != tier
    for old, position, asked, cooldown in zip(
        before, ledger.positions, order, ledger.rules["cooldown_bars"], strict=True
    ):
        events["stopped"] += position.cooldown == cooldown
        events["blocked by cooldown"] += bool(
            0 < position.cooldown < cooldown and asked > 0 and position.units == old == 0
        )
        events["reversed"] += old * position.units < 0
        events["short"] += position.units < 0
        events["forced reduction"] += bool(position.held == 1 and old * position.units > 0)
        events["nothing filled"] += bool(asked != 0 and position.units == old)


def account_of(ledgers: list[Ledger]) -> Account:
    """The ledgers' accounts as arrays."""
    columns = [
        np.array([[getattr(p, name) for p in x.positions] for x in ledgers]).T
        for name in ("units", "best", "held", "cooldown")
    ]
    return Account(np.array([x.cash for x in ledgers]), *columns, np.array([x.volume for x in ledgers]))


def numpy_step(costs: Costs, limits: Limits, fill: Fill) -> StepFunction:
    return lambda account, order, mark, bar: execute(account, order, mark, bar, costs, limits, fill, np)[0]


def torch_step(costs: Costs, limits: Limits, fill: Fill) -> StepFunction:
    tensor_costs, tensor_limits = map_leaves(torch.asarray, costs), map_leaves(torch.asarray, limits)

    def run(account: Account, order: np.ndarray, mark: np.ndarray, bar: Bar) -> Account:
        account, bar = map_leaves(torch.asarray, account), map_leaves(torch.asarray, bar)
        order, mark = torch.asarray(order), torch.asarray(mark)
        after, _ = execute(account, order, mark, bar, tensor_costs, tensor_limits, fill, torch_namespace)
        return map_leaves(to_numpy, after)

    return run


@cache
def compiled(fill: Fill) -> Any:
    """The JAX step; costs and limits are arguments, so one compilation serves all markets of a shape."""

    def one(account: Account, order: Any, mark: Any, bar: Bar, costs: Costs, limits: Limits) -> Account:
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


def largest_difference(one: Account, other: Account) -> float:
    """Relative to the size of each field, at least to the typical price or to 1."""
    gaps = []
    for name in Account._fields:
        a, b = getattr(one, name), getattr(other, name)
        scale = np.abs(b) + (1.0 if name in ("cash", "volume", "held", "cooldown") else 1e-12)
        gaps.append(np.max(np.abs(a - b) / scale, initial=0.0))
    return float(max(gaps))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("fill", FILLS)
def test_equals_scalar_ledger_over_ten_thousand_steps(engine: str, fill: Fill) -> None:
    path = random_path(np.random.default_rng(7), steps=500, accounts=20, assets=7)
    costs, limits = all_rules(7, path.mark[0].mean(axis=1))
    expected, events = ledger_path(path, costs, limits, fill)
    rules = [
        "fee tier changed",
        "stopped",
        "blocked by cooldown",
        "reversed",
        "short",
        "forced reduction",
        "nothing filled",
    ]
    assert all(events[rule] > 50 for rule in rules), events
    with jax.enable_x64(True):
        found = engine_path(ENGINES[engine], path, costs, limits, fill)
    for k, (a, b) in enumerate(zip(found, expected, strict=True)):
        assert largest_difference(a, b) < 1e-9, f"step {k}"


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
    """What hypothesis draws; `build` makes the arrays, so that a failing example prints in one line."""

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
        without = {name: np.full_like(getattr(limits, name), OFF_VALUES[name]) for name in self.limits_off}
        free = {name: np.zeros_like(getattr(costs, name)) for name in self.costs_off}
        return path, costs._replace(**free), limits._replace(**without), self.fill


MARKETS = st.builds(
    Market,
    seed=st.integers(0, 2**32 - 1),
    assets=st.sampled_from([1, 2, 5]),  # few shapes: each is compiled
    order_size=st.sampled_from([0.01, 0.3, 3.0]),
    shorts=st.sampled_from([0.0, 0.4]),
    limits_off=st.frozensets(st.sampled_from(sorted(OFF_VALUES))),
    costs_off=st.frozensets(st.sampled_from(["maker_fee", "taker_fee", "half_spread", "impact", "borrow"])),
    fill=st.sampled_from(FILLS),
)


@settings(max_examples=60, deadline=None)
@given(MARKETS)
def test_engines_agree_on_any_market(market: Market) -> None:
    path, costs, limits, fill = market.build()
    expected, _ = ledger_path(path, costs, limits, fill)
    with jax.enable_x64(True):
        for make in ENGINES.values():
            found = engine_path(make, path, costs, limits, fill)
            assert max(map(largest_difference, found, expected)) < 1e-9


@pytest.mark.parametrize("engine", ENGINES)
def test_float32_stays_close(engine: str) -> None:
    """Each float32 step starts from the ledger's account, so the bound is per step; comparisons may flip, rarely."""
    path = random_path(np.random.default_rng(11), steps=300, accounts=40, assets=7)
    costs, limits = all_rules(7, path.mark[0].mean(axis=1))
    expected, _ = ledger_path(path, costs, limits, "next_open")
    run = ENGINES[engine](cast(costs, np.float32), cast(limits, np.float32), "next_open")
    gaps = []
    for k in range(1, len(expected)):
        inputs = (path.orders[k], path.mark[k])
        start, bar = cast(expected[k - 1], np.float32), cast(Bar(*path.bars[k]), np.float32)
        after = run(start, *(x.astype(np.float32) for x in inputs), bar)
        assert after.cash.dtype == np.float32
        close = path.bars[k][3]
        gaps.append(np.abs(equity(after, close, np) / equity(expected[k], close, np) - 1))
        gaps.append(np.abs(after.cash - expected[k].cash) / equity(expected[k], close, np))
    assert np.mean(np.array(gaps) > FLOAT32_STEP_BOUND) < FLOAT32_FLIPS
