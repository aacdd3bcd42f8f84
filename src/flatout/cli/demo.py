"""`flatout demo`: the main job on two made-up markets, offline: checks, a small study of each, and
two verdicts. One winner must be refused, the other one found.
"""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from flatout.cli.audit import show
from flatout.cli.doctor import memory
from flatout.cli.options import Json, Out, Seed, print_json
from flatout.cli.verdict_box import show_verdict
from flatout.foreign import JsonTable
from flatout.terminal import say
from flatout.workers.devices import choose_devices

if TYPE_CHECKING:
    from flatout.search.demonstration import DemoMarket
    from flatout.search.report_model import StudyReport

MANY = 1000  # lanes: more than there are devices
ABOUT: "dict[DemoMarket, str]" = {
    "walk": "nothing can be earned here: gains are luck, turnover only costs",
    "edge": "a weak edge is planted here: a signal that explains 2 % of the next bar's move",
}
RIGHT: "dict[DemoMarket, str]" = {
    "walk": "This is the right answer: nothing can be earned on this market.",
    "edge": "This is the right answer: the edge is real, and it pays for its costs.",
}
WRONG: "dict[DemoMarket, str]" = {
    "walk": "This is the wrong answer: the winner was lucky, which happens in few studies; try "
    "--seed.",
    "edge": "This is the wrong answer: the edge is real, but this study could not show it; try "
    "--seed.",
}


def demo(out: Out = Path("runs"), seed: Seed = 0, as_json: Json = False) -> None:
    """Search a random walk, on which nothing can be earned, and a market with a weak edge: refuse
    the one winner, find the other; about a minute.
    """
    from flatout.bench.calibration import own_registry
    from flatout.evaluation.audit import audit
    from flatout.search import demonstration
    from flatout.search.progress import StudyProgress
    from flatout.search.run import run_studies

    chosen = choose_devices("auto", None, MANY)
    quiet = Console(quiet=True) if as_json else Console()
    quiet.print(
        f"[bold]flatout[/] on {', '.join(slot.name for slot in chosen.slots)}, {memory()}",
        highlight=False,
    )
    stamp = f"demo-{datetime.now(UTC).strftime('%Y%m%dT%H%M%S')}"
    names = {market: f"{stamp}-{market}" for market in ABOUT}
    made = list(demonstration.prepare_demo(names, seed, out, chosen))
    first = made[0]
    findings = []
    for finding in audit(first.panel, first.market.settings, seed):
        findings.append(finding._asdict())
        show({**findings[-1], "details": ()}, quiet)
    quiet.print(
        f"two studies of {first.market.settings.search.trials} trials x {first.layout.splits} "
        f"splits, on markets of {first.panel.n_assets} assets and {first.panel.n_bars:,} bars",
        highlight=False,
    )
    with (
        own_registry(out / names["walk"] / "registry"),
        StudyProgress(made, quiet=as_json) as progress,
    ):
        reports = run_studies(
            made,
            chosen.slots,
            out,
            None,
            on_round=progress.show_round,
            on_stage=progress.show_stage,
            on_note=progress.show_note,
        )
    found = dict(zip(names, reports, strict=True))
    if as_json:
        answers: JsonTable = {
            market: report and {**report.facts(), "folder": str(out / names[market])}
            for market, report in found.items()
        }
        print_json({"checks": findings, **answers})
        return
    for market, report in found.items():
        if report:
            show_answer(market, report, out / names[market], quiet)
    quiet.print(
        "next: flatout init && flatout search flatout.toml --bars YOUR_BARS.parquet --plan",
        highlight=False,
    )


def show_answer(
    market: "DemoMarket", report: "StudyReport", folder: Path, console: Console
) -> None:
    """Print a verdict and whether it is right."""
    console.print()
    console.print(f"[bold]{market}[/]: {ABOUT[market]}", highlight=False)
    show_verdict(report, console)
    is_right = report.promotable is (market == "edge")
    console.print((RIGHT if is_right else WRONG)[market], style="bold", highlight=False)
    say(f"report: {folder / 'report.html'}")
