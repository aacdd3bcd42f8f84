"""Joins what each split earned on its test groups into paths: histories that are out of sample at
every bar.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from flatout.arrays import NumpyArray
from flatout.errors import FlatoutError
from flatout.folds.splits import Folds

Cells = Mapping[tuple[int, int], NumpyArray]  # by (split, group); (..., bar of the group)


def stitch(folds: Folds, cells: Cells) -> NumpyArray:
    """The cells of each path in time order: (..., path, bar), in whatever unit the cells have.
    Leading axes of the cells are free and stay in front; the bars are those of `judged_bars`.
    """
    refuse_cells(folds, cells)
    paths = [
        np.concatenate([cells[split, group] for group, split in path], axis=-1)
        for path in folds.paths
    ]
    return np.stack(paths, axis=-2)


def judged_bars(folds: Folds) -> NDArray[np.int64]:
    """The row numbers of the bars that every path consists of, in time order."""
    return np.concatenate(
        [np.arange(*folds.groups[group], dtype=np.int64) for group in folds.judged]
    )


def refuse_cells(folds: Folds, cells: Cells) -> None:
    """Refuse cells that are missing, that no path uses, or whose shapes do not fit."""
    needed = [(s, group) for s, split in enumerate(folds.splits) for group in split.test_groups]
    if missing := [cell for cell in needed if cell not in cells]:
        raise FlatoutError(
            f"{len(missing)} of {len(needed)} cells are missing, first (split {missing[0][0]}, "
            f"group {missing[0][1]}): give one for each test group of each split"
        )
    if unknown := sorted(set(cells) - set(needed)):
        raise FlatoutError(
            f"cell (split {unknown[0][0]}, group {unknown[0][1]}) is in no path, as no such split "
            "tests that group: give cells by (split, group), in this order"
        )
    leading = cells[needed[0]].shape[:-1]
    for split, group in needed:
        expected = (*leading, folds.groups[group].length)
        if (shape := cells[split, group].shape) != expected:
            raise FlatoutError(
                f"cell (split {split}, group {group}) has shape {shape}, but {expected} is "
                f"needed: the bars {folds.groups[group]} of its group on the last axis, and the "
                "leading axes of the first cell"
            )
