"""What is said of curves, by hand; no learner runs here."""

from typing import Any

import pytest

from flatout.bench.learning_summary import DEFAULT, compare_curves, next_points

GOAL = 10.0  # bps per bar, of the rule
SB3, SBX, FINRL = "sb3 ppo", "sbx ppo", "finrl eiie"


def curve(*points: tuple[int, float, float]) -> dict[int, list[dict[str, Any]]]:
    """One seed's points: samples, seconds, bps per bar."""
    names = ("samples", "seconds", "growth_bps")
    return {1: [dict(zip(names, point, strict=True)) for point in points]}


OURS = curve((50_000, 0.5, 6.0), (90_000, 1.0, 8.0), (110_000, 1.2, 9.0))
SLOW = curve((100_000, 20.0, 1.0), (400_000, 80.0, 8.5))
NEVER = curve((60_000, 30.0, 1.0), (200_000, 100.0, 4.0))


def test_the_marks_are_passed_at_the_first_point_that_earns_as_much() -> None:
    found = compare_curves({DEFAULT: OURS, SB3: SLOW, SBX: NEVER}, GOAL, peers=(SB3, SBX))
    assert found["samples_to_80"] == {DEFAULT: 90_000, SB3: 400_000, SBX: None}
    assert found["seconds_to_80"] == {DEFAULT: 1.0, SB3: 80.0, SBX: None}
    assert found["samples_to_50"] == {DEFAULT: 50_000, SB3: 400_000, SBX: None}
    assert found["samples_to"][f"{DEFAULT}, seed 1"] == {"50%": 50_000, "80%": 90_000, "95%": None}


def test_the_ratio_is_against_the_best_that_got_there() -> None:
    found = compare_curves({DEFAULT: OURS, SB3: SLOW, SBX: NEVER}, GOAL, peers=(SB3, SBX))
    assert found["ratio_seconds"] == 80
    assert found["ratio_samples"] == pytest.approx(400 / 90)
    assert found["ratio_is_bound"] is False


def test_where_no_peer_got_there_the_shortest_limit_is_a_bound() -> None:
    short = curve((150_000, 120.0, 0.0))
    found = compare_curves({DEFAULT: OURS, SB3: NEVER, SBX: short}, GOAL, peers=(SB3, SBX))
    assert found["ratio_seconds"] == 100
    assert found["ratio_samples"] == pytest.approx(150 / 90)
    assert found["ratio_is_bound"] is True


def test_finrl_has_ratios_of_its_own() -> None:
    quick = curve((10_000, 4.0, 9.0))
    found = compare_curves({DEFAULT: OURS, SB3: SLOW, FINRL: quick}, GOAL, peers=(SB3, FINRL))
    assert (found["ratio_seconds"], found["ratio_seconds_finrl"]) == (80, 4)
    assert found["ratio_samples_finrl"] == pytest.approx(1 / 9)
    assert found["ratio_is_bound_finrl"] is False


@pytest.mark.parametrize(
    ("curves", "goal"),
    [({SB3: SLOW}, GOAL), ({DEFAULT: NEVER, SB3: SLOW}, GOAL), ({DEFAULT: OURS, SB3: SLOW}, 0.0)],
    ids=["ours is not measured", "ours never got there", "there is nothing to earn"],
)
def test_without_our_own_time_there_is_no_ratio(curves: dict[str, Any], goal: float) -> None:
    found = compare_curves(curves, goal, peers=(SB3,))
    assert found["ratio_seconds"] is found["ratio_samples"] is None
    assert found["ratio_is_bound"] is False


def test_early_growth_is_that_of_the_last_point_before() -> None:
    short = curve((90_000, 1.0, 3.0))
    late = curve((131_072, 1.0, 3.0))
    found = compare_curves({DEFAULT: OURS, SB3: SLOW, "short": short, "late": late}, GOAL, ())
    assert found["growth_at_100k"] == {DEFAULT: 8.0, SB3: 1.0, "short": None, "late": None}


def test_the_middle_seed_counts_and_most_must_get_there() -> None:
    seeds = {1: OURS[1], 2: NEVER[1], 3: SLOW[1]}
    found = compare_curves({DEFAULT: seeds}, GOAL, ())
    assert found["samples_to_80"] == {DEFAULT: 400_000}
    assert found["growth_at_100k"] == {DEFAULT: 1.0}
    assert compare_curves({DEFAULT: {1: OURS[1], 2: NEVER[1]}}, GOAL, ())["seconds_to_80"] == {
        DEFAULT: None
    }


def test_points_are_a_quarter_apart_and_end_at_the_end() -> None:
    points = list(next_points(64))
    assert points[:6] == [1, 2, 3, 4, 5, 6] and points[-1] == 64
    assert all(after <= max(before + 1, 1.25 * before) for before, after in zip(points, points[1:]))  # noqa: B905, RUF007
    assert list(next_points(1)) == [1]
