"""What other studies count: by overlap, all of their trials or none."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from study_records import BARS, enter, record

from flatout.bars.synthetic import RandomWalk
from flatout.evaluation.daily_moves import list_daily_moves
from flatout.evaluation.other_studies import TOUCH, find_other_studies, weigh_overlaps

HOUR = 1 / 24


@pytest.mark.parametrize(
    ("what", "changes"),
    [
        ("one bar fewer", {"judged": (0, 85 - HOUR), "fingerprint": "beef"}),
        ("resampled", {"bar_seconds": 14_400, "fingerprint": "beef"}),
        ("re-rounded", {"fingerprint": "beef"}),
        ("other spelling", {"symbols": ("btc", "eth"), "fingerprint": "beef"}),
        ("one of two symbols", {"symbols": ("BTC", "LTC"), "fingerprint": "beef"}),
        ("the last tenth", {"judged": (80, 200), "fingerprint": "beef"}),
    ],
)
def test_500_trials_count_in_full(tmp_path: Path, what: str, changes: dict) -> None:
    enter(tmp_path, "first", 500)
    found = find_other_studies(enter(tmp_path, what, 20, **changes))
    assert (found.trials_ever, found.trials_of_others, found.own) == (520, 500, 20)
    assert 0 < found.judged_share <= 1


def test_renamed_symbols_count_and_mark_the_hold_out(tmp_path: Path) -> None:
    """A copy of a file under another name is the same market; one that merely has as many days is
    not.
    """
    walk = RandomWalk(n_bars=24 * 60, seed=1, symbols=("BTC", "ETH")).panel()
    moves = list_daily_moves(walk, walk.n_bars)
    renamed = {"BTC_CLEAN": moves["BTC"], "ETHUSDT.P": moves["ETH"]}
    copy = enter(tmp_path, "copy", 500, symbols=tuple(renamed), daily_moves=renamed)
    copy.note_opening("somebody")
    found = find_other_studies(enter(tmp_path, "mine", 20, daily_moves=moves))
    assert (found.trials_ever, found.judged_share) == (520, 1.0)
    assert found.sealed is not None and found.sealed.opened == 1.0
    other = {"BTC_CLEAN": moves["ETH"]}
    enter(tmp_path, "half", 100, symbols=tuple(other), daily_moves=other)
    halved = {
        Path(one.record.folder).name: one.share
        for one in find_other_studies(enter(tmp_path, "mine", 20, daily_moves=moves)).overlapping
    }
    assert halved["half"] == 0.5
    stranger = {
        "DOGE": list_daily_moves(
            RandomWalk(n_bars=24 * 60, seed=2, symbols=("X",)).panel(), 24 * 60
        )["X"]
    }
    enter(tmp_path, "stranger", 100, symbols=tuple(stranger), daily_moves=stranger)
    assert find_other_studies(enter(tmp_path, "mine", 20, daily_moves=moves)).trials_ever == 620


def test_the_share_that_others_saw_is_told(tmp_path: Path) -> None:
    enter(tmp_path, "first half", 10, judged=(0, 40), hold_out=None)
    enter(tmp_path, "one symbol", 10, judged=(20, 80), hold_out=None, symbols=("BTC",))
    found = find_other_studies(enter(tmp_path, "mine", 5, judged=(0, 80)))
    shares = {Path(other.record.folder).name: other.share for other in found.overlapping}
    assert shares == {"first half": 0.5, "one symbol": 0.375}
    assert [other.share for other in found.overlapping] == [0.5, 0.375]
    assert found.judged_share == 0.75


def test_a_touch_does_not_count(tmp_path: Path) -> None:
    """Half a day of 85 days is a touch; three of them together are none any more."""
    enter(tmp_path, "before", 500, judged=(-100, 0.5), hold_out=None)
    assert find_other_studies(enter(tmp_path, "mine", 5)).trials_ever == 5
    for name in ("second", "third"):
        enter(tmp_path, name, 100, judged=(84.5, 200), hold_out=None)
    assert find_other_studies(enter(tmp_path, "mine", 5)).trials_ever > 5


def test_many_small_studies_are_no_touch(tmp_path: Path) -> None:
    """Two hundred symbols one by one, and then all of them at once."""
    symbols = [f"COIN{k}" for k in range(200)]
    for symbol in symbols:
        enter(tmp_path, symbol, 10, symbols=(symbol,))
    found = find_other_studies(enter(tmp_path, "all", 5, symbols=symbols))
    assert found.trials_ever >= 5 + 10 * 197
    assert found.judged_share > 1 - 2 * TOUCH


def test_an_unopened_hold_out_was_not_seen(tmp_path: Path) -> None:
    first = enter(tmp_path, "first", 50)
    later = enter(tmp_path, "later", 5, judged=(85, 100), hold_out=(100, 120))
    assert find_other_studies(later).trials_ever == 5
    first.note_opening("winner, trial 3")
    assert find_other_studies(later).trials_ever == 55


def test_what_earlier_versions_counted_is_added_but_not_twice(tmp_path: Path) -> None:
    counts = {"/runs/gone": 500, "/runs/old": 40}
    (tmp_path / f"{BARS}.json").write_text(json.dumps({"fingerprint": BARS, "studies": counts}))
    enter(tmp_path, "old", 41, counted_as="/runs/old")
    mine = find_other_studies(enter(tmp_path, "mine", 5))
    assert (mine.noted_before, mine.trials_ever, mine.judged_share) == (500, 546, 1.0)
    other = find_other_studies(enter(tmp_path, "other", 5, fingerprint="beef"))
    assert other.trials_ever == 41 + 5 + 5


@given(
    st.lists(st.tuples(st.floats(0, 90), st.floats(0.001, 60), st.integers(1, 1000)), max_size=8),
)
def test_counting_never_falls_when_studies_are_added(
    studies: list[tuple[float, float, int]],
) -> None:
    others = [
        record(str(k), judged=(first, first + length), hold_out=None, trials=trials)
        for k, (first, length, trials) in enumerate(studies)
    ]
    mine = record("mine").judged_bars

    def count(some: list) -> int:
        return sum(other.record.trials for other in weigh_overlaps(mine, some) if other.counts)

    totals = [count(others[:n]) for n in range(len(others) + 1)]
    assert totals == sorted(totals)
    left_out = [other.share for other in weigh_overlaps(mine, others) if not other.counts]
    assert sum(left_out) <= TOUCH
    assert count(others[::-1]) == totals[-1]


def test_hold_outs_are_found_by_overlap(tmp_path: Path) -> None:
    mine = enter(tmp_path, "mine", 5)
    fresh = find_other_studies(mine).sealed
    assert fresh is not None
    assert (fresh.opened, fresh.openers, fresh.last, fresh.judged) == (0.0, 0, None, 0.0)
    look = enter(tmp_path, "half", 5, hold_out=(85, 92.5)).note_opening("winner")
    enter(tmp_path, "elsewhere", 5, hold_out=(100, 120)).note_opening("winner")
    enter(tmp_path, "never opened", 5)
    enter(tmp_path, "judge", 5, judged=(85, 88), hold_out=None)
    worn = find_other_studies(mine).sealed
    assert worn is not None
    assert (worn.opened, worn.openers, worn.last) == (0.5, 1, look.time)
    assert (worn.judged, worn.judges) == (0.2, 1)
    mine.note_opening("winner")
    enter(tmp_path, "too late", 5).note_opening("winner")
    assert find_other_studies(mine).sealed == worn


def test_without_a_hold_out_nothing_is_worn(tmp_path: Path) -> None:
    assert find_other_studies(enter(tmp_path, "mine", 5, hold_out=None)).sealed is None
