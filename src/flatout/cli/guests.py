"""Commands of other distributions: whatever stands in the entry point group "flatout.commands"
becomes a verb.

An entry point is named as the command is written (`crawl`, or `bench slow` for a verb of `flatout
bench`). It leads to a `typer.Typer`, or to a function with the options of one command. A guest that
cannot be loaded costs its own verb only.
"""

from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import typer

from flatout.errors import RunError

GROUP = "flatout.commands"


def add_guests(main: typer.Typer, bench: typer.Typer) -> None:
    """Add the verbs of all installed guests."""
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        *group, name = point.name.split()
        add_guest(bench if group == ["bench"] else main, name, point)


def add_guest(app: typer.Typer, name: str, point: EntryPoint) -> None:
    """Add one verb; where its distribution is broken, the verb says so instead of the whole
    command.
    """
    try:
        guest = point.load()
    except Exception as error:
        guest = refuse(point, error)
    if isinstance(guest, typer.Typer):
        app.add_typer(guest, name=name)
    else:
        app.command(name, cls=getattr(guest, "command_class", None))(guest)


def refuse(point: EntryPoint, error: Exception) -> Callable[..., Any]:
    """A command that says why it cannot run."""

    def explain(_: typer.Context) -> None:
        distribution = point.dist.name if point.dist else point.value
        raise RunError(
            f"{distribution} is installed but cannot be loaded ({type(error).__name__}: {error}): "
            f"install it again, in "
            "the version of this flatout"
        )

    explain.__doc__ = "Cannot be loaded; run it to see why."
    return explain
