"""Damaged checkpoints of a training, and damaged `metrics.jsonl`: read, compared with the program,
gone on with.
"""

import json
import random
from functools import cache
from pathlib import Path

import numpy as np

from damage.mutations import damage_folder
from damage.one_case import SilentlyWrong
from flatout.learners.checkpoint import (
    check_arrays,
    read_checkpoint,
    rebuild_tree,
    write_checkpoint,
)
from flatout.policies.network import Network, Sizes, new_network
from flatout.training.metrics_file import progress_in, read_rows

COUNT = 300
CHECKPOINT, METRICS = "worker-0.safetensors", "metrics.jsonl"
LANES = ["AAA-seed0", "BBB/USDT-seed1"]


@cache
def network() -> Network:
    return new_network(Sizes(5, (4, 4), 2, 2), 0)


@cache
def arrays() -> dict[str, np.ndarray]:
    """What a checkpoint holds, as far as a driver reads it."""
    named = {"best/score": np.array([1.0, -np.inf]), "best/updates": np.array([1, 2], np.int32)}
    for prefix in ("lanes/network", "best/network"):
        for part in ("actor", "critic"):
            perceptron = getattr(network(), part)
            for k, layer in (*enumerate(perceptron.hidden), (None, perceptron.head)):
                place = f"{prefix}/{part}/head" if k is None else f"{prefix}/{part}/hidden/{k}"
                named |= {f"{place}/weight": layer.weight, f"{place}/bias": layer.bias}
        named[f"{prefix}/log_std"] = network().log_std
    return named | {
        "lanes/updates": np.array([3, 3], np.int32),
        "last/turn": np.asarray(3, np.int32),
    }


def prepare(folder: Path) -> None:
    write_checkpoint(folder / CHECKPOINT, arrays(), {"lanes": LANES})
    rows = [
        {"lane": lane, "updates": n, "metrics": {"loss": None}} for n in (1, 2, 3) for lane in LANES
    ]
    (folder / METRICS).write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def damage(number: int, originals: Path, folder: Path) -> str:
    rng = random.Random(number)
    for name in (CHECKPOINT, METRICS):
        (folder / name).write_bytes((originals / name).read_bytes())
    which = CHECKPOINT if rng.random() < 0.7 else METRICS
    return damage_folder(folder, rng, folder, [folder / which])


def attempt(folder: Path) -> str:
    path = folder / CHECKPOINT
    found, _ = read_checkpoint(path)
    check_arrays(path, found, {name: array.shape for name, array in arrays().items()})
    for prefix in ("lanes/network", "best/network"):
        rebuild_tree(network(), found, prefix)
    if any(found[name].tobytes() != array.tobytes() for name, array in arrays().items()):
        raise SilentlyWrong("other numbers than those that were written")
    if sorted(progress_in(path)) == LANES and any(
        row.lane not in LANES for _, row in read_rows(folder / METRICS)
    ):
        return "read, with a lane that no checkpoint knows"
    return "read"
