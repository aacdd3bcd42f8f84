"""`flatout backtest`: what a policy would have earned, beside the baselines and beside luck."""

import difflib
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from flatout.bars.bar_size import bar_name
from flatout.bars.panel import Panel
from flatout.bars.read import read_bars
from flatout.bars.resample import resample
from flatout.bars.synthetic import built_in_market
from flatout.cli.data import split
from flatout.cli.failures import describe_refusal
from flatout.cli.options import Config, Json, Out, Seed, Set, plain, print_json, progress_bar, say
from flatout.errors import RulesError, RunError
from flatout.evaluation.backtest import Comparison, History, compare
from flatout.evaluation.baselines import BASELINES, Policy, RandomTrader
from flatout.evaluation.picture import draw_equity, write_picture
from flatout.evaluation.saved_policy import SavedPolicy, bars_of_training, load_policy
from flatout.evaluation.trades import write_ledger
from flatout.foreign import shorten_repr
from flatout.market.market import build_market
from flatout.runs import create_run, runs_folder, write_json
from flatout.settings.loading import Resolved, load_settings
from flatout.settings.tables import MarketSettings

SHOWN = {
    "total_return": ("return", "{:+.1%}"),
    "annual_return": ("return per year", "{:+.1%}"),
    "sharpe": ("Sharpe", "{:.2f}"),
    "sortino": ("Sortino", "{:.2f}"),
    "calmar": ("Calmar", "{:.2f}"),
    "max_drawdown": ("max drawdown", "{:.1%}"),
    "cvar": ("CVaR 5 % per bar", "{:.2%}"),
    "annual_turnover": ("turnover per year", "{:.1f}"),
    "exposure": ("exposure", "{:.0%}"),
    "hit_rate": ("hit rate", "{:.0%}"),
}


POLICY_HELP = (
    f"One of: {', '.join(BASELINES)}; or the folder of a saved policy. A saved policy brings its "
    f"own features and its "
    "own market settings; --config, FLATOUT__ variables and --set change the latter, but neither "
    "action nor fill."
)


def backtest_command(
    policy: Annotated[str, typer.Option("--policy", help=POLICY_HELP)] = "equal_weight",
    bars: Annotated[
        Path | None,
        typer.Option("--bars", help="Bars: CSV, Parquet, Feather or a folder; else built in."),
    ] = None,
    symbols: Annotated[
        str | None, typer.Option("--symbols", help="Only these, in this order: BTC,ETH")
    ] = None,
    bar: Annotated[
        str | None, typer.Option("--bar", help="Resample to this bar size, as in 4h.")
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", help="First decision at or after this UTC time.")
    ] = None,
    until: Annotated[str | None, typer.Option("--until", help="Stop before this UTC time.")] = None,
    config: Config = None,
    overrides: Set = None,
    out: Out = Path("runs"),
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Backtest a policy; prints its figures and writes a ledger (CSV), metrics (JSON) and an equity
    picture (HTML).
    """
    chosen = find_policy(policy, seed)
    own = chosen.bundle.as_settings() if isinstance(chosen, SavedPolicy) else {}
    resolved = load_settings(config, overrides or (), base=own, base_source=f"the policy {policy}")
    panel = read_bars(bars, symbols=split(symbols)) if bars else built_in_market(seed=seed)
    if bar:
        panel = resample(panel, bar)
    source = str(bars) if bars else "built-in random walk"
    name = chosen.name if isinstance(chosen, SavedPolicy) else policy
    report = run_backtest(
        chosen, name, panel, source, resolved, out, seed, (since, until), quiet=as_json
    )
    if as_json:
        print_json(report)
    else:
        show(report, Console())
    if "unwritten" in report:
        raise RunError(
            f"not all of its files could be written, but these are the figures: "
            f"{report['unwritten']}"
        )


def find_policy(name: str, seed: int) -> Policy:
    """The baseline of this name, or the policy saved in this folder."""
    if name == "random":
        return RandomTrader(seed=seed)
    if name in BASELINES:
        return BASELINES[name]
    if Path(name).is_dir():
        return load_policy(name)
    near = difflib.get_close_matches(name, BASELINES, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    known = ", ".join(BASELINES)
    raise RulesError(
        f"there is no policy {name!r}: choose one of {known}, or give the folder of a saved "
        f"one{hint}"
    )


def rows_between(panel: Panel, since: str | None, until: str | None, warm: int) -> tuple[int, int]:
    """First decision bar and stop for UTC times, both optional."""
    first = (
        warm
        if since is None
        else max(warm, int(np.searchsorted(panel.time, moment("--since", since))))
    )
    stop = (
        panel.n_bars
        if until is None
        else int(np.searchsorted(panel.time, moment("--until", until)))
    )
    if (since or until) and not first < stop - 1:
        asked = " ".join(
            f"{name} {text}" for name, text in (("--since", since), ("--until", until)) if text
        )
        raise RulesError(
            f"{asked} leaves no bar to trade: the features are warm from "
            f"{panel.time[min(warm, panel.n_bars - 1)]}, "
            f"the last bar is {panel.time[-1]}"
        )
    return first, stop


def moment(name: str, text: str) -> np.datetime64:
    """The time an option names; without a zone it is UTC."""
    try:
        time = datetime.fromisoformat(text)
        time = time.astimezone(UTC).replace(tzinfo=None) if time.tzinfo else time
    except (ValueError, OverflowError):
        given = shorten_repr(text)
        raise RulesError(
            f"{name} {given} is not a time: write it as 2024-05-01 or 2024-05-01T12:00"
        ) from None
    return np.datetime64(time, "us")


def run_backtest(
    policy: Policy, name: str, panel: Panel, source: str, resolved: Resolved, out: Path, seed: int,
    period: tuple[str | None, str | None] = (None, None), quiet: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Run the comparison, write the run's files and return the report."""
    runs_folder(out)
    settings = resolved.settings.market
    if isinstance(policy, SavedPolicy):
        market = policy.bundle.market(panel, settings, resolved.settings.features)
    else:
        market = build_market(panel, resolved.settings)
    first, stop = rows_between(panel, *period, market.fitted.recipe.warmup)
    others = {key: value for key, value in BASELINES.items() if key not in (name, "random")}
    with progress_bar(quiet) as progress:
        task = progress.add_task("backtest", total=2 * max(stop - first - 1, 0))
        comparison = compare(
            market,
            policy,
            others,
            first,
            stop,
            seed=seed,
            progress=lambda _: progress.advance(task),
        )
    report: dict[str, Any] = {
        "policy": name,
        "source": source,
        "fingerprint": panel.fingerprint,
        "symbols": list(panel.symbols),
        "bar": bar_name(panel.bar_seconds),
        "bars_per_year": panel.bars_per_year,
        "from": str(panel.time[first + 1]),
        "to": str(panel.time[stop - 1]),
        "bars": stop - first - 1,
        "assumptions": assumptions(settings),
        "metrics": metrics_of(comparison, name, panel.bars_per_year),
        "luck": luck_of(comparison, panel.bars_per_year),
        "fills": sum(int(np.count_nonzero(fill.units)) for fill in comparison.chosen.fills),
    }
    if isinstance(policy, SavedPolicy):
        report["bundle"] = about_bundle(policy, panel, first, stop)
    try:
        write_run(report, comparison, panel, resolved, out, seed)
    except OSError as error:  # what was computed must not be lost with it
        report["unwritten"] = describe_refusal(error)
    return report


def write_run(
    report: dict[str, Any],
    comparison: Comparison,
    panel: Panel,
    resolved: Resolved,
    out: Path,
    seed: int,
) -> None:
    """The run's files, what matters most first; the report learns where they lie."""
    name, source, settings = report["policy"], report["source"], resolved.settings.market
    run = create_run(
        out,
        f"backtest-{name}",
        resolved,
        {"source": source, "fingerprint": panel.fingerprint, "seed": seed},
    )
    write_ledger(run / "ledger.csv", panel, comparison.chosen.fills, settings.capital)
    report["run"] = str(run)
    write_json(run / "metrics.json", report)
    write_picture(
        run / "equity.html",
        draw_equity(comparison, panel, name, f"{source} — {assumptions(settings)}"),
    )


def about_bundle(policy: SavedPolicy, panel: Panel, first: int, stop: int) -> dict[str, Any]:
    """Where a learned policy comes from, and how many of the bars traded here it may have learnt by
    heart.
    """
    training = policy.bundle.recipe.training
    return {
        "folder": str(policy.folder),
        "schema_hash": policy.bundle.schema_hash,
        "notes": dict(policy.bundle.notes),
        "trained_from": training.first_time,
        "trained_to": training.last_time,
        "bars_of_training": bars_of_training(policy.bundle, panel, first, stop),
    }


def assumptions(settings: MarketSettings) -> str:
    """How orders fill and what they cost, in one line."""
    costs = settings.costs
    fee = (
        costs.maker_share * costs.tiers[0].maker_bps
        + (1 - costs.maker_share) * costs.tiers[0].taker_bps
    )
    how = {
        "next_open": "the next open",
        "next_close": "the next close",
        "same_close": "THE SAME CLOSE (the decision's own bar!)",
    }
    return (
        f"fills at {how[settings.fill]}; fee {fee:g} bps + half spread {costs.half_spread_bps:g} "
        f"bps "
        f"+ impact {costs.impact:g} x volatility x sqrt(participation); "
        f"at most {settings.limits.participation:.0%} of a bar's volume; "
        f"capital {settings.capital:g}"
    )


def metrics_of(
    comparison: Comparison, name: str, bars_per_year: float
) -> dict[str, dict[str, float | None]]:
    """The figures of the policy and of the baselines."""
    histories: dict[str, History] = {name: comparison.chosen, **comparison.baselines}
    return {key: history.metrics(bars_per_year) for key, history in histories.items()}


def luck_of(comparison: Comparison, bars_per_year: float) -> dict[str, float]:
    """How the policy stands among random traders of equal turnover."""
    luck = comparison.luck
    low, middle, high = np.quantile(luck.equity[-1] - 1, [0.05, 0.5, 0.95])
    return {
        "traders": luck.equity.shape[1],
        "annual_turnover": float(luck.turnover.mean() * bars_per_year),
        "return_5": float(low),
        "return_50": float(middle),
        "return_95": float(high),
        "p_value": comparison.p_value(),
    }


def show(report: dict[str, Any], console: Console) -> None:
    """The report for people."""
    period = (
        f"{report['from'][:16]} to {report['to'][:16]}, {report['bars']} bars of {report['bar']}"
    )
    symbols = plain(", ".join(report["symbols"]))
    console.print(
        f"[bold]{plain(report['policy'])}[/] on {plain(report['source'])}: {symbols}; {period}"
    )
    console.print(report["assumptions"], highlight=False)
    if learned := report.get("bundle"):
        console.print(
            f"trained on {learned['trained_from'][:16]} to {learned['trained_to'][:16]}; "
            f"{learned['bars_of_training']} of the bars traded here lie between",
            highlight=False,
        )
    table = Table("")
    for name in report["metrics"]:
        table.add_column(
            plain(name), justify="right", style="bold" if name == report["policy"] else None
        )
    for key, (title, form) in SHOWN.items():
        figures = [metrics[key] for metrics in report["metrics"].values()]
        table.add_row(
            title, *("–" if figure is None else form.format(figure) for figure in figures)
        )
    console.print(table)
    luck = report["luck"]
    console.print(
        f"luck: {luck['traders']} random traders with turnover {luck['annual_turnover']:.1f} a "
        f"year returned "
        f"{luck['return_5']:+.1%} .. {luck['return_95']:+.1%} (median {luck['return_50']:+.1%}); "
        f"p = {luck['p_value']:.2f} that luck does as well",
        highlight=False,
    )
    console.print(
        (
            f"annualised with {report['bars_per_year']:g} bars a year; bars "
            f"{report['fingerprint'][:12]}"
        ),
        highlight=False,
    )
    if "unwritten" not in report:
        say(f"{report['run']}/: ledger.csv ({report['fills']} fills), metrics.json, equity.html")
