"""How often the verdict errs, from thousands of studies whose truth is known."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import NamedTuple

from flatout.bench.known_studies import TRIALS, judge_studies, make_known_study
from flatout.bench.known_truths import LUCK, SKILL, Truth
from flatout.foreign import JsonTable

STRENGTHS = (2.0, 4.0, 6.0, 8.0, 12.0, 16.0)  # bps per bar and deviation of the signal
AT_ONCE = 20  # studies side by side
SIZE = 0.02  # of the best test that power is held against: the most false promotions allowed
Z = 1.96  # of intervals
OnBatch = Callable[[int], None]


class StudyBatch(NamedTuple):
    """Some studies of one truth."""

    truth: Truth
    strength_bps: float
    seeds: tuple[int, ...]
    trials: int


class StudyOutcome(NamedTuple):
    """What became of one study."""

    truth: Truth
    strength_bps: float
    refused_by: tuple[str, ...]
    best_test: bool  # whether the best test of the same data would have passed the winner


def measure_rates(
    studies: int,
    skilled: int,
    trials: int = TRIALS,
    strengths: Sequence[float] = STRENGTHS,
    workers: int = 1,
    on_batch: OnBatch = lambda done: None,
) -> JsonTable:
    """Rates of false promotion by truth without skill, `studies` each, and of power by truth and
    strength, `skilled` each. `on_batch` gets the number of studies that are done.
    """
    batches = [*plan_batches(studies, skilled, trials, strengths)]
    found: list[StudyOutcome] = []
    if workers == 1:
        for batch in batches:
            found += judge_batch(batch)
            on_batch(len(found))
    else:
        with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
            for outcomes in pool.map(judge_batch, batches):
                found += outcomes
                on_batch(len(found))
    return {**summarise_rates(found), "studies": studies, "skilled": skilled, "trials": trials}


def plan_batches(
    studies: int, skilled: int, trials: int, strengths: Sequence[float]
) -> Iterator[StudyBatch]:
    """All studies in batches that run side by side; every study has a market of its own."""
    cases = [(truth, 0.0, studies) for truth in LUCK]
    cases += [(truth, strength, skilled) for truth in SKILL for strength in strengths]
    for k, (truth, strength, count) in enumerate(cases):
        seeds = [1_000_000 * k + n for n in range(count)]
        for first in range(0, count, AT_ONCE):
            yield StudyBatch(truth, strength, tuple(seeds[first : first + AT_ONCE]), trials)


def judge_batch(batch: StudyBatch) -> list[StudyOutcome]:
    """The outcomes of a batch."""
    made = [
        make_known_study(batch.truth, seed, batch.strength_bps, batch.trials)
        for seed in batch.seeds
    ]
    return [
        StudyOutcome(
            truth=batch.truth,
            strength_bps=batch.strength_bps,
            refused_by=tuple(gate.name for gate in one.verdict.gates if not gate.passed),
            best_test=one.best_test_p <= SIZE,
        )
        for one in judge_studies(made, seed=batch.seeds[0])
    ]


def summarise_rates(found: Sequence[StudyOutcome]) -> JsonTable:
    """The rates, as `flatout bench verdict --known --json` prints them."""
    lucky = {truth: [one for one in found if one.truth == truth] for truth in LUCK}
    skilled = {
        truth: {
            strength: [one for one in found if (one.truth, one.strength_bps) == (truth, strength)]
            for strength in sorted({one.strength_bps for one in found if one.truth == truth})
        }
        for truth in SKILL
    }
    return {
        "false_promotions": {name: share(map(promoted, rows)) for name, rows in lucky.items()},
        "false_intervals": {name: interval(map(promoted, rows)) for name, rows in lucky.items()},
        "power": {
            name: {f"{s:g}": share(map(promoted, rows)) for s, rows in by.items()}
            for name, by in skilled.items()
        },
        "power_best_test": {
            name: {f"{s:g}": share(one.best_test for one in rows) for s, rows in by.items()}
            for name, by in skilled.items()
        },
        "best_test_size": {
            name: share(one.best_test for one in rows) for name, rows in lucky.items()
        },
        "only_gate": count_only_gates([one for rows in lucky.values() for one in rows]),
        "refusals": count_refusals([one for rows in lucky.values() for one in rows]),
    }


def promoted(one: StudyOutcome) -> bool:
    """Whether no gate refused it."""
    return not one.refused_by


def share(passed: Iterator[bool] | Sequence[bool]) -> float:
    """How many of some are true."""
    rows = list(passed)
    return sum(rows) / max(len(rows), 1)


def interval(passed: Iterator[bool]) -> tuple[float, float]:
    """Wilson's interval of a share, at 95 %."""
    rows = list(passed)
    n, p = max(len(rows), 1), share(rows)
    centre, spread = p + Z**2 / (2 * n), Z * math.sqrt(p * (1 - p) / n + Z**2 / (4 * n**2))
    low, high = centre - spread, centre + spread  # off by a rounding at a share of 0 or 1
    return max(low, 0.0) / (1 + Z**2 / n), min(high / (1 + Z**2 / n), 1.0)


def count_only_gates(rows: Sequence[StudyOutcome]) -> dict[str, float]:
    """How often each gate was the only one to refuse, as a share of all studies."""
    alone = Counter(one.refused_by[0] for one in rows if len(one.refused_by) == 1)
    return {name: alone[name] / max(len(rows), 1) for name in sorted(count_refusals(rows))}


def count_refusals(rows: Sequence[StudyOutcome]) -> dict[str, float]:
    """How often each gate refused, as a share of all studies."""
    refused = Counter(name for one in rows for name in one.refused_by)
    return {name: count / max(len(rows), 1) for name, count in sorted(refused.items())}
