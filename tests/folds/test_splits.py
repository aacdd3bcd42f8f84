"""Folds: the rule of training bars, groups, paths, gaps and the hold-out."""

from math import comb

import numpy as np
from fold_cases import (
    KINDS,
    Request,
    any_folds,
    bars_of,
    plain_folds,
    requests,
    split_bars,
    training_bars,
    window_of,
)
from hypothesis import given
from hypothesis import strategies as st

from flatout.errors import SettingsError
from flatout.folds.blocks import Block, merge
from flatout.folds.gaps import Gap, gap_lines, measure_gaps
from flatout.folds.splits import Folds, final_block, make_folds
from flatout.settings.study import FoldSettings


@given(requests())
def test_training_bars_follow_the_rule_bar_by_bar(request_: Request) -> None:
    """Also: folds are refused exactly when the rule leaves some split nothing to learn from."""
    settings, n_bars, warm, fill_delay, horizon, lookback = request_
    purge = fill_delay + horizon if settings.purge_bars is None else settings.purge_bars
    embargo = lookback if settings.embargo_bars is None else settings.embargo_bars
    cut = n_bars - round(settings.hold_out * n_bars)
    groups = np.array_split(np.arange(warm, cut), settings.groups)

    def expected(test_groups: tuple[int, ...]) -> list[int]:
        tests = {int(bar) for group in test_groups for bar in groups[group]}
        return training_bars(
            window_of(settings, groups, test_groups), tests, range(cut, n_bars), purge, embargo
        )

    try:
        folds = make_folds(*request_)
    except SettingsError as error:
        assert "bars left to train on" in str(error)
        name = str(error).split()[2]
        assert expected(tuple(map(int, name.split("+")))) == []
    else:
        assert (folds.purge, folds.embargo, folds.cut) == (purge, embargo, cut)
        for split in folds.splits:
            assert bars_of(split.train) == expected(split.test_groups) != []


@given(any_folds())
def test_no_training_bar_is_close_to_a_test_block(folds: Folds) -> None:
    """Purge and embargo hold for each block on its own."""
    for split in folds.splits:
        train = np.array(bars_of(split.train))
        for block in split.test:
            assert not ((train >= block.first - folds.purge) & (train < block.stop)).any()
            assert not ((train >= block.first) & (train < block.stop + folds.embargo)).any()


@given(requests())
def test_no_judged_bar_is_in_anything_that_training_touches(request_: Request) -> None:
    """Observation, fill and reward of a training bar: none of them on a bar that judges."""
    try:
        folds = make_folds(*request_)
    except SettingsError:
        return
    ahead = request_.fill_delay + request_.reward_horizon
    for split in folds.splits:
        judged = {*bars_of(split.test), *range(folds.cut, folds.n_bars)}
        touched = {
            b
            for bar in bars_of(split.train)
            for b in range(bar - request_.lookback, bar + ahead + 1)
        }
        assert judged.isdisjoint(touched)


@given(any_folds())
def test_train_and_test_are_apart_and_inside(folds: Folds) -> None:
    for split in folds.splits:
        train, test = split_bars(split)
        assert set(train).isdisjoint(test)
        assert len(set(test)) == len(test)
        assert folds.first <= min(train + test) <= max(train + test) < folds.cut


@given(any_folds())
def test_training_blocks_are_maximal_and_long_enough_to_decide(folds: Folds) -> None:
    for split in folds.splits:
        assert split.train == merge(split.train)
        assert min(block.length for block in split.train) >= 2


@given(any_folds())
def test_groups_are_those_of_array_split(folds: Folds) -> None:
    groups = np.array_split(np.arange(folds.first, folds.cut), len(folds.groups))
    assert [bars_of([group]) for group in folds.groups] == [list(group) for group in groups]


@given(any_folds())
def test_each_test_group_is_a_block_of_its_own(folds: Folds) -> None:
    for split in folds.splits:
        assert split.test == tuple(folds.groups[group] for group in split.test_groups)
        assert list(split.test_groups) == sorted(set(split.test_groups))


@given(any_folds(["cpcv", "kfold"]), st.data())
def test_bars_without_a_test_nearby_all_teach(folds: Folds, data: st.DataObject) -> None:
    """Training, tests and gaps make up all bars; what is missing besides is at most single bars."""
    split = data.draw(st.sampled_from(folds.splits))
    train, test = split_bars(split)
    dropped = set(range(folds.first, folds.cut)) - set(train) - set(test)
    near = {
        bar
        for block in split.test
        for bar in range(block.first - folds.purge, block.stop + folds.embargo)
    }
    if folds.hold_out.length:
        near |= set(range(folds.cut - folds.purge, folds.cut))
    alone = dropped - near
    assert all(
        bar - 1 not in alone | set(train) and bar + 1 not in alone | set(train) for bar in alone
    )


@given(any_folds(["cpcv"]))
def test_every_bar_is_judged_equally_often_and_every_path_judges_all(folds: Folds) -> None:
    n, k = len(folds.groups), len(folds.splits[0].test_groups)
    paths = comb(n, k) * k // n
    assert len(folds.splits) == comb(n, k)
    assert len({split.test_groups for split in folds.splits}) == comb(n, k)
    assert len(folds.paths) == paths
    bars, times = np.unique(
        [bar for split in folds.splits for bar in bars_of(split.test)], return_counts=True
    )
    assert list(bars) == list(range(folds.first, folds.cut))
    assert set(times) == {paths}


@given(any_folds())
def test_paths_judge_every_judged_bar_once_and_use_every_cell_once(folds: Folds) -> None:
    judged = {bar for split in folds.splits for bar in bars_of(split.test)}
    for path in folds.paths:
        assert bars_of(folds.groups[group] for group, _ in path) == sorted(judged)
    used = sorted((split, group) for path in folds.paths for group, split in path)
    assert used == [
        (s, group) for s, split in enumerate(folds.splits) for group in split.test_groups
    ]


@given(any_folds(["kfold", "walk_forward", "anchored"]))
def test_all_but_cpcv_have_one_path(folds: Folds) -> None:
    assert len(folds.paths) == 1
    assert folds.judged == tuple(range(len(folds.groups) - len(folds.splits), len(folds.groups)))


@given(any_folds(["walk_forward", "anchored"]))
def test_walking_forward_never_learns_from_the_future(folds: Folds) -> None:
    for split in folds.splits:
        assert max(bars_of(split.train)) + folds.purge < min(bars_of(split.test))


def test_walking_forward_rolls_and_anchored_grows() -> None:
    rolling = plain_folds("walk_forward", 52, 2, 3, warm=2, groups=5, train_groups=2)
    assert [(split.train, split.test) for split in rolling.splits] == [
        ((Block(2, 20),), (Block(22, 32),)),
        ((Block(12, 30),), (Block(32, 42),)),
        ((Block(22, 40),), (Block(42, 52),)),
    ]
    growing = plain_folds("anchored", 52, 2, 3, warm=2, groups=5, train_groups=2)
    assert [split.train for split in growing.splits] == [
        (Block(2, 20),),
        (Block(2, 30),),
        (Block(2, 40),),
    ]
    assert [split.test for split in growing.splits] == [split.test for split in rolling.splits]


def test_names_say_what_is_tested() -> None:
    names = {
        kind: [s.name for s in plain_folds(kind, 90, 2, 3, groups=3, test_groups=2).splits]
        for kind in KINDS
    }
    assert names == {
        "cpcv": ["cpcv 0+1", "cpcv 0+2", "cpcv 1+2"],
        "kfold": ["kfold 0", "kfold 1", "kfold 2"],
        "walk_forward": ["walk 2"],
        "anchored": ["anchored 2"],
    }


def test_paths_by_hand() -> None:
    """Splits in order: 0+1, 0+2, 0+3, 1+2, 1+3, 2+3."""
    folds = plain_folds("cpcv", 120, 2, 3, groups=4, test_groups=2)
    assert folds.paths == (
        ((0, 0), (1, 0), (2, 1), (3, 2)),
        ((0, 1), (1, 3), (2, 3), (3, 4)),
        ((0, 2), (1, 4), (2, 5), (3, 5)),
    )


def test_settings_may_widen_the_gaps() -> None:
    folds = plain_folds("kfold", 90, 2, 3, groups=3, purge_bars=5, embargo_bars=9)
    assert folds.splits[1].train == (Block(0, 25), Block(69, 90))


def test_test_groups_matter_to_cpcv_only() -> None:
    assert len(plain_folds("kfold", 90, 2, 3, groups=2, test_groups=2).splits) == 2


# the hold-out


def test_the_hold_out_is_the_rounded_share_at_the_end() -> None:
    folds = make_folds(FoldSettings(kind="kfold", hold_out=0.15), 1010, 10, 1, 1, 5)
    assert folds.cut == 1010 - 152  # 151.5
    assert folds.hold_out == Block(858, 1010)
    assert folds.groups[-1].stop == 858


@given(any_folds())
def test_training_stays_away_from_the_hold_out(folds: Folds) -> None:
    last = folds.cut - folds.purge if folds.cut < folds.n_bars else folds.cut
    assert final_block(folds) == Block(folds.first, last)
    assert all(split.train[-1].stop <= last for split in folds.splits)


def test_purge_before_the_hold_out_by_hand() -> None:
    sealed = make_folds(FoldSettings(kind="kfold", groups=3, hold_out=0.1), 100, 0, 1, 1, 4)
    assert sealed.splits[0].train == (Block(34, 88),)
    assert final_block(sealed) == Block(0, 88)
    unsealed = make_folds(FoldSettings(kind="kfold", groups=3, hold_out=0), 90, 0, 1, 1, 4)
    assert unsealed.splits[0].train == (Block(34, 90),)
    assert final_block(unsealed) == Block(0, 90)


# gaps


def test_gaps_by_hand() -> None:
    folds = make_folds(FoldSettings(groups=4, test_groups=2, hold_out=0.2), 100, 0, 1, 1, 5)
    found = {
        name: [gap[1:] for gap in measure_gaps(folds) if gap.split == name]
        for name in ("cpcv 0+1", "cpcv 0+2", "cpcv 1+3")
    }
    assert found == {
        "cpcv 0+1": [(Block(0, 40), None, 5), (Block(80, 100), 2, None)],
        "cpcv 0+2": [(Block(0, 20), None, 5), (Block(40, 60), 2, 5), (Block(80, 100), 2, None)],
        "cpcv 1+3": [(Block(20, 40), 2, 5), (Block(60, 80), 2, None)],
    }


@given(any_folds())
def test_gaps_are_purge_and_embargo_or_there_is_no_training_next(folds: Folds) -> None:
    found = measure_gaps(folds)
    for split in folds.splits:
        mine = [gap for gap in found if gap.split == split.name]
        assert [gap.test for gap in mine if gap.test != folds.hold_out] == list(merge(split.test))
        befores = [gap.test.first - gap.before for gap in mine if gap.before is not None]
        afters = [gap.test.stop + gap.after for gap in mine if gap.after is not None]
        assert set(befores) <= {block.stop for block in split.train}
        assert set(afters) <= {block.first for block in split.train}
        # each end of a training block is such a boundary, but for the ends of all bars
        assert {block.stop for block in split.train} - set(befores) <= {folds.cut}
        assert len({block.first for block in split.train} - set(afters)) <= 1
    assert {gap.before for gap in found} <= {None, folds.purge}
    assert {gap.after for gap in found} <= {None, folds.embargo}


def test_gap_where_training_between_two_tests_was_dropped() -> None:
    """Group 1 is too short for purge and embargo: nothing teaches between the tests, so no gap is
    claimed.
    """
    folds = plain_folds("cpcv", 40, 2, 8, groups=4, test_groups=2)
    assert [gap for gap in measure_gaps(folds) if gap.split == "cpcv 0+2"] == [
        Gap("cpcv 0+2", Block(0, 10), None, None),
        Gap("cpcv 0+2", Block(20, 30), None, 8),
    ]


def test_gap_lines_stand_in_columns() -> None:
    folds = make_folds(FoldSettings(groups=3, test_groups=1, hold_out=0.1), 1100, 90, 1, 1, 48)
    assert gap_lines(folds) == [
        "cpcv 0                  |          | test 90..390       | 48 embargoed | train 438..988",
        "cpcv 0   train 438..988 | 2 purged | hold-out 990..1100",
        "cpcv 1   train 90..388  | 2 purged | test 390..690      | 48 embargoed | train 738..988",
        "cpcv 1   train 738..988 | 2 purged | hold-out 990..1100",
        "cpcv 2   train 90..688  | 2 purged | test 690..990",
    ]
    assert gap_lines(plain_folds("walk_forward", 400, 2, 48, groups=4)) == [
        "walk 2   train 0..198   | 2 purged | test 200..300",
        "walk 3   train 100..298 | 2 purged | test 300..400",
    ]
