"""Experiments of an audit: do training bars keep their distance from bars that judge?"""

import importlib.util

import numpy as np

from flatout.bars.panel import Panel
from flatout.evaluation.finding import Finding
from flatout.evaluation.study_folds import FILL_DELAY, REWARD_HORIZON
from flatout.folds.blocks import list_rows
from flatout.folds.gaps import gap_lines
from flatout.folds.splits import Folds, Split
from flatout.market.market import recipe_of
from flatout.market.tape import VOLATILITY_BARS
from flatout.settings.tables import Settings

MOST_COMPARED = 100  # splits that are drawn a second time


def check_folds(panel: Panel, folds: Folds, settings: Settings) -> Finding:
    """Whether training stays away from what judges, bar by bar, and whether others draw the same
    splits.
    """
    name, lines = "folds keep their distance", tuple(gap_lines(folds))
    lookback = max(recipe_of(settings.features).count_warmup(panel), VOLATILITY_BARS)
    if folds.purge < FILL_DELAY + REWARD_HORIZON or folds.embargo < lookback:
        sentence = (
            f"purge {folds.purge} and embargo {folds.embargo} are shorter than what "
            f"reaches across a boundary"
        )
        return Finding(name, False, sentence, lines)
    for split in folds.splits:
        if near := find_too_near(split, folds):
            return Finding(
                name,
                False,
                f"split {split.name} trains on bar {near[0]}, too near to a test",
                lines,
            )
    same = equals_purgedcv(folds)
    if same is False:
        return Finding(name, False, "purgedcv would train on other bars", lines)
    also = "; purgedcv draws the same bars" if same else ""
    sentence = (
        f"{len(folds.splits)} splits, purge {folds.purge}, embargo {folds.embargo} bars, "
        f"no overlap{also}"
    )
    return Finding(name, True, sentence, lines)


def find_too_near(split: Split, folds: Folds) -> list[int]:
    """Training bars within reach of a test, of the hold-out, or before the features are warm."""
    forbidden = np.zeros(folds.n_bars, bool)
    forbidden[: folds.first] = True
    for block in split.test:
        forbidden[max(block.first - folds.purge, 0) : block.stop + folds.embargo] = True
    if folds.hold_out.length:
        forbidden[folds.cut - folds.purge :] = True
    rows = list_rows(split.train)
    return [int(row) for row in rows[forbidden[rows]]]


def equals_purgedcv(folds: Folds) -> bool | None:
    """Whether purgedcv trains on the same bars; None where it is not installed or means something
    else.
    """
    comparable = (
        folds.kind in ("cpcv", "kfold")
        and folds.embargo >= folds.purge
        and len(folds.splits) <= MOST_COMPARED
    )
    if not comparable or importlib.util.find_spec("purgedcv") is None:
        return None
    import purgedcv

    n_bars = folds.cut - folds.first
    minute = np.timedelta64(60, "s")
    time = np.datetime64("2000-01-01", "ns") + np.arange(n_bars) * minute
    theirs = purgedcv.CombinatorialPurgedCV(
        n_splits=len(folds.groups), n_test_groups=len(folds.splits[0].test_groups),
        prediction_times=time,
        evaluation_times=time + (folds.purge + 1) * minute, embargo_observations=folds.embargo,
    )  # fmt: skip
    # purgedcv knows no hold-out
    end = folds.cut - folds.purge if folds.hold_out.length else folds.cut
    for split, (train, test) in zip(folds.splits, theirs.split(np.zeros((n_bars, 1))), strict=True):
        bars = np.asarray(train) + folds.first
        bars = bars[bars < end]
        alone = (np.diff(bars, prepend=-2) > 1) & (np.diff(bars, append=folds.n_bars + 2) > 1)
        # a bar alone teaches nothing here
        if not np.array_equal(bars[~alone], list_rows(split.train)):
            return False
        if not np.array_equal(np.asarray(test) + folds.first, list_rows(split.test)):
            return False
    return True
