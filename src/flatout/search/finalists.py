"""After the last trial: controls, finalists with more seeds under harder conditions, and the
winner's last training.

All of it runs in lanes that no trial uses, on the programs that are compiled already. What comes
out is written down when it is complete; a kill before that costs this last minute, not the study.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import optuna

from flatout.arrays import map_leaves
from flatout.errors import RunError
from flatout.learners.jobs import Chunk, WorkOrder
from flatout.policies.bundle import Bundle
from flatout.policies.network import Network
from flatout.runs import sweep, versions
from flatout.search.callbacks import OnStageText
from flatout.search.controls import NOISE, ORACLE
from flatout.search.finalist_results import (
    Condition,
    Floats,
    conditions_of,
    policy_folder,
    write_finalist_results,
)
from flatout.search.market_study import FINAL
from flatout.search.scores import score_lanes
from flatout.search.space import Values, apply_values, values_of
from flatout.search.spare_lanes import SpareLanes
from flatout.search.study import Study
from flatout.search.trial_files import read_trial


class FinalAgent(NamedTuple):
    """Who is trained after the last trial: some values on a stretch of the tape, from a seed."""

    stretch: str
    values: Values
    seed: int


class JudgedAgent(NamedTuple):
    """An agent after its training: the answers of its worker under each condition, and its lane."""

    chunks: Sequence[Chunk]
    lane: int

    @property
    def traces(self) -> Floats:
        """(condition, term or weight, block, bar): what it earned and held."""
        return np.stack([np.asarray(chunk.traces[self.lane]) for chunk in self.chunks])

    @property
    def network(self) -> Network:
        """What it learned, where networks were asked for."""
        networks = self.chunks[0].networks
        assert networks is not None
        return map_leaves(lambda leaf: np.array(leaf[self.lane]), networks)


def run_finals(lanes: SpareLanes, on_stage: OnStageText) -> None:
    """Train and judge what the verdict needs, and write it down."""
    study = lanes.study
    numbers = choose_finalists(study)
    seeds = range(study.market.settings.search.final_seeds)
    policy_seeds = list_fresh_seeds(study)
    plain = conditions_of(study)[:1]
    on_stage("controls: a market without edge, and one with tomorrow among the features")
    controls = train_agents(
        lanes, [FinalAgent(name, {}, seed) for name in (NOISE, ORACLE) for seed in seeds], plain
    )
    on_stage(
        f"finalists: trials {', '.join(map(str, numbers))}, {len(seeds)} seeds each, costs and "
        f"delays varied"
    )
    traces = judge_finalists(lanes, numbers)
    order = rank_finalists(study, traces)
    numbers, traces = [numbers[k] for k in order], traces[order]
    on_stage(f"winner: trial {numbers[0]}, trained again on all bars before the hold-out")
    values = trial_values(study, numbers[0])
    trained = train_agents(
        lanes, [FinalAgent(FINAL, values, seed) for seed in policy_seeds], plain, networks=True
    )
    for seed, agent in enumerate(trained):
        save_policy(study, numbers[0], seed, agent.network)
    write_finalist_results(study, numbers, traces, [agent.traces[0] for agent in controls])
    sweep(study.folder / "checkpoints")


def choose_finalists(study: Study) -> list[int]:
    """The best complete trials by their value, the earlier one of equals."""
    complete = [
        trial
        for trial in study.optuna_study.get_trials(deepcopy=False)
        if trial.state == optuna.trial.TrialState.COMPLETE and trial.value is not None
    ]
    if not complete:
        raise RunError(
            "no trial was completed: all were pruned or failed; give more trials, another pruner "
            "or a smaller learning rate"
        )
    best = sorted(complete, key=lambda trial: (-(trial.value or 0.0), trial.number))
    return [trial.number for trial in best[: study.market.settings.search.finalists]]


def trial_values(study: Study, number: int) -> Values:
    """The settings that a trial tried."""
    return values_of(study.space, read_trial(study.folder, number).facts["params"])


def list_fresh_seeds(study: Study) -> range:
    """The seeds of finalists: none that a trial was searched with, whose luck has chosen them."""
    first = study.market.settings.train.seeds
    return range(first, first + study.market.settings.search.final_seeds)


def judge_finalists(lanes: SpareLanes, numbers: Sequence[int]) -> Floats:
    """What trials earn from fresh seeds: (finalist, condition, split, seed, term or weight, block,
    bar).
    """
    splits, seeds = lanes.study.market.folds.splits, list_fresh_seeds(lanes.study)
    agents = [
        FinalAgent(split.name, trial_values(lanes.study, number), seed)
        for number in numbers
        for split in splits
        for seed in seeds
    ]
    judged = train_agents(lanes, agents, conditions_of(lanes.study))
    terms = np.stack([agent.traces for agent in judged])
    by_split = terms.reshape(len(numbers), len(splits), len(seeds), *terms.shape[1:])
    return np.moveaxis(by_split, 3, 1)


def rank_finalists(study: Study, traces: Floats) -> list[int]:
    """Finalists by their mean objective over splits and seeds, the best first; one that diverged is
    none any more.
    """
    means = {
        k: float(np.mean(score_lanes(study.market, one[0])))
        for k, one in enumerate(traces)
        if np.isfinite(one).all()
    }
    if not means:
        raise RunError(
            "all finalists diverged when they were trained with other seeds: give a smaller "
            "learning rate"
        )
    return sorted(means, key=lambda k: (-means[k], k))


def train_agents(
    lanes: SpareLanes,
    agents: Sequence[FinalAgent],
    conditions: Sequence[Condition],
    networks: bool = False,
) -> list[JudgedAgent]:
    """Train agents in groups that fill a worker's lanes, and judge each group under all
    conditions.
    """
    width = -(-len(agents) // max(1, -(-len(agents) // lanes.study.layout.lanes)))
    groups = [agents[first : first + width] for first in range(0, len(agents), width)]
    scripts = [
        [
            order_agents(lanes, group, condition, begin=n == 0, networks=networks)
            for n, condition in enumerate(conditions)
        ]
        for group in groups
    ]
    return [
        JudgedAgent(chunks, lane)
        for group, chunks in zip(groups, lanes.carry_out(scripts), strict=True)
        for lane in range(len(group))
    ]


def order_agents(
    lanes: SpareLanes,
    agents: Sequence[FinalAgent],
    condition: Condition,
    begin: bool,
    networks: bool,
) -> WorkOrder:
    """Train some agents to the end (or leave them as they are) and judge them under a condition."""
    market = lanes.study.market
    specs = [
        market.lane_on(agent.stretch, agent.values, agent.seed, condition.cost_factor)
        for agent in agents
    ]
    return lanes.make_order(
        specs, market.updates, begin=begin, delay=condition.delay, networks=networks
    )


def save_policy(study: Study, number: int, seed: int, network: Network) -> None:
    """Write the bundle of one of the winner's seeds."""
    market, values = study.market, trial_values(study, number)
    gates = market.lane_on(FINAL, values, seed).rates.gates if market.program.gated else None
    notes = {
        "study": study.name, "trial": number, "seed": seed, "updates": market.updates,
        "timesteps": market.updates * market.program.rollout, "versions": versions(),
    }  # fmt: skip
    Bundle(
        network=network,
        activation=market.program.activation,
        distribution=market.program.distribution,
        recipe=market.stretches[FINAL].fitted,
        settings=apply_values(market.settings, values).market,
        gates=gates,
        kind=market.program.network,
        notes=notes,
    ).save(policy_folder(study.folder, seed))
