"""`flatout doctor`: device, versions, cores, memory, and what is missing."""

import importlib.util
import os
import platform
import sys

from rich.console import Console
from rich.table import Table

from flatout.cli.options import Json, print_json
from flatout.foreign import JsonTable
from flatout.learners.engines import Engine
from flatout.learners.forecast import free_bytes
from flatout.runs import versions
from flatout.terminal import plain
from flatout.workers.devices import Gpu, ask_library, choose_devices, list_hardware

EXTRAS = {
    "torch": ("torch", "the PyTorch engine, TorchMarket, flatout.PPO on Gymnasium environments"),
    "stable_baselines3": ("sb3", "export to Stable-Baselines3, and the benches beside it"),
    "onnx": ("export", "export to ONNX"),
    "sklearn": ("export", "export of scalers to scikit-learn"),
    "exchange_calendars": ("calendars", "sessions and holidays of exchanges by name"),
}


def doctor(as_json: Json = False) -> None:
    """Tell what flatout runs on, and what is missing."""
    facts = look()
    if as_json:
        print_json(facts)
        return
    console, table = Console(), Table(show_header=False, box=None)
    for name, value in facts.items():
        if name != "missing":
            table.add_row(
                f"[bold]{name}[/]", plain(", ".join(value) if isinstance(value, list) else value)
            )
    console.print(table, highlight=False)
    for line in facts["missing"]:
        console.print(f"[yellow]missing:[/] {plain(line)}", highlight=False)
    if not facts["missing"]:
        console.print("nothing is missing", style="green")


def look() -> JsonTable:
    """All facts; a device that cannot be asked is reported, not hidden."""
    known = {name: version or "not installed" for name, version in versions().items()}
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cores": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
        "memory": memory(),
        "free memory": f"{free_bytes() / 2**30:.1f} GiB",
        "gpu drivers": list_hardware() or ["none"],
        "jax devices": seen_by("jax"),
        "torch devices": seen_by("torch"),
        "chosen": describe_choice(),
        **known,
        "missing": missing(),
    }


def describe_choice() -> str:
    """Where `flatout train` would compute if nothing is asked for."""
    choice = choose_devices("auto", None, sys.maxsize)
    places = ", ".join(slot.name for slot in choice.slots)
    return f"{choice.engine} on {places}" + (f"; {choice.note}" if choice.note else "")


def memory() -> str:
    """Physical memory, where the system tells it."""
    names = getattr(os, "sysconf_names", {})
    if "SC_PHYS_PAGES" not in names:
        return "unknown"
    return f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 2**30:.1f} GiB"


def seen_by(engine: Engine) -> list[str]:
    """What a library would compute on, and why not on a GPU that is there."""
    found = ask_library(engine)
    gpus = [
        f"{gpu.kind}:{k} {gpu.name}{room(gpu)} ({gpu.build})" for k, gpu in enumerate(found.gpus)
    ]
    return ["cpu", *gpus, *([f"trouble: {found.trouble}"] if found.trouble else [])]


def room(gpu: Gpu) -> str:
    """A GPU's memory, where it tells it."""
    if gpu.total_bytes is None or gpu.free_bytes is None:
        return ""
    return f", {gpu.free_bytes / 2**30:.1f} of {gpu.total_bytes / 2**30:.1f} GiB free"


def missing() -> list[str]:
    """Extras that are not installed, what they are for and how to get them."""
    return [
        f"{package} ({purpose}): pip install 'flatout[{extra}]'"
        for package, (extra, purpose) in EXTRAS.items()
        if importlib.util.find_spec(package) is None
    ]
