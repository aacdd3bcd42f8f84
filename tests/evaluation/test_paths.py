"""Out-of-sample paths: every bar of every path comes from an agent that had not learned from it."""

import math

import numpy as np
import pytest

from flatout.evaluation import metrics
from flatout.evaluation.paths import (
    finite,
    median_path,
    path_figures,
    path_returns,
    path_skill,
    path_sums,
    path_values,
)
from flatout.evaluation.skill import PARTS, find_judged, make_timeline
from flatout.folds.splits import Folds
from flatout.folds.stitch import judged_bars
from folds.fold_cases import plain_folds
from rounding import assert_close

FOLDS = {
    "cpcv": plain_folds("cpcv", 103, 2, 3, groups=4, test_groups=2),
    "kfold": plain_folds("kfold", 100, 2, 3, warm=7, groups=3),
    "walk": plain_folds("walk_forward", 100, 2, 3, groups=5, train_groups=2),
}
SEEDS = 3


def named(folds: Folds, seeds: int = SEEDS) -> np.ndarray:
    """(split, seed, block, bar) traces whose values tell split, seed and bar; NaN where a block is
    over.
    """
    blocks, bars = (
        max(len(s.test) for s in folds.splits),
        max(b.length for s in folds.splits for b in s.test),
    )
    found = np.full((len(folds.splits), seeds, blocks, bars), np.nan, np.float32)
    for s, split in enumerate(folds.splits):
        for k, block in enumerate(split.test):
            for seed in range(seeds):
                found[s, seed, k, : block.length] = s * 10_000 + seed * 1000 + np.arange(*block)
    return found


@pytest.mark.parametrize("name", FOLDS)
def test_a_path_holds_every_judged_bar_once_and_in_order(name: str) -> None:
    folds = FOLDS[name]
    values = path_values(folds, named(folds))
    assert values.shape == (SEEDS, len(folds.paths), len(judged_bars(folds)))
    for seed in range(SEEDS):
        for path in values[seed]:
            np.testing.assert_array_equal(path % 1000, judged_bars(folds))
            np.testing.assert_array_equal(path // 1000 % 10, seed)


@pytest.mark.parametrize("name", FOLDS)
def test_every_bar_comes_from_a_split_that_judges_it(name: str) -> None:
    folds = FOLDS[name]
    used = set()
    for path in path_values(folds, named(folds, 1))[0]:
        for value in path.astype(int):
            split, bar = value // 10_000, value % 1000
            assert any(block.first <= bar < block.stop for block in folds.splits[split].test)
            assert not any(block.first <= bar < block.stop for block in folds.splits[split].train)
            used.add((split, bar))
    assert len(used) == sum(
        block.length for split in folds.splits for block in split.test
    )  # nothing is left out


def returns_of(folds: Folds, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.where(
        np.isfinite(named(folds)), rng.normal(1e-3, 1e-2, named(folds).shape), np.nan
    ).astype(np.float32)


def test_returns_are_simple_ones() -> None:
    folds = FOLDS["cpcv"]
    log_return = returns_of(folds)
    returns = path_returns(folds, log_return)
    assert returns.dtype == np.float64
    assert_close(
        np.log1p(returns), path_values(folds, log_return), roundings=32, size=0.1, dtype=np.float64
    )


def test_sums_of_weights_follow_the_paths() -> None:
    """Each path has the sums of the blocks that it is made of, in the order of time."""
    folds = FOLDS["cpcv"]
    blocks = max(len(split.test) for split in folds.splits)
    rng = np.random.default_rng(0)
    sums = rng.normal(size=(len(folds.splits), SEEDS, blocks, PARTS, 2))
    found = path_sums(folds, sums)
    assert found.shape == (SEEDS, len(folds.paths), PARTS * len(folds.judged), 2)
    for p, path in enumerate(folds.paths):
        for place, (group, split) in enumerate(path):
            block = folds.splits[split].test_groups.index(group)
            np.testing.assert_array_equal(
                found[:, p, PARTS * place : PARTS * (place + 1)], sums[split, :, block]
            )


def test_skill_of_paths_that_hold_nothing_is_what_they_earn() -> None:
    folds = FOLDS["cpcv"]
    log_return, rng = returns_of(folds), np.random.default_rng(1)
    closes = np.exp(np.cumsum(rng.normal(0, 0.01, (folds.n_bars, 2)), axis=0))
    timeline = make_timeline(closes, [folds.groups[group] for group in folds.judged])
    blocks = max(len(split.test) for split in folds.splits)
    nothing = np.zeros((len(folds.splits), SEEDS, blocks, PARTS, 2))
    judged, earned = find_judged(timeline), path_returns(folds, log_return)
    found = path_skill(folds, log_return, nothing, timeline)
    np.testing.assert_array_equal(found, np.where(judged, earned, 0.0))
    held = path_skill(folds, log_return, nothing + 1.0, timeline)
    assert (held != earned)[..., judged].any()


def test_figures_are_those_of_each_path_seeds_one_after_another() -> None:
    returns = path_returns(FOLDS["cpcv"], returns_of(FOLDS["cpcv"]))
    figures = path_figures(returns, 8760.0)
    for seed in range(SEEDS):
        for path in range(3):
            alone = metrics.summarise(returns[seed, path], 8760.0)
            for name in figures._fields:
                found, expected = getattr(figures, name)[seed * 3 + path], getattr(alone, name)
                assert_close(found, expected, roundings=10_000, size=abs(expected) + 1, name=name)
    assert figures.median_sharpe == np.median(figures.sharpe)
    rows = figures.rows()
    assert len(rows) == 9
    assert rows[4] == {name: float(getattr(figures, name)[4]) for name in figures._fields}


def test_figures_that_do_not_exist_are_none() -> None:
    rising = np.full((1, 1, 10), 0.01)
    [row] = path_figures(rising, 8760.0).rows()
    assert row["sharpe"] is None  # a ratio to no risk
    assert row["total_return"] == pytest.approx(1.01**10 - 1)


@pytest.mark.parametrize(
    ("order", "expected"), [([3, 1, 2], 2), ([4, 1, 3, 2], 3), ([5.0], 0), ([1, 1, 1], 1)]
)
def test_the_median_path_is_one_of_them(order: list[float], expected: int) -> None:
    """The lower one of two in the middle."""
    noise = np.tile([0.01, -0.01], 20)
    returns = np.stack([noise + 1e-3 * rank for rank in order])[:, None]
    assert median_path(returns, 8760.0) == expected
    sharpes = np.sort(path_figures(returns, 8760.0).sharpe)
    assert path_figures(returns, 8760.0).sharpe[expected] == sharpes[(len(order) - 1) // 2]


def test_json_has_no_infinity() -> None:
    assert finite(0.5) == 0.5
    for value in (math.inf, -math.inf, math.nan, None):
        assert finite(value) is None
