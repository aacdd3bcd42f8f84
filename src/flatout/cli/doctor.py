"""`flatout doctor`: device, versions, cores, memory, and what is missing."""

import importlib.util
import os
import platform
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from flatout.cli.options import Json, print_json
from flatout.run_directory import versions

EXTRAS = {
    "torch": ("torch", "TorchMarket"),
    "stable_baselines3": ("sb3", "checking environments against Stable-Baselines3"),
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
            table.add_row(f"[bold]{name}[/]", ", ".join(value) if isinstance(value, list) else str(value))
    console.print(table, highlight=False)
    for line in facts["missing"]:
        console.print(f"[yellow]missing:[/] {escape(line)}", highlight=False)
    if not facts["missing"]:
        console.print("nothing is missing", style="green")


def look() -> dict[str, Any]:
    """All facts; a device that cannot be asked is reported, not hidden."""
    known = {name: version or "not installed" for name, version in versions().items()}
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory": memory(),
        "jax devices": jax_devices(),
        "torch devices": torch_devices(),
        **known,
        "missing": missing(),
    }


def memory() -> str:
    """Physical memory, where the system tells it."""
    names = getattr(os, "sysconf_names", {})
    if "SC_PHYS_PAGES" not in names:
        return "unknown"
    return f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 2**30:.1f} GiB"


def jax_devices() -> list[str]:
    """What JAX would compute on."""
    from flatout.market.jax_market import devices

    return devices()


def torch_devices() -> list[str]:
    """What PyTorch would compute on."""
    if importlib.util.find_spec("torch") is None:
        return ["PyTorch is not installed"]
    from flatout.market.torch_market import devices

    return devices()


def missing() -> list[str]:
    """Extras that are not installed, what they are for and how to get them."""
    return [
        f"{package} ({purpose}): pip install 'flatout[{extra}]'"
        for package, (extra, purpose) in EXTRAS.items()
        if importlib.util.find_spec(package) is None
    ]
