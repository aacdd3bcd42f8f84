"""`flatout train`: one agent or many, trained at once as lanes of one program, judged on bars they
never saw.
"""

import shlex
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from flatout.cli.backtest import assumptions
from flatout.cli.options import (
    Config,
    Device,
    Engine,
    Json,
    Out,
    Seed,
    Set,
    SpaceSeparated,
    plain,
    print_json,
    progress_bar,
    say,
)
from flatout.errors import RunError
from flatout.evaluation.held_out import judge_policies
from flatout.file_names import file_name
from flatout.policies.bundle import Bundle
from flatout.runs import is_held, write_json
from flatout.settings.loading import load_settings
from flatout.settings.tables import Settings
from flatout.training.market_training import MarketTraining
from flatout.training.metrics_file import Row
from flatout.training.plan import Plan, make_plan
from flatout.training.request import (
    LEAST_HELD_OUT,
    MOST_EVALUATIONS,
    MOST_HELD_OUT,
    MOST_SEEDS,
    MOST_TIMESTEPS,
    MOST_WORKERS,
    Request,
    build,
    read_request,
    save_bundles,
    start_run,
)
from flatout.training.training import train
from flatout.workers.devices import Choice

TEST_RUN_UPDATES = 2


class TrainCommand(SpaceSeparated):
    """`--symbols A B C` as people write it."""

    lists = ("--symbols",)


def train_command(
    bars: Annotated[
        Path | None,
        typer.Option("--bars", help="CSV, Parquet, Feather or a folder; else built in."),
    ] = None,
    symbols: Annotated[
        list[str] | None,
        typer.Option("--symbols", help="One agent for each of these symbols: --symbols BTC ETH"),
    ] = None,
    portfolio: Annotated[
        bool, typer.Option("--portfolio", help="One agent that trades all of --symbols.")
    ] = False,
    bar: Annotated[
        str | None, typer.Option("--bar", help="Resample to this bar size, as in 4h.")
    ] = None,
    timesteps: Annotated[
        int,
        typer.Option("--timesteps", min=1, max=MOST_TIMESTEPS, help="Bars that each agent trades."),
    ] = 500_000,
    n_envs: Annotated[
        int | None,
        typer.Option(
            "--n-envs", min=1, max=2**31 - 1, help="Accounts at once per agent; else by memory."
        ),
    ] = None,
    seeds: Annotated[
        int,
        typer.Option(
            "--seeds", min=1, max=MOST_SEEDS, help="Agents per market, with seeds of their own."
        ),
    ] = 1,
    held_out: Annotated[
        float,
        typer.Option(
            "--held-out",
            min=LEAST_HELD_OUT,
            max=MOST_HELD_OUT,
            help="Share of the bars, the last ones, that judge.",
        ),
    ] = 0.2,
    evaluations: Annotated[
        int,
        typer.Option(
            "--evaluations", min=1, max=MOST_EVALUATIONS, help="How often to judge and save."
        ),
    ] = 20,
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers", min=1, max=MOST_WORKERS, help="Processes; else one per GPU or CPU core."
        ),
    ] = None,
    engine: Engine = None,
    device: Device = None,
    plan_only: Annotated[
        bool, typer.Option("--plan", help="Forecast memory and time, and stop.")
    ] = False,
    test_run: Annotated[
        bool, typer.Option("--test-run", help="Two updates only: does everything work?")
    ] = False,
    resume: Annotated[
        Path | None, typer.Option("--resume", help="Go on with this run's folder.")
    ] = None,
    config: Config = None,
    overrides: Set = None,
    out: Out = Path("runs"),
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Train PPO agents in the market; saves the best and the last policy of each as a bundle."""
    console = Console(stderr=True)
    if resume:
        request, resolved = read_request(resume)
        request = replace(request, device=device) if device else request
    else:
        given = [*(overrides or ()), *([f"train.n_envs={n_envs}"] if n_envs else [])]
        given += [f"train.engine={engine}"] if engine else []
        resolved = load_settings(config, given)
        request = Request(
            bars=str(bars.resolve()) if bars else None, symbols=symbols, portfolio=portfolio,
            bar=bar,
            timesteps=timesteps, updates=TEST_RUN_UPDATES if test_run else None, seed=seed,
            seeds=seeds,
            held_out=held_out, evaluations=evaluations, workers=workers, device=device,
        )  # fmt: skip
    made, chosen, request = build(request, resolved)
    slots = chosen.slots
    plan = make_plan(made.training, slots, chosen.free_bytes)
    if plan_only:
        tell_plan(plan.measured(slots), as_json)
        return
    run = resume or start_run(out, request, resolved, made)
    if not as_json:
        tell_start(console, made, chosen, plan, run)
    try:
        with Watch(console, made, quiet=as_json) as watch:
            train(made.training, run, slots, watch.heard)
    except (KeyboardInterrupt, RunError) as stopped:
        if not is_held(run):  # by another process, which is why it was refused
            save_bundles(run, made, resolved, request)
        why = "" if isinstance(stopped, RunError) else "interrupted; "
        say(f"{why}go on with: flatout train --resume {shlex.quote(str(run))}", err=True)
        if isinstance(stopped, RunError):
            raise
        sys.exit(130)
    for sentence in save_bundles(run, made, resolved, request):
        console.print(f"[yellow]warning:[/] {plain(sentence)}", highlight=False, soft_wrap=True)
    report = report_of(run, made, resolved.settings, quiet=as_json)
    if as_json:
        print_json(report)
    else:
        tell_report(Console(), report)


def report_of(run: Path, made: MarketTraining, settings: Settings, quiet: bool) -> dict[str, Any]:
    """The best policies on the held-out bars, also as a file."""
    agents = {}
    for agent in made.agents:
        names = [lane.name for lane in made.training.lanes if made.agent_of[lane.name] is agent]
        folders = {name: run / file_name(name) / "best" for name in names}
        policies = {
            name: Bundle.load(folder) for name, folder in folders.items() if folder.exists()
        }
        with progress_bar(quiet) as progress:
            task = progress.add_task(
                f"judging {plain(agent.name)}", total=agent.market.panel.n_bars - agent.cut - 1
            )
            found = judge_policies(
                agent.market, policies, agent.cut, partial(advance, progress, task)
            )
        agents[agent.name] = {**found, "assumptions": assumptions(settings.market)}
    lanes = [lane.name for lane in made.training.lanes]
    bundles = {name: [f"{file_name(name)}/{which}" for which in ("best", "last")] for name in lanes}
    report = {"run": str(run), "agents": agents, "bundles": bundles}
    write_json(run / "report.json", report)
    return report


def advance(progress: Progress, task: TaskID, _: int) -> None:
    """One bar is done."""
    progress.advance(task)


def tell_plan(plan: Plan, as_json: bool) -> None:
    """The forecast, for people or programs."""
    facts = plan.facts()
    if as_json:
        print_json(facts)
        return
    for line in plan.lines():
        say(line)


def tell_start(
    console: Console, made: MarketTraining, chosen: Choice, plan: Plan, run: Path
) -> None:
    """What is about to happen, and where."""
    if chosen.note:
        console.print(f"[yellow]note:[/] {plain(chosen.note)}", highlight=False, soft_wrap=True)
    training, program = made.training, made.training.program
    console.print(
        f"[bold]{len(training.lanes)} agent{'s' * (len(training.lanes) > 1)}[/] on "
        f"{', '.join(slot.name for slot in chosen.slots)} ({chosen.engine}): {training.updates} "
        f"updates of "
        f"{program.n_envs} accounts x {program.n_steps} bars each, networks "
        f"{'x'.join(map(str, program.hidden))}; "
        f"about {plan.total_bytes / 2**20:,.0f} MiB",
        highlight=False,
    )
    for agent in made.agents:
        times = agent.market.panel.time
        console.print(
            f"{plain(agent.name)}: {agent.cut:,} bars to {str(times[agent.cut - 1])[:16]} teach, "
            f"{len(times) - agent.cut:,} from {str(times[agent.cut])[:16]} judge",
            highlight=False,
        )
    say(f"{run}/ (tensorboard --logdir {run}/tensorboard)", err=True)


class Watch:
    """The progress bar on a terminal, a line per report elsewhere."""

    def __init__(self, console: Console, made: MarketTraining, quiet: bool) -> None:
        self.console, self.quiet = console, quiet
        self.training = made.training
        columns = (
            TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:.0f} %"),
            TextColumn("{task.fields[speed]}"), TimeElapsedColumn(), TimeRemainingColumn(),
            TextColumn("{task.fields[terms]}"),
        )  # fmt: skip
        self.bar = Progress(
            *columns, console=console, transient=True, disable=quiet or not console.is_terminal
        )
        self.done: dict[str, int] = {}
        self.speeds: dict[str, float] = {}
        self.task: TaskID | None = None

    def __enter__(self) -> "Watch":
        self.bar.start()
        self.task = self.bar.add_task("compiling", total=self.training.steps, speed="", terms="")
        return self

    def __exit__(self, *_: Any) -> None:
        self.bar.stop()

    def heard(self, rows: list[Row]) -> None:
        """Show what a worker reported."""
        for row in rows:
            self.done[row.lane] = row.steps
            self.speeds[row.lane] = row.steps_per_s / max(len(rows), 1)
        if not rows or self.task is None:
            return
        row, speed = rows[-1], sum(self.speeds.values())
        terms = " ".join(
            f"{name[6:]} {value:+.2g}"
            for name, value in row.metrics.items()
            if name.startswith("terms/")
        )
        if self.console.is_terminal and not self.quiet:
            self.bar.update(
                self.task, description=f"training, held-out reward {row.scores['reward']:+.2f}",
                completed=sum(self.done.values()), speed=f"{speed:,.0f} steps/s", terms=terms,
            )  # fmt: skip
        elif not self.quiet:
            share = sum(self.done.values()) / self.training.steps
            for row in rows:
                say(
                    f"{share:4.0%} {row.lane}: {row.steps:,} steps, reward "
                    f"{row.metrics['reward']:+.4f}, held out "
                    f"{row.scores['reward']:+.2f}, {speed:,.0f} steps/s; {terms}",
                    err=True,
                )


def tell_report(console: Console, report: dict[str, Any]) -> None:
    """How the policies did on the held-out bars, beside the baselines."""
    for name, agent in report["agents"].items():
        console.print(
            f"[bold]{plain(name)}[/]: held out {agent['from'][:16]} to {agent['to'][:16]}, "
            f"{agent['bars']} bars; "
            f"{agent['assumptions']}",
            highlight=False,
        )
        table = Table("", "return", "Sharpe", "max drawdown", "turnover per year", "exposure")
        for column in table.columns[1:]:
            column.justify = "right"
        for policy, figures in agent["metrics"].items():
            cells = [
                "–" if figures[key] is None else form.format(figures[key])
                for key, form in (
                    ("total_return", "{:+.1%}"), ("sharpe", "{:.2f}"), ("max_drawdown", "{:.1%}"),
                    ("annual_turnover", "{:.1f}"), ("exposure", "{:.0%}"),
                )
            ]  # fmt: skip
            table.add_row(
                plain(policy), *cells, style="bold" if policy in agent["policies"] else None
            )
        console.print(table)
    console.print(
        "The best policy of each agent was chosen on these same bars, so its figures flatter it: "
        "a study with folds is "
        "what can tell luck from skill.",
        highlight=False,
    )
    first = next(iter(report["bundles"]))
    say(f"{report['run']}/: LANE/best, LANE/last, metrics.jsonl, report.json")
    best = Path(report["run"], report["bundles"][first][0])
    say(f"next: flatout backtest --policy {shlex.quote(str(best))} --bars YOUR_BARS")
