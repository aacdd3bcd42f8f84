"""What the curves of `flatout bench learn` say beside each other: when each learner reached the
marks, what it earned after 100,000 samples, and by how much the default is ahead of the peers.

It knows points only, not who made them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median_high
from typing import Any, Literal, NamedTuple

from flatout.foreign import JsonTable

MARKS = (0.5, 0.8, 0.95)  # of the rule's growth
EARLY = 100_000  # samples
DEFAULT = "pathwise per_asset"  # what flatout itself would take in this market
CRITERION = 0.8  # the mark at which learners are compared
Unit = Literal["samples", "seconds"]
Curves = Mapping[str, Mapping[int, list[JsonTable]]]  # by learner and seed
OnPoint = Callable[[str, JsonTable], None]
APART = "finrl"  # a row for itself: ratios are against the best of Stable-Baselines3 and SBX


class Ratio(NamedTuple):
    """How many times as much the best peer needed."""

    times: float | None  # None where flatout's default did not get there, or nobody is beside it
    is_bound: bool  # no peer got there: at least so many times, by what the peers were allowed


def compare_curves(curves: Curves, goal_bps: float, peers: Sequence[str]) -> JsonTable:
    """All that is said about the points of learners, where a rule earns so many bps per bar."""
    flat = {
        f"{name}, seed {seed}": points
        for name, by_seed in curves.items()
        for seed, points in by_seed.items()
    }
    rivals = [name for name in peers if not name.startswith(APART)]
    ratios = {unit: ratio_of(curves, goal_bps, rivals, unit) for unit in units()}
    apart = [name for name in peers if name.startswith(APART)]
    others = {unit: ratio_of(curves, goal_bps, apart, unit) for unit in units()}
    return {
        "curves": flat,
        **{
            f"{unit}_to": {
                name: {f"{mark:.0%}": find_reached(p, mark * goal_bps, unit) for mark in MARKS}
                for name, p in flat.items()
            }
            for unit in units()
        },
        **{
            f"{unit}_to_{mark * 100:.0f}": {
                name: middle_reached(by_seed, mark * goal_bps, unit)
                for name, by_seed in curves.items()
            }
            for mark in MARKS[:2]
            for unit in units()
        },
        "growth_at_100k": {name: middle_growth(by_seed) for name, by_seed in curves.items()},
        "growth_at_100k_is": "of the last point at or below 100,000 samples; null where a curve "
        "ends before them",
        **{f"ratio_{unit}": ratio.times for unit, ratio in ratios.items()},
        "ratio_is_bound": any(ratio.is_bound for ratio in ratios.values()),
        **{f"ratio_{unit}_{APART}": ratio.times for unit, ratio in others.items()},
        f"ratio_is_bound_{APART}": any(ratio.is_bound for ratio in others.values()),
    }


def units() -> tuple[Unit, ...]:
    """In what learning is counted."""
    return "samples", "seconds"


def find_reached(points: Sequence[JsonTable], growth_bps: float, unit: Unit) -> Any:
    """After how many samples or seconds a curve first earned so much; None if it never did."""
    return next((p[unit] for p in points if p["growth_bps"] >= growth_bps > 0), None)


def middle_reached(by_seed: Mapping[int, list[JsonTable]], growth_bps: float, unit: Unit) -> Any:
    """The same of the middle seed, the later of two; None where most never did."""
    found = [find_reached(points, growth_bps, unit) for points in by_seed.values()]
    middle = median_high([float("inf") if one is None else one for one in found])
    return None if middle == float("inf") else middle


def middle_growth(by_seed: Mapping[int, list[JsonTable]]) -> float | None:
    """What the middle seed earned at the last point at or below `EARLY` samples; None where there
    is none, or where a curve ends before them.
    """
    growths = [
        [point["growth_bps"] for point in points if point["samples"] <= EARLY]
        for points in by_seed.values()
        if points[-1]["samples"] >= EARLY
    ]
    if len(growths) < len(by_seed) or not all(growths):
        return None
    return median_high([early[-1] for early in growths])


def ratio_of(curves: Curves, goal_bps: float, peers: Sequence[str], unit: Unit) -> Ratio:
    """How far flatout's default is ahead of the best of these peers on the way to `CRITERION`.

    Where no peer got there, the least that one of them was allowed stands for it.
    """
    growth = CRITERION * goal_bps
    ours = middle_reached(curves[DEFAULT], growth, unit) if DEFAULT in curves else None
    beside = [curves[name] for name in peers if name in curves]
    if not ours or not beside:
        return Ratio(None, is_bound=False)
    reached = [middle_reached(by_seed, growth, unit) for by_seed in beside]
    there = [one for one in reached if one is not None]
    if there:
        return Ratio(min(there) / ours, is_bound=False)
    return Ratio(min(limits_of(beside, unit)) / ours, is_bound=True)


def limits_of(beside: Sequence[Mapping[int, list[JsonTable]]], unit: Unit) -> Iterator[float]:
    """How far each curve went."""
    return (points[-1][unit] for by_seed in beside for points in by_seed.values() if points)


def next_points(updates: int) -> Iterator[int]:
    """After which updates a peer is judged: each a quarter later than the one before, so that no
    more of its lead is lost than that; and at the end.
    """
    done = 1
    while done < updates:
        yield done
        done = max(done + 1, done * 5 // 4)
    yield updates
