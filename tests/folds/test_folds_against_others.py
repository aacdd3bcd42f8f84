"""The same bars as skfolio, purgedcv and scikit-learn, and exactly how they differ where they do.

Bars dropped at a test block, for purge p and embargo e as each of them means it:

                                 before   after
    flatout                      p        e
    skfolio                      p        p + e            purges on both sides
    purgedcv, in observations    p        max(p, e)        purges on both sides, the embargo counts
                                 from the block's end
    purgedcv, as a duration      p        p + 1 + e        counts from the last label's end, both
                                 ends included

In purgedcv p is the number of bars ahead that a label reaches: a label of bar t is the interval [t,
t + p + 1). The purge after a test block guards against test labels that reach past it; a test
block's rewards end with its bars here.
"""

from itertools import product

import numpy as np
import pandas as pd
import purgedcv
import pytest
from fold_cases import bars_of, plain_folds
from skfolio import model_selection as skfolio
from sklearn.model_selection import KFold, TimeSeriesSplit

from flatout.folds.splits import Folds, make_folds
from flatout.folds.stitch import stitch
from flatout.settings.study import FoldSettings

Indices = list[
    tuple[list[int], list[list[int]]]
]  # per split: train bars, and the bars of each test group

GRID = [
    (n, k, p, e) for n in (3, 4, 6) for k in range(2, n) for p, e in product((1, 2, 4), (0, 1, 5))
]
# bars of a group: some bars, and never one alone, teach between two tests on the whole grid
SIZE = 17


def ours(folds: Folds) -> Indices:
    return [
        (bars_of(split.train), [bars_of([block]) for block in split.test]) for split in folds.splits
    ]


def whole(indices: Indices) -> list[tuple[list[int], list[int]]]:
    """Test groups of a split put together."""
    return [(train, [bar for test in tests for bar in test]) for train, tests in indices]


def lists(splits) -> list[tuple[list[int], list[int]]]:
    return [(list(train), list(test)) for train, test in splits]


def by_skfolio(n_bars: int, n: int, k: int, purge: int, embargo: int) -> Indices:
    cv = skfolio.CombinatorialPurgedCV(
        n_folds=n, n_test_folds=k, purged_size=purge, embargo_size=embargo
    )
    return [
        (list(train), [list(test) for test in tests])
        for train, tests in cv.split(np.zeros((n_bars, 1)))
    ]


def labels(n_bars: int, purge: int) -> dict[str, pd.Series]:
    """Times for purgedcv: each label reaches `purge` bars ahead."""
    start = pd.Series(pd.date_range("2024-01-01", periods=n_bars, freq="D"))
    return {"prediction_times": start, "evaluation_times": start + pd.Timedelta(days=purge + 1)}


def by_purgedcv(
    n_bars: int, n: int, k: int, purge: int, **embargo
) -> list[tuple[list[int], list[int]]]:
    cv = purgedcv.CombinatorialPurgedCV(
        n_splits=n, n_test_groups=k, **labels(n_bars, purge), **embargo
    )
    return lists(cv.split(np.zeros((n_bars, 1))))


# combinatorial, against skfolio


@pytest.mark.parametrize(("n", "k", "purge", "embargo"), GRID)
def test_cpcv_equals_skfolio(n: int, k: int, purge: int, embargo: int) -> None:
    """On bars that the groups divide, with skfolio's purge on both sides as part of our embargo."""
    folds = plain_folds("cpcv", n * SIZE, purge, purge + embargo, groups=n, test_groups=k)
    assert ours(folds) == by_skfolio(n * SIZE, n, k, purge, embargo)


@pytest.mark.parametrize(("n", "k", "purge", "embargo"), GRID)
def test_skfolio_purges_after_a_test_too(n: int, k: int, purge: int, embargo: int) -> None:
    """With the same numbers skfolio drops `purge` bars more after each run of tests, and nothing
    else.
    """
    folds = plain_folds("cpcv", n * SIZE, purge, embargo, groups=n, test_groups=k)
    for (train, tests), (theirs, _) in zip(
        ours(folds), by_skfolio(n * SIZE, n, k, purge, embargo), strict=True
    ):
        stops = [test[-1] + 1 for test in tests]
        more = {bar for stop in stops for bar in range(stop + embargo, stop + embargo + purge)}
        assert theirs == [bar for bar in train if bar not in more]
        followed = [
            stop for stop in stops if stop < n * SIZE and all(stop != test[0] for test in tests)
        ]
        assert len(train) - len(theirs) == purge * len(followed)


@pytest.mark.parametrize("rest", [1, 2, 4])
def test_skfolio_leaves_the_rest_to_the_last_group(rest: int) -> None:
    """Ours gives the first groups one bar more each, as np.array_split and scikit-learn do."""
    n, n_bars = 5, 5 * SIZE + rest
    theirs = {
        g: len(bars)
        for _, tests in by_skfolio(n_bars, n, 2, 1, 1)
        for bars in tests
        for g in [bars[0] // SIZE]
    }
    assert list(theirs.values()) == [SIZE] * (n - 1) + [SIZE + rest]
    lengths = [group.length for group in plain_folds("cpcv", n_bars, 1, 2, groups=n).groups]
    assert lengths == [SIZE + 1] * rest + [SIZE] * (n - rest)
    assert lengths == [len(test) for _, test in KFold(n).split(np.zeros(n_bars))]


@pytest.mark.parametrize(("n", "k"), [(n, k) for n in range(3, 9) for k in range(2, n)])
def test_paths_equal_skfolio(n: int, k: int) -> None:
    folds = plain_folds("cpcv", n * SIZE, 1, 1, groups=n, test_groups=k)
    theirs = skfolio.CombinatorialPurgedCV(n_folds=n, n_test_folds=k)
    assert len(folds.paths) == theirs.n_test_paths
    assert [
        [split for _, split in path] for path in folds.paths
    ] == theirs.recombined_paths.T.tolist()


# combinatorial, against purgedcv


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize(("purge", "embargo"), [(1, 1), (1, 5), (2, 2), (2, 9), (4, 4), (4, 8)])
@pytest.mark.parametrize("rest", [0, 1, 4])
def test_cpcv_equals_purgedcv(k: int, purge: int, embargo: int, rest: int) -> None:
    """With the same numbers, if the embargo is no shorter than the purge; groups differ by a bar as
    ours do.
    """
    n_bars = 5 * SIZE + rest
    folds = plain_folds("cpcv", n_bars, purge, embargo, groups=5, test_groups=k)
    assert whole(ours(folds)) == by_purgedcv(n_bars, 5, k, purge, embargo_observations=embargo)


@pytest.mark.parametrize(("purge", "embargo"), [(1, 0), (2, 0), (2, 1), (4, 3)])
def test_purgedcv_purges_after_a_test_too(purge: int, embargo: int) -> None:
    """An embargo shorter than the purge changes nothing there: `purge` bars are dropped after a
    test anyway.
    """
    theirs = by_purgedcv(5 * SIZE, 5, 2, purge, embargo_observations=embargo)
    assert theirs == whole(ours(plain_folds("cpcv", 5 * SIZE, purge, purge, groups=5)))
    assert theirs != whole(ours(plain_folds("cpcv", 5 * SIZE, purge, embargo, groups=5)))


@pytest.mark.parametrize(("purge", "embargo"), [(1, 1), (2, 3), (4, 5)])
def test_an_embargo_as_a_duration_begins_after_the_last_label_in_purgedcv(
    purge: int, embargo: int
) -> None:
    """It comes on top of the purge there, and its closed interval counts one bar more."""
    theirs = by_purgedcv(5 * SIZE, 5, 2, purge, embargo=pd.Timedelta(days=embargo))
    assert theirs == whole(
        ours(plain_folds("cpcv", 5 * SIZE, purge, purge + 1 + embargo, groups=5))
    )


def test_a_single_training_bar_is_dropped_by_us_only() -> None:
    """Purge 3 and embargo 8 leave one bar of 12 between two tests: too short to decide and see what
    came of it.
    """
    folds = ours(plain_folds("cpcv", 48, 3, 8, groups=4))
    skfolios, purgedcvs = (
        by_skfolio(48, 4, 2, 3, 5),
        by_purgedcv(48, 4, 2, 3, embargo_observations=8),
    )
    alone = [
        sorted(set(theirs) - set(train))
        for (train, _), (theirs, _) in zip(folds, skfolios, strict=True)
    ]
    assert alone == [[], [20], [], [], [32], []]  # between tests 0 and 2, and between 1 and 3
    assert [train for train, _ in skfolios] == [train for train, _ in purgedcvs]
    assert all(
        set(train) <= set(theirs) for (train, _), (theirs, _) in zip(folds, skfolios, strict=True)
    )


def test_warm_up_moves_all_bars_and_a_hold_out_only_ends_training_earlier() -> None:
    folds = make_folds(
        FoldSettings(groups=5, hold_out=0.2), 125, 12, 1, 1, 6
    )  # 12 warm, 88 in groups, 25 sealed
    theirs = by_purgedcv(88, 5, 2, 2, embargo_observations=6)
    for (train, test), (expected, judged) in zip(whole(ours(folds)), theirs, strict=True):
        assert test == [bar + 12 for bar in judged]
        assert train == [bar + 12 for bar in expected if bar + 12 < 98]


@pytest.mark.parametrize(("n", "k"), [(2, 1), (4, 2), (5, 3), (6, 2)])
def test_stitching_equals_purgedcv(n: int, k: int) -> None:
    folds = plain_folds("cpcv", n * SIZE + 1, 1, 2, groups=n, test_groups=k)
    random = np.random.default_rng(n)
    cells = {
        (s, g): random.normal(size=folds.groups[g].length)
        for s, x in enumerate(folds.splits)
        for g in x.test_groups
    }
    theirs = purgedcv.CombinatorialPurgedCV(
        n_splits=n, n_test_groups=k, **labels(folds.n_bars, 1)
    ).reconstruct_paths(
        [
            np.concatenate([cells[s, g] for g in split.test_groups])
            for s, split in enumerate(folds.splits)
        ]
    )
    np.testing.assert_array_equal(stitch(folds, cells), theirs)


# k-fold


@pytest.mark.parametrize("n", [2, 3, 5])
@pytest.mark.parametrize(("purge", "embargo", "rest"), [(1, 1, 0), (2, 6, 1), (3, 9, 1)])
def test_kfold_equals_purgedcv(n: int, purge: int, embargo: int, rest: int) -> None:
    n_bars = n * SIZE + rest
    cv = purgedcv.PurgedKFold(n, **labels(n_bars, purge), embargo_observations=embargo)
    assert whole(ours(plain_folds("kfold", n_bars, purge, embargo, groups=n))) == lists(
        cv.split(np.zeros(n_bars))
    )


# walking forward: they count bars, we count groups

WALKS = [
    (n, t, p, rest) for n, t in ((3, 1), (4, 2), (5, 1), (6, 3)) for p in (1, 3) for rest in (0, 1)
]


@pytest.mark.parametrize(("n", "trains", "purge", "rest"), WALKS)
def test_anchored_equals_scikit_learn_and_purgedcv(
    n: int, trains: int, purge: int, rest: int
) -> None:
    """Longer groups come first, so as long as they are in the first training all tests are equally
    long.
    """
    n_bars = n * SIZE + rest
    found = whole(ours(plain_folds("anchored", n_bars, purge, 5, groups=n, train_groups=trains)))
    sklearns = TimeSeriesSplit(n - trains, test_size=SIZE, gap=purge)
    assert found == lists(sklearns.split(np.zeros(n_bars)))
    purgedcvs = purgedcv.WalkForwardSplit(n - trains, SIZE, **labels(n_bars, purge))
    assert found == lists(purgedcvs.split(np.zeros(n_bars)))


@pytest.mark.parametrize(("n", "trains", "purge", "rest"), [walk for walk in WALKS if not walk[-1]])
def test_walk_forward_equals_others_that_count_after_the_purge(
    n: int, trains: int, purge: int, rest: int
) -> None:
    """Their training length is what the purge leaves; ours is whole groups, from which the purge is
    then taken.
    """
    n_bars, left = n * SIZE, trains * SIZE - purge
    found = whole(
        ours(plain_folds("walk_forward", n_bars, purge, 5, groups=n, train_groups=trains))
    )
    sklearns = TimeSeriesSplit(n - trains, test_size=SIZE, gap=purge, max_train_size=left)
    assert found == lists(sklearns.split(np.zeros(n_bars)))
    purgedcvs = purgedcv.WalkForwardSplit(
        n - trains, SIZE, train_size=left, window="sliding", **labels(n_bars, purge)
    )
    assert found == lists(purgedcvs.split(np.zeros(n_bars)))
    skfolios = skfolio.WalkForward(test_size=SIZE, train_size=left, purged_size=purge)
    assert found == lists(skfolios.split(np.zeros((n_bars, 1))))


def test_others_reach_further_back_to_make_up_for_the_purge() -> None:
    """With the same training length they begin `purge` bars earlier, except where there are no
    earlier bars.
    """
    found = whole(ours(plain_folds("walk_forward", 5 * SIZE, 3, 5, groups=5, train_groups=2)))
    theirs = lists(
        TimeSeriesSplit(3, test_size=SIZE, gap=3, max_train_size=2 * SIZE).split(np.zeros(5 * SIZE))
    )
    more = [sorted(set(b) - set(a)) for (a, _), (b, _) in zip(found, theirs, strict=True)]
    assert more == [[], [14, 15, 16], [31, 32, 33]]
    assert all(set(a) <= set(b) for (a, _), (b, _) in zip(found, theirs, strict=True))
