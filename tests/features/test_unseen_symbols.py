"""Recipes on symbols they were not fitted on: own statistics where there are some, medians else."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from flatout.bars.source import select_symbols
from flatout.errors import RecipeError
from flatout.features.recipe import FittedRecipe, Recipe, fit
from flatout.features.scalers import SCALERS
from flatout.features.unseen_symbols import list_unseen, move_recipe, pool_statistics
from scenarios import random_panel

FEATURES = ("return_1", "rsi", "roc", "volume")
PANEL = random_panel(3, 400, 5)


def fitted_with(scaler: str) -> FittedRecipe:
    return fit(Recipe(FEATURES, 2, scaler), PANEL, np.arange(250))


@pytest.mark.parametrize("scaler", SCALERS)
def test_symbols_that_it_knows_look_as_they_did(scaler: str) -> None:
    """In any order, with any others beside them."""
    fitted, whole = fitted_with(scaler), fitted_with(scaler).transform(PANEL)
    moved = move_recipe(fitted, ("S03", "NEW", "S00"))
    found = moved.transform(
        replace(select_symbols(PANEL, ("S03", "S01", "S00")), symbols=moved.symbols)
    )
    np.testing.assert_array_equal(found[:, [0, 2]], whole[:, [3, 0]])
    assert (found[:, 1] != whole[:, 1]).any()
    same = move_recipe(fitted, fitted.symbols)
    np.testing.assert_array_equal(same.transform(PANEL), whole)
    assert same.schema_hash == fitted.schema_hash


@pytest.mark.parametrize("scaler", SCALERS)
def test_symbols_that_it_never_saw_are_scaled_alike(scaler: str) -> None:
    moved = move_recipe(fitted_with(scaler), ("ONE", "S02", "TWO"))
    panel = replace(select_symbols(PANEL, ("S01", "S02", "S04")), symbols=moved.symbols)
    twice = {
        name: getattr(panel, name)[:, [0, 1, 0]]
        for name in ("open", "high", "low", "close", "volume", "tradable")
    }
    found = moved.transform(replace(panel, **twice))
    np.testing.assert_array_equal(found[:, 0], found[:, 2])
    assert np.isfinite(found).all() and found[:, 0].std() > 0.1


@pytest.mark.parametrize("scaler", SCALERS)
def test_where_all_are_alike_a_new_one_is_as_they_are(scaler: str) -> None:
    """So a new symbol of a market of one kind sees what its own statistics would have shown."""
    fitted = fitted_with(scaler)
    alike = np.repeat(fitted.scaler.statistics[:, :1], 5, axis=1)
    fitted = replace(fitted, scaler=fitted.scaler._replace(statistics=alike))
    np.testing.assert_array_equal(pool_statistics(fitted.scaler), alike[:, 0])


def test_one_odd_symbol_and_one_without_a_past_move_nothing_far() -> None:
    """By hand: centres 1, 2, 3, 4000 and none; spreads 10, 20, 30, 9000 and none."""
    fitted = fit(Recipe(("rsi",), 1, "zscore"), PANEL, np.arange(250))
    numbers = np.array([[1.0, 2, 3, 4000, np.nan], [10.0, 20, 30, 9000, np.nan]])[:, :, None]
    fitted = replace(fitted, scaler=fitted.scaler._replace(statistics=numbers))
    moved = move_recipe(fitted, ("S04", "NEW"))
    np.testing.assert_array_equal(moved.scaler.statistics[:, 1, 0], [2.5, 25.0])
    assert np.isnan(moved.scaler.statistics[:, 0]).all()  # it stays 0, as it was taught


def test_more_symbols_than_it_was_fitted_on(tmp_path: Path) -> None:
    names = tuple(f"X{k:02d}" for k in range(12))
    moved = move_recipe(fitted_with("quantile"), names)
    moved.save(tmp_path)
    again = FittedRecipe.load(tmp_path)
    panel = replace(random_panel(7, 100, 12), symbols=names)
    np.testing.assert_array_equal(again.transform(panel), moved.transform(panel))
    with pytest.raises(RecipeError, match="each of them once"):
        move_recipe(moved, ("A", "A"))


def test_unseen_symbols_keep_their_order() -> None:
    assert list_unseen(("B", "A"), ("Z", "A", "C")) == ["Z", "C"]
