"""Options that several verbs share, and how their results are shown."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from flatout.errors import SettingsError

__all__ = ["Json", "Seed", "SpaceSeparated", "print_json"]

SYMBOLS = "--symbols"
CONFIG = ("--config", "-c")
Config = Annotated[Path | None, typer.Option(*CONFIG, help="Settings file (flatout.toml).")]
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
Bars = Annotated[
    Path | None,
    typer.Option(
        "--bars", help="CSV, Parquet, Feather or a folder; else data.bars, else built in."
    ),
]
Symbols = Annotated[
    list[str] | None,
    typer.Option(SYMBOLS, help="Only these, in this order: --symbols BTC ETH"),
]
BarSize = Annotated[str | None, typer.Option("--bar", help="Resample to this bar size, as in 4h.")]
Seed = Annotated[
    int, typer.Option("--seed", min=0, max=2**31 - 1, help="Seed of everything random.")
]


def list_typed(ctx: typer.Context) -> list[str]:
    """The options that were typed, by their long names; the others have their defaults."""
    sources = {one: ctx.get_parameter_source(one.name or "") for one in ctx.command.params}
    # by the source's name, as its type is in another place in every second version of typer
    return [
        next(word for word in one.opts if word.startswith("--"))
        for one, source in sources.items()
        if source is not None and source.name == "COMMANDLINE"
    ]


def print_json(value: object) -> None:
    """JSON on standard output, nothing else.

    >>> print_json({"pages": 3})
    {
      "pages": 3
    }
    """
    typer.echo(json.dumps(value, indent=2, allow_nan=False))


class SpaceSeparated(TyperCommand):
    """A command whose list options take several values at once: `--symbols A B` for `--symbols A
    --symbols B`; `--symbols A,B` is the same.

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
    never_listed: tuple[str, ...] = ()  # endings of arguments that belong to no list

    # the context's type has a public name in some versions of typer only
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Repeat the option's name before each of its values."""
        spread: list[str] = []
        current: str | None = None
        args = [part for arg in args for part in split_equals(arg)]
        for arg, following in pairwise([*args, "--"]):
            if arg in self.lists and following.startswith("-"):
                raise typer.BadParameter(f"{arg} needs at least one value", ctx)
            if arg.startswith("-") or arg.endswith(self.never_listed):
                current = arg if arg in self.lists else None
                spread += [] if current else [arg]
            else:
                for value in split_commas(arg) if current == SYMBOLS else [arg]:
                    spread += [current, value] if current else [value]
        return super().parse_args(ctx, spread)


class BarsCommand(SpaceSeparated):
    """A command that takes `--symbols BTC ETH`, and its settings file with `--config` or without:
    `flatout train flatout.toml` is `flatout train --config flatout.toml`.
    """

    lists = (SYMBOLS,)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Write `--config` before a settings file that is no option's value; refuse a second."""
        valued = {
            word
            for one in self.params
            if not getattr(one, "is_flag", False)
            for word in one.opts
            if word.startswith("-")
        }
        named: list[str] = []
        for before, arg in pairwise(["", *args]):
            # an option with its value in one word, `--seed=3`, is not among the words of options
            free = before not in valued and not arg.startswith("-")
            named += ["--config", arg] if free and arg.endswith(".toml") else [arg]
        check_one_config(named)
        return super().parse_args(ctx, named)


def check_one_config(args: list[str]) -> None:
    """Refuse several settings files, of which the last would stand over the others unsaid; one
    that is given twice is one.
    """
    given = [file for arg, value in pairwise([*args, ""]) for file in config_of(arg, value)]
    files = {Path(file).resolve(): file for file in given}
    if len(files) > 1:
        raise SettingsError(
            f"one settings file, but {len(files)} are given: {', '.join(files.values())}; give "
            "one (`flatout search` takes several, a study each)"
        )


def config_of(arg: str, following: str) -> list[str]:
    """The settings file that a word names together with the one after it, if any."""
    if arg in CONFIG:
        return [following]
    long, short = CONFIG
    if arg.startswith(f"{long}="):
        return [arg.removeprefix(f"{long}=")]
    attached = arg.startswith(short) and not arg.startswith("--")
    return [arg.removeprefix(short)] if attached else []


def split_equals(arg: str) -> list[str]:
    """`--symbols=BTC,ETH` as its two words; all else stays as it is."""
    return [SYMBOLS, arg.removeprefix(f"{SYMBOLS}=")] if arg.startswith(f"{SYMBOLS}=") else [arg]


def split_commas(text: str) -> list[str]:
    """The values of "BTC,ETH"; one that is no list stays as it is, for whoever refuses it."""
    return [part.strip() for part in text.split(",") if part.strip()] or [text]
