"""Which engine and which devices a run uses. A GPU that is missing or broken costs one line, and
the CPU takes over, unless the user asked for the GPU: then it is an error.
"""

import importlib.util
import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

from flatout.children import own_program
from flatout.errors import RunError
from flatout.learners.engines import Engine
from flatout.learners.jobs import TORCH_DEVICE
from flatout.settings.fields import to_whole
from flatout.settings.train import EngineName
from flatout.workers.slots import CACHE, Slot, cpu_slots

MOST_WORKERS = 1024
PROBE_SECONDS = 120  # a GPU that does not answer for so long is broken
DRIVERS = {
    "/dev/nvidiactl": ("NVIDIA", "/proc/driver/nvidia/version"),
    "/dev/kfd": ("AMD", "/sys/module/amdgpu/version"),
}
VISIBLE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
ALLOWED = re.compile(r"auto|cpu|mps|(cuda|gpu|rocm)(:\d+)?")


class Gpu(NamedTuple):
    """One accelerator as a library sees it."""

    name: str
    kind: str  # cuda (also ROCm's) or mps
    build: str
    total_bytes: int | None
    free_bytes: int | None


class LibraryGpus(NamedTuple):
    """The accelerators that one library can use."""

    gpus: tuple[Gpu, ...] = ()
    trouble: str | None = None  # why it can use none, where that is a surprise


class DeviceChoice(NamedTuple):
    """Where a run computes: with which library, in which slots."""

    engine: Engine
    slots: list[Slot]
    free_bytes: int | None  # of the fullest GPU; None on a CPU, where it is the machine's
    note: str | None  # for the user, where things are not as they may have hoped


@cache
def ask_library(engine: Engine) -> LibraryGpus:
    """What this library can use, asked of another process; nothing is asked where no GPU is in
    sight.
    """
    if importlib.util.find_spec(engine) is None:
        return LibraryGpus((), f"{engine} is not installed")
    if not list_hardware() and sys.platform != "darwin":
        return LibraryGpus()
    command = own_program("flatout.workers.device_probe", engine)
    try:
        ended = subprocess.run(
            command, capture_output=True, text=True, timeout=PROBE_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return LibraryGpus((), f"{engine} did not answer within {PROBE_SECONDS} s")
    return read_answer(engine, ended.stdout, ended.returncode)


def read_answer(engine: Engine, text: str, code: int) -> LibraryGpus:
    """What a probe printed; a GPU that is there but was not found is trouble."""
    try:
        answer = json.loads(text.splitlines()[-1])
    except (ValueError, IndexError):
        return LibraryGpus((), f"{engine} died while it looked for GPUs (exit code {code})")
    found = LibraryGpus(tuple(Gpu(**one) for one in answer["gpus"]), answer["trouble"])
    if not found.gpus and found.trouble is None and list_hardware():
        return LibraryGpus((), f"the installed {engine} is built without support for it")
    return found


def list_hardware() -> list[str]:
    """GPUs whose driver is loaded, by maker, with its version."""
    lines = []
    for device, (maker, version) in DRIVERS.items():
        if Path(device).exists():
            known = (
                Path(version).read_text(encoding="utf-8").splitlines()[:1]
                if Path(version).exists()
                else []
            )
            lines.append(" ".join([maker, *known]))
    return lines


def choose_devices(
    engine: EngineName, device: str | None, lanes: int, workers: int | None = None
) -> DeviceChoice:
    """The engine and the workers' slots; `device` is what the user asked for, None or auto for
    anything.
    """
    workers = to_whole(workers)
    if workers is not None and (type(workers) is not int or not 1 <= workers <= MOST_WORKERS):
        raise RunError(f"workers are {workers!r}: give a whole number, 1 to {MOST_WORKERS:,}")
    wanted = device or "auto"
    if not ALLOWED.fullmatch(wanted):
        raise RunError(
            f"the device {wanted} is unknown; there are auto, cpu, cuda, cuda:N, rocm, rocm:N, mps"
        )
    if engine == "torch" and importlib.util.find_spec("torch") is None:
        raise RunError(
            "the torch engine needs PyTorch: pip install 'flatout[torch]', or choose the engine jax"
        )
    if wanted == "cpu":
        return choose_cpu("jax" if engine == "auto" else engine, lanes, workers, None)
    engines: tuple[Engine, ...] = ("jax", "torch") if engine == "auto" else (engine,)
    for one in engines:
        gpus = match_gpus(ask_library(one).gpus, wanted)
        if gpus:
            return choose_gpus(one, gpus, ask_library(one), lanes=lanes, workers=workers)
    trouble = [ask_library(one).trouble for one in engines]
    reasons = "; ".join(reason for reason in trouble if reason and list_hardware())
    if wanted != "auto":
        seen = (
            reasons or f"{' and '.join(engines)} see{'s' * (len(engines) == 1)} no such device here"
        )
        raise RunError(
            f"the device {wanted}: {seen}; leave `device` out to use the CPU, `flatout doctor` "
            f"tells more"
        )
    note = (
        f"there is a GPU ({', '.join(list_hardware())}), but {reasons}; using the CPU"
        if reasons
        else None
    )
    return choose_cpu(engines[0], lanes, workers, note)


def match_gpus(gpus: tuple[Gpu, ...], wanted: str) -> list[int]:
    """Which of the accelerators were asked for."""
    kind, _, index = wanted.partition(":")
    numbers = [
        k
        for k, gpu in enumerate(gpus)
        if wanted == "auto" or (gpu.kind == "mps") == (kind == "mps")
    ]
    return [k for k in numbers if not index or k == int(index)]


def choose_cpu(engine: Engine, lanes: int, workers: int | None, note: str | None) -> DeviceChoice:
    """One worker per core, unless fewer or more are asked for."""
    return DeviceChoice(engine, cpu_slots(lanes, workers), None, note)


def choose_gpus(
    engine: Engine, gpus: list[int], found: LibraryGpus, lanes: int, workers: int | None
) -> DeviceChoice:
    """One worker per GPU, unless fewer or more are asked for."""
    count = min(workers or len(gpus), lanes)
    slots = []
    for k in range(count):
        index = gpus[k % len(gpus)]
        kind = found.gpus[index].kind
        place = {TORCH_DEVICE: kind} | (
            dict.fromkeys(VISIBLE, str(index)) if kind == "cuda" else {}
        )
        slots.append(Slot(f"gpu {index} ({found.gpus[index].name})", (), {**CACHE, **place}))
    known = [
        gpu.free_bytes
        for k, gpu in enumerate(found.gpus)
        if k in gpus and gpu.free_bytes is not None
    ]
    return DeviceChoice(engine, slots, min(known) if known else None, None)
