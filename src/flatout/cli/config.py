"""`flatout config show`: the settings in force and where each came from."""

from collections.abc import Mapping
from typing import Annotated

import typer

from flatout.cli.options import Config, Json, Set, print_json
from flatout.settings.loading import Resolved, load_settings
from flatout.settings.train import PPO_ONLY, LearnerKind
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
    sources = {name: find_source(name, resolved) for name in flat}
    if as_json:
        print_json({"settings": resolved.settings.model_dump(mode="json"), "origin": sources})
        return
    for name, value in flat.items():
        source = f"    # {sources[name]}" if origin else ""
        say(f"{name} = {value!r}{source}")


def find_source(name: str, resolved: Resolved) -> str:
    """Where a value came from. Of how agents learn, what nobody gave follows from the market and
    from the numbers that were given.
    """
    table, _, last = name.partition(".")
    train, given = resolved.settings.train, resolved.origin.get(name, "default")
    if table != "train" or last not in LearnerKind._fields or not train.is_open(last):
        return given
    own = sorted(PPO_ONLY & train.model_fields_set)
    if train.algorithm == "ppo" and own:
        return f"auto, as train.{own[0]} is given"
    return f"auto, for {resolved.settings.market.action!r} actions"


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
