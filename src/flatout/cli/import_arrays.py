"""`flatout import-arrays`: price and indicator arrays of FinRL and its relatives as flatout's own
bars.
"""

import shlex
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from flatout.bars.from_arrays import ArrayFiles, read_arrays
from flatout.bars.write import write_bars
from flatout.cli.data import collect_facts, describe_bars
from flatout.cli.options import Json, SpaceSeparated, print_json
from flatout.terminal import say


class Order(StrEnum):
    """Which columns of the indicators lie beside each other."""

    asset = "asset"
    indicator = "indicator"


class ImportCommand(SpaceSeparated):
    """Takes `--symbols A B C`."""

    lists = ("--symbols", "--indicators")


def import_arrays_command(
    prices: Annotated[
        Path, typer.Option("--prices", help="(time, asset) closes: .npy, or .npz with price_array.")
    ],
    symbols: Annotated[
        list[str], typer.Option("--symbols", help="The prices' columns in order: A B C.")
    ],
    bar: Annotated[str, typer.Option("--bar", help="The bar size: 5m.")],
    out: Annotated[
        Path, typer.Option("--out", help="The .parquet file to write; its manifest goes beside it.")
    ],
    start: Annotated[
        str | None,
        typer.Option(
            "--start", help="The first bar's open in UTC, if no bar is missing: 2022-04-30T00:00."
        ),
    ] = None,
    times: Annotated[
        Path | None,
        typer.Option(
            "--times", help="All bars' opens, in place of --start: .npy, or .npz with time_array."
        ),
    ] = None,
    tech: Annotated[
        Path | None,
        typer.Option("--tech", help="(time, asset x indicator): .npy, or .npz with tech_array."),
    ] = None,
    indicators: Annotated[
        list[str] | None,
        typer.Option(
            "--indicators",
            help=(
                "Their names for one asset. open, high, low, close and volume are the bars' own, "
                "others extras."
            ),
        ),
    ] = None,
    tech_order: Annotated[
        Order,
        typer.Option(
            "--tech-order",
            help="Whether the columns of an asset or of an indicator are neighbours.",
        ),
    ] = Order.asset,
    volume: Annotated[
        Path | None,
        typer.Option(
            "--volume", help="(time, asset) volume in units: .npy, or .npz with volume_array."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Read arrays with every check and write them as Parquet bars; says what bars need and arrays
    do not have.
    """
    files = ArrayFiles(
        prices=prices,
        symbols=tuple(symbols),
        bar=bar,
        start=start,
        times=times,
        tech=tech,
        indicators=tuple(indicators or ()),
        tech_order=tech_order.value,
        volume=volume,
    )
    panel, assumed = read_arrays(files)
    manifest = write_bars(panel, out, assumed)
    extras = list(panel.extras)
    if as_json:
        report = {
            "file": str(out),
            "manifest": str(manifest),
            "extras": extras,
            "assumed": list(assumed),
        }
        print_json(collect_facts(panel) | report)
        return
    say(f"{out}: {describe_bars(panel)}")
    if extras:
        say(f"further columns: {', '.join(extras)}")
    if list(symbols) != sorted(symbols):
        order = shlex.join(symbols)
        say(f"symbols are read in order of name; for this order give --symbols {order}")
    for line in assumed:
        say(f"assumed: {line}")
