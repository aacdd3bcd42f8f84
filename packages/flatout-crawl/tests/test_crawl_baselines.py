"""Choosers on small and made-up sites: their order, that they find targets, and that the reward
pays no tricks.
"""

import asyncio
from typing import Any

import numpy as np
import pytest
from small_sites import HOME, chain, html, known, small_task, url

from flatout.slow_envs.clock import run_virtually
from flatout_crawl.choosers.baselines import (
    AlwaysFirst,
    BestFirst,
    BreadthFirst,
    Chooser,
    DepthFirst,
    GroupBandit,
    InOrder,
    LearnedChooser,
    LinkClassifier,
    Random,
    Repeat,
    standard,
)
from flatout_crawl.choosers.evaluate import ChooserEvaluation, CrawlPlan, crawl, evaluate
from flatout_crawl.choosers.session import CrawlTask
from flatout_crawl.choosers.site_task import oracle, site_task
from flatout_crawl.sites.site import SiteSettings, generate

BUDGET = 120


SITES = [generate(SiteSettings(seed=seed, pages=300)) for seed in (1, 2, 3)]


@pytest.fixture(scope="module")
def made_up() -> list[CrawlTask]:
    """Tasks that share what they remember of pages."""
    return [site_task(site) for site in SITES]


@pytest.fixture(scope="module")
def evaluation(made_up: list[CrawlTask]) -> ChooserEvaluation:
    """All choosers on three made-up sites, waits taking no time."""
    choosers = {**standard(), **TRICKS, "oracle": oracle(SITES)}
    return run_virtually(evaluate(choosers, made_up, (0,), CrawlPlan(budget=BUDGET)))


def asked(task: CrawlTask, chooser: Chooser, budget: int = 30) -> list[str]:
    """Paths in the order in which they were asked for, without the seed."""
    asyncio.run(crawl(task, chooser, budget))
    return [address.removeprefix(HOME) for address in task.fetcher.asked[1:]]  # type: ignore[attr-defined]


def tree() -> Any:
    pages = {HOME: html("home", ["/a", "/b"])}
    for name in ("a", "b"):
        pages[url(name)] = html(name, [f"/{name}1", f"/{name}2"], f"text {name}")
    for name in ("a1", "a2", "b1", "b2"):
        pages[url(name)] = html(name, [], f"text {name}")
    return small_task(pages, relevance=known(), targets=None)


def test_breadth_first_goes_level_by_level() -> None:
    assert asked(tree(), BreadthFirst()) == ["a", "b", "a1", "a2", "b1", "b2"]


def test_depth_first_goes_down_first() -> None:
    assert asked(tree(), DepthFirst()) == ["a", "a1", "a2", "b", "b1", "b2"]


def test_best_first_takes_the_most_similar() -> None:
    links = [("/x", "football"), ("/y", "solar power plants"), ("/z", "solar power")]
    task = small_task({HOME: html("home", links)}, targets=None)
    assert asked(task, BestFirst()) == ["z", "y", "x"]


def test_inheriting_prefers_links_of_relevant_pages() -> None:
    pages = {
        HOME: html("home", ["/good", "/other"]),
        url("good"): html("good", ["/child"], "solar power " * 9),
    }
    assert asked(small_task(pages, targets=None), InOrder([url("good")])) == ["good"]
    assert asked(small_task(pages, targets=None), BestFirst(inherit=5.0))[:2] in (
        ["good", "child"],
        ["other", "good"],
    )
    plain = small_task(pages, targets=None)
    after = asked(plain, BestFirst(inherit=5.0))
    assert after[after.index("good") + 1] == "child"


def test_random_takes_all_and_depends_on_its_seed() -> None:
    orders = {tuple(asked(tree(), Random(seed))) for seed in range(8)}
    assert all(sorted(order) == ["a", "a1", "a2", "b", "b1", "b2"] for order in orders)
    assert len(orders) > 3


def test_an_order_is_kept_and_leaves_out_what_was_had() -> None:
    assert asked(tree(), InOrder([HOME, url("a2"), url("a"), url("a2"), url("b")])) == [
        "a2",
        "a",
        "b",
    ]


@pytest.mark.parametrize("make", [GroupBandit, LinkClassifier], ids=["bandit", "classifier"])
def test_learning_while_crawling_finds_the_list_that_pays(make: Any) -> None:
    """Forty targets and two hundred others in two lists that look alike in words."""
    pages = {HOME: html("home", ["/good", "/bad"])}
    pages[url("good")] = html("good", [(f"/i{k}", "an item") for k in range(40)], "", "left")
    pages[url("bad")] = html("bad", [(f"/j{k}", "an item") for k in range(200)], "", "right")
    pages |= {url(f"i{k}"): html(f"i {k}", [], f"i {k}") for k in range(40)}
    pages |= {url(f"j{k}"): html(f"j {k}", [], f"j {k}") for k in range(200)}
    relevance = known(*(f"i{k}" for k in range(40)))
    task = small_task(pages, relevance=relevance, targets=relevance.urls)
    assert asyncio.run(crawl(task, make(0), 80)).recall > 0.8
    assert asyncio.run(crawl(task, Random(0), 80)).recall < 0.6


def test_a_policy_sees_what_the_environment_shows_and_may_stop() -> None:
    seen: list[Any] = []

    def policy(observation: Any) -> int:
        seen.append(observation)
        return 0 if len(seen) < 4 else 8

    order = asked(
        small_task(chain(50, 3), targets=None),
        LearnedChooser(policy, 0, candidates=8, stop_action=True),
    )
    assert len(order) == 3
    assert all(observation["links"].shape == (8, 28) for observation in seen)
    assert all(observation["mask"][8] == 1 for observation in seen)


def reward(evaluation: ChooserEvaluation, chooser: str) -> np.ndarray:
    return np.array([run.reward for run in evaluation.runs if run.chooser == chooser])


TRICKS = {"always-first": lambda seed: AlwaysFirst(), "repeat": lambda seed: Repeat()}


@pytest.mark.long
def test_no_trick_is_paid_as_well_as_breadth_first_of_the_whole_site(
    made_up: list[CrawlTask],
) -> None:
    choosers: Any = {"breadth-first": lambda seed: BreadthFirst(), **TRICKS}
    whole = run_virtually(evaluate(choosers, made_up))
    for trick in TRICKS:
        assert (reward(whole, trick) < reward(whole, "breadth-first")).all()


def test_with_a_small_budget_tricks_find_nothing_more_and_lose_on_average(
    evaluation: ChooserEvaluation,
) -> None:
    """Where breadth-first finds no target in time it pays for errors, which who stays on one page
    does not meet; so at this budget the rewards are compared over sites, not on each.
    """
    found = {(run.chooser, run.task): run.found for run in evaluation.runs}
    for trick in TRICKS:
        assert all(
            n <= found["breadth-first", task]
            for (chooser, task), n in found.items()
            if chooser == trick
        )
        assert reward(evaluation, trick).mean() < reward(evaluation, "breadth-first").mean()


def test_repeating_the_best_page_pays_it_once() -> None:
    task = small_task(targets=None)
    session = asyncio.run(crawl(task, Repeat(), 30))
    assert session.requests == 30
    assert session.total_reward < 1 - 0.03 * 25


def test_the_oracle_needs_the_fewest_requests(evaluation: ChooserEvaluation) -> None:
    to_half = {s.chooser: s.metrics["requests_to_50"].mean for s in evaluation.summaries}
    assert min(to_half, key=lambda name: to_half[name]) == "oracle"
    best = [run for run in evaluation.runs if run.chooser == "oracle"]
    assert all(run.recall == 1 for run in best)
    assert all(run.requests < BUDGET for run in best)
    for run in evaluation.runs:
        (own,) = (one for one in best if one.task == run.task)
        assert run.reward <= own.reward


def test_similarity_beats_breadth_and_finds_targets(evaluation: ChooserEvaluation) -> None:
    found = {s.chooser: s.metrics["recall"].mean for s in evaluation.summaries}
    assert found["best-first"] > 2 * found["breadth-first"]
    assert found["link-classifier"] > found["breadth-first"]
    assert sum(value > 0 for value in found.values()) >= 7
