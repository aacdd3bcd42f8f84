"""`flatout config show`: the settings in force and where each came from."""

from collections.abc import Mapping
from typing import Annotated

import typer

from flatout.cli.options import Config, Json, Set, print_json
from flatout.settings.loading import load_settings
from flatout.terminal import say

app = typer.Typer(help="Settings: what is in force and where it came from.", no_args_is_help=True)


@app.callback()
def verbs() -> None:
    """Settings: what is in force and where it came from."""


@app.command()
def show(
    config: Config = None,
    overrides: Set = None,
    origin: Annotated[
        bool, typer.Option("--origin", help="Say where each value came from.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Print all settings: defaults < file < FLATOUT__A__B < --set."""
    resolved = load_settings(config, overrides or ())
    flat = flatten(resolved.settings.model_dump(mode="json"))
    if as_json:
        sources = {name: resolved.origin.get(name, "default") for name in flat}
        print_json({"settings": resolved.settings.model_dump(mode="json"), "origin": sources})
        return
    for name, value in flat.items():
        source = f"    # {resolved.origin.get(name, 'default')}" if origin else ""
        say(f"{name} = {value!r}{source}")


def flatten(values: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """Dotted names of all leaves."""
    flat: dict[str, object] = {}
    for key, value in values.items():
        flat |= (
            flatten(value, f"{prefix}{key}.")
            if isinstance(value, dict) and value
            else {f"{prefix}{key}": value}
        )
    return flat
