"""How fast agents are trained: flatout's single agent and population beside Stable-Baselines3 and
SBX, in one run.

The workload: the market of `market_speed.py` (seven assets, fourteen features, every rule on), a
rollout of 8,192 transitions, 4 epochs, minibatches of 2,048. Contestants run in rounds, the best of
which counts. Learning is included, compiling is counted apart.
"""

import importlib.util
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from flatout.bench.market_speed import Steps, bench_market, measure_rate
from flatout.bench.workload import EPOCHS, MINIBATCH, N_ENVS, ROLLOUT, WIDTHS, LearnerShape
from flatout.children import available_cores
from flatout.foreign import JsonTable
from flatout.learners.engines import Engine, market_environment
from flatout.learners.jobs import Chunk, NewLanes, WorkOrder
from flatout.learners.lane_trees import stack_trees
from flatout.learners.rates import program_of, rates_of
from flatout.market.market import Market
from flatout.policies.network import Sizes, multiplications
from flatout.settings.train import TrainSettings
from flatout.training.training import Lane, Training, make_jobs
from flatout.workers.driving import drive_workers, run_scripts, start_workers
from flatout.workers.slots import cpu_slots
from flatout.workers.worker import Worker

LANES = 24
SECONDS = 3.0  # how long a contestant runs in a round
MATRICES = ((2048, 133, 128), (2048, 256, 256), (1024, 1024, 1024), (2048, 2048, 2048))


def bench_training(market: Market, width: int, lanes: int, engine: Engine = "jax") -> Training:
    """So many agents of one size in the bench's market."""
    settings = TrainSettings(
        n_envs=N_ENVS,
        n_steps=ROLLOUT // N_ENVS,
        minibatches=ROLLOUT // MINIBATCH,
        epochs=EPOCHS,
        hidden=(width, width),
    )
    program = program_of(settings, market_environment(market.shape, engine), N_ENVS)
    tape, rules = market.arrays()
    rates = rates_of(settings, 10**6, rules)
    agents = tuple(
        Lane(f"{width}-{k}", seed=k, rates=rates, judged=rules, hidden=settings.hidden, log_std=0.0)
        for k in range(lanes)
    )
    return Training(program, tape, agents, updates=10**6, chunk=1, eval_envs=1, eval_steps=1)


class TrainingContestant:
    """flatout's workers with some lanes, advanced by so many updates at a time."""

    def __init__(self, training: Training, workers: list[Worker]) -> None:
        self.training, self.workers = training, workers
        self.done = 0
        self.advance(1)
        self.compile_seconds = max(w.ready.compile_seconds for w in self.workers if w.ready)
        self.chunk = 1
        self.chunk = max(
            1,
            round(
                SECONDS * self.measure_round() / (training.program.rollout * len(training.lanes))
            ),
        )

    def advance(self, updates: int) -> float:
        """Transitions per second of all workers together while each advances its lanes."""
        speeds: dict[int, float] = {}
        goal = self.done + updates
        started = self.done

        def note_speed(k: int, chunk: Chunk) -> None:
            if min(chunk.updates) > started:
                speeds[k] = float(chunk.steps) / float(chunk.busy)

        if not self.done:
            drive_workers(self.workers, lambda k, chunk: self.next_until(chunk, goal), note_speed)
        else:
            for worker in self.workers:
                worker.ask(WorkOrder((goal,) * len(worker.jobs[0].seeds)))
            drive_workers(self.workers, lambda k, chunk: None, note_speed)
        self.done = goal
        return sum(speeds.values())

    def next_until(self, chunk: Chunk, goal: int) -> tuple[int, ...] | None:
        """How far a worker that answered this shall go; None when it is there."""
        return None if min(chunk.updates) >= goal else (goal,) * len(chunk.updates)

    def measure_round(self) -> float:
        """Transitions per second of one round."""
        return self.advance(self.chunk)


def measure_peak_gflops(seconds: float = 0.15) -> float:
    """The best rate of float32 matrix products over several shapes and all libraries at hand, on
    all cores. XLA is among them, as the learner runs on it: where a BLAS leaves AVX-512 alone, XLA
    multiplies twice as fast.
    """
    from flatout.market import jax_market

    best = 0.0
    for m, k, n in MATRICES:
        a, b, c = (np.ones(size, np.float32) for size in ((m, k), (k, n), (m, n)))
        multiply = partial(np.matmul, a, b, out=c)
        best = max(best, measure_product(multiply, 2 * m * k * n, seconds))
        best = max(best, measure_product(jax_market.product(a, b), 2 * m * k * n, seconds))
        if importlib.util.find_spec("torch"):
            from flatout.market import torch_market

            best = max(best, measure_product(torch_market.product(a, b, c), 2 * m * k * n, seconds))
    return best


def measure_product(multiply: Callable[[], object], flop: int, seconds: float) -> float:
    """GFLOP/s of the fastest of many calls."""
    fastest, start = np.inf, time.perf_counter()
    while time.perf_counter() - start < seconds:
        began = time.perf_counter()
        multiply()
        fastest = min(fastest, time.perf_counter() - began)
    return flop / fastest / 1e9


class Flop(NamedTuple):
    """Floating-point operations of the networks per transition: one forward pass in the rollout,
    then forward and backward in each epoch.
    """

    usual: int  # with a backward pass as two forward passes, as `mfu` is defined
    executed: int  # without the gradients of the observation, which are not computed


def flop_per_step(sizes: Sizes) -> Flop:
    """The operations of networks of these sizes, per transition."""
    forward, backward = multiplications(sizes)
    return Flop(2 * (forward + EPOCHS * 3 * forward), 2 * (forward + EPOCHS * (forward + backward)))


@dataclass(frozen=True)
class Peer:
    """Another trainer that is measured beside flatout."""

    name: str
    make: Callable[[Market, LearnerShape], Steps]


def find_peers() -> list[Peer]:
    """The other trainers that are installed."""
    if importlib.util.find_spec("stable_baselines3") is None:
        return []
    from flatout.bench import peers

    found = [
        Peer("sb3_loop12", peers.sb3_loop),
        Peer("sb3_lists12", peers.sb3_lists),
        Peer("sb3_fast64", peers.sb3_fast),
    ]
    return (
        [*found, Peer("sbx_fast64", peers.sbx_fast)] if importlib.util.find_spec("sbx") else found
    )


def measure_training(
    rounds: int = 5,
    widths: tuple[int, ...] = WIDTHS,
    progress: Callable[[str], None] = lambda text: None,
) -> JsonTable:
    """Steps per second of every contestant at every width."""
    market = bench_market()
    speeds: dict[str, dict[str, float]] = {}
    compiling: dict[str, float] = {}
    flops: dict[str, Flop] = {}
    peak = 0.0
    for width in widths:
        with ExitStack() as stack:
            contestants: dict[str, Callable[[], float]] = {}
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            lanes = bench_training(market, width, LANES)
            flops[str(width)] = flop_per_step(lanes.program.sizes)
            teams = {
                "flatout_single": (bench_training(market, width, 1), cpu_slots(1)),
                "flatout_population": (lanes, cpu_slots(LANES)),
                "flatout_one_worker": (lanes, cpu_slots(LANES)[:1]),
            }
            for name, (training, slots) in teams.items():
                progress(f"width {width}: compiling {name}")
                (folder / name).mkdir()
                jobs = [
                    replace(job, evaluation=None)
                    for job in make_jobs(training, folder / name, len(slots))
                ]
                team = TrainingContestant(
                    training,
                    stack.enter_context(
                        start_workers(slots, [[job] for job in jobs], folder / name)
                    ),
                )
                compiling[f"{name}_{width}"] = round(team.compile_seconds, 1)
                contestants[name] = team.measure_round
            for peer in find_peers():
                progress(f"width {width}: preparing {peer.name}")
                run = peer.make(market, LearnerShape(width))
                contestants[peer.name] = lambda run=run: measure_rate(run, SECONDS)  # type: ignore[misc]
            best = dict.fromkeys(contestants, 0.0)
            for k in range(rounds):
                for name, once in contestants.items():
                    progress(f"width {width}, round {k + 1} of {rounds}: {name}")
                    best[name] = max(best[name], once())
                peak = max(peak, measure_peak_gflops())
        for name, value in best.items():
            speeds.setdefault(name, {})[str(width)] = round(value)
    return summarise(speeds, compiling, flops, peak)


def summarise(
    speeds: dict[str, dict[str, float]],
    compiling: dict[str, float],
    flops: dict[str, Flop],
    peak: float,
) -> JsonTable:
    """The figures and the ratios that people ask for."""
    population = speeds["flatout_population"]
    ratios = {
        f"{ours}_over_{theirs}": {
            w: round(speeds[ours][w] / v, 2) for w, v in speeds[theirs].items()
        }
        for ours in ("flatout_single", "flatout_population")
        for theirs in ("sb3_loop12", "sb3_lists12", "sb3_fast64", "sbx_fast64")
        if theirs in speeds
    }
    return {
        **speeds,
        "peak_gflops": round(peak, 1),
        "mfu": {w: round(v * flops[w].usual / 1e9 / peak, 3) for w, v in population.items()},
        "mfu_executed": {
            w: round(v * flops[w].executed / 1e9 / peak, 3) for w, v in population.items()
        },
        "workers_speedup": {
            w: round(v / speeds["flatout_one_worker"][w], 2) for w, v in population.items()
        },
        **ratios,
        "compile_seconds": compiling,
        "flop_per_step": {w: flop._asdict() for w, flop in flops.items()},
        "workload": (
            "7 assets x 14 features, all rules on; rollout 8192, 4 epochs, minibatch "
            "2048; population of 24"
        ),
    }


def profile_training(width: int, rounds: int = 5) -> dict[str, float]:
    """Where the milliseconds of one update go, on one core: the same program with no epoch at all,
    and with four.
    """
    training = bench_training(bench_market(), width, 1)
    program, lane = training.program, training.lanes[0]
    minibatches = EPOCHS * program.minibatches
    orders = [WorkOrder((1,))]
    for k in range(2 * rounds):
        epochs = np.asarray(EPOCHS if k % 2 else 0, np.int32)
        rates = stack_trees([lane.rates._replace(epochs=epochs)])
        orders.append(
            WorkOrder((1 + (k + 1) * 8,), new_lanes=NewLanes(rates, stack_trees([lane.judged]), ()))
        )
    with tempfile.TemporaryDirectory() as folder:
        jobs = [replace(job, evaluation=None) for job in make_jobs(training, Path(folder), 1)]
        with start_workers(cpu_slots(2, 2)[:1], [jobs], Path(folder)) as workers:
            [chunks] = run_scripts(workers, [orders])
    seconds = [float(chunk.busy) / 8 for chunk in chunks[1:]]
    rollout, whole = min(seconds[::2]), min(seconds[1::2])
    forward, backward = multiplications(program.sizes)
    flop = 2 * (forward + backward) * program.minibatch
    peak = measure_peak_gflops() / len(available_cores())
    return {
        "update_ms": 1e3 * whole,
        "rollout_and_advantages_ms": 1e3 * rollout,
        "minibatch_ms": 1e3 * (whole - rollout) / minibatches,
        "minibatch_products_at_peak_ms": flop / peak / 1e6,
        "minibatches": minibatches,
        "core_gflops": peak,
    }
