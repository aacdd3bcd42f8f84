"""`flatout bench study`: how long 500 trials x 6 splits x 100,000 steps take, from a slice of them
that is really run.

The same slice is run with and without pruning, and Stable-Baselines3 runs its own slice of the same
work as its users do: one process, one trial and split after the other, a scalar environment in a
DummyVecEnv of 12, test blocks judged at the end of each. Compiling is counted apart.
"""

import contextlib
import importlib.util
import itertools
import tempfile
from collections.abc import Callable
from pathlib import Path

import optuna

from flatout.bench.calibration import own_registry
from flatout.bench.market_speed import ALL_RULES, bench_market, bench_panel, measure_rate
from flatout.bench.training_speed import flop_per_step, measure_peak_gflops
from flatout.bench.workload import EPOCHS, MINIBATCH, ROLLOUT, LearnerShape
from flatout.foreign import JsonTable
from flatout.search.run import StudyRequest, open_study_folder, prepare
from flatout.search.scheduler import Scheduler, start_study_workers
from flatout.search.study import Study
from flatout.settings.loading import Resolved
from flatout.settings.tables import Settings
from flatout.workers.slots import cpu_slots

TRIALS, SPLITS, STEPS, WIDTH = 500, 6, 100_000, 64
LANES = 1000  # more than there are cores


def bench_settings(pruner: str, trials: int) -> Settings:
    """The lineage's study: the usual space, every rule on."""
    tables: JsonTable = {
        **ALL_RULES,
        "train": {"hidden": [WIDTH, WIDTH], "epochs": EPOCHS, "minibatches": ROLLOUT // MINIBATCH},
        "search": {"trials": trials, "timesteps": STEPS, "pruner": pruner},
    }
    return Settings.model_validate(tables)


def measure_study(
    seconds: float = 60.0, progress: Callable[[str], None] = lambda text: None
) -> JsonTable:
    """The figures of a slice of at least so many seconds, and what they mean for the whole
    study.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    slots = cpu_slots(LANES)
    peak = measure_peak_gflops()
    progress("a slice without pruning")
    plain = run_slice("none", seconds, len(slots))
    progress("a slice with pruning")
    pruned = run_slice("curve", seconds, len(slots))
    sb3 = 0.0
    if importlib.util.find_spec("stable_baselines3"):
        progress("Stable-Baselines3, one trial and split after the other")
        sb3 = sb3_slice(plain, seconds)
    peak = max(peak, measure_peak_gflops())
    state = plain.state
    speed = state.steps / state.seconds
    whole = TRIALS * SPLITS * STEPS
    flop = flop_per_step(plain.market.program.sizes)
    per_trial = plain.market.updates * plain.market.program.rollout * SPLITS
    saved = pruned.state.steps / (len(pruned.state.finished) * per_trial)
    return {
        "study_minutes": round(whole / speed / 60, 1),
        "study_minutes_pruned": round(
            whole * saved / (pruned.state.steps / pruned.state.seconds) / 60, 1
        ),
        "sb3_minutes": round(whole / sb3 / 60, 1) if sb3 else None,
        "ratio": round(speed / sb3, 1) if sb3 else None,
        "lane_occupancy": round(state.busy_seconds / state.worker_seconds, 3),
        "lane_occupancy_pruned": round(pruned.state.busy_seconds / pruned.state.worker_seconds, 3),
        "steps_per_s": round(speed),
        "mfu": round(speed * flop.usual / 1e9 / peak, 3),
        "mfu_executed": round(speed * flop.executed / 1e9 / peak, 3),
        "sb3_steps_per_s": round(sb3) if sb3 else None,
        "peak_gflops": round(peak, 1),
        "slice_seconds": round(state.seconds, 1),
        "slice_trials": len(state.finished),
        "workload": f"{TRIALS} trials x {SPLITS} splits x {STEPS:,} steps, 7 assets x 14 "
        f"features, all rules on, width {WIDTH}, {EPOCHS} epochs",
    }


def sb3_slice(study: Study, seconds: float) -> float:
    """Steps per second of Stable-Baselines3 over whole trials, the next split each time."""
    from flatout.bench.peers import sb3_trial

    market, splits = bench_market(), itertools.cycle(study.market.folds.splits)

    def trial() -> int:
        blocks = [(block.first, block.stop - 1) for block in next(splits).test]
        return sb3_trial(market, LearnerShape(WIDTH), STEPS, blocks)

    return measure_rate(trial, seconds)


def run_slice(pruner: str, seconds: float, n_workers: int) -> Study:
    """A study of that kind, ended after the round in which its time is up."""
    settings = bench_settings(pruner, TRIALS)
    with tempfile.TemporaryDirectory() as out, contextlib.ExitStack() as stack:
        folder = Path(out)
        request = StudyRequest("bench")
        made = prepare(
            request,
            Resolved(settings=settings, origin={}),
            bench_panel(),
            workers=n_workers,
            out=folder,
        )
        stack.enter_context(own_registry(folder / "registry"))
        study = stack.enter_context(open_study_folder(made, folder, None))
        study.begin()
        workers = stack.enter_context(
            start_study_workers([study], cpu_slots(LANES), folder / "logs")
        )
        scheduler: Scheduler = Scheduler(
            [study],
            workers,
            lambda study, decisions: stop_after(study, seconds, scheduler),
        )
        scheduler.run()
        return study


def stop_after(study: Study, seconds: float, scheduler: Scheduler) -> None:
    """End the slice when it is long enough."""
    if study.state.seconds >= seconds:
        scheduler.stopping.add(0)
