"""`flatout data`: look at bars before anything is trained on them, and bring them into flatout's
own form.
"""

import json
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from flatout.bars.bar_size import bar_name
from flatout.bars.calendars import name_calendar
from flatout.bars.check import SymbolReport, check_bars, moment
from flatout.bars.files import SUFFIXES
from flatout.bars.panel import Panel
from flatout.bars.session_check import SessionReport, check_sessions
from flatout.bars.source import BarsSource, find_source
from flatout.bars.write import write_bars
from flatout.cli.options import BarsCommand, BarSize, Config, Symbols
from flatout.errors import BarsError
from flatout.settings.loading import Resolved, load_settings
from flatout.terminal import plain, say

app = typer.Typer(
    no_args_is_help=True, help="Check bars, resample them and convert them to flatout's Parquet."
)

PLAIN_WIDTH = 150  # where there is no terminal, nothing may be cut off

ENDINGS = tuple(ending for suffix in SUFFIXES for ending in (suffix, suffix.upper()))

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
CalendarName = Annotated[
    str | None,
    typer.Option(
        "--calendar",
        help="An exchange calendar (XNYS, XLON, 24/5), or always_open or exchange; else inferred.",
    ),
]


class DataCommand(BarsCommand):
    """A command that takes the path of bars after `--symbols BTC ETH`, too. Folders end in a `/`
    there, as their names may be those of symbols.
    """

    never_listed = (*ENDINGS, "/")


@app.command("check", cls=DataCommand)
def check_command(
    path: Annotated[
        Path | None,
        typer.Argument(help="A file, or a folder of one file per symbol; else data.bars."),
    ] = None,
    symbols: Symbols = None,
    bar: BarSize = None,
    calendar: CalendarName = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Read bars with every check and report gaps, empty bars and jumps per symbol; those of the
    settings' data table as a training or a study would read them. With a calendar also bars
    outside its sessions, on its holidays, and missing in its sessions.
    """
    source = find_given(load_settings(config), path, symbols, bar, calendar)
    if source is None:
        ending = " (which ends in a / after --symbols)" if symbols else ""
        raise BarsError(
            f"no bars are given: name a file or folder{ending}, or give a -c whose [data] does"
        )
    panel = source.read()
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


@app.command("convert", cls=DataCommand)
def convert_command(
    paths: Annotated[
        list[Path],
        typer.Argument(
            help="A CSV, Parquet or Feather file, or a folder of one file per symbol (else "
            "data.bars), then OUT: the .parquet file to write; its manifest goes beside it.",
        ),
    ],
    bar: BarSize = None,
    symbols: Symbols = None,
    calendar: CalendarName = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Read bars with every check and write them as Parquet, resampled if --bar is given; those of
    the settings' data table if OUT is the only path.
    """
    *given, out = paths
    if len(given) > 1:
        raise BarsError(f"{len(paths)} paths are given: one of bars, then the file to write")
    source = find_given(load_settings(config), given[0] if given else None, symbols, bar, calendar)
    if source is None:
        raise BarsError(
            f"{out} is the only path: name the bars, then the file to write, or give a -c whose "
            "[data] names the bars"
        )
    if not given and out.exists():  # it may be meant as the bars, and would be gone
        raise BarsError(
            f"{out} is the only path, so it is the file to write, but it exists: name the bars "
            "before it, or give another file"
        )
    panel = source.read()
    manifest = write_bars(panel, out)
    if as_json:
        typer.echo(json.dumps(collect_facts(panel) | {"file": str(out), "manifest": str(manifest)}))
        return
    say(f"{out}: {describe_bars(panel)}")


def find_given(
    resolved: Resolved,
    path: Path | None,
    symbols: list[str] | None,
    bar: str | None,
    calendar: str | None,
) -> BarsSource | None:
    """The bars of the command, else those of `[data]`; None if neither names any."""
    source = find_source(resolved, path, symbols, bar)
    named = replace(source, calendar=calendar or source.calendar)
    return named if source.path else None


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
