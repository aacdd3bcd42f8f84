"""What makes no folds, or folds that leak: each refusal says what was given, what is needed and
what to do.
"""

import pytest
from fold_cases import KINDS, plain_folds

from flatout.errors import SettingsError
from flatout.folds.blocks import Block
from flatout.folds.splits import make_folds
from flatout.settings.study import FoldSettings


def refusal(
    n_bars: int = 1000,
    warm: int = 0,
    delay: int = 1,
    horizon: int = 1,
    lookback: int = 10,
    **settings,
) -> str:
    with pytest.raises(SettingsError) as caught:
        make_folds(
            FoldSettings(**{"hold_out": 0.0, **settings}), n_bars, warm, delay, horizon, lookback
        )
    return str(caught.value)


@pytest.mark.parametrize("kind", KINDS)
def test_a_purge_that_leaks_is_refused(kind: str) -> None:
    assert refusal(kind=kind, purge_bars=3, delay=1, horizon=3) == (
        "folds.purge_bars is 3, but orders fill 1 bars later and are rewarded over 3 more: "
        "training before a test block would see the test; give at least 4, or leave it out"
    )
    assert plain_folds(kind, 1000, 4, 10, purge_bars=4).purge == 4


@pytest.mark.parametrize("kind", KINDS)
def test_an_embargo_that_leaks_is_refused(kind: str) -> None:
    assert refusal(kind=kind, embargo_bars=9) == (
        "folds.embargo_bars is 9, but observations look back 10 bars: training after a test "
        "block would see the test; give at least 10, leave it out, or use features that look "
        "back less"
    )
    assert plain_folds(kind, 1000, 2, 10, embargo_bars=10).embargo == 10


def test_no_group_left_to_train_is_refused() -> None:
    message = refusal(groups=4, test_groups=4)
    assert message.startswith(
        "folds.test_groups is 4 of 4 groups, which leaves none to train on; give at most 3"
    )


@pytest.mark.parametrize("kind", ["walk_forward", "anchored"])
def test_no_group_left_to_test_is_refused(kind: str) -> None:
    message = refusal(kind=kind, groups=4, train_groups=4)
    assert message.startswith(
        "folds.train_groups is 4 of 4 groups, which leaves none to test; give at most 3"
    )


def test_thousands_of_splits_are_refused() -> None:
    message = refusal(groups=40, test_groups=20)
    assert (
        "folds.groups is 40 and folds.test_groups 20, which makes 137,846,528,820 splits" in message
    )
    assert "at most 10,000 are allowed: give fewer groups, or fewer test groups" in message


@pytest.mark.parametrize("kind", KINDS)
def test_groups_of_one_bar_are_refused(kind: str) -> None:
    message = refusal(n_bars=29, warm=10, kind=kind, groups=10)
    assert message == (
        "folds.groups is 10, but only 19 bars lie between bar 10, where the features are warm, "
        "and bar 29, the end or the hold-out: each group needs at least 2 bars; give fewer "
        "groups, more bars, or a smaller folds.hold_out"
    )


def test_features_that_never_get_warm_are_refused() -> None:
    assert "only 0 bars lie between bar 200" in refusal(n_bars=100, warm=200)


def test_a_split_without_training_is_refused_and_named() -> None:
    message = refusal(n_bars=40, kind="kfold", groups=2, lookback=19)
    assert message == (
        "split kfold 0 has no 2 neighbouring bars left to train on: of bars 0..40, 2 are purged "
        "before and 19 embargoed after each test block (0..20); give more bars, fewer groups, "
        "fewer test groups, or features that look back less"
    )
    assert plain_folds("kfold", 40, 2, 18, groups=2).splits[0].train == (Block(38, 40),)


def test_a_hold_out_of_no_bars_is_refused() -> None:
    assert refusal(n_bars=100, hold_out=0.012) == (
        "folds.hold_out is 0.012, which is 1 of 100 bars, but judging needs at least 2; give a "
        "larger share, more bars, or 0 for no hold-out"
    )


@pytest.mark.parametrize("wrong", [{"warm": -1}, {"delay": -1}, {"horizon": 0}, {"lookback": -1}])
def test_numbers_that_would_shrink_the_gaps_are_refused(wrong: dict[str, int]) -> None:
    message = refusal(**wrong)
    assert (
        "make no folds: give a reward horizon of at least 1, and 0 or more for the others"
        in message
    )
    assert str(*wrong.values()) in message
