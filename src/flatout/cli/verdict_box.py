"""The verdict on a terminal: a few lines that say what was found and why it is believed or not."""

from collections.abc import Iterator

from rich.console import Console
from rich.panel import Panel
from rich.table import Table

from flatout.search.report_model import (
    DeflatedFacts,
    NullFacts,
    StudyReport,
    VerdictFacts,
    WinnerFacts,
)
from flatout.terminal import plain


def show_verdict(report: StudyReport, console: Console) -> None:
    """Print the figures of a report in a box, then the gates and the verdict."""
    verdict = report.verdict or VerdictFacts()
    gates = Table.grid(padding=(0, 2))
    for gate in verdict.gates or ():
        gates.add_row(
            tick(gate.passed),
            plain(gate.name or "–"),
            plain(gate.found or "–"),
            f"[dim]{plain(gate.wanted or '–')}[/]",
        )
    colour, title = {
        True: ("green", "PROMOTABLE"),
        False: ("red", "NOT PROMOTABLE"),
        None: ("red", "NONE"),
    }[verdict.promotable]
    box = Panel("\n".join(list_lines(report)), title=plain(report.study or "study"), expand=False)
    console.print(box, highlight=False)
    console.print(gates, highlight=False)
    sentence = verdict.sentence or "not computed"
    console.print(f"[bold {colour}]VERDICT: {title}[/]: {plain(sentence)}", highlight=False)


def list_lines(report: StudyReport) -> Iterator[str]:
    """The lines in the box; a figure that was not computed is a dash."""
    winner, deflated = report.winner or WinnerFacts(), report.deflated or DeflatedFacts()
    paths, null = winner.paths or [], report.null or NullFacts()
    sharpes = sorted(path.sharpe for path in paths if path.sharpe is not None)
    low, high = (sharpes[0], sharpes[-1]) if sharpes else (None, None)
    baselines = "   ".join(
        f"{plain(name.replace('_', ' '))} {format_number(account.sharpe)}"
        for name, account in (report.baselines or {}).items()
    )
    pbo = report.overfitting.pbo if report.overfitting else None
    dearer = next((row.skill_sharpe for row in report.costs or () if row.factor == 2), None)
    later = next((row.skill_sharpe for row in report.delays or () if row.bars == 1), None)
    yield (
        f"Winner trial {format_count(winner.trial)}   {len(paths)} out-of-sample paths: Sharpe "
        f"median {format_number(winner.median_sharpe)} [{format_number(low)}, "
        f"{format_number(high)}]   of its skill {format_number(winner.median_skill)}, seeds SD "
        f"{format_number(winner.seeds_sd)}"
    )
    yield f"Beside it: {baselines}"
    if winner.share_of_rule is not None:
        rule = plain((winner.known_rule or "").replace("_", " "))
        yield f"It earned {winner.share_of_rule:.0%} of what could be earned ({rule})"
    yield (
        f"Deflated Sharpe of skill {format_number(deflated.dsr_effective)} (N = "
        f"{format_count(deflated.trials)} ever on these bars, effective "
        f"{format_number(deflated.effective)})   "
        f"PBO {format_number(pbo)}   copies as good: {format_number(null.p_value)}"
    )
    yield (
        f"Skill at costs x2: {format_number(dearer)}   one bar later: {format_number(later)}   "
        f"luck alone would show {format_number(deflated.expected_best)}"
    )
    for name, control in (report.controls or {}).items():
        yield f"{tick(control.passed)} {plain(name)} control: {plain(control.sentence or '–')}"


def tick(passed: bool | None) -> str:
    """A mark for what passed, failed, or was not tried."""
    return {True: "[green]✓[/]", False: "[red]✗[/]", None: "–"}[passed]


def format_number(value: float | None) -> str:
    """A number with two digits, or a dash."""
    return "–" if value is None else f"{value:.2f}"


def format_count(value: int | None) -> str:
    """A whole number, or a dash."""
    return "–" if value is None else str(value)
