"""After the last trial: controls, finalists with more seeds under harder conditions, and the
winner's last training.

All of it runs in the lanes that the trials have left, on the programs that are compiled already.
What comes out is written down when it is complete; a kill before that costs the closing's minute,
not the study.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import optuna
import safetensors.numpy
from numpy.typing import NDArray

from flatout.arrays import map_leaves
from flatout.errors import RunError
from flatout.foreign import finite, read_tensors, shorten_repr
from flatout.learners.jobs import Chunk, Order
from flatout.market.rewards import RewardTerms
from flatout.policies.bundle import Bundle
from flatout.policies.network import Network
from flatout.runs import sweep, versions, write_bytes
from flatout.search.controls import NOISE, ORACLE
from flatout.search.market_study import FINAL, LaneSpec
from flatout.search.space import Values, values_of, with_values
from flatout.search.study import Study, newcomers
from flatout.search.trial_files import read_trial
from flatout.workers.driving import run_scripts
from flatout.workers.worker import Worker

FILE = "closing.safetensors"
CURE = "remove it, and the same search makes it again"
COST_FACTORS = (0.0, 1.0, 2.0, 3.0)
DELAYS = (0, 1, 2)
Said = Callable[[str], None]
Floats = NDArray[np.float32]


class Condition(NamedTuple):
    """How the finalists are judged."""

    cost_factor: float
    delay: int


class Agent(NamedTuple):
    """One lane of the closing."""

    stretch: str
    values: Values
    seed: int


@dataclass(frozen=True)
class Closing:
    """What the closing found."""

    finalists: tuple[int, ...]  # trial numbers, the winner first
    conditions: tuple[Condition, ...]  # the first is the plain one
    finalist_terms: Floats  # (finalist, condition, split, seed, term, block, bar)
    control_terms: dict[str, Floats]  # by name: (seed, term, block, bar)
    policies: tuple[Path, ...]  # the winner's, one folder per seed


def conditions_of(study: Study) -> tuple[Condition, ...]:
    """Plain, then each cost factor, then each delay; what the gates ask for is among them."""
    gates = study.market.settings.gates
    costs = sorted(
        {*COST_FACTORS, *([] if gates.cost_factor is None else [gates.cost_factor])} - {1.0}
    )
    delays = sorted({*DELAYS, *([] if gates.delay_bars is None else [gates.delay_bars])} - {0})
    harder = [Condition(factor, 0) for factor in costs] + [
        Condition(1.0, delay) for delay in delays
    ]
    return (Condition(1.0, 0), *harder)


def close(study: Study, workers: Sequence[Worker], job: int, said: Said) -> Closing:
    """Train and judge what the verdict needs."""
    if is_closed(study):
        return read_closing(study)
    numbers = choose_finalists(study)
    seeds = range(study.market.settings.search.final_seeds)
    said("controls: a market without edge, and one with tomorrow among the features")
    control_agents = [Agent(name, {}, seed) for name in (NOISE, ORACLE) for seed in seeds]
    controls = [
        chunk.traces[lane] for chunk, lane in train_agents(study, workers, job, control_agents)
    ]
    said(
        f"finalists: trials {', '.join(map(str, numbers))}, {len(seeds)} seeds each, costs and "
        f"delays varied"
    )
    terms = judge_finalists(study, workers, job, numbers, len(seeds))
    order = by_merit(study, terms)
    numbers, terms = [numbers[k] for k in order], terms[order]
    said(f"winner: trial {numbers[0]}, trained again on all bars before the hold-out")
    winner = trial_values(study, numbers[0])
    trained = train_agents(
        study, workers, job, [Agent(FINAL, winner, seed) for seed in seeds], networks=True
    )
    policies = save_policies(study, winner, numbers[0], trained)
    arrays = {
        "finalists": np.asarray(numbers, np.int32),
        "finalist_terms": np.ascontiguousarray(terms, np.float32),
        "controls": np.ascontiguousarray(np.stack(controls), np.float32),
    }
    write_bytes(study.folder / FILE, safetensors.numpy.save(arrays))
    sweep(study.folder / "checkpoints")
    return read_closing(study, policies)


def read_closing(study: Study, policies: Sequence[Path] | None = None) -> Closing:
    """The closing as it was written down."""
    path = study.folder / FILE
    arrays, count = (
        read_tensors(path, RunError, CURE).arrays,
        study.market.settings.search.final_seeds,
    )
    if problem := contradiction(study, arrays):
        raise RunError(f"{path}: {problem}; {CURE}")
    controls = arrays["controls"]
    found = policies or [policy_folder(study.folder, seed) for seed in range(count)]
    return Closing(
        tuple(int(n) for n in arrays["finalists"]),
        conditions_of(study),
        arrays["finalist_terms"],
        {NOISE: controls[:count], ORACLE: controls[count:]},
        tuple(found),
    )


def contradiction(study: Study, arrays: Mapping[str, NDArray[Any]]) -> str | None:
    """What in a closing is not of this study."""
    market, search = study.market, study.market.settings.search
    finalists = arrays.get("finalists", np.zeros(0))
    judged = (len(RewardTerms._fields), market.test_blocks, market.test_bars)
    wanted = {
        "finalists": (np.int32, (len(finalists),)),
        "finalist_terms": (
            np.float32,
            (
                len(finalists),
                len(conditions_of(study)),
                len(market.folds.splits),
                search.final_seeds,
                *judged,
            ),
        ),
        "controls": (np.float32, (2 * search.final_seeds, *judged)),
    }
    if set(arrays) != set(wanted):
        return f"holds {shorten_repr(sorted(arrays))} instead of {', '.join(wanted)}"
    for name, (kind, shape) in wanted.items():
        if arrays[name].dtype != kind or arrays[name].shape != shape:
            return (
                f"{name} is {arrays[name].dtype} of shape {arrays[name].shape}, not "
                f"{np.dtype(kind)} of shape {shape}"
            )
    trials = {t.number for t in study.study.get_trials(deepcopy=False)}
    if not 1 <= len(finalists) <= search.finalists or not trials.issuperset(finalists.tolist()):
        return (
            f"finalists are 1 to {search.finalists} of this study's trials, given "
            f"{shorten_repr(finalists.tolist())}"
        )
    return None if finite(arrays["finalist_terms"]) else "finalist_terms holds what is no number"


def is_closed(study: Study) -> bool:
    """Whether the closing was written down."""
    return (study.folder / FILE).exists()


def choose_finalists(study: Study) -> list[int]:
    """The best complete trials by their value, the earlier one of equals."""
    complete = [
        t for t in study.study.get_trials(deepcopy=False)
        if t.state == optuna.trial.TrialState.COMPLETE and t.value is not None
    ]  # fmt: skip
    if not complete:
        raise RunError(
            "no trial was completed: all were pruned or failed; give more trials, another pruner "
            "or a smaller "
            "learning rate"
        )
    best = sorted(complete, key=lambda t: (-(t.value or 0.0), t.number))
    return [t.number for t in best[: study.market.settings.search.finalists]]


def trial_values(study: Study, number: int) -> Values:
    """The settings that a trial tried."""
    return values_of(study.space, read_trial(study.folder, number).facts["params"])


def judge_finalists(
    study: Study, workers: Sequence[Worker], job: int, numbers: Sequence[int], seeds: int
) -> Floats:
    """(finalist, condition, split, seed, term, block, bar)."""
    splits = len(study.market.folds.splits)
    agents = [
        Agent(study.market.folds.splits[split].name, trial_values(study, number), seed)
        for number in numbers
        for split in range(splits)
        for seed in range(seeds)
    ]
    conditions = conditions_of(study)
    found = script_agents(study, workers, job, agents, conditions)
    terms = np.stack([np.stack([chunk.traces[lane] for chunk in chunks]) for chunks, lane in found])
    shaped = terms.reshape(len(numbers), splits, seeds, *terms.shape[1:])
    return np.moveaxis(shaped, 3, 1)


def by_merit(study: Study, terms: Floats) -> list[int]:
    """Finalists by their mean objective over splits and seeds, the best first; one that diverged is
    none any more.
    """
    means = {
        k: float(np.mean(study.score(one[0])))
        for k, one in enumerate(terms)
        if np.isfinite(one).all()
    }
    if not means:
        raise RunError(
            "all finalists diverged when they were trained with other seeds: give a smaller "
            "learning rate"
        )
    return sorted(means, key=lambda k: (-means[k], k))


def train_agents(
    study: Study,
    workers: Sequence[Worker],
    job: int,
    agents: Sequence[Agent],
    networks: bool = False,
) -> list[tuple[Chunk, int]]:
    """Each agent's chunk and lane after its whole training."""
    found = script_agents(study, workers, job, agents, conditions_of(study)[:1], networks)
    return [(chunks[0], lane) for chunks, lane in found]


def script_agents(
    study: Study,
    workers: Sequence[Worker],
    job: int,
    agents: Sequence[Agent],
    conditions: Sequence[Condition],
    networks: bool = False,
) -> list[tuple[list[Chunk], int]]:
    """Train agents in groups that fill a worker's lanes, and judge each group under all
    conditions.
    """
    width = -(-len(agents) // max(1, -(-len(agents) // study.layout.lanes)))
    groups = [agents[first : first + width] for first in range(0, len(agents), width)]
    scripts = [
        [
            order_for(study, job, group, condition, n == 0, networks)
            for n, condition in enumerate(conditions)
        ]
        for group in groups
    ]
    answers = run_scripts(workers, scripts)
    return [
        (chunks, lane)
        for group, chunks in zip(groups, answers, strict=True)
        for lane in range(len(group))
    ]


def order_for(
    study: Study,
    job: int,
    agents: Sequence[Agent],
    condition: Condition,
    fresh: bool,
    networks: bool,
) -> Order:
    """Train some agents to the end (or leave them as they are) and judge them under a condition."""
    market, width = study.market, study.layout.lanes
    specs: list[LaneSpec] = [
        market.lane_on(*agent, cost_factor=condition.cost_factor) for agent in agents
    ]
    until = (market.updates,) * len(specs) + (0,) * (width - len(specs))
    lanes = specs + [study.idle] * (width - len(specs))
    begin = range(len(specs)) if fresh else ()
    return Order(
        until, job=job, newcomers=newcomers(lanes, begin), delay=condition.delay, networks=networks
    )


def save_policies(
    study: Study, values: Values, number: int, trained: Sequence[tuple[Chunk, int]]
) -> list[Path]:
    """One bundle per seed."""
    market, folders = study.market, []
    settings = with_values(market.settings, values)
    for seed, (chunk, lane) in enumerate(trained):
        network: Network = map_leaves(lambda leaf, lane=lane: np.array(leaf[lane]), chunk.networks)
        folder = policy_folder(study.folder, seed)
        gates = market.lane_on(FINAL, values, seed).rates.gates if market.program.gated else None
        notes = {
            "study": study.study.study_name, "trial": number, "seed": seed,
            "updates": market.updates,
            "timesteps": market.updates * market.program.rollout, "versions": versions(),
        }  # fmt: skip
        Bundle(
            network, market.program.activation, market.program.distribution,
            market.stretches[FINAL].fitted,
            settings.market, gates=gates, notes=notes,
        ).save(folder)  # fmt: skip
        folders.append(folder)
    return folders


def policy_folder(folder: Path, seed: int) -> Path:
    """Where a seed's policy lies."""
    return folder / "policy" / f"seed-{seed}"
