"""Evaluation on a graph small enough to count by hand, its intervals, and its JSON."""

import asyncio
import json
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
from small_sites import HOME, html, known, small_task, url

from flatout.errors import SettingsError
from flatout_crawl.choosers.baselines import BestFirst, BreadthFirst, InOrder, Random
from flatout_crawl.choosers.evaluate import (
    METRICS,
    ChooserEvaluation,
    CrawlPlan,
    CrawlRun,
    ForTask,
    area,
    compare_runs,
    evaluate,
    interval,
    policy_chooser,
    requests_to,
)


def hand_made() -> ChooserEvaluation:
    """Ten pages in a row on the seed page; every second one is a target."""
    pages = {HOME: html("home", [f"/p{k}" for k in range(10)])}
    pages |= {url(f"p{k}"): html(f"page {k}", [], f"text {k}") for k in range(10)}
    relevance = known(*(f"p{k}" for k in range(1, 10, 2)))
    task = small_task(pages, relevance=relevance, targets=relevance.urls, pages=11, name="row")
    order = [url(f"p{k}") for k in (1, 3, 5, 7, 9)]
    choosers: dict[str, Any] = {
        "breadth-first": lambda seed: BreadthFirst(),
        "known": ForTask(lambda task, seed: InOrder(order)),
    }
    return asyncio.run(evaluate(choosers, [task], (0,)))


def test_numbers_by_hand() -> None:
    breadth, known_order = hand_made().runs
    # requests: seed, p0, p1*, p2, p3*, p4, p5*, p6, p7*, p8, p9*
    assert breadth.curve == (0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5)
    assert (breadth.requests_to_50, breadth.requests_to_90, breadth.requests, breadth.recall) == (
        7,
        11,
        11,
        1,
    )
    assert breadth.site_share_to_50 == pytest.approx(7 / 11)
    assert breadth.auc == pytest.approx(25 / 55)
    assert breadth.reward == pytest.approx(5 - 10 * 0.03)
    assert known_order.curve == (0, 1, 2, 3, 4, 5)
    assert (known_order.requests_to_50, known_order.requests_to_90) == (4, 6)
    assert known_order.auc == pytest.approx(
        (0 + 1 + 2 + 3 + 4 + 5 * 6) / 55
    )  # it ends early and keeps what it has
    assert known_order.reward == pytest.approx(5 - 5 * 0.03)
    assert known_order.wasted_mb < breadth.wasted_mb


def test_comparisons_by_hand() -> None:
    found = {(c.chooser, c.against, c.metric): c for c in hand_made().comparisons}
    assert {key[:2] for key in found} == {("known", "breadth-first")}
    assert {key[2] for key in found} == set(METRICS)
    to_half = found["known", "breadth-first", "requests_to_50"]
    assert (to_half.difference.mean, to_half.ratio, to_half.better) == (
        -3,
        pytest.approx(4 / 7),
        1.0,
    )
    assert found["known", "breadth-first", "recall"].better == 0.5


@pytest.mark.parametrize(
    ("curve", "share", "expected"),
    [
        ([0, 1, 1, 2], 0.5, 2),
        ([0, 1, 1, 2], 0.9, 4),
        ([0, 1, 1], 0.9, None),
        ([0, 2], 0.5, 2),
        ([], 0.5, None),
    ],
)
def test_requests_to_a_share_of_two(curve: list[int], share: float, expected: int | None) -> None:
    assert requests_to(curve, 2, share) == expected


def test_without_known_targets_there_is_no_recall() -> None:
    assert requests_to([0, 1], 0, 0.5) is None
    assert area([0, 1], 0, 5) == 0


def test_a_share_not_reached_counts_as_the_budget() -> None:
    task = small_task()
    (run,) = asyncio.run(
        evaluate({"b": lambda seed: BreadthFirst()}, [task], (0,), CrawlPlan(budget=3))
    ).runs
    assert run.requests_to_90 is None
    assert run.value("requests_to_90") == 3
    assert run.site_share_to_90 is None


def test_results_are_plain_json() -> None:
    text = json.dumps(asdict(hand_made()), allow_nan=False)
    again = json.loads(text)
    assert again["runs"][0]["curve"] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5]
    assert again["summaries"][0]["metrics"]["recall"]["mean"] == 1.0


def test_every_chooser_runs_every_task_and_seed() -> None:
    tasks = [small_task(name=name) for name in ("x", "y", "z")]
    choosers = {
        "random": Random,
        "best-first": lambda seed: BestFirst(),
        "first": policy_chooser(lambda observation: 0),
    }
    found = asyncio.run(evaluate(choosers, tasks, (0, 1), CrawlPlan(budget=8)))
    assert (
        len({(run.chooser, run.task, run.seed) for run in found.runs})
        == 3 * 3 * 2
        == len(found.runs)
    )
    assert {(c.chooser, c.against) for c in found.comparisons} == {
        ("random", "best-first"),
        ("first", "best-first"),
    }
    together = asyncio.run(evaluate(choosers, tasks, (0, 1), CrawlPlan(budget=8, at_once=4)))
    assert together == found


def test_intervals_widen_with_what_varies_between_tasks() -> None:
    rng = np.random.default_rng(0)
    same = interval(np.full((5, 3), 2.0))
    assert (same.mean, same.low, same.high) == (2, 2, 2)
    values = rng.normal(0, 1, (40, 1))
    found = interval(values)
    half = 1.96 * values.std() / np.sqrt(40)
    assert found.low == pytest.approx(values.mean() - half, abs=0.06)
    assert found.high == pytest.approx(values.mean() + half, abs=0.06)
    between = interval(
        np.repeat(values, 10, axis=1)
    )  # more seeds of the same tasks teach nothing about tasks
    assert between.high - between.low == pytest.approx(found.high - found.low, rel=0.1)


def test_pairs_are_matched_by_task_and_seed() -> None:
    def run(chooser: str, task: str, seed: int, reward: float) -> CrawlRun:
        return CrawlRun(
            chooser, task, seed, 10, 10, 1, 2, 0.5, 0.2, None, None, None, None, 0.0, reward, (0,)
        )

    cells = [("x", 0), ("x", 1), ("y", 0), ("y", 1)]
    own = [run("a", *cell, 10.0 * k + 1) for k, cell in enumerate(cells)]
    other = [run("b", *cell, 10.0 * k) for k, cell in enumerate(cells)]
    found = compare_runs(own, other, "reward")
    assert (found.difference.mean, found.difference.low, found.difference.high, found.better) == (
        1,
        1,
        1,
        1,
    )


def test_what_is_missing_is_told() -> None:
    task = small_task(pages=None)
    with pytest.raises(SettingsError, match=r"how many requests may http://small\.lab/ take"):
        asyncio.run(evaluate({"b": lambda seed: BreadthFirst()}, [task]))
    with pytest.raises(SettingsError, match="tasks of different names"):
        asyncio.run(evaluate({"b": lambda seed: BreadthFirst()}, [small_task(), small_task()]))
    with pytest.raises(SettingsError, match="not 0 choosers"):
        asyncio.run(evaluate({}, [small_task()]))
