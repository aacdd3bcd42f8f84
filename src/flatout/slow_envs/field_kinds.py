"""Settings in dataclasses are of the kind of their defaults; this file knows no meaning."""

import math
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import TYPE_CHECKING

import numpy as np

from flatout.errors import SettingsError
from flatout.foreign import shorten_repr

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def check_kinds(settings: "DataclassInstance") -> None:
    """Refuse values that are of another kind than the defaults of their fields: text for a number,
    a number for a table.

    >>> from flatout.slow_envs.overlap import Overlap
    >>> Overlap(reuse=3)
    Traceback (most recent call last):
    flatout.errors.SettingsError: reuse is 3: give a Reuse
    """
    for one in fields(settings):
        given, usual = getattr(settings, one.name), default_of(one)
        if not is_of_kind(given, usual):
            raise SettingsError(f"{one.name} is {shorten_repr(given)}: give {name_kind(usual)}")


def default_of(field: "Field[object]") -> object:
    """The default of a field, made anew if it has to be."""
    return field.default if field.default_factory is MISSING else field.default_factory()


def is_of_kind(given: object, usual: object) -> bool:
    """Whether a value can stand where this default stands."""
    if isinstance(usual, bool):
        return isinstance(given, bool | np.bool_)
    if isinstance(usual, int):
        return isinstance(given, int | np.integer) and not isinstance(given, bool)
    if isinstance(usual, float):
        number = isinstance(given, int | float | np.number) and not isinstance(given, bool)
        return number and not math.isnan(given)  # type: ignore[arg-type]
    return isinstance(given, type(usual))


def name_kind(usual: object) -> str:
    """What is asked for where this default stands, in words."""
    if is_dataclass(usual):
        return f"a {type(usual).__name__}"
    words = {bool: "True or False", int: "a whole number", float: "a number", str: "a text"}
    return words.get(type(usual), "several numbers, as in (64, 256)")
