"""Commands of other distributions: whatever stands in the entry point group "flatout.commands"
becomes a verb.

An entry point is named as its command is written: `crawl`, or `bench slow` for a verb of `flatout
bench`. It leads to a `typer.Typer`. As everywhere in Typer, an app with one command and no callback
is that command; any other app is a group of verbs. A guest that cannot be loaded costs its own verb
only, which then says why.

    [project.entry-points."flatout.commands"]
    hello = "hello_flatout.cli:app"
"""

from copy import copy
from importlib.metadata import EntryPoint, entry_points

import typer

from flatout.errors import RunError
from flatout.terminal import say

GROUP = "flatout.commands"


def add_guests(main: typer.Typer, bench: typer.Typer) -> None:
    """Add the verbs of all installed guests to `flatout` and `flatout bench`."""
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        *group, name = point.name.split()
        parent = bench if group == ["bench"] else main
        if group not in ([], ["bench"]) or name in verbs_of(parent):
            say(
                f"note: {name_of(point)} adds no command `{point.name}`: flatout has one of that "
                "name, or no such group",
                err=True,
            )
            continue
        add_guest(parent, name, load_guest(point))


def verbs_of(app: typer.Typer) -> set[str]:
    """The verbs that an app has: its own come first, and no guest takes their place."""
    commands = [(one.name, one.callback) for one in app.registered_commands]
    names = [name or getattr(callback, "__name__", "") for name, callback in commands]
    return {*names, *(one.name or "" for one in app.registered_groups)}


def name_of(point: EntryPoint) -> str:
    """The distribution that an entry point comes from."""
    return point.dist.name if point.dist else point.value


def load_guest(point: EntryPoint) -> typer.Typer:
    """The app of an entry point, or one that says why there is none."""
    try:
        app = point.load()
    # whatever a guest does while it is imported, the other verbs are there
    except (Exception, SystemExit) as error:
        return refuse_guest(point, f"{type(error).__name__}: {error}")
    if not isinstance(app, typer.Typer):
        return refuse_guest(point, f"{point.value} is a {type(app).__name__}, not a typer.Typer")
    return app


def add_guest(parent: typer.Typer, name: str, app: typer.Typer) -> None:
    """Add one guest under its name: as a command if its app is but one, else as a group."""
    if (
        len(app.registered_commands) == 1
        and not app.registered_groups
        and not app.registered_callback
    ):
        command = copy(app.registered_commands[0])
        command.name = name
        parent.registered_commands.append(command)
    else:
        parent.add_typer(app, name=name)


def refuse_guest(point: EntryPoint, why: str) -> typer.Typer:
    """An app whose one command says why the guest cannot run, whatever it is called with."""
    app = typer.Typer()

    @app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
    def explain(_: typer.Context) -> None:
        """Cannot be loaded; run it to see why."""
        raise RunError(
            f"{name_of(point)} is installed but cannot be loaded ({why}): install it again, in the "
            "version of this flatout"
        )

    return app
