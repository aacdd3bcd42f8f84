"""`flatout demo`: the main job on a built-in market, offline, in under a minute."""

from pathlib import Path

from rich.console import Console

from flatout.cli.backtest import built_in_market, find_policy, run_backtest, show
from flatout.cli.options import Json, Out, Seed, print_json
from flatout.settings import load_settings


def demo(out: Out = Path("runs"), seed: Seed = 0, as_json: Json = False) -> None:
    """Backtest equal weight on a built-in random walk, on which nothing can be earned: the costs are what remains."""
    name = "equal_weight"
    panel, resolved = built_in_market(seed=seed), load_settings()
    report = run_backtest(
        find_policy(name, seed), name, panel, "built-in random walk", resolved, out, seed, quiet=as_json
    )
    if as_json:
        print_json(report)
        return
    console = Console()
    show(report, console)
    console.print("On this market the best expected return is zero: gains are luck, turnover only costs.", style="bold")
    console.print("next: flatout data check YOUR_BARS.parquet")
    console.print("      flatout backtest --policy momentum --bars YOUR_BARS.parquet")
