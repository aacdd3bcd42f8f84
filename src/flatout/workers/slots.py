"""Where workers run: one slot per device or CPU core, and which lanes each gets."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from flatout.children import available_cores

ONE_THREAD = "--xla_cpu_multi_thread_eigen=false"


# Compiled programs are kept between runs; a user's own choice of folder wins.
CACHE_FOLDER = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "flatout"


CACHE = {
    "JAX_COMPILATION_CACHE_DIR": os.environ.get(
        "JAX_COMPILATION_CACHE_DIR", str(CACHE_FOLDER / "xla")
    ),
    # PyTorch would keep and run libraries in the folder for temporary files, which all users of a
    # machine share.
    "TORCHINDUCTOR_CACHE_DIR": os.environ.get(
        "TORCHINDUCTOR_CACHE_DIR", str(CACHE_FOLDER / "inductor")
    ),
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "1",
}


@dataclass(frozen=True)
class Slot:
    """Where a worker runs: its name for messages, its cores, its environment variables."""

    name: str
    cores: tuple[int, ...] = ()  # pinned to these; () = anywhere
    environment: Mapping[str, str] = field(default_factory=dict)


def cpu_slots(lanes: int, workers: int | None = None) -> list[Slot]:
    """One slot per core, but not more than lanes; a single lane gets all cores."""
    cores = available_cores()
    count = min(lanes, workers or len(cores))
    environment = {"JAX_PLATFORMS": "cpu", **CACHE}
    if count == 1:
        return [Slot("cpu", tuple(cores), environment)]
    environment["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {ONE_THREAD}".strip()
    pinned = [cores[k % len(cores)] for k in range(count)]
    return [Slot(f"cpu core {core}", (core,), environment) for core in pinned]


def share_lanes(lanes: int, slots: int) -> list[range]:
    """Which lanes each slot gets, as evenly as possible."""
    bounds = [k * lanes // slots for k in range(slots + 1)]
    return [range(first, stop) for first, stop in pairwise(bounds)]
