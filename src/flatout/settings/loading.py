"""How the settings in force come about, and where each value came from.

Precedence: defaults < file < environment (`FLATOUT__MARKET__CAPITAL=5000`) < `--set
market.capital=5000`. An unknown key is an error that names the nearest known one. Nothing reads
settings from anywhere else.
"""

import difflib
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from flatout.errors import SettingsError
from flatout.foreign import parse_toml, read_toml, shortened
from flatout.settings.fields import Model
from flatout.settings.tables import LOT_STEP_KINDS, Settings

ENVIRONMENT_PREFIX = "FLATOUT__"
MOST_TOLD = 10  # problems
LONGEST = 300  # characters of a name or a source that are told
DEEPEST = 50  # parts of a dotted name


class Resolved(Model):
    """Settings, and for each key that is not a default where its value came from."""

    settings: Settings
    origin: dict[str, str]


def load_settings(
    path: Path | None = None,
    overrides: Iterable[str] = (),
    environment: Mapping[str, str] | None = None,
    base: Mapping[str, Any] | None = None,
    base_source: str = "base",
) -> Resolved:
    """Read and merge all sources; `overrides` are `a.b=c` texts. `base` stands over the defaults
    and under all else: a saved policy brings its own market.

    >>> resolved = load_settings(overrides=["market.capital=5000"], environment={})
    >>> resolved.settings.market.capital, resolved.origin
    (5000.0, {'market.capital': '--set market.capital=5000'})
    """
    origin: dict[str, str] = {}
    merged: dict[str, Any] = {}
    merge(merged, base or {}, base_source, origin)
    if path is not None:
        merge(merged, read_toml(path, SettingsError), str(path), origin)
    for name, text in sorted((os.environ if environment is None else environment).items()):
        if name.startswith(ENVIRONMENT_PREFIX):
            keys = name.removeprefix(ENVIRONMENT_PREFIX).lower().split("__")
            merge(merged, nested(keys, parse_value(text), name), name, origin)
    for text in overrides:
        key, equals, value = text.partition("=")
        if not equals:
            raise SettingsError(
                f"--set {shortened(text)} has no '=': write --set market.capital=5000"
            )
        source = f"--set {text}"
        merge(
            merged,
            nested(key.strip().split("."), parse_value(value.strip()), source),
            source,
            origin,
        )
    return Resolved(settings=validate(merged, origin), origin=origin)


def parse_value(text: str) -> Any:
    """A TOML value, or the text itself where it is not one (so that names need no quotes)."""
    try:
        found = parse_toml(f"value = {text}", shortened(text), SettingsError)
    except SettingsError:
        return text
    return found["value"] if len(found) == 1 else text  # a text of several lines is no value


def nested(keys: list[str], value: Any, source: str) -> dict[str, Any]:
    """{"a": {"b": value}} from ["a", "b"]."""
    if len(keys) > DEEPEST:
        raise SettingsError(
            f"{cut(source)}: a name of {len(keys):,} parts; no setting has more than four"
        )
    for key in reversed(keys):
        value = {key: value}
    return dict(value)


def merge(
    base: dict[str, Any],
    new: Mapping[str, Any],
    source: str,
    origin: dict[str, str],
    prefix: str = "",
) -> None:
    """Write `new` over `base`, table by table, noting the source of every value."""
    for key, value in new.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            below = base.setdefault(key, {})
            if not isinstance(below, dict):
                below = base[key] = {}
                origin.pop(name, None)  # none where two quoted keys with dots in them read alike
            if not value:
                origin[name] = source
            merge(below, value, source, origin, f"{name}.")
        else:
            if isinstance(
                base.get(key), dict
            ):  # else nothing is below, and looking for it takes long
                for below in [old for old in origin if old.startswith(f"{name}.")]:
                    del origin[below]
            base[key] = value
            origin[name] = source


def validate(values: dict[str, Any], origin: Mapping[str, str]) -> Settings:
    """The settings, or a SettingsError that names key, source, value and what is allowed."""
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        problems = error.errors(include_url=False)
        said = [explain(problem, origin) for problem in problems[:MOST_TOLD]]
        more = len(problems) - MOST_TOLD
        raise SettingsError(
            "\n".join([*said, f"and {more:,} more"] if more > 0 else said)
        ) from None


def explain(problem: Any, origin: Mapping[str, str]) -> str:
    """One sentence for one validation problem."""
    key = ".".join(str(part) for part in problem["loc"] if part not in LOT_STEP_KINDS)
    sources = [
        source
        for name, source in origin.items()
        if name == key or key.startswith(f"{name}.") or name.startswith(f"{key}.")
    ]
    where = f" (from {cut(sources[0])})" if sources else ""
    if problem["type"] == "extra_forbidden":
        plain = re.sub(r"\.\d+\b", "", key)
        near = (
            difflib.get_close_matches(plain, known_keys(Settings), n=1, cutoff=0.5)
            if len(key) <= LONGEST
            else []
        )
        return f"{cut(key)}{where}: there is no such setting" + (
            f"; did you mean {near[0]}?" if near else ""
        )
    given = shortened(problem["input"])
    if problem["type"] == "model_type":
        return f"{cut(key)}{where}: a table of settings is wanted; given {given}"
    if problem["type"] == "value_error":  # raised here, and complete
        return f"{cut(key)}{where}: {problem['msg'].removeprefix('Value error, ')}"
    return f"{cut(key)}{where}: {problem['msg']}; given {given}"


def cut(text: str) -> str:
    """A name or a source for a message: its beginning, if it is long."""
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def known_keys(model: type[BaseModel], prefix: str = "") -> list[str]:
    """All dotted keys of a model."""
    keys = []
    for name, field in model.model_fields.items():
        keys.append(f"{prefix}{name}")
        for inner in (field.annotation, *get_args(field.annotation)):
            if isinstance(inner, type) and issubclass(inner, BaseModel):
                keys += known_keys(inner, f"{prefix}{name}.")
    return keys
