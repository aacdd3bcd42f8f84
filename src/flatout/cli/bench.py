"""`flatout bench`: speeds, measured side by side in one run."""

from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from flatout.cli.options import Json, print_json
from flatout.evaluation.speed import measure, profile

app = typer.Typer(help="Speeds, measured side by side in one run.", no_args_is_help=True)


@app.callback()
def verbs() -> None:
    """Speeds, measured side by side in one run."""


@app.command()
def env(
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="The best of this many rounds counts.")] = 5,
    compiled: Annotated[bool, typer.Option("--compile", help="Also TorchMarket fused by torch.compile.")] = False,
    parts: Annotated[bool, typer.Option("--profile", help="Where the time of a NumPy step goes, instead.")] = False,
    as_json: Json = False,
) -> None:
    """Steps per second of the market: scalar ledger, NumPy, PyTorch, JAX, and the bound of the memory."""
    if parts:
        show_profile(profile(rounds=rounds), as_json)
        return
    console = Console(stderr=True)
    with console.status("measuring") as status:
        result = measure(rounds, compiled=compiled, progress=status.update)
    if as_json:
        print_json(result)
    else:
        show(result)


def show(result: dict[str, Any]) -> None:
    """The figures as a table."""
    console, table = Console(), Table("engine", "accounts", "steps/s", "x scalar", "share of memory bound")
    for column in table.columns[1:]:
        column.justify = "right"
    bound = result["bound_steps_per_s"]
    table.add_row("scalar ledger", "1", f"{result['scalar']:,}", "1.0", f"{result['scalar'] / bound:.2%}")
    for engine, ratios in result["times_scalar"].items():
        for size, times in ratios.items():
            speed = result[engine][size]
            table.add_row(engine, size, f"{speed:,}", f"{times:,}", f"{speed / bound:.2%}")
    console.print(table)
    console.print(
        f"{result['workload']}; memory {result['memory_bytes_per_s'] / 1e9:.1f} GB/s "
        f"over {result['bytes_per_step']} bytes a step = at most {bound:,} steps/s",
        highlight=False,
    )


def show_profile(times: dict[str, float], as_json: bool) -> None:
    """Microseconds per part for 4096 accounts."""
    if as_json:
        print_json(times)
        return
    table = Table("NumPy, 4096 accounts", "microseconds")
    for name, value in times.items():
        table.add_row(name, f"{value:,.1f}")
    Console().print(table)
