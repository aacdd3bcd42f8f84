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
from flatout.bars.calendars import name_calendar
from flatout.bars.check import SymbolReport, check_bars, moment
from flatout.bars.panel import Panel
from flatout.bars.read import read_bars
from flatout.bars.resample import resample
from flatout.bars.session_check import SessionReport, check_sessions
from flatout.bars.source import find_source
from flatout.bars.write import write_bars
from flatout.cli.options import BarsCommand, Config, Symbols
from flatout.errors import BarsError
from flatout.settings.loading import load_settings
from flatout.terminal import plain, say

app = typer.Typer(
    no_args_is_help=True, help="Check bars, resample them and convert them to flatout's Parquet."
)

PLAIN_WIDTH = 150  # where there is no terminal, nothing may be cut off

Source = Annotated[
    Path, typer.Argument(help="A CSV, Parquet or Feather file, or a folder of one file per symbol.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
CalendarName = Annotated[
    str | None,
    typer.Option(
        "--calendar",
        help="An exchange calendar (XNYS, XLON, 24/5), or always_open or exchange; else inferred.",
    ),
]


@app.command("check", cls=BarsCommand)
def check_command(
    path: Annotated[
        Path | None,
        typer.Argument(help="A file, or a folder of one file per symbol; else data.bars."),
    ] = None,
    symbols: Symbols = None,
    bar: Annotated[
        str | None, typer.Option(help="The bar size, if it is not to be inferred: 1h.")
    ] = None,
    calendar: CalendarName = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Read bars with every check and report gaps, empty bars and jumps per symbol; those of the
    settings' data table as a training or a study would read them. With a calendar also bars
    outside its sessions, on its holidays, and missing in its sessions.
    """
    source = find_source(load_settings(config), path, symbols)
    if source.path is None:
        raise BarsError("no bars are given: name a file or folder, or give a -c whose [data] does")
    place = path or source.path
    panel = read_bars(
        place,
        symbols=source.symbols,
        bar=bar,
        extras=source.extras,
        calendar=calendar or source.calendar,
    )
    panel = resample(panel, source.bar) if source.bar else panel
    reports = check_bars(panel)
    named = panel.trading_year.calendar
    sessions = check_sessions(panel, named) if named else []
    if as_json:
        facts = collect_facts(panel) | {"reports": [asdict(report) for report in reports]}
        if named:
            facts["sessions"] = [asdict(report) for report in sessions]
        typer.echo(json.dumps(facts, default=datetime.isoformat))
        return
    console = Console()
    console = console if console.is_terminal else Console(width=PLAIN_WIDTH)
    console.print(make_table(reports))
    if named:
        console.print(make_session_table(sessions, named))
    say(describe_bars(panel))


@app.command("convert", cls=BarsCommand)
def convert_command(
    path: Source,
    out: Annotated[
        Path, typer.Argument(help="The .parquet file to write; its manifest goes beside it.")
    ],
    bar: Annotated[str | None, typer.Option(help="Resample to this bar size: 4h.")] = None,
    symbols: Symbols = None,
    calendar: CalendarName = None,
    as_json: AsJson = False,
) -> None:
    """Read bars with every check and write them as Parquet, resampled if --bar is given."""
    panel = read_bars(path, symbols=symbols, calendar=calendar)
    panel = panel if bar is None else resample(panel, bar)
    manifest = write_bars(panel, out)
    if as_json:
        typer.echo(json.dumps(collect_facts(panel) | {"file": str(out), "manifest": str(manifest)}))
        return
    say(f"{out}: {describe_bars(panel)}")


def collect_facts(panel: Panel) -> dict[str, Any]:
    """What --json prints of bars: their size, calendar, first and last time in UTC, symbols and
    fingerprint, as plain values.
    """
    return {
        "bar": bar_name(panel.bar_seconds),
        "calendar": name_calendar(panel),
        "bars_per_year": panel.bars_per_year,
        "trading_year": panel.trading_year.describe(),
        "bars": panel.n_bars,
        "first": moment(panel, 0).isoformat(),
        "last": moment(panel, -1).isoformat(),
        "symbols": list(panel.symbols),
        "fingerprint": panel.fingerprint,
    }


def describe_bars(panel: Panel) -> str:
    """The same in one line for people, with the first letters of the fingerprint."""
    named = panel.trading_year.calendar or "exchange"
    calendar = "always open" if panel.always_open else f"{named} calendar"
    return (
        f"{panel.n_assets} symbol{'s' * (panel.n_assets > 1)}, "
        f"{panel.n_bars:,} bars of {bar_name(panel.bar_seconds)} ({calendar}), "
        f"{format_time(moment(panel, 0))} to {format_time(moment(panel, -1))} UTC, bars per year: "
        f"{panel.trading_year.describe()}, fingerprint {panel.fingerprint[:16]}"
    )


def make_table(reports: list[SymbolReport]) -> Table:
    """The reports of a check as a table for people, a line per symbol; a jump is shown as log
    return with the bar it arrived in.
    """
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
            format_time(report.first),
            format_time(report.last),
            f"{report.missing_bars:,}",
            f"{report.gaps:,}",
            f"{report.longest_gap_bars:,} bars" if report.gaps else "",
            f"{report.zero_volume_bars:,}",
            f"{report.jumps:,}",
            f"log {report.worst_jump:+.2f} at {format_time(report.worst_jump_time)}"
            if report.jumps
            else "",
        )
    return table


def make_session_table(reports: list[SessionReport], calendar: str) -> Table:
    """Bars against the sessions of a calendar, a line per symbol, each number with the first such
    bar in UTC.
    """
    table = Table("symbol", title=f"sessions of {calendar}", title_justify="left")
    for name in ("on closed days", "outside sessions", "missing in sessions"):
        table.add_column(name, justify="right")
    for report in reports:
        table.add_row(
            plain(report.symbol),
            format_found(report.closed_day_bars, report.first_closed_day_bar),
            format_found(report.outside_bars, report.first_outside_bar),
            format_found(report.missing_bars, report.first_missing_bar),
        )
    return table


def format_found(count: int, first: datetime | None) -> str:
    """How many bars, and the first of them."""
    return f"{count:,}" + (f", first {format_time(first)}" if first else "")


def format_time(time: datetime | None) -> str:
    """A time to the minute, as in 2024-05-01 12:00; nothing where there is none."""
    return "" if time is None else f"{time:%Y-%m-%d %H:%M}"
