"""Samples per second while populations learn the market of `flatout bench learn`: `pathwise` with
its network for each asset, and PPO with a flat network of 64 x 64.

As `flatout bench train` measures a population: worker processes, one per core of all that this
process may use; the best of some rounds counts, compiling is apart.
"""

import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from flatout.bench.learning_quality import LEARNERS, Ground, make_ground
from flatout.bench.learning_summary import DEFAULT
from flatout.bench.training_speed import LANES, TrainingContestant
from flatout.children import available_cores
from flatout.foreign import JsonTable
from flatout.learners.engines import market_environment
from flatout.learners.forecast import usual_envs
from flatout.learners.rates import program_of, rates_of
from flatout.settings.train import TrainSettings
from flatout.training.training import Lane, Training, make_jobs
from flatout.workers.driving import start_workers
from flatout.workers.slots import cpu_slots

ROUNDS = 3
MEASURED = {"pathwise_steps_per_s": DEFAULT, "ppo_steps_per_s": "ppo"}


def population_training(ground: Ground, changes: Mapping[str, Any], lanes: int) -> Training:
    """So many agents of one of the bench's learners, on the bars that teach."""
    settings = TrainSettings(**changes)
    market = ground.lesson
    program = program_of(
        settings, market_environment(market.shape, "jax"), settings.n_envs or usual_envs(settings)
    )
    tape, rules = market.arrays()
    rates = rates_of(settings, 10**6, rules)
    agents = tuple(
        Lane(
            f"lane-{k}",
            seed=k,
            rates=rates,
            judged=rules,
            hidden=settings.hidden,
            log_std=settings.log_std,
        )
        for k in range(lanes)
    )
    return Training(program, tape, agents, updates=10**6, chunk=1, eval_envs=1, eval_steps=1)


def measure_populations(
    strength_bps: float,
    every_rule: bool = False,
    lanes: int = LANES,
    rounds: int = ROUNDS,
    progress: Callable[[str], None] = lambda text: None,
) -> JsonTable:
    """Samples per second of both populations, which take turns."""
    ground = make_ground(strength_bps, every_rule)
    slots = cpu_slots(lanes)
    with ExitStack() as stack:
        teams: dict[str, TrainingContestant] = {}
        for key, learner in MEASURED.items():
            progress(f"compiling a population: {learner}")
            training = population_training(ground, LEARNERS[learner], lanes)
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            jobs = [
                replace(job, evaluation=None) for job in make_jobs(training, folder, len(slots))
            ]
            workers = start_workers(slots, [[job] for job in jobs], folder)
            teams[key] = TrainingContestant(training, stack.enter_context(workers))
        best = dict.fromkeys(teams, 0.0)
        for k in range(rounds):
            for key, team in teams.items():
                progress(f"{MEASURED[key]}, a population, round {k + 1} of {rounds}")
                best[key] = max(best[key], team.measure_round())
    return {
        **{key: round(value) for key, value in best.items()},
        "population": f"{lanes} agents on {len(available_cores())} cores",
    }
