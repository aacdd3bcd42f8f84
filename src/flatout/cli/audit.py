"""`flatout audit`: leaks, folds, accounts and bars, tried out on the user's own bars before
anything is trained.
"""

import typer
from rich.console import Console

from flatout.bars.source import find_source
from flatout.cli.options import (
    Bars,
    BarSize,
    Config,
    Json,
    Seed,
    Set,
    Symbols,
    print_json,
)
from flatout.cli.verdict_box import tick
from flatout.foreign import JsonTable
from flatout.settings.loading import load_settings
from flatout.terminal import plain, say


def audit_command(
    bars: Bars = None,
    symbols: Symbols = None,
    bar: BarSize = None,
    config: Config = None,
    overrides: Set = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Look for leaks and for money from nowhere on your own bars, without training; exit code 1 if
    any is found.
    """
    from flatout.evaluation.audit import audit

    resolved = load_settings(config, overrides or ())
    found = find_source(resolved, bars, symbols, bar)
    panel = found.read()
    console, waiting = Console(), Console(stderr=True)
    findings: list[JsonTable] = []
    with waiting.status("looking for leaks") as status:
        for finding in audit(panel, resolved.settings, seed):
            findings.append(finding._asdict())
            if not as_json:
                show(findings[-1], console)
            status.update(f"{len(findings)} checks done")
    passed = all(finding["passed"] for finding in findings)
    source = found.name
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


def show(finding: JsonTable, console: Console) -> None:
    """A tick or a cross, and why; the details below."""
    line = (
        f"{tick(finding['passed'])} [bold]{plain(finding['name'])}[/]: {plain(finding['sentence'])}"
    )
    console.print(line, highlight=False, soft_wrap=True)
    for detail in finding["details"]:
        console.print(f"    [dim]{plain(detail)}[/]", highlight=False, soft_wrap=True)
