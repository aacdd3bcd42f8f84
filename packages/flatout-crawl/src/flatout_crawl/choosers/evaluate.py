"""How many requests does a way of choosing need? Crawls of tasks x seeds, with confidence intervals
over both.

Results are frozen dataclasses of plain values: `dataclasses.asdict` makes JSON of them. Where a
share of the targets was not reached, its number of requests is None; in means it counts as the
whole budget, which flatters who failed.
"""

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flatout.errors import SettingsError
from flatout_crawl.choosers.baselines import Chooser, LearnedChooser, MakeChooser
from flatout_crawl.choosers.observation import Observation
from flatout_crawl.choosers.session import MEGABYTE, CrawlSession, CrawlTask, Prices

METRICS = ("recall", "auc", "requests_to_50", "requests_to_90", "reward", "wasted_mb")
AGAINST = ("breadth-first", "best-first")
RESAMPLES = 2000
LEVEL = 0.95


@dataclass(frozen=True)
class CrawlRun:
    """One crawl by one chooser, in numbers."""

    chooser: str
    task: str
    seed: int
    budget: int
    requests: int
    found: int
    targets: int  # known ones; 0 if none are
    recall: float  # when it ended
    auc: float  # mean recall over all requests of the budget; it stays as it is after an early end
    requests_to_50: int | None  # until half of the targets were found
    requests_to_90: int | None
    site_share_to_50: float | None  # the same, as a share of the site's pages
    site_share_to_90: float | None
    wasted_mb: float  # of answers that brought nothing
    reward: float
    curve: tuple[int, ...]  # targets found after each request

    def value(self, metric: str) -> float:
        """A metric as a number; a share not reached counts as the budget."""
        found = getattr(self, metric)
        return float(self.budget if found is None else found)


@dataclass(frozen=True)
class Interval:
    """A mean with its bootstrap confidence interval."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Summary:
    """A chooser over all tasks and seeds."""

    chooser: str
    runs: int
    reached_90: float  # share of the runs that found 90 % of the targets
    metrics: Mapping[str, Interval]


@dataclass(frozen=True)
class ChooserComparison:
    """A chooser less another on the same tasks and seeds."""

    chooser: str
    against: str
    metric: str
    difference: Interval
    ratio: float | None  # of the means; None where the other's is 0
    better: float  # share of the pairs in which it was better; ties count half


@dataclass(frozen=True)
class ChooserEvaluation:
    """All that was run, and what follows."""

    runs: tuple[CrawlRun, ...]
    summaries: tuple[Summary, ...]
    comparisons: tuple[ChooserComparison, ...]


class CrawlPlan(NamedTuple):
    """How crawls are run and judged."""

    budget: int | None = None  # requests; None: the task's, or else the site's pages
    prices: Prices = Prices()
    # crawls that wait at the same time; more than one shares the fetchers' randomness
    at_once: int = 1


class ForTask(NamedTuple):
    """A maker of choosers that know the task, as an oracle must."""

    make: Callable[[CrawlTask, int], Chooser]


def policy_chooser(
    policy: Callable[[Observation], int], candidates: int = 64, stop_action: bool = False
) -> MakeChooser:
    """A policy as a chooser; it acts within the same candidates as in the environment."""
    return lambda seed: LearnedChooser(policy, seed, candidates, stop_action)


async def crawl(
    task: CrawlTask, chooser: Chooser, budget: int, prices: Prices | None = None
) -> CrawlSession:
    """Let a chooser crawl a task to its end."""
    session = CrawlSession(task, budget, prices)
    chooser.on_visit(session, await session.start())
    while not session.over:
        url = chooser.choose(session)
        if url is None:
            break
        visit = await session.fetch(url)
        chooser.on_visit(session, visit)
        if visit.technical:
            break
    return session


async def evaluate(
    choosers: Mapping[str, MakeChooser | ForTask],
    tasks: Sequence[CrawlTask],
    seeds: Sequence[int] = (0,),
    plan: CrawlPlan | None = None,
) -> ChooserEvaluation:
    """Every chooser on every task with every seed. A maker that must know the task stands in a
    `ForTask`.
    """
    plan = plan or CrawlPlan()
    if not choosers or not tasks or not seeds or len({task.name for task in tasks}) < len(tasks):
        raise SettingsError(
            "an evaluation needs choosers, seeds and tasks of different names, not "
            f"{len(choosers)} choosers, {len(seeds)} seeds and tasks "
            f"{[task.name for task in tasks]}"
        )
    gate = asyncio.Semaphore(plan.at_once)

    async def one(name: str, task: CrawlTask, seed: int) -> CrawlRun:
        async with gate:
            budget = plan.budget or task.budget or task.pages
            if budget is None:
                raise SettingsError(
                    f"how many requests may {task.name} take? Give the plan or the task a budget"
                )
            make = choosers[name]
            chooser = make.make(task, seed) if isinstance(make, ForTask) else make(seed)
            session = await crawl(task, chooser, budget, plan.prices)
            return judge_crawl(session, name, seed)

    work = [one(name, task, seed) for name in choosers for task in tasks for seed in seeds]
    runs = (
        tuple(await asyncio.gather(*work))
        if plan.at_once > 1
        else tuple([await each for each in work])
    )
    return conclude_runs(runs)


def judge_crawl(session: CrawlSession, chooser: str, seed: int) -> CrawlRun:
    """A crawl that ended, in numbers."""
    task, targets = session.task, session.task.target_count
    half, most = (requests_to(session.curve, targets, share) for share in (0.5, 0.9))
    return CrawlRun(
        chooser=chooser,
        task=task.name,
        seed=seed,
        budget=session.budget,
        requests=session.requests,
        found=len(session.found),
        targets=targets,
        recall=session.recall,
        auc=area(session.curve, targets, session.budget),
        requests_to_50=half,
        requests_to_90=most,
        site_share_to_50=half / task.pages if half and task.pages else None,
        site_share_to_90=most / task.pages if most and task.pages else None,
        wasted_mb=session.wasted_bytes / MEGABYTE,
        reward=session.total_reward,
        curve=tuple(session.curve),
    )


def requests_to(curve: Sequence[int], targets: int, share: float) -> int | None:
    """After how many requests this share of the targets was found; None if it never was."""
    needed = math.ceil(share * targets - 1e-9)
    return next((k for k, found in enumerate(curve, 1) if targets and found >= needed), None)


def area(curve: Sequence[int], targets: int, budget: int) -> float:
    """Mean recall over the requests of a budget; 0 where no targets are known."""
    if not targets or not curve:
        return 0.0
    held = list(curve[:budget]) + [curve[-1]] * (budget - len(curve))
    return sum(held) / (targets * budget)


def conclude_runs(runs: Sequence[CrawlRun]) -> ChooserEvaluation:
    """Summaries of choosers, and comparisons with those they must beat."""
    names = list(dict.fromkeys(run.chooser for run in runs))
    of = {name: [run for run in runs if run.chooser == name] for name in names}
    summaries = tuple(
        Summary(
            name,
            len(of[name]),
            sum(run.requests_to_90 is not None for run in of[name]) / len(of[name]),
            {metric: interval(table(of[name], metric)) for metric in METRICS},
        )
        for name in names
    )
    pairs = [(name, other) for other in AGAINST if other in of for name in names if name != other]
    comparisons = tuple(
        compare_runs(of[name], of[other], metric) for name, other in pairs for metric in METRICS
    )
    return ChooserEvaluation(tuple(runs), summaries, comparisons)


def table(runs: Sequence[CrawlRun], metric: str) -> NDArray[np.float64]:
    """(task, seed) values of a metric."""
    tasks, seeds = (
        list(dict.fromkeys(getattr(run, name) for run in runs)) for name in ("task", "seed")
    )
    values = np.full((len(tasks), len(seeds)), np.nan)
    for run in runs:
        values[tasks.index(run.task), seeds.index(run.seed)] = run.value(metric)
    return values


def interval(
    values: NDArray[np.float64], resamples: int = RESAMPLES, level: float = LEVEL
) -> Interval:
    """Mean of (task, seed) values; tasks are drawn anew, and within each its seeds (percentile
    bootstrap).
    """
    rng = np.random.default_rng(0)
    n_tasks, n_seeds = values.shape
    tasks = rng.integers(n_tasks, size=(resamples, n_tasks, 1))
    seeds = rng.integers(n_seeds, size=(resamples, n_tasks, n_seeds))
    means = values[tasks, seeds].mean(axis=(1, 2))
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(values.mean()), float(low), float(high))


def compare_runs(
    runs: Sequence[CrawlRun], others: Sequence[CrawlRun], metric: str
) -> ChooserComparison:
    """Paired by task and seed; better is fewer for requests and waste, more for the rest."""
    own, other = table(runs, metric), table(others, metric)
    gain = own - other if metric in ("recall", "auc", "reward") else other - own
    ratio = float(own.mean() / other.mean()) if other.mean() else None
    better = float(np.mean((gain > 0) + 0.5 * (gain == 0)))
    return ChooserComparison(
        chooser=runs[0].chooser,
        against=others[0].chooser,
        metric=metric,
        difference=interval(own - other),
        ratio=ratio,
        better=better,
    )
