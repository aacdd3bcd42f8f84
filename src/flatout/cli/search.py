"""`flatout search`: one study or several, to a verdict."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from flatout.cli.options import (
    Device,
    Engine,
    Json,
    Out,
    Set,
    SpaceSeparated,
    plain,
    print_json,
    say,
)
from flatout.cli.verdict_box import show_verdict
from flatout.errors import SettingsError
from flatout.search.about_study import study_path
from flatout.settings.loading import Resolved, load_settings
from flatout.workers.devices import settle

NOT_PROMOTABLE = 3  # exit code with --gate


class SearchCommand(SpaceSeparated):
    """`--symbols A B C` as people write it."""

    lists = ("--symbols",)


def search_command(
    configs: Annotated[
        list[Path] | None,
        typer.Argument(help="Settings files, one study each; they share the machine fairly."),
    ] = None,
    bars: Annotated[
        Path | None, typer.Option("--bars", help="Bars for all studies; else as the files say.")
    ] = None,
    symbols: Annotated[
        list[str] | None, typer.Option("--symbols", help="Only these: --symbols BTC ETH")
    ] = None,
    bar: Annotated[
        str | None, typer.Option("--bar", help="Resample to this bar size, as in 4h.")
    ] = None,
    trials: Annotated[
        int | None, typer.Option("--trials", min=1, max=10**6, help="Instead of search.trials.")
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
    from flatout.search.run import (
        Prepared,
        Request,
        agreed_engine,
        prepare,
        read_panel,
        run_studies,
    )

    files: list[Path | None] = [*configs] if configs else [None]
    if name and len(files) > 1:
        raise SettingsError(
            f"--name names one study, but {len(files)} settings files are given: leave it out"
        )
    given = [*(overrides or ()), *([f"search.trials={trials}"] if trials else [])]
    given += [f"train.engine={engine}"] if engine else []
    prepared: list[Prepared] = []
    settings = [load_settings(path, given) for path in files]
    names = [name or (path.stem if path else "study") for path in files]
    chosen = settle(
        agreed_engine(list(zip(names, settings, strict=True)), out), device, sys.maxsize, workers
    )
    slots = chosen.slots
    console = Console(stderr=True)
    if chosen.note:
        console.print(f"[yellow]note:[/] {plain(chosen.note)}", highlight=False, soft_wrap=True)
    for path, called, resolved in zip(files, names, settings, strict=True):
        request = Request(
            name=called,
            bars=where(bars, resolved, path),
            symbols=tuple(symbols) if symbols else resolved.settings.data.symbols,
            bar=bar or resolved.settings.data.bar,
        )
        prepared.append(prepare(request, resolved, read_panel(request), len(slots), out, chosen))
    if len({one.request.name for one in prepared}) < len(prepared):
        raise SettingsError(
            "two studies have one name: rename a settings file, as its name becomes the study's"
        )
    if plan_only:
        tell_plans(prepared, slots, as_json)
        return
    with Watch(console, prepared, quiet=as_json) as watch:
        try:
            reports = run_studies(prepared, slots, out, storage, watch.heard, watch.said)
        except KeyboardInterrupt:
            say("interrupted; nothing is lost: the same command goes on", err=True)
            sys.exit(130)
    tell_reports(prepared, reports, out, as_json)
    if gate and not all(report and report["verdict"]["promotable"] for report in reports):
        sys.exit(NOT_PROMOTABLE)


def where(bars: Path | None, resolved: Resolved, config: Path | None) -> str | None:
    """The bars: the option, else the setting, which is relative to its file."""
    if bars is not None:
        return str(bars.resolve())
    named = resolved.settings.data.bars
    if named is None:
        return None
    beside = config.parent if config and resolved.origin.get("data.bars") == str(config) else Path()
    return str((beside / named).resolve())


def tell_plans(prepared: Sequence[Any], slots: Any, as_json: bool) -> None:
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


def tell_reports(
    prepared: Sequence[Any], reports: Sequence[dict[str, Any] | None], out: Path, as_json: bool
) -> None:
    """Verdicts, and where the reports lie."""
    if as_json:
        print_json(
            [
                {**(report or {"verdict": None}), "folder": str(study_path(out, one.request.name))}
                for one, report in zip(prepared, reports, strict=True)
            ]
        )
        return
    console = Console()
    for one, report in zip(prepared, reports, strict=True):
        folder = study_path(out, one.request.name)
        if report is None:
            say(f"{one.request.name} was stopped; the same command goes on")
            continue
        show_verdict(report, console)
        say(f"report: {folder / 'report.html'}")
        say(f"policy: {folder / 'policy'}")


class Watch:
    """Progress bars on a terminal, a line per turn elsewhere."""

    def __init__(self, console: Console, prepared: Sequence[Any], quiet: bool) -> None:
        self.console, self.quiet = console, quiet
        columns = (
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
            TextColumn("{task.fields[facts]}"),
            TimeElapsedColumn(),
        )  # fmt: skip
        self.bar = Progress(
            *columns, console=console, transient=True, disable=quiet or not console.is_terminal
        )
        self.names = {one.request.name: one.market.settings.search.trials for one in prepared}
        self.tasks: dict[str, TaskID] = {}
        self.best: dict[str, float] = {}
        self.began = time.monotonic()

    def __enter__(self) -> "Watch":
        self.bar.start()
        for name, trials in self.names.items():
            self.tasks[name] = self.bar.add_task(
                f"{plain(name)}: compiling", total=trials, facts=""
            )
        return self

    def __exit__(self, *_: Any) -> None:
        self.bar.stop()

    def said(self, study: Any, text: str) -> None:
        """A stage begins."""
        name = study.study.study_name
        self.bar.update(self.tasks[name], description=f"{plain(name)}: {plain(text)}")
        if not self.quiet and not self.console.is_terminal:
            say(f"{name}: {text}", err=True)

    def heard(self, study: Any, decided: Sequence[Any]) -> None:
        """Show how far a study is."""
        name, board = study.study.study_name, study.board
        values = [d.value for d in decided if d.state == "complete"]
        self.best[name] = max([self.best.get(name, float("-inf")), *values])
        done, trials = len(board.finished), self.names[name]
        facts = [f"best {self.best[name]:.2f}"] if values or self.best[name] > float("-inf") else []
        if board.seconds:
            facts.append(f"{board.steps / board.seconds:,.0f} steps/s")
            facts.append(f"lanes busy {board.busy_seconds / board.worker_seconds:.0%}")
        if done:
            facts.append(f"{3600 * done / board.seconds:,.0f} trials/h")
            facts.append(f"{span(board.seconds / done * (trials - done))} left")
        self.bar.update(
            self.tasks[name],
            description=f"{plain(name)}: searching",
            completed=done,
            facts=", ".join(facts),
        )
        if not self.quiet and not self.console.is_terminal:
            say(f"{name}: {done} of {trials} trials; {', '.join(facts)}", err=True)


def span(seconds: float) -> str:
    """75 as 1 min 15 s."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
