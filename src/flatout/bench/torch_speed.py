"""How fast the PyTorch engine trains one agent, beside Stable-Baselines3 in one run; and whether it
ever waits.

The workload is that of `training_speed.py` at width 64. Contestants run in rounds, the best of
which counts. Learning is included, compiling is counted apart.
"""

import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np

from flatout.bench.market_speed import bench_market, measure_rate
from flatout.bench.training_speed import SECONDS, TrainingContestant, bench_training, find_peers
from flatout.bench.workload import EPOCHS, MINIBATCH, N_ENVS, ROLLOUT, LearnerShape
from flatout.errors import RunError
from flatout.foreign import JsonTable
from flatout.market.market import Market
from flatout.training.training import make_jobs
from flatout.workers.driving import start_workers
from flatout.workers.slots import cpu_slots

WIDTH = 64
STEPS = 20  # in which host syncs are counted
WITHOUT_COMPILING = {"FLATOUT_TORCH_COMPILE": "0"}


def measure_torch(
    rounds: int = 5, progress: Callable[[str], None] = lambda text: None
) -> JsonTable:
    """Steps per second of every contestant, and the host syncs of one step."""
    peers = [peer for peer in find_peers() if peer.name.startswith("sb3")]
    if not peers:
        raise RunError("the bench compares with Stable-Baselines3: pip install 'flatout[sb3]'")
    market = bench_market()
    [slot] = cpu_slots(1)
    slots = {
        "torch_single": slot,
        "torch_eager": replace(slot, environment={**slot.environment, **WITHOUT_COMPILING}),
    }
    compiling: dict[str, float] = {}
    contestants: dict[str, Callable[[], float]] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for name, place in slots.items():
            progress(f"compiling {name}")
            (folder / name).mkdir()
            training = bench_training(market, WIDTH, 1, "torch")
            jobs = [replace(job, evaluation=None) for job in make_jobs(training, folder / name, 1)]
            team = TrainingContestant(
                training, stack.enter_context(start_workers([place], [jobs], folder / name))
            )
            compiling[name] = round(team.compile_seconds, 1)
            contestants[name] = team.measure_round
        for peer in peers:
            progress(f"preparing {peer.name}")
            run = peer.make(market, LearnerShape(WIDTH))
            contestants[peer.name] = lambda run=run: measure_rate(run, SECONDS)  # type: ignore[misc]
        best = dict.fromkeys(contestants, 0.0)
        for k in range(rounds):
            for name, once in contestants.items():
                progress(f"round {k + 1} of {rounds}: {name}")
                best[name] = max(best[name], once())
    speeds = {name: round(value) for name, value in best.items()}
    return {
        **speeds,
        **{
            f"torch_over_{peer.name}": round(best["torch_single"] / best[peer.name], 2)
            for peer in peers
        },
        "host_syncs_per_step": count_host_syncs(market) / STEPS,
        "compile_seconds": compiling["torch_single"],
        "workload": f"7 assets x 14 features, all rules on; {N_ENVS} accounts, rollout {ROLLOUT}, "
        f"{EPOCHS} epochs, minibatch {MINIBATCH}, width {WIDTH}",
    }


def count_host_syncs(market: Market) -> int:
    """How often the host waited for the device in some steps of `TorchMarket`."""
    from flatout.market.torch_market import HostSyncs, TorchMarket  # loads PyTorch

    accounts = TorchMarket(market, N_ENVS)
    action = accounts.upload(np.zeros((N_ENVS, market.action_size), np.float32))
    with HostSyncs() as syncs:
        for _ in range(STEPS):
            accounts.step(action)
    return len(syncs.found)
