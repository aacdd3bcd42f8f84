"""Does a learned policy beat what needs no learning? Crawls of many sites, and a verdict in plain
words.

The verdict is about requests until 90 % of the targets are found. It is yes only if every rival
needs more of them beyond chance (the 95 % interval of the paired difference lies below 0) and none
reaches the 90 % more often.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from flatout_crawl.choosers.baselines import MakeChooser, standard
from flatout_crawl.choosers.evaluate import (
    CrawlPlan,
    CrawlRun,
    ForTask,
    Interval,
    compare_runs,
    conclude_runs,
    evaluate,
)
from flatout_crawl.choosers.session import CrawlTask
from flatout_crawl.choosers.site_task import Judge, oracle, site_task
from flatout_crawl.runs.archive_task import Recorded, archive_oracle
from flatout_crawl.sites.site import Site

RIVALS = ("best-first", "tag-path-bandit", "kind-bandit")
OWN, ORACLE = "learned", "oracle"
METRIC = "requests_to_90"
FEW_TASKS = 5
GRID, RESAMPLES = 150, 400  # of the curves


class Field(NamedTuple):
    """A site to compete on, and the order of who knows it wholly."""

    task: CrawlTask
    oracle: ForTask
    targets: int


@dataclass(frozen=True)
class Duel:
    """The learned policy beside one rival, in requests to 90 % of the targets."""

    against: str
    own: float
    other: float
    difference: Interval  # own less other
    own_reached: float  # share of the crawls that reached 90 %
    other_reached: float
    won: bool


def field_of_site(site: Site, judge: Judge = "truth") -> Field:
    """A made-up site as a field of the contest."""
    return Field(site_task(site, judge=judge), oracle([site]), len(site.targets))


def field_of_recording(recorded: Recorded) -> Field:
    """A recording as a field of the contest."""
    return Field(recorded.task, archive_oracle(recorded), recorded.task.target_count)


def contest(
    policy: MakeChooser,
    fields: Iterable[Field],
    seeds: Sequence[int] = (0,),
    budget: int | None = None,
    on_crawl: Callable[[str, str], None] = lambda *_: None,
) -> dict[str, Any]:
    """Every chooser on every field; plain values, ready for JSON, the verdict first. Fields are
    taken one by one.
    """
    runs: list[CrawlRun] = []
    sites = []
    for field in fields:
        sites.append({"name": field.task.name, "pages": field.task.pages, "targets": field.targets})
        choosers: dict[str, MakeChooser | ForTask] = {
            OWN: policy,
            **standard(),
            ORACLE: field.oracle,
        }
        for name, make in choosers.items():
            on_crawl(field.task.name, name)
            runs += asyncio.run(evaluate({name: make}, [field.task], seeds, CrawlPlan(budget))).runs
    return {"verdict": verdict(runs), **figures(runs), "sites": sites}


def verdict(runs: Sequence[CrawlRun]) -> dict[str, Any]:
    """Whether it beats its rivals, in words and numbers."""
    of = by_chooser(runs)
    duels = [compare_rival(of[OWN], of[rival]) for rival in RIVALS]
    won = all(each.won for each in duels)
    tasks, seeds = (len({getattr(run, name) for run in runs}) for name in ("task", "seed"))
    return {
        "beats": won,
        "sentence": sentence(duels, tasks, seeds),
        "duels": [asdict(each) for each in duels],
        "tasks": tasks,
        "seeds": seeds,
    }


def by_chooser(runs: Sequence[CrawlRun]) -> dict[str, list[CrawlRun]]:
    """The runs of each chooser, by its name."""
    names = dict.fromkeys(run.chooser for run in runs)
    return {name: [run for run in runs if run.chooser == name] for name in names}


def compare_rival(own: Sequence[CrawlRun], other: Sequence[CrawlRun]) -> Duel:
    """Compare the learned policy with one rival."""
    mean, other_mean = (
        float(np.mean([run.value(METRIC) for run in some])) for some in (own, other)
    )
    reached, other_reached = (
        float(np.mean([run.requests_to_90 is not None for run in some])) for some in (own, other)
    )
    difference = compare_runs(own, other, METRIC).difference
    won = difference.high < 0 and reached >= other_reached
    return Duel(
        against=other[0].chooser,
        own=mean,
        other=other_mean,
        difference=difference,
        own_reached=reached,
        other_reached=other_reached,
        won=won,
    )


def sentence(duels: Sequence[Duel], tasks: int, seeds: int) -> str:
    """The verdict in plain words."""
    where = f"{tasks} held-out site{'s' * (tasks > 1)}, {seeds} seed{'s' * (seeds > 1)}"
    lost = [each for each in duels if not each.won]
    if not lost:
        others = join_words([f"{each.against} {each.other:.0f}" for each in duels])
        sentence = (
            f"The learned policy beats {join_words([each.against for each in duels])}: it needs "
            f"{duels[0].own:.0f} requests to find 90 % of the targets, {others} ({where}; each "
            "difference is beyond chance at 95 %)."
        )
    else:
        sentence = (
            f"The learned policy does NOT beat {join_words([each.against for each in lost], 'or')} "
            f"on requests to 90 % of the targets: it needs {duels[0].own:.0f}, "
            f"{join_words([describe_duel(each) for each in lost])} ({where})."
        )
    few = " With so few sites this says little about others." if tasks < FEW_TASKS else ""
    return sentence + few


def describe_duel(lost: Duel) -> str:
    """A duel that was not won."""
    gap = lost.difference
    sentence = (
        f"{lost.against} {lost.other:.0f} (difference {gap.mean:+.0f}, 95 % interval "
        f"{gap.low:+.0f} to {gap.high:+.0f}"
    )
    if not lost.own_reached:
        sentence += "; the learned policy never reached 90 %"
    elif lost.own_reached < lost.other_reached:
        sentence += (
            f"; 90 % was reached in {lost.own_reached:.0%} of the crawls, by the other in "
            f"{lost.other_reached:.0%}"
        )
    return sentence + ")"


def join_words(words: Sequence[str], last: str = "and") -> str:
    """Words as a list in a sentence: a, b and c."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {last} {words[-1]}"


def figures(runs: Sequence[CrawlRun]) -> dict[str, Any]:
    """Summaries, curves and single crawls."""
    single = [
        {name: value for name, value in asdict(run).items() if name != "curve"} for run in runs
    ]
    summaries = [asdict(summary) for summary in conclude_runs(runs).summaries]
    for summary in summaries:
        summary["metrics"] = dict(summary["metrics"])
    summaries.sort(key=lambda summary: (summary["metrics"][METRIC]["mean"], summary["chooser"]))
    return {"choosers": summaries, "curves": curves(runs), "runs": single}


def curves(runs: Sequence[CrawlRun]) -> dict[str, Any]:
    """Mean recall after each of some numbers of requests, with 95 % intervals over sites."""
    longest = max(run.budget for run in runs)
    grid = np.unique(np.linspace(1, longest, min(longest, GRID)).astype(int))
    return {
        "requests": grid.tolist(),
        "choosers": {name: mean_curve(some, grid) for name, some in by_chooser(runs).items()},
    }


def mean_curve(runs: Sequence[CrawlRun], grid: Any) -> Mapping[str, list[float]]:
    """Mean over sites of the mean over seeds, and the interval of drawing sites anew."""
    rows: dict[str, list[Any]] = {}
    for run in runs:
        held = np.array(run.curve or (0,))[np.minimum(grid, max(len(run.curve), 1)) - 1]
        rows.setdefault(run.task, []).append(held / max(run.targets, 1))
    values = np.array([np.mean(some, axis=0) for some in rows.values()])  # (site, point)
    drawn = np.random.default_rng(0).integers(len(values), size=(RESAMPLES, len(values)))
    low, high = np.quantile(values[drawn].mean(axis=1), [0.025, 0.975], axis=0)
    return {
        name: np.round(each, 4).tolist()
        for name, each in (("mean", values.mean(0)), ("low", low), ("high", high))
    }
