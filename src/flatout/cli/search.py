"""`flatout search`: one study or several, to a verdict."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from flatout.bars.source import find_source
from flatout.cli.options import (
    SYMBOLS,
    Bars,
    BarSize,
    Device,
    Engine,
    Json,
    Out,
    Set,
    SpaceSeparated,
    Symbols,
    print_json,
)
from flatout.cli.verdict_box import show_verdict
from flatout.errors import SettingsError
from flatout.settings.loading import OPTIONS, load_settings, resolve_settings
from flatout.terminal import plain, say
from flatout.training.request import MOST_SEEDS, MOST_SHARE_HELD_OUT, MOST_TIMESTEPS

if TYPE_CHECKING:  # loads Optuna, which takes a second
    from flatout.search.run import PreparedStudy
    from flatout.search.run_study import StudyResult
    from flatout.workers.slots import Slot

NOT_PROMOTABLE = 3  # exit code with --gate


class SearchCommand(SpaceSeparated):
    """A command that takes `--symbols BTC ETH` before or after its settings files."""

    lists = (SYMBOLS,)
    never_listed = (".toml",)


def search_command(
    configs: Annotated[
        list[Path] | None,
        typer.Argument(help="Settings files, one study each; they share the machine fairly."),
    ] = None,
    config: Annotated[
        list[Path] | None,
        typer.Option("--config", "-c", help="The same as a settings file without -c."),
    ] = None,
    bars: Bars = None,
    symbols: Symbols = None,
    bar: BarSize = None,
    trials: Annotated[
        int | None, typer.Option("--trials", min=1, max=10**6, help="Instead of search.trials.")
    ] = None,
    timesteps: Annotated[
        int | None,
        typer.Option(
            "--timesteps",
            min=1,
            max=MOST_TIMESTEPS,
            help="Of each trial, split and seed; else train.timesteps, else 100,000.",
        ),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            "--seeds", min=1, max=MOST_SEEDS, help="Per trial and split; else train.seeds."
        ),
    ] = None,
    hold_out: Annotated[
        float | None,
        typer.Option(
            "--hold-out",
            min=0.0,
            max=MOST_SHARE_HELD_OUT,
            help="Share of the bars at the end, sealed until the winner is judged; else "
            "folds.hold_out, else 0.15.",
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option("--name", help="Of the study and its folder; else the file's name."),
    ] = None,
    storage: Annotated[
        str | None,
        typer.Option(
            "--storage",
            envvar="FLATOUT_STORAGE",
            help="Optuna storage URL; else a journal in the folder.",
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option("--workers", min=1, max=1024, help="Processes; else one per GPU or CPU core."),
    ] = None,
    engine: Engine = None,
    device: Device = None,
    plan_only: Annotated[
        bool, typer.Option("--plan", help="Forecast memory and time, and stop.")
    ] = False,
    gate: Annotated[
        bool, typer.Option("--gate", help="Exit with code 3 unless every winner is promotable.")
    ] = False,
    overrides: Set = None,
    out: Out = Path("runs"),
    as_json: Json = False,
) -> None:
    """Search settings with cross-validation, and judge the winner. The same command goes on after
    any interruption.
    """
    from flatout.search.progress import StudyProgress
    from flatout.search.run_study import AskedStudy, prepare_studies, run_prepared

    given = {path.resolve(): path for path in (*(configs or ()), *(config or ()))}  # each once
    files: list[Path | None] = [*given.values()] or [None]
    if name and len(files) > 1:
        raise SettingsError(
            f"--name names one study, but {len(files)} settings files are given: leave it out"
        )
    chosen_settings = {
        "search.trials": trials,
        "train.timesteps": timesteps,
        "train.seeds": seeds,
        "folds.hold_out": hold_out,
        "train.engine": engine,
    }
    asked = []
    for path in files:
        loaded = load_settings(path, overrides or ())
        resolved = resolve_settings(loaded, chosen_settings, changed_by=OPTIONS)
        called = name or (path.stem if path else "study")
        asked.append(AskedStudy(called, resolved, find_source(resolved, bars, symbols, bar)))
    prepared, chosen = prepare_studies(asked, out, workers, device)
    if chosen.note:
        Console(stderr=True).print(
            f"[yellow]note:[/] {plain(chosen.note)}", highlight=False, soft_wrap=True
        )
    if plan_only:
        tell_plans(prepared, chosen.slots, as_json)
        return
    with StudyProgress(prepared, quiet=as_json) as progress:
        try:
            results = run_prepared(prepared, chosen, out=out, storage=storage, shown=progress)
        except KeyboardInterrupt:
            say("interrupted; nothing is lost: the same command goes on", err=True)
            sys.exit(130)
    tell_results(results, as_json)
    if gate and not all(result.promotable for result in results):
        sys.exit(NOT_PROMOTABLE)


def tell_plans(prepared: Sequence["PreparedStudy"], slots: Sequence["Slot"], as_json: bool) -> None:
    """The forecasts, for people or programs."""
    from flatout.search.forecast import make_study_plan

    plans = [make_study_plan(one, slots) for one in prepared]
    if as_json:
        print_json([plan.facts() for plan in plans])
        return
    for plan in plans:
        Console().print(f"[bold]{plain(plan.prepared.request.name)}[/]", highlight=False)
        for line in plan.lines():
            say(line)


def tell_results(results: Sequence["StudyResult"], as_json: bool) -> None:
    """Verdicts, and where the reports lie."""
    if as_json:
        print_json(
            [
                {
                    **(result.report.facts() if result.report else {"verdict": None}),
                    "folder": str(result.folder),
                }
                for result in results
            ]
        )
        return
    console = Console()
    for result in results:
        if result.report is None:
            say(f"{result.name} was stopped; the same command goes on")
            continue
        show_verdict(result.report, console)
        say(f"report: {result.page}")
        say(f"policy: {result.folder / 'policy'}")
