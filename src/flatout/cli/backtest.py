"""`flatout backtest`: what a policy would have earned, beside the baselines and beside luck."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from flatout.bars.source import find_source
from flatout.cli.failures import describe_refusal
from flatout.cli.options import (
    Bars,
    BarSize,
    Config,
    Json,
    Out,
    Seed,
    Set,
    Symbols,
    print_json,
)
from flatout.errors import RunError
from flatout.evaluation.baselines import BASELINES
from flatout.evaluation.policy_backtest import backtest_policy
from flatout.evaluation.saved_policy import SavedPolicy, find_policy
from flatout.foreign import JsonTable
from flatout.market.market import build_market
from flatout.runs import runs_folder
from flatout.settings.loading import load_settings
from flatout.terminal import plain, say

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
    "own features and its own market settings; --config, FLATOUT__ variables and --set change the "
    "latter, but neither action nor fill. One that looks at each asset in turn also trades other "
    "symbols, if --symbols names them."
)


def backtest_command(
    policy: Annotated[str, typer.Option("--policy", help=POLICY_HELP)] = "equal_weight",
    bars: Bars = None,
    symbols: Symbols = None,
    bar: BarSize = None,
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
    if isinstance(chosen, SavedPolicy) and symbols is not None:
        chosen = chosen.for_symbols(symbols)
    own = chosen.bundle.as_settings() if isinstance(chosen, SavedPolicy) else {}
    resolved = load_settings(config, overrides or (), base=own, base_source=f"the policy {policy}")
    source = find_source(resolved, bars, symbols=symbols, bar=bar, seed=seed)
    runs_folder(out)
    if isinstance(chosen, SavedPolicy):
        result = chosen.backtest_on(source, resolved, (since, until), seed, quiet=as_json)
    else:
        market = build_market(source.read(), resolved.settings)
        result = backtest_policy(
            chosen,
            policy,
            market,
            source=source.name,
            resolved=resolved,
            period=(since, until),
            seed=seed,
            quiet=as_json,
        )
    report, unwritten = result.facts(), None
    try:
        report["run"] = str(result.write(out))
    except OSError as error:  # what was computed must not be lost with it
        unwritten = report["unwritten"] = describe_refusal(error)
    if as_json:
        print_json(report)
    else:
        show(report, Console())
    if unwritten:
        raise RunError(
            f"not all of its files could be written, but these are the figures: {unwritten}"
        )


def show(report: JsonTable, console: Console) -> None:
    """Print the figures beside those of the baselines and of luck."""
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
        if learned.get("remark"):
            console.print(plain(learned["remark"]), highlight=False)
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
        f"luck: {luck['copies']} copies of it that decide at other times, with turnover "
        f"{luck['annual_turnover']:.1f} a year, returned {luck['return_5']:+.1%} .. "
        f"{luck['return_95']:+.1%} (median {luck['return_50']:+.1%}); p = {luck['p_value']:.2f} "
        f"that they show as much skill before costs",
        highlight=False,
    )
    console.print(
        (
            f"bars per year: {report['trading_year']}; annual figures and borrow costs go by them; "
            f"bars {report['fingerprint'][:12]}"
        ),
        highlight=False,
    )
    if "unwritten" not in report:
        say(f"{report['run']}/: ledger.csv ({report['fills']} fills), metrics.json, equity.html")
