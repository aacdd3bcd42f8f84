"""`flatout train`: one agent or many, trained at once as lanes of one program, judged on bars they
never saw.
"""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from flatout.bars.source import find_source
from flatout.cli.options import (
    Bars,
    BarSize,
    Config,
    Device,
    Engine,
    Json,
    Out,
    Seed,
    Set,
    list_typed,
    print_json,
)
from flatout.errors import RunError
from flatout.settings.loading import OPTIONS, load_settings, resolve_settings
from flatout.terminal import plain, say
from flatout.training.plan import Plan
from flatout.training.prepare import PreparedTraining, start_run
from flatout.training.progress import TrainingProgress
from flatout.training.request import (
    LEAST_SHARE_HELD_OUT,
    MOST_EVALUATIONS,
    MOST_SEEDS,
    MOST_SHARE_HELD_OUT,
    MOST_TIMESTEPS,
)
from flatout.training.result import TrainingResult
from flatout.training.train import (
    EVALUATIONS,
    prepare_new,
    prepare_resumed,
    refuse_beside_resume,
    run_training,
)
from flatout.workers.devices import MOST_WORKERS

TEST_RUN_UPDATES = 2
SHOWN = {
    "total_return": ("return", "{:+.1%}"),
    "sharpe": ("Sharpe", "{:.2f}"),
    "max_drawdown": ("max drawdown", "{:.1%}"),
    "annual_turnover": ("turnover per year", "{:.1f}"),
    "exposure": ("exposure", "{:.0%}"),
}


def train_command(
    ctx: typer.Context,
    bars: Bars = None,
    symbols: Annotated[
        list[str] | None,
        typer.Option("--symbols", help="One agent for each of these symbols: --symbols BTC ETH"),
    ] = None,
    portfolio: Annotated[
        bool, typer.Option("--portfolio", help="One agent that trades all of --symbols.")
    ] = False,
    bar: BarSize = None,
    timesteps: Annotated[
        int | None,
        typer.Option(
            "--timesteps",
            min=1,
            max=MOST_TIMESTEPS,
            help="Bars that each agent trades; else train.timesteps, else 500,000.",
        ),
    ] = None,
    n_envs: Annotated[
        int | None,
        typer.Option(
            "--n-envs", min=1, max=2**31 - 1, help="Accounts at once per agent; else by memory."
        ),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            "--seeds",
            min=1,
            max=MOST_SEEDS,
            help="Agents per market, with seeds of their own; else train.seeds.",
        ),
    ] = None,
    hold_out: Annotated[
        float | None,
        typer.Option(
            "--hold-out",
            "--held-out",
            min=LEAST_SHARE_HELD_OUT,
            max=MOST_SHARE_HELD_OUT,
            help="Share of the bars, the last ones, that judge; else folds.hold_out, else 0.2.",
        ),
    ] = None,
    evaluations: Annotated[
        int,
        typer.Option(
            "--evaluations", min=1, max=MOST_EVALUATIONS, help="How often to judge and save."
        ),
    ] = EVALUATIONS,
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
    if resume:
        refuse_beside_resume(list_typed(ctx))
        prepared = prepare_resumed(resume, device)
    else:
        chosen = {
            "train.timesteps": timesteps,
            "train.seeds": seeds,
            "folds.hold_out": hold_out,
            "train.n_envs": n_envs,
            "train.engine": engine,
        }
        loaded = load_settings(config, overrides or ())
        prepared = prepare_new(
            resolve_settings(loaded, chosen, changed_by=OPTIONS),
            bars,
            symbols=symbols,
            portfolio=portfolio,
            bar=bar,
            seed=seed,
            updates=TEST_RUN_UPDATES if test_run else None,
            evaluations=evaluations,
            workers=workers,
            device=device,
        )
    if plan_only:
        tell_plan(prepared.plan.with_trial(prepared.chosen.slots), as_json)
        return
    run = resume or start_run(prepared, out)
    if not as_json:
        tell_start(prepared, run)
    result = train_and_tell(prepared, run, as_json)
    for sentence in result.warnings:
        Console(stderr=True).print(
            f"[yellow]warning:[/] {plain(sentence)}", highlight=False, soft_wrap=True
        )
    if as_json:
        print_json(result.facts())
    else:
        tell_result(Console(), result)
        tell_next(prepared, result)


def train_and_tell(prepared: PreparedTraining, run: Path, quiet: bool) -> TrainingResult:
    """Train with a bar; where it is interrupted, say how to go on."""
    again = f"go on with: flatout train --resume {shlex.quote(str(run))}"
    try:
        with TrainingProgress(prepared.made, quiet) as progress:
            return run_training(prepared, run, progress.show_rows, quiet)
    except KeyboardInterrupt:
        say(f"interrupted; {again}", err=True)
        sys.exit(130)
    except RunError:
        say(again, err=True)
        raise


def tell_plan(plan: Plan, as_json: bool) -> None:
    """The forecast, for people or programs."""
    if as_json:
        print_json(plan.facts())
        return
    for line in plan.lines():
        say(line)


def tell_start(prepared: PreparedTraining, run: Path) -> None:
    """What is about to happen, and where."""
    console, chosen, made = Console(stderr=True), prepared.chosen, prepared.made
    if chosen.note:
        console.print(f"[yellow]note:[/] {plain(chosen.note)}", highlight=False, soft_wrap=True)
    training, program = made.training, made.training.program
    console.print(
        f"[bold]{len(training.lanes)} agent{'s' * (len(training.lanes) > 1)}[/] on "
        f"{', '.join(slot.name for slot in chosen.slots)} ({chosen.engine}): {training.updates} "
        f"updates of {program.n_envs} accounts x {program.n_steps} bars each, networks "
        f"{'x'.join(map(str, program.hidden))}; about {prepared.plan.total_bytes / 2**20:,.0f} MiB",
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


def tell_result(console: Console, result: TrainingResult) -> None:
    """How the policies did on the held-out bars, beside the baselines."""
    for agent in result.agents.values():
        console.print(
            f"[bold]{plain(agent.name)}[/]: held out {agent.first[:16]} to {agent.last[:16]}, "
            f"{agent.bars} bars; {agent.assumptions}",
            highlight=False,
        )
        table = Table("", *(title for title, _ in SHOWN.values()))
        for column in table.columns[1:]:
            column.justify = "right"
        for policy, figures in agent.metrics.items():
            cells = [
                "–" if (figure := figures[key]) is None else form.format(figure)
                for key, (_, form) in SHOWN.items()
            ]
            table.add_row(plain(policy), *cells, style="bold" if policy in agent.policies else None)
        console.print(table)
    console.print(
        "The best policy of each agent was chosen on these same bars, so its figures flatter it: a "
        "study with folds is what can tell luck from skill.",
        highlight=False,
    )
    say(f"{result.folder}/: LANE/best, LANE/last, metrics.jsonl, report.json")


def tell_next(prepared: PreparedTraining, result: TrainingResult) -> None:
    """The command that trades the first saved policy."""
    for lane, places in result.bundles.items():
        if places:
            symbols = prepared.made.agent_of[lane].market.panel.symbols
            best = shlex.quote(str(result.folder / places[0]))
            say(f"next: flatout backtest --policy {best} {name_bars(prepared, symbols)}")
            return


def name_bars(prepared: PreparedTraining, symbols: Sequence[str]) -> str:
    """How a command is given the bars of a policy of these symbols: by the settings file whose
    `[data]` gave them to the training, with what options gave beside it.
    """
    resolved, source = prepared.resolved, prepared.source
    file, named = resolved.origin.get("data.bars"), find_source(resolved)
    if file not in resolved.files or named.path != source.path:
        return "--bars YOUR_BARS"
    words = [file] if file.endswith(".toml") else ["--config", file]
    if source.symbols != named.symbols:
        words += ["--symbols", *symbols]
    if source.bar != named.bar:
        words += ["--bar", str(source.bar)]
    return shlex.join(words)
