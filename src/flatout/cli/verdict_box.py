"""The verdict on a terminal: a few lines that say what was found and why it is believed or not."""

from typing import Any

from rich.console import Console
from rich.panel import Panel
from rich.table import Table

from flatout.terminal import plain


def show_verdict(report: dict[str, Any], console: Console) -> None:
    """The box."""
    verdict, winner, deflated = report["verdict"], report["winner"], report["deflated"]
    sharpes = sorted(path["sharpe"] for path in winner["paths"] if path["sharpe"] is not None)
    beside = "   ".join(
        f"{plain(name.replace('_', ' '))} {number(f['sharpe'])}"
        for name, f in report["baselines"].items()
    )
    pbo = report["overfitting"]["pbo"] if report["overfitting"] else None
    low, high = (sharpes[0], sharpes[-1]) if sharpes else (None, None)
    lines = [
        f"Winner trial {winner['trial']}   {len(winner['paths'])} out-of-sample paths: Sharpe "
        f"median "
        f"{number(winner['median_sharpe'])} [{number(low)}, {number(high)}]   seeds SD "
        f"{number(winner['seeds_sd'])}",
        f"Beside it: {beside}",
        f"Deflated Sharpe {number(deflated['dsr'])} (N = {deflated['trials']} ever on these bars, "
        f"effective "
        f"{number(deflated['effective'])})   PBO {number(pbo)}   random traders as good: "
        f"{number(report['null']['p_value'])}",
        f"Costs x2: {under(report['costs'], 'factor', 2)}   one bar later: "
        f"{under(report['delays'], 'bars', 1)}   "
        f"luck alone would show {number(deflated['expected_best'])}",
    ]
    controls = report["controls"]
    lines += [
        f"{tick(c['passed'])} {plain(name)} control: {plain(c['sentence'])}"
        for name, c in controls.items()
    ]
    gates = Table.grid(padding=(0, 2))
    for gate in verdict["gates"]:
        gates.add_row(
            tick(gate["passed"]),
            plain(gate["name"]),
            plain(gate["found"]),
            f"[dim]{plain(gate['wanted'])}[/]",
        )
    colour = "green" if verdict["promotable"] else "red"
    title = "PROMOTABLE" if verdict["promotable"] else "NOT PROMOTABLE"
    console.print(
        Panel("\n".join(lines), title=f"{plain(report['study'])}", expand=False), highlight=False
    )
    console.print(gates, highlight=False)
    console.print(
        f"[bold {colour}]VERDICT: {title}[/]: {plain(verdict['sentence'])}", highlight=False
    )


def tick(passed: bool) -> str:
    """A mark."""
    return "[green]✓[/]" if passed else "[red]✗[/]"


def number(value: float | None) -> str:
    """Two digits, or a dash."""
    return "–" if value is None else f"{value:.2f}"


def under(rows: list[dict[str, Any]], key: str, wanted: float) -> str:
    """The Sharpe ratio in one row of a table."""
    return next((number(row["sharpe"]) for row in rows if row[key] == wanted), "–")
