"""A policy on symbols that did not teach it: only where they are named, each treated alike."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flatout.bars.panel import Panel
from flatout.bars.source import select_symbols
from flatout.errors import BundleError, RecipeError
from flatout.market import episode
from flatout.market.market import Market
from flatout.policies.bundle import Bundle
from flatout.policies.other_symbols import describe_taught, move_bundle
from rounding import assert_close
from small_bundles import LONG_ONLY, bundle_of, panel_of

TAUGHT = panel_of(0, 200, 7)
NEW = tuple(f"N{k:02d}" for k in range(12))
MANY = replace(panel_of(5, 200, 12), symbols=NEW)
# lots and stops would enlarge roundings: a comparison may fall the other way
SMOOTH = LONG_ONLY | {"lot_step": 0.0, "min_notional": 0.0, "trailing_stop": None}
KINDS: dict[str, dict[str, Any]] = {
    "softmax": {"distribution": "softmax"},
    "weights": {},
    "squashed": {"distribution": "squashed_gaussian"},
    "trade": {"action": "trade"},
    "direction_amount": {"action": "direction_amount"},
    "discrete": {"action": "discrete", "order_sizes": [0.1, 0.3]},
}


def policy_for(name: str, **changes: Any) -> Bundle:
    return bundle_of(TAUGHT, 2, kind="per_asset", **(KINDS[name] | changes))


def select(panel: Panel, columns: list[int], symbols: tuple[str, ...]) -> Panel:
    """Some assets of a panel under these names; one asset may stand there twice."""
    values = {
        name: getattr(panel, name)[:, columns]
        for name in ("open", "high", "low", "close", "volume", "tradable")
    }
    return replace(panel, symbols=symbols, **values)


def trade_along(bundle: Bundle, market: Market, bars: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """What one account that follows the policy does, (bar, action), and holds, (bar, asset)."""
    tape, rules = market.arrays(np.float64)
    state = episode.reset(np.zeros(1), market.shape, rules, np)
    acted, held = [], []
    for _ in range(bars):
        action = bundle.act(episode.observe(state, tape, market.shape, rules, np))
        state, _ = episode.step(state, action.T.astype(float), tape, market.shape, rules, np)
        acted.append(action[0])
        held.append(episode.weights_of(state, np)[:, 0])
    return np.array(acted), np.array(held)


def assert_same(found: np.ndarray, expected: np.ndarray) -> None:
    """But for the rounding of sums in another order, in single precision, over a chain of bars."""
    assert_close(found, expected, roundings=60 * 200, size=1.0, dtype=np.float32)


@pytest.mark.parametrize("name", KINDS)
def test_its_own_symbols_by_name_are_the_policy_itself(name: str) -> None:
    bundle = policy_for(name)
    assert move_bundle(bundle, TAUGHT.symbols) is bundle
    assert describe_taught(bundle) == ""


@pytest.mark.parametrize("name", KINDS)
def test_its_own_symbols_in_another_order_trade_alike(name: str) -> None:
    bundle, order = policy_for(name, limits=SMOOTH), [4, 0, 6, 2, 1, 5, 3]
    moved = move_bundle(bundle, tuple(TAUGHT.symbols[k] for k in order))
    panel = select_symbols(TAUGHT, moved.recipe.symbols)
    acted, held = trade_along(bundle, bundle.market(TAUGHT))
    acted_there, held_there = trade_along(moved, moved.market(panel))
    each = acted[:, : 7 * (acted.shape[1] // 7)].reshape(len(acted), 7, -1)
    expected = np.concatenate([each[:, order].reshape(len(acted), -1), acted[:, each[0].size :]], 1)
    assert_same(acted_there, expected)
    assert_same(held_there, held[:, order])
    assert np.ptp(held, axis=1).max() > 0.01
    assert describe_taught(moved) == ""


@pytest.mark.parametrize("name", KINDS)
def test_twelve_symbols_that_it_never_saw(name: str) -> None:
    """Without leverage cash never falls below zero, so long weights sum to 1 at most."""
    moved = move_bundle(policy_for(name, limits=LONG_ONLY | {"gross_limit": 1.0}), NEW)
    acted, held = trade_along(moved, moved.market(MANY))
    assert acted.shape[1] == moved.action_size
    assert np.isfinite(held).all() and held.any(axis=0).all()
    if name == "softmax":
        shares = (acted + 1) / 2
        assert_close(shares.sum(axis=1), np.ones(60), roundings=64, size=1.0, dtype=np.float32)
    assert held.min() >= 0 and held.sum(axis=1).max() <= 1 and held.sum(axis=1).max() > 0.5


@pytest.mark.parametrize("name", KINDS)
def test_assets_that_are_equal_are_treated_equally(name: str) -> None:
    bundle = policy_for(name, limits=SMOOTH)
    moved = move_bundle(bundle, ("A", "B", "A2", "C", "A3"))
    panel = select(TAUGHT, [0, 1, 0, 2, 0], moved.recipe.symbols)
    acted, held = trade_along(moved, moved.market(panel))
    each = acted[:, : 5 * (acted.shape[1] // 5)].reshape(len(acted), 5, -1)
    for twin in (2, 4):
        assert_same(each[:, twin], each[:, 0])
        assert_same(held[:, twin], held[:, 0])
    assert np.abs(held[:, 0] - held[:, 1]).max() > 1e-3


def test_who_taught_it_is_said_and_saved(tmp_path: Path) -> None:
    bundle = policy_for("softmax")
    moved = move_bundle(bundle, ("S01", "N00"))
    assert describe_taught(moved) == (
        "taught on other symbols, S00, S01, S02, S03, S04, S05, S06; it never saw N00, whose "
        "indicators are scaled by the medians of those that it saw"
    )
    assert describe_taught(move_bundle(bundle, ("S01",))).startswith("taught on more symbols, S00")
    moved.save(tmp_path)
    again = Bundle.load(tmp_path)
    assert again.taught == moved.taught == TAUGHT.symbols
    assert again.recipe.symbols == ("S01", "N00")
    seen = np.ones(moved.observation_size, np.float32)
    np.testing.assert_array_equal(again.act(seen), moved.act(seen))
    bundle.save(tmp_path / "own")
    assert "taught" not in (tmp_path / "own" / "policy.json").read_text()


# --- lot steps


def test_lot_steps_by_symbol_must_be_given_for_new_symbols() -> None:
    bundle = policy_for("softmax", limits={**LONG_ONLY, "lot_step": {"S00": 0.5, "S01": 0.25}})
    pair = select(TAUGHT, [1, 2], ("S01", "N00"))
    moved = move_bundle(bundle, pair.symbols)
    assert moved.settings.limits.lot_step == {"S01": 0.25}
    with pytest.raises(BundleError, match=r"lot_step is by symbol, and has no step for N00, which"):
        moved.market(pair)
    for step in ({"S01": 0.25, "N00": 0.0}, 0.1):
        limits = moved.settings.limits.model_copy(update={"lot_step": step})
        moved.market(pair, moved.settings.model_copy(update={"limits": limits}))
    taught = move_bundle(bundle, ("S02", "S00"))  # as in training, where S02 had none
    taught.market(select_symbols(TAUGHT, ("S02", "S00")))


# --- refusals


def test_other_symbols_that_nobody_names_are_refused_with_how_to_ask() -> None:
    with pytest.raises(RecipeError, match=r"unknown N00.*if you name them by `symbols`$"):
        policy_for("softmax").market(MANY)
    moved = move_bundle(policy_for("softmax"), NEW)
    with pytest.raises(RecipeError, match="other symbols than the recipe was fitted on"):
        moved.market(TAUGHT)


def test_other_sizes_of_bars_are_refused_as_ever() -> None:
    moved = move_bundle(policy_for("softmax"), NEW)
    slow = replace(MANY, time=MANY.time[0] + (MANY.time - MANY.time[0]) * 4, bar_seconds=14400)
    with pytest.raises(RecipeError, match="fitted on bars of 1h, given bars of 4h") as refused:
        moved.market(slow)
    assert "looks at each asset" not in str(refused.value)


def test_flat_networks_are_refused_with_what_to_do() -> None:
    with pytest.raises(BundleError, match=(
        r"^symbols are A, B, and this policy trades exactly S00, S01, S02, in this order: its "
        r'network is flat, .* train with train\.network = "per_asset"'
    )):  # fmt: skip
        move_bundle(bundle_of(), ("A", "B"))
    with pytest.raises(BundleError, match="a flat network trades the symbols that taught it"):
        replace(bundle_of(), taught=("A",))


def test_a_policy_is_moved_once() -> None:
    moved = move_bundle(policy_for("softmax"), NEW)
    assert move_bundle(moved, NEW) is moved
    with pytest.raises(BundleError, match=r"taken from S00, .* to N00, .* already"):
        move_bundle(moved, TAUGHT.symbols)


def test_observations_of_other_symbols_are_refused_with_how_to_ask() -> None:
    bundle = policy_for("softmax")
    size = move_bundle(bundle, NEW).observation_size
    with pytest.raises(BundleError, match=r"`for_symbols` makes it read other symbols"):
        bundle.act(np.zeros(size, np.float32))
