"""Options that several verbs share, and how their results are shown."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from typer.core import TyperCommand

__all__ = ["Json", "Seed", "SpaceSeparated", "plain", "print_json", "progress_bar"]

Config = Annotated[
    Path | None, typer.Option("--config", "-c", help="Settings file (flatout.toml).")
]
Set = Annotated[
    list[str] | None, typer.Option("--set", help="Override a setting: --set market.costs.impact=1")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON only.")]
Out = Annotated[Path, typer.Option("--out", help="Folder in which the run's own folder is made.")]
Engine = Annotated[
    str | None,
    typer.Option("--engine", help="jax, torch or auto; instead of train.engine.", metavar="ENGINE"),
]
Device = Annotated[
    str | None,
    typer.Option("--device", help="cpu, cuda, cuda:1, rocm, mps or auto; else the best there is."),
]
Seed = Annotated[
    int, typer.Option("--seed", min=0, max=2**31 - 1, help="Seed of everything random.")
]


def plain(text: object) -> str:
    """Text from outside, such as a symbol, a path or a title, among Rich's markup: brackets are
    shown, not obeyed.

    >>> from rich.text import Text
    >>> Text.from_markup(plain("[bold]BTC")).plain
    '[bold]BTC'
    """
    return escape(visible(text))


def visible(text: object) -> str:
    """Text with control characters spelled out: a terminal would obey them, move the cursor or turn
    the line around.
    """
    shown = str(text)
    if shown.isprintable():
        return shown
    return "".join(
        letter if letter in "\n\t" or letter.isprintable() else ascii(letter)[1:-1]
        for letter in shown
    )


def say(text: object, err: bool = False) -> None:
    """One line or more on standard output, or on standard error."""
    typer.echo(visible(text), err=err)


def print_json(value: Any) -> None:
    """JSON on standard output, nothing else.

    >>> print_json({"pages": 3})
    {
      "pages": 3
    }
    """
    typer.echo(json.dumps(value, indent=2, allow_nan=False))


def progress_bar(quiet: bool = False) -> Progress:
    """A bar with the remaining time on a terminal, nothing elsewhere.

    >>> with progress_bar(quiet=True) as bar:
    ...     task = bar.add_task("crawling", total=2)
    ...     bar.advance(task)
    """
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    return Progress(
        *columns, console=console, transient=True, disable=quiet or not console.is_terminal
    )


class SpaceSeparated(TyperCommand):
    """A command whose list options take several values at once: `--symbols A B` for `--symbols A
    --symbols B`.

    >>> class Crawl(SpaceSeparated):
    ...     lists = ("--allow",)
    >>> app = typer.Typer(add_completion=False)
    >>> @app.command(cls=Crawl)
    ... def crawl(allow: Annotated[list[str], typer.Option()]) -> None:
    ...     print(allow)
    >>> app(["--allow", "a.org", "b.org"], standalone_mode=False)
    ['a.org', 'b.org']
    """

    lists: tuple[str, ...] = ()

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Repeat the option's name before each of its values."""
        spread: list[str] = []
        current: str | None = None
        for arg, following in pairwise([*args, "--"]):
            if arg in self.lists and following.startswith("-"):
                raise typer.BadParameter(f"{arg} needs at least one value", ctx)
            if arg.startswith("-"):
                current = arg if arg in self.lists else None
                spread += [] if current else [arg]
            else:
                spread += [current, arg] if current else [arg]
        return super().parse_args(ctx, spread)
