"""`flatout status`: how far studies are.

Only reads: a running study does not notice it. Whether one runs is asked of its
lock, which is tried without waiting and let go at once.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from flatout.cli.options import Json, print_json
from flatout.errors import RunError
from flatout.file_names import decode_file_name
from flatout.foreign import JsonTable
from flatout.runs import is_held
from flatout.search.report_file import read_report
from flatout.terminal import describe_span, plain, say

PLAIN_WIDTH = 250  # where there is no terminal, nothing may be cut off

Studies = Annotated[Path, typer.Option("--out", help="Folder in which studies are looked for.")]
Storage = Annotated[
    str | None,
    typer.Option(
        "--storage",
        envvar="FLATOUT_STORAGE",
        help="Optuna storage URL, for a study without a journal.",
    ),
]
Folder = Annotated[Path | None, typer.Argument(help="The study's folder, or its name under --out.")]


def status_command(
    folder: Annotated[
        Path | None, typer.Argument(help="One study's folder or name; else all of them.")
    ] = None,
    out: Studies = Path("runs"),
    storage: Storage = None,
    as_json: Json = False,
) -> None:
    """Show how far studies are: trials, best value, speed, time left, verdict. Running ones are not
    disturbed.
    """
    from flatout.search.stored_studies import find_study, study_folders  # loads Optuna

    if folder is not None:
        rows = [facts_of(find_study(folder, out), storage)]
    else:
        rows = [facts_or_error(one, storage) for one in study_folders(out)]
    if as_json:
        print_json(rows)
    elif rows:
        print_table(rows)
    else:
        say(f"there is no study under {out}; `flatout search` starts one")


def facts_of(folder: Path, url: str | None = None) -> JsonTable:
    """All that `flatout status` shows of a study, by name."""
    from flatout.folds.seal import openings
    from flatout.search.run import read_run
    from flatout.search.stored_studies import read_stored
    from flatout.search.study_state import StudyState, read_state

    settings, about = read_run(folder)
    total = settings.search.trials
    running, state = is_held(folder), read_state(folder) or StudyState(())
    stored, report = read_stored(folder, url), read_report(folder)
    trials = stored.trials if stored else []
    states = [trial.state for trial in trials]
    ended = len(states) - states.count("running") if stored else len(state.finished)
    best = max(
        (t for t in trials if t.state == "complete"), key=lambda t: t.value or 0.0, default=None
    )
    judged = report is not None and (report.judged_trials or 0) >= total
    kinds = ("complete", "pruned", "failed")
    return {
        "study": about["request"]["name"],
        "folder": str(folder),
        "state": "running" if running else "finished" if judged else "stopped",
        "pid": stored.lease["pid"] if running and stored and stored.lease else None,
        "trials": {
            "total": total,
            "asked": len(states) if stored else state.asked,
            "ended": ended,
            **{kind: states.count(kind) if stored else None for kind in kinds},
        },
        "best": {"trial": best.number, "value": best.value} if best else None,
        "steps_per_s": state.steps / state.seconds if state.seconds else None,
        "lanes_busy": state.busy_seconds / state.worker_seconds if state.worker_seconds else None,
        "seconds": state.seconds,
        "seconds_left": state.seconds / ended * max(total - ended, 0)
        if ended and running
        else None,
        "verdict": {
            "promotable": report.verdict.promotable,
            "sentence": report.verdict.sentence,
        }
        if report and report.verdict
        else None,
        "hold_out_openings": len(openings(folder)),
    }


def facts_or_error(folder: Path, url: str | None) -> JsonTable:
    """The facts; a study that cannot be read must not hide the others."""
    try:
        return facts_of(folder, url)
    except RunError as error:
        return {
            "study": decode_file_name(folder.name),
            "folder": str(folder),
            "state": "unreadable",
            "error": str(error),
        }


def print_table(rows: Iterable[JsonTable]) -> None:
    """Print a line per study, then the verdicts in full."""
    console, table = (
        wide_console(),
        Table("study", "state", "trials", "best", "speed", "lanes", "left", "hold-out"),
    )
    notes = []
    for row in rows:
        name = plain(row["study"])
        if "error" in row:
            table.add_row(name, "[red]unreadable[/]")
            notes.append(f"{name}: {plain(row['error'])}")
            continue
        table.add_row(
            name,
            f"running, process {row['pid']}" if row["pid"] else row["state"],
            format_counts(row["trials"]),
            f"{row['best']['value']:.2f} (trial {row['best']['trial']})" if row["best"] else "–",
            f"{row['steps_per_s']:,.0f} steps/s" if row["steps_per_s"] else "–",
            f"{row['lanes_busy']:.0%} busy" if row["lanes_busy"] else "–",
            describe_span(row["seconds_left"]) if row["seconds_left"] is not None else "–",
            f"opened {row['hold_out_openings']}x" if row["hold_out_openings"] else "sealed",
        )
        if verdict := row["verdict"]:
            title = "[green]PROMOTABLE[/]" if verdict["promotable"] else "[red]NOT PROMOTABLE[/]"
            notes.append(f"{name}: {title}: {plain(verdict['sentence'] or 'not computed')}")
    console.print(table)
    for note in notes:
        console.print(note, highlight=False, soft_wrap=True)


def format_counts(trials: JsonTable) -> str:
    """How many were asked for, ended, were pruned and failed."""
    known = [f"{trials[key]} {key}" for key in ("pruned", "failed") if trials[key] is not None]
    return ", ".join(
        [f"{trials['ended']} of {trials['total']} done", f"{trials['asked']} asked", *known]
    )


def wide_console() -> Console:
    """The terminal, or a page on which tables are not cut."""
    console = Console()
    return console if console.is_terminal or "COLUMNS" in os.environ else Console(width=PLAIN_WIDTH)
