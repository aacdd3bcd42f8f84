"""`flatout data`: look at bars before anything is trained on them, and bring them into flatout's
own form.
"""

import json
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from flatout.bars.bar_size import bar_name
from flatout.bars.check import SymbolReport, check_bars, moment
from flatout.bars.panel import Panel
from flatout.bars.read import read_bars
from flatout.bars.resample import resample
from flatout.bars.write import write_bars
from flatout.cli.options import BarsCommand, Symbols
from flatout.terminal import plain, say

app = typer.Typer(
    no_args_is_help=True, help="Check bars, resample them and convert them to flatout's Parquet."
)

PLAIN_WIDTH = 150  # where there is no terminal, nothing may be cut off

Source = Annotated[
    Path, typer.Argument(help="A CSV, Parquet or Feather file, or a folder of one file per symbol.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]


@app.command(cls=BarsCommand)
def check(
    path: Source,
    symbols: Symbols = None,
    bar: Annotated[
        str | None, typer.Option(help="The bar size, if it is not to be inferred: 1h.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Read bars with every check and report gaps, empty bars and jumps per symbol."""
    panel = read_bars(path, symbols=symbols, bar=bar)
    reports = check_bars(panel)
    if as_json:
        typer.echo(
            json.dumps(
                summary(panel) | {"reports": [asdict(r) for r in reports]},
                default=datetime.isoformat,
            )
        )
        return
    console = Console()
    console = console if console.is_terminal else Console(width=PLAIN_WIDTH)
    console.print(table_of(reports))
    say(sentence(panel))


@app.command(cls=BarsCommand)
def convert(
    path: Source,
    out: Annotated[
        Path, typer.Argument(help="The .parquet file to write; its manifest goes beside it.")
    ],
    bar: Annotated[str | None, typer.Option(help="Resample to this bar size: 4h.")] = None,
    symbols: Symbols = None,
    as_json: AsJson = False,
) -> None:
    """Read bars with every check and write them as Parquet, resampled if --bar is given."""
    panel = read_bars(path, symbols=symbols)
    panel = panel if bar is None else resample(panel, bar)
    manifest = write_bars(panel, out)
    if as_json:
        typer.echo(json.dumps(summary(panel) | {"file": str(out), "manifest": str(manifest)}))
        return
    say(f"{out}: {sentence(panel)}")


def summary(panel: Panel) -> dict[str, Any]:
    return {
        "bar": bar_name(panel.bar_seconds),
        "calendar": "always_open" if panel.always_open else "exchange",
        "bars": panel.n_bars,
        "first": moment(panel, 0).isoformat(),
        "last": moment(panel, -1).isoformat(),
        "symbols": list(panel.symbols),
        "fingerprint": panel.fingerprint,
    }


def sentence(panel: Panel) -> str:
    calendar = "always open" if panel.always_open else "exchange calendar"
    return (
        f"{panel.n_assets} symbol{'s' * (panel.n_assets > 1)}, "
        f"{panel.n_bars:,} bars of {bar_name(panel.bar_seconds)} ({calendar}), "
        f"{short(moment(panel, 0))} to {short(moment(panel, -1))} UTC, fingerprint "
        f"{panel.fingerprint[:16]}"
    )


def table_of(reports: list[SymbolReport]) -> Table:
    """A line per symbol; a jump is shown as log return with the bar it arrived in."""
    table = Table("symbol")
    for name in (
        "bars",
        "first",
        "last",
        "missing",
        "gaps",
        "longest gap",
        "no volume",
        "jumps",
        "worst jump",
    ):
        table.add_column(name, justify="right")
    for report in reports:
        table.add_row(
            plain(report.symbol),
            f"{report.rows:,}",
            short(report.first),
            short(report.last),
            f"{report.missing_bars:,}",
            f"{report.gaps:,}",
            f"{report.longest_gap_bars:,} bars" if report.gaps else "",
            f"{report.zero_volume_bars:,}",
            f"{report.jumps:,}",
            f"log {report.worst_jump:+.2f} at {short(report.worst_jump_time)}"
            if report.jumps
            else "",
        )
    return table


def short(time: datetime | None) -> str:
    return "" if time is None else f"{time:%Y-%m-%d %H:%M}"
