"""After the last trial: finalists with more seeds under harder conditions, and the winner's last
training.

All of it runs in lanes that no trial uses, on the programs that are compiled already. What comes
out is written down when it is complete; a kill before that costs this last minute, not the study.
"""

from collections.abc import Sequence

import numpy as np
import optuna

from flatout.errors import RunError
from flatout.policies.bundle import Bundle
from flatout.policies.network import Network
from flatout.runs import sweep, versions
from flatout.search.callbacks import OnStageText
from flatout.search.control_results import train_controls
from flatout.search.finalist_results import (
    Floats,
    conditions_of,
    policy_folder,
    write_finalist_results,
)
from flatout.search.market_study import FINAL
from flatout.search.scores import score_lanes
from flatout.search.space import Values, apply_values, values_of
from flatout.search.spare_agents import SpareAgent, train_agents
from flatout.search.spare_lanes import SpareLanes
from flatout.search.study import Study
from flatout.search.trial_files import read_trial


def run_finals(lanes: SpareLanes, on_stage: OnStageText) -> None:
    """Train and judge what the verdict needs, and write it down."""
    study = lanes.study
    numbers = choose_finalists(study)
    seeds = range(study.market.settings.search.final_seeds)
    policy_seeds = list_fresh_seeds(study)
    plain = conditions_of(study)[:1]
    controls = train_controls(lanes, on_stage)  # of a study that was begun without
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
        lanes, [SpareAgent(FINAL, values, seed) for seed in policy_seeds], plain, networks=True
    )
    for seed, agent in enumerate(trained):
        save_policy(study, numbers[0], seed, agent.network)
    write_finalist_results(study, numbers, traces, controls)
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
        SpareAgent(split.name, trial_values(lanes.study, number), seed)
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
