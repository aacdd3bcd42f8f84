"""How far a training is: a bar on a terminal or in a notebook, a line per report elsewhere."""

from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from flatout.terminal import can_draw, say
from flatout.training.market_training import MarketTraining
from flatout.training.metrics_file import Row


class TrainingProgress:
    """Shows what workers report, until the block is left."""

    def __init__(self, made: MarketTraining, quiet: bool, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True)
        self.quiet, self.training = quiet, made.training
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:.0f} %"),
            TextColumn("{task.fields[speed]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[terms]}"),
        )
        self.drawn = not quiet and can_draw(self.console)
        self.bar = Progress(*columns, console=self.console, transient=True, disable=not self.drawn)
        self.done: dict[str, int] = {}
        self.speeds: dict[str, float] = {}
        self.task: TaskID | None = None

    def __enter__(self) -> "TrainingProgress":
        self.bar.start()
        self.task = self.bar.add_task("compiling", total=self.training.steps, speed="", terms="")
        return self

    def __exit__(self, *_: Any) -> None:
        self.bar.stop()

    def show_rows(self, rows: list[Row]) -> None:
        """Show what a worker reported."""
        for row in rows:
            self.done[row.lane] = row.steps
            self.speeds[row.lane] = row.steps_per_s / max(len(rows), 1)
        if not rows or self.task is None or self.quiet:
            return
        row, speed = rows[-1], sum(self.speeds.values())
        if self.drawn:
            self.bar.update(
                self.task,
                description=f"training, held-out reward {row.scores['reward']:+.2f}",
                completed=sum(self.done.values()),
                speed=f"{speed:,.0f} steps/s",
                terms=describe_terms(row),
            )
            return
        share = sum(self.done.values()) / self.training.steps
        for row in rows:
            say(
                f"{share:4.0%} {row.lane}: {row.steps:,} steps, reward "
                f"{row.metrics['reward']:+.4f}, held out {row.scores['reward']:+.2f}, "
                f"{speed:,.0f} steps/s; {describe_terms(rows[-1])}",
                err=True,
            )


def describe_terms(row: Row) -> str:
    """The reward's terms in a row's metrics."""
    return " ".join(
        f"{name[6:]} {value:+.2g}"
        for name, value in row.metrics.items()
        if name.startswith("terms/")
    )
