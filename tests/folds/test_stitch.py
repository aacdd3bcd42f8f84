"""Stitching: hand-made paths, free leading axes, and cells that do not fit."""

import numpy as np
import pytest
from fold_cases import any_folds, bars_of, plain_folds
from hypothesis import given

from flatout.errors import FlatoutError
from flatout.folds.splits import Folds
from flatout.folds.stitch import judged_bars, stitch


def cells_of(folds: Folds) -> dict[tuple[int, int], np.ndarray]:
    """Each value says its split and bar: 1000 * split + bar."""
    return {
        (s, group): 1000.0 * s + np.arange(*folds.groups[group])
        for s, split in enumerate(folds.splits)
        for group in split.test_groups
    }


@pytest.fixture
def folds() -> Folds:
    return plain_folds("cpcv", 31, 1, 1, warm=1, groups=3, test_groups=2)  # splits 0+1, 0+2, 1+2


def test_paths_by_hand(folds: Folds) -> None:
    stitched = stitch(folds, cells_of(folds))
    assert stitched.shape == (2, 30)
    bars = np.arange(1, 31)
    np.testing.assert_array_equal(stitched[0], bars + np.repeat([0, 0, 1000], 10))
    np.testing.assert_array_equal(stitched[1], bars + np.repeat([1000, 2000, 2000], 10))


def test_walking_forward_is_stitched_from_the_groups_it_judges() -> None:
    folds = plain_folds("walk_forward", 42, 1, 1, warm=2, groups=4, train_groups=2)
    np.testing.assert_array_equal(judged_bars(folds), np.arange(22, 42))
    np.testing.assert_array_equal(
        stitch(folds, cells_of(folds)), [np.arange(22, 42) + np.repeat([0, 1000], 10)]
    )


@given(any_folds())
def test_every_path_goes_through_the_judged_bars_in_order(folds: Folds) -> None:
    bars = judged_bars(folds)
    np.testing.assert_array_equal(bars, bars_of(folds.groups[group] for group in folds.judged))
    stitched = stitch(folds, {cell: values % 1000 for cell, values in cells_of(folds).items()})
    np.testing.assert_array_equal(stitched, np.tile(bars, (len(folds.paths), 1)))


def test_leading_axes_stay_in_front(folds: Folds) -> None:
    plain = cells_of(folds)
    scale = np.arange(1.0, 7).reshape(2, 3, 1)  # say trial, seed
    stitched = stitch(folds, {cell: scale * values for cell, values in plain.items()})
    assert stitched.shape == (2, 3, 2, 30)
    np.testing.assert_array_equal(stitched, scale[..., None] * stitch(folds, plain))


def test_whole_numbers_stay_whole(folds: Folds) -> None:
    whole = {cell: values.astype(np.int32) for cell, values in cells_of(folds).items()}
    assert stitch(folds, whole).dtype == np.int32


def test_missing_cells_are_named(folds: Folds) -> None:
    cells = cells_of(folds)
    del cells[1, 2], cells[2, 2]
    with pytest.raises(
        FlatoutError,
        match=r"2 of 6 cells are missing, first \(split 1, group 2\): give one for each",
    ):
        stitch(folds, cells)


def test_a_cell_that_no_path_uses_is_refused(folds: Folds) -> None:
    with pytest.raises(
        FlatoutError,
        match=r"cell \(split 0, group 2\) is in no path.*by \(split, group\), in this order",
    ):
        stitch(folds, {**cells_of(folds), (0, 2): np.zeros(10)})


def test_a_cell_of_the_wrong_length_is_refused(folds: Folds) -> None:
    with pytest.raises(
        FlatoutError,
        match=r"\(split 1, group 2\) has shape \(9,\), but \(10,\) is needed: the bars 21..31",
    ):
        stitch(folds, {**cells_of(folds), (1, 2): np.zeros(9)})


def test_cells_with_other_leading_axes_are_refused(folds: Folds) -> None:
    with pytest.raises(
        FlatoutError, match=r"\(split 1, group 0\) has shape \(2, 10\), but \(10,\) is needed"
    ):
        stitch(folds, {**cells_of(folds), (1, 0): np.zeros((2, 10))})


def test_a_bare_number_is_no_cell(folds: Folds) -> None:
    with pytest.raises(
        FlatoutError, match=r"\(split 0, group 0\) has shape \(\), but \(10,\) is needed"
    ):
        stitch(folds, {**cells_of(folds), (0, 0): np.array(1.0)})
