"""`flatout audit`: leaks, folds, accounts and bars, tried out on the user's own bars before
anything is trained.
"""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from flatout.cli.data import split
from flatout.cli.options import Config, Json, Seed, Set, plain, print_json, say
from flatout.cli.search import where
from flatout.cli.verdict_box import tick
from flatout.settings.loading import load_settings


def audit_command(
    bars: Annotated[
        Path | None, typer.Option("--bars", help="Bars; else as the settings file says.")
    ] = None,
    symbols: Annotated[
        str | None, typer.Option("--symbols", help="Only these, in this order: BTC,ETH")
    ] = None,
    bar: Annotated[
        str | None, typer.Option("--bar", help="Resample to this bar size, as in 4h.")
    ] = None,
    config: Config = None,
    overrides: Set = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Look for leaks and for money from nowhere on your own bars, without training; exit code 1 if
    any is found.
    """
    from flatout.evaluation.audit import audit
    from flatout.search.run import Request, read_panel

    resolved = load_settings(config, overrides or ())
    data = resolved.settings.data
    chosen = split(symbols) or data.symbols
    request = Request(
        "audit", where(bars, resolved, config), tuple(chosen) if chosen else None, bar or data.bar
    )
    panel = read_panel(request)
    console, waiting = Console(), Console(stderr=True)
    findings: list[dict[str, Any]] = []
    with waiting.status("looking for leaks") as status:
        for finding in audit(panel, resolved.settings, seed):
            findings.append(finding._asdict())
            if not as_json:
                show(findings[-1], console)
            status.update(f"{len(findings)} checks done")
    passed = all(finding["passed"] for finding in findings)
    source = request.bars or "built-in random walk"
    if as_json:
        print_json(
            {
                "source": source,
                "fingerprint": panel.fingerprint,
                "passed": passed,
                "findings": findings,
            }
        )
    else:
        crosses = sum(not finding["passed"] for finding in findings)
        said = (
            f"all {len(findings)} checks passed"
            if passed
            else f"{crosses} of {len(findings)} checks failed"
        )
        say(f"{source}: {said}")
    if not passed:
        raise typer.Exit(1)


def show(finding: dict[str, Any], console: Console) -> None:
    """A tick or a cross, and why; the details below."""
    line = (
        f"{tick(finding['passed'])} [bold]{plain(finding['name'])}[/]: {plain(finding['sentence'])}"
    )
    console.print(line, highlight=False, soft_wrap=True)
    for detail in finding["details"]:
        console.print(f"    [dim]{plain(detail)}[/]", highlight=False, soft_wrap=True)
