"""`flatout bench`: speeds, measured side by side in one run."""

import os
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from flatout.bench.known_truths import LUCK, Luck
from flatout.bench.market_speed import measure_market, profile_step
from flatout.bench.training_speed import measure_training, profile_training
from flatout.bench.workload import WIDTHS
from flatout.cli.bench_learn import learning_quality
from flatout.cli.options import Json, print_json
from flatout.foreign import JsonTable

app = typer.Typer(help="Speeds, measured side by side in one run.", no_args_is_help=True)


@app.callback()
def verbs() -> None:
    """Speeds, measured side by side in one run."""


@app.command()
def env(
    rounds: Annotated[
        int, typer.Option("--rounds", min=1, help="The best of this many rounds counts.")
    ] = 5,
    compiled: Annotated[
        bool, typer.Option("--compile", help="Also TorchMarket fused by torch.compile.")
    ] = False,
    parts: Annotated[
        bool, typer.Option("--profile", help="Where the time of a NumPy step goes, instead.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Steps per second of the market: scalar ledger, NumPy, PyTorch, JAX, and the bound of the
    memory.
    """
    if parts:
        show_parts("NumPy, 4096 accounts, microseconds", profile_step(rounds=rounds), as_json)
        return
    console = Console(stderr=True)
    with console.status("measuring") as status:
        result = measure_market(rounds, compiled=compiled, progress=status.update)
    if as_json:
        print_json(result)
    else:
        show(result)


@app.command("train")
def train_speed(
    rounds: Annotated[
        int, typer.Option("--rounds", min=1, help="The best of this many rounds counts.")
    ] = 5,
    widths: Annotated[
        list[int] | None, typer.Option("--width", min=1, help="Only this width of the networks.")
    ] = None,
    parts: Annotated[
        bool, typer.Option("--profile", help="Where the time of an update goes, instead.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Steps per second of training, learning included: one agent, 24 agents, Stable-Baselines3,
    SBX; share of the machine's peak.
    """
    console = Console(stderr=True)
    if parts:
        for width in widths or WIDTHS:
            show_parts(
                f"one agent on one core, width {width}", profile_training(width, rounds), as_json
            )
        return
    with console.status("measuring") as status:
        result = measure_training(rounds, tuple(widths or WIDTHS), progress=status.update)
    if as_json:
        print_json(result)
    else:
        show_training(result)


@app.command("torch")
def torch_speed(
    rounds: Annotated[
        int, typer.Option("--rounds", min=1, help="The best of this many rounds counts.")
    ] = 5,
    as_json: Json = False,
) -> None:
    """Steps per second of the PyTorch engine, one agent, learning included, beside
    Stable-Baselines3.
    """
    from flatout.bench.torch_speed import measure_torch

    with Console(stderr=True).status("measuring") as status:
        show_pairs(measure_torch(rounds, status.update), as_json)


@app.command("study")
def study_speed(
    seconds: Annotated[
        float, typer.Option("--seconds", min=1, help="Length of each slice.")
    ] = 60.0,
    as_json: Json = False,
) -> None:
    """Minutes of a study of 500 trials x 6 splits x 100,000 steps, from slices of it, beside
    Stable-Baselines3.
    """
    from flatout.bench.study_speed import measure_study  # loads Optuna

    console = Console(stderr=True)
    with console.status("measuring") as status:
        result = measure_study(seconds, status.update)
    show_pairs(result, as_json)


def show_pairs(result: JsonTable, as_json: bool) -> None:
    """Print names and their figures as a table, or as JSON."""
    if as_json:
        print_json(result)
        return
    table = Table("", "")
    for name, value in result.items():
        table.add_row(name, f"{value:,}" if isinstance(value, int | float) else str(value))
    Console().print(table)


app.command("learn")(learning_quality)


@app.command("verdict")
def verdict_speed(
    walks: Annotated[
        int, typer.Option("--walks", min=0, help="Markets without edge, of each truth.")
    ] = 10,
    truths: Annotated[
        list[str] | None,
        typer.Option(
            "--truth", help=f"Of markets without edge: {', '.join(LUCK)}; else the first three."
        ),
    ] = None,
    signals: Annotated[
        int, typer.Option("--signals", min=0, help="Markets with a planted signal.")
    ] = 10,
    trials: Annotated[int, typer.Option("--trials", min=2, help="Of each study.")] = 32,
    strength: Annotated[
        float,
        typer.Option(
            "--strength-bps", min=0, help="Expected return per bar and unit of the planted signal."
        ),
    ] = 60.0,
    bars: Annotated[
        int, typer.Option("--bars", min=1000, help="Of each market; not with --known.")
    ] = 4000,
    timesteps: Annotated[
        int, typer.Option("--timesteps", min=1, help="Of each trial and split.")
    ] = 60_000,
    known: Annotated[
        bool,
        typer.Option(
            "--known", help="Studies without training: rules of known skill, thousands of them."
        ),
    ] = False,
    studies: Annotated[
        int, typer.Option("--studies", min=1, help="With --known: of each truth without skill.")
    ] = 1000,
    skilled: Annotated[
        int, typer.Option("--skilled", min=1, help="With --known: of each strength of a signal.")
    ] = 200,
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, help="With --known; else one per core.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Whole studies on markets whose truth is known: on walks winners must be refused, planted
    signals must pass.
    """
    if known:
        show_known_rates(studies, skilled, trials, workers, as_json)
        return
    from flatout.bench.calibration import DIRECTIONS, calibrate  # loads Optuna

    console = Console(stderr=True)

    def print_verdict(name: str, row: JsonTable) -> None:
        word = "PROMOTABLE" if row["promotable"] else f"refused by {', '.join(row['refused_by'])}"
        console.print(
            f"{name}: Sharpe {row['median_sharpe']:.2f}; {word}", highlight=False, soft_wrap=True
        )

    result = calibrate(
        walks=walks,
        signals=signals,
        trials=trials,
        timesteps=timesteps,
        bars=bars,
        strength_bps=strength,
        truths=tuple(map(choose_truth, truths)) if truths else DIRECTIONS,
        on_verdict=print_verdict,
    )
    if as_json:
        print_json(result)
        return
    refused = ", ".join(f"{truth} {count} of {walks}" for truth, count in result["refused"].items())
    Console().print(
        f"walks refused: {refused or 'none tried'}; planted signals promoted: "
        f"{result['signals_promoted']} of {result['signals']}; {trials} trials each",
        highlight=False,
    )


def choose_truth(name: str) -> Luck:
    """The kind of walk of this name."""
    for truth in LUCK:
        if truth == name:
            return truth
    raise typer.BadParameter(f"{name!r} is none of {', '.join(LUCK)}", param_hint="--truth")


def show_known_rates(
    studies: int, skilled: int, trials: int, workers: int | None, as_json: bool
) -> None:
    """Judge thousands of known studies and print how often the verdict erred."""
    from flatout.bench.known_rates import SIZE, STRENGTHS, measure_rates
    from flatout.bench.known_truths import SKILL
    from flatout.terminal import progress_bar

    total = len(LUCK) * studies + len(SKILL) * len(STRENGTHS) * skilled
    with progress_bar(as_json) as bar:
        task = bar.add_task("studies", total=total)
        result = measure_rates(
            studies,
            skilled,
            trials,
            workers=workers or os.cpu_count() or 1,
            on_batch=lambda done: bar.update(task, completed=done),
        )
    if as_json:
        print_json(result)
        return
    console = Console()
    table = Table("without skill", "promoted", "95 %", f"best test (level {SIZE:.0%})")
    for truth, rate in result["false_promotions"].items():
        low, high = result["false_intervals"][truth]
        test = result["best_test_size"][truth]
        table.add_row(truth, f"{rate:.2%}", f"{low:.2%} .. {high:.2%}", f"{test:.2%}")
    console.print(table)
    strengths = [f"{strength:g}" for strength in STRENGTHS]
    power = Table("power, by bps of the signal", *strengths)
    for truth, rates in result["power"].items():
        power.add_row(truth, *(f"{rates[s]:.0%}" for s in strengths))
        best = result["power_best_test"][truth]
        power.add_row("  best test", *(f"{best[s]:.0%}" for s in strengths))
    console.print(power)
    gates = Table("gate", "refuses", "alone")
    for name, rate in result["refusals"].items():
        gates.add_row(name, f"{rate:.1%}", f"{result['only_gate'][name]:.2%}")
    console.print(gates)


def show_training(result: JsonTable) -> None:
    """The figures of training as a table."""
    widths = list(result["flatout_single"])
    table = Table("steps/s, learning included", *(f"width {width}" for width in widths))
    for column in table.columns[1:]:
        column.justify = "right"
    for name in (
        "flatout_single",
        "flatout_population",
        "flatout_one_worker",
        "sb3_loop12",
        "sb3_lists12",
        "sb3_fast64",
        "sbx_fast64",
    ):
        if name in result:
            table.add_row(name, *(f"{result[name][width]:,}" for width in widths))
        else:
            table.add_row(name, *("not installed: pip install flatout[bench]" for _ in widths))
    table.add_section()
    for name, row in result.items():
        if "_over_" in name or name in ("mfu", "mfu_executed", "workers_speedup"):
            table.add_row(name, *(f"{row[width]}" for width in widths))
    console = Console()
    console.print(table)
    console.print(f"peak {result['peak_gflops']} GFLOP/s; {result['workload']}", highlight=False)


def show(result: JsonTable) -> None:
    """The figures as a table."""
    console, table = (
        Console(),
        Table("engine", "accounts", "steps/s", "x scalar", "share of memory bound"),
    )
    for column in table.columns[1:]:
        column.justify = "right"
    bound = result["bound_steps_per_s"]
    table.add_row(
        "scalar ledger", "1", f"{result['scalar']:,}", "1.0", f"{result['scalar'] / bound:.2%}"
    )
    for engine, ratios in result["times_scalar"].items():
        for size, times in ratios.items():
            speed = result[engine][size]
            table.add_row(engine, size, f"{speed:,}", f"{times:,}", f"{speed / bound:.2%}")
    console.print(table)
    console.print(
        f"{result['workload']}; memory {result['memory_bytes_per_s'] / 1e9:.1f} GB/s "
        f"over {result['bytes_per_step']} bytes a step = at most {bound:,} steps/s",
        highlight=False,
    )


def show_parts(title: str, times: dict[str, float], as_json: bool) -> None:
    """Print what each part takes, as a table or as JSON."""
    if as_json:
        print_json(times)
        return
    table = Table(title, "")
    for name, value in times.items():
        table.add_row(name, f"{value:,.2f}")
    Console().print(table)
