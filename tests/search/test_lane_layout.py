"""Lanes: every split and seed of every trial has one, and the workers share them evenly."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flatout.search.lane_layout import LANE_BATCHES, USUAL_LANES, LaneSlot, Layout, make_layout

sizes = st.integers(1, 9)
layouts = st.builds(
    Layout, places=st.integers(1, 20), splits=sizes, seeds=st.integers(1, 4), workers=sizes
)


def slots(layout: Layout) -> dict[tuple[int, int], LaneSlot | None]:
    """By worker and lane."""
    return {
        (w, k): layout.slot_of(w, k) for w in range(layout.workers) for k in range(layout.lanes)
    }


@given(layouts)
def test_every_split_and_seed_of_every_trial_has_one_lane(layout: Layout) -> None:
    taken = [slot for slot in slots(layout).values() if slot]
    everybody = {
        LaneSlot(place, split, seed)
        for place in range(layout.places)
        for split in range(layout.splits)
        for seed in range(layout.seeds)
    }
    assert set(taken) == everybody
    assert len(taken) == len(everybody) == layout.places * layout.per_trial


@given(layouts)
def test_slots_and_lanes_are_inverse(layout: Layout) -> None:
    for (worker, lane), slot in slots(layout).items():
        if slot:
            assert layout.lane_of(slot) == (worker, lane)
    for place in range(layout.places):
        for split in range(layout.splits):
            for seed in range(layout.seeds):
                worker, lane = layout.lane_of(LaneSlot(place, split, seed))
                assert worker < layout.workers
                assert lane < layout.lanes
                assert layout.slot_of(worker, lane) == LaneSlot(place, split, seed)


@given(layouts)
def test_workers_have_equal_shares_of_all_and_of_each_trial(layout: Layout) -> None:
    """They differ by one lane at most; only a worker's last lane stays empty."""
    found = slots(layout)
    counts = Counter(dict.fromkeys(range(layout.workers), 0))
    by_place = {place: counts.copy() for place in range(layout.places)}
    for (worker, lane), slot in found.items():
        if slot:
            counts[worker] += 1
            by_place[slot.place][worker] += 1
        else:
            assert lane == layout.lanes - 1
    for shares in (counts, *by_place.values()):
        assert max(shares.values()) - min(shares.values()) <= 1


@pytest.mark.parametrize("batch", [None, 1, 5])
@given(splits=sizes, seeds=st.integers(1, 4), workers=sizes, trials=st.integers(1, 500))
def test_there_are_no_more_places_than_trials(
    batch: int | None, splits: int, seeds: int, workers: int, trials: int
) -> None:
    layout = make_layout(splits, seeds, workers, trials, batch)
    assert layout == Layout(layout.places, splits, seeds, workers)
    assert layout.places >= 1
    assert (
        layout.places - 1
    ) * LANE_BATCHES < trials  # no place of both batches stays empty from the start
    if batch:
        assert layout.places == min(batch, -(-trials // LANE_BATCHES))
    elif layout.places * LANE_BATCHES < trials:
        assert layout.lanes >= USUAL_LANES  # the workers are full


def test_a_small_layout_in_full() -> None:
    layout = Layout(places=2, splits=3, seeds=1, workers=2)
    assert layout.lanes == 3
    assert [layout.slot_of(0, lane) for lane in range(3)] == [
        LaneSlot(0, 0, 0),
        LaneSlot(0, 2, 0),
        LaneSlot(1, 1, 0),
    ]
    assert [layout.slot_of(1, lane) for lane in range(3)] == [
        LaneSlot(0, 1, 0),
        LaneSlot(1, 0, 0),
        LaneSlot(1, 2, 0),
    ]
