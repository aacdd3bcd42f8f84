"""`flatout bench slow`: speeds of environments that wait, measured side by side in one run."""

from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from flatout.cli.options import Json, SpaceSeparated, print_json

app = typer.Typer()  # of one command, which is `flatout bench slow`


class SlowCommand(SpaceSeparated):
    """Takes `--only constant exponential`."""

    lists = ("--only",)


@app.command(cls=SlowCommand)
def measure_speed(
    envs: Annotated[
        int, typer.Option("--envs", min=2, help="Environments that wait, at the same time.")
    ] = 32,
    seconds: Annotated[
        float, typer.Option("--seconds", min=0.1, help="Length of each measurement, at least.")
    ] = 15.0,
    rounds: Annotated[
        int, typer.Option("--rounds", min=1, help="The best of this many rounds counts.")
    ] = 2,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", help="Kinds of latency: constant, exponential, stragglers."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Steps per second of environments that wait 50 ms for each step, learning included, beside
    Stable-Baselines3's PPO on SubprocVecEnv and Gymnasium's AsyncVectorEnv; share of what the waits
    allow.
    """
    from flatout_crawl.bench.slow_speed import KINDS, measure_slow  # loads aiohttp

    with Console(stderr=True).status("measuring") as status:
        result = measure_slow(
            envs,
            seconds=seconds,
            rounds=rounds,
            kinds=tuple(dict.fromkeys(only or KINDS)),
            on_status=status.update,
        )
    if as_json:
        print_json(result)
    else:
        show_slow(result)


def show_slow(result: dict[str, Any]) -> None:
    """The figures of environments that wait as a table: one column per kind of latency."""
    kinds = list(result["share_of_bound"])
    table = Table(f"{result['envs']} environments", *(result["latency"][kind] for kind in kinds))
    for column in table.columns[1:]:
        column.justify = "right"
    for name, row in result.items():
        if isinstance(row, dict) and list(row) == kinds and name != "latency":
            table.add_row(name, *(f"{row[kind]:,}" for kind in kinds))
    found = [result.get(f"ratio_{kind}") for kind in kinds]
    if all(found):
        table.add_row("times SubprocVecEnv with PPO", *map(str, found))
    console = Console()
    console.print(table)
    for name in ("rss_per_env_mb", "process_rss_mb", "process_pss_mb", "env_share_of_process"):
        if name in result:
            console.print(f"{name} {result[name]}", highlight=False)
    console.print(result["workload"], highlight=False)
