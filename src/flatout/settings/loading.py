"""How the settings in force come about, and where each value came from.

Precedence: defaults < file < environment (`FLATOUT__MARKET__CAPITAL=5000`) < `--set
market.capital=5000`. An unknown key is an error that names the nearest known one. Nothing reads
settings from anywhere else.
"""

import os
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from flatout.errors import SettingsError
from flatout.foreign import parse_toml, read_toml, shorten, shorten_repr, to_path
from flatout.settings.fields import Model
from flatout.settings.problems import LONGEST, describe_problems
from flatout.settings.tables import OLD_SEARCH, Settings

ENVIRONMENT_PREFIX = "FLATOUT__"
DEEPEST = 50  # parts of a dotted name
GIVEN = "the caller"  # origins that are no files
OPTIONS = "the options"
OWN = "the policy"
# as the shell spells it, since runs keep it and `flatout config` prints it to be typed again
OVERRIDE = "--set "


class Resolved(Model):
    """Settings, and for each key that is not a default where its value came from."""

    settings: Settings
    origin: dict[str, str]

    @property
    def files(self) -> frozenset[str]:
        """Those origins that are settings files."""
        given = (GIVEN, OPTIONS, ENVIRONMENT_PREFIX, OVERRIDE, OWN)
        return frozenset(name for name in self.origin.values() if not name.startswith(given))


GivenSettings = Resolved | Settings | Mapping[str, Any] | str | os.PathLike[str] | None


def load_settings(
    path: str | os.PathLike[str] | None = None,
    overrides: Iterable[str] = (),
    environment: Mapping[str, str] | None = None,
    base: Mapping[str, Any] | None = None,
    base_source: str = OWN,
) -> Resolved:
    """Read and merge all sources: defaults, `base`, the file, the environment, the overrides. Each
    stands over those before it.

    path         of a flatout.toml; None is no file
    overrides    texts such as "market.capital=5000", as `--set` takes them
    environment  variables such as FLATOUT__MARKET__CAPITAL, by name; by default those of the
                 process, {} is none
    base         tables that stand over the defaults only, as a saved policy brings its own market
    base_source  what brought them, for messages and for `origin` of what is returned

    >>> from flatout import load_settings
    >>> load_settings(overrides=["market.capital=5000"]).settings.market.capital
    5000.0
    """
    origin: dict[str, str] = {}
    merged: dict[str, Any] = {}
    merge(merged, base or {}, base_source, origin)
    if path is not None:
        file = to_path(path, "settings", SettingsError)
        merge(merged, read_toml(file, SettingsError), str(path), origin)
    for name, text in sorted((os.environ if environment is None else environment).items()):
        if name.startswith(ENVIRONMENT_PREFIX):
            keys = name.removeprefix(ENVIRONMENT_PREFIX).lower().split("__")
            merge(merged, nest_value(keys, parse_value(text), name), name, origin)
    for text in list_overrides(overrides):
        key, equals, value = text.partition("=")
        if not equals:
            raise SettingsError(
                f"the override {shorten_repr(text)} has no '=': write it as market.capital=5000"
            )
        source = f"{OVERRIDE}{text}"
        merge(
            merged,
            nest_value(key.strip().split("."), parse_value(value.strip()), source),
            source,
            origin,
        )
    return Resolved(settings=validate(merged, origin), origin=origin)


def list_overrides(given: object) -> list[str]:
    """Overrides as they are given, or a refusal of what are none."""
    if isinstance(given, Iterable) and not isinstance(given, str):
        listed = list(given)
        texts = [text for text in listed if isinstance(text, str)]
        if len(texts) == len(listed):
            return texts
    raise SettingsError(
        f"overrides are {shorten_repr(given)}: give texts, as in ['market.capital=5000']"
    )


def resolve_settings(
    given: GivenSettings = None,
    changes: Mapping[str, Any] | None = None,
    base: Mapping[str, Any] | None = None,
    changed_by: str = GIVEN,
) -> Resolved:
    """Settings as Python callers give them. A path is read as commands read it, the environment
    included; tables and `Settings` are taken as they are. `changes` are dotted names whose values,
    unless None, stand over all else; `changed_by` says where they came from.
    """
    wanted = {name: value for name, value in (changes or {}).items() if value is not None}
    sources = dict(given.origin) if isinstance(given, Resolved) else {}
    if isinstance(given, Resolved) and not base:
        known = given
    elif isinstance(given, Settings) and not base:
        known = Resolved(settings=given, origin=dict.fromkeys(given.model_fields_set, GIVEN))
    elif isinstance(given, Mapping | Settings | Resolved):
        if isinstance(given, Resolved):
            given = given.settings
        if isinstance(given, Settings):
            given = given.model_dump(mode="json", exclude_unset=True)
        origin: dict[str, str] = {}
        merged: dict[str, Any] = {}
        merge(merged, base or {}, OWN, origin)
        merge(merged, given, GIVEN, origin)
        known = Resolved(settings=validate(merged, origin), origin={**origin, **sources})
    elif given is None or isinstance(given, str | os.PathLike):
        known = load_settings(given, base=base)
    else:
        raise SettingsError(
            f"settings are of type {type(given).__name__}: give a path, a dict of tables or "
            "Settings"
        )
    if not wanted:
        return known
    tables, origin = known.settings.model_dump(mode="json"), dict(known.origin)
    for name, value in wanted.items():
        merge(tables, nest_value(name.split("."), value, changed_by), changed_by, origin)
    return Resolved(settings=validate(tables, origin), origin=origin)


def parse_value(text: str) -> Any:
    """A TOML value, or the text itself where it is not one (so that names need no quotes)."""
    try:
        found = parse_toml(f"value = {text}", shorten_repr(text), SettingsError)
    except SettingsError:
        return text
    return found["value"] if len(found) == 1 else text  # a text of several lines is no value


def nest_value(keys: list[str], value: Any, source: str) -> dict[str, Any]:
    """{"a": {"b": value}} from ["a", "b"]."""
    if len(keys) > DEEPEST:
        raise SettingsError(
            f"{shorten(source, LONGEST)}: a name of {len(keys):,} parts; "
            f"no setting has more than four"
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
    for key, value in (new if prefix else list_symbols(take_old_keys(new))).items():
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


def take_old_keys(tables: Mapping[str, Any]) -> Mapping[str, Any]:
    """One source's tables with `search.timesteps` and `search.seeds`, as earlier versions had them,
    in their new home: so a later source may stand over them.
    """
    search, train = tables.get("search"), tables.get("train", {})
    if not isinstance(search, Mapping) or not isinstance(train, Mapping):
        return tables
    moved = {name: search[name] for name in OLD_SEARCH if name in search and name not in train}
    rest = {name: value for name, value in search.items() if name not in moved}
    return {**tables, "search": rest, "train": {**train, **moved}} if moved else tables


def list_symbols(tables: Mapping[str, Any]) -> Mapping[str, Any]:
    """One source's tables with `data.symbols` as a list where it is a text, as in "BTC, ETH"."""
    data = tables.get("data")
    if not isinstance(data, Mapping) or not isinstance(text := data.get("symbols"), str):
        return tables
    return {**tables, "data": {**data, "symbols": split_names(text) or text}}


def split_names(text: str) -> list[str]:
    """The names in a text with commas.

    >>> split_names("BTC, ETH")
    ['BTC', 'ETH']
    """
    return [name.strip() for name in text.split(",") if name.strip()]


def validate(values: dict[str, Any], origin: Mapping[str, str]) -> Settings:
    """The settings, or a SettingsError that names key, source, value and what is allowed."""
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        raise SettingsError(describe_problems(error, origin, Settings)) from None
