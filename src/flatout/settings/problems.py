"""What is wrong with settings, in sentences: key, source, value and what is allowed."""

import difflib
import re
from collections.abc import Mapping
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from flatout.foreign import shorten, shorten_repr

MOST_TOLD = 10  # problems
LONGEST = 300  # characters of a name or a source in a message
LOT_STEP_KINDS = ("one number", "by symbol")  # in places of problems, but in no file


def describe_problems(
    error: ValidationError, origin: Mapping[str, str], model: type[BaseModel]
) -> str:
    """A sentence for each of the first problems; `origin` says where values came from, as far as
    that is known, and `model` is what they were to become.
    """
    problems = error.errors(include_url=False)
    said = [explain(problem, origin, model) for problem in problems[:MOST_TOLD]]
    more = len(problems) - MOST_TOLD
    return "\n".join([*said, f"and {more:,} more"] if more > 0 else said)


def explain(problem: Any, origin: Mapping[str, str], model: type[BaseModel]) -> str:
    """One sentence for one validation problem."""
    key = ".".join(str(part) for part in problem["loc"] if part not in LOT_STEP_KINDS)
    sources = [
        source
        for name, source in origin.items()
        if name == key or key.startswith(f"{name}.") or name.startswith(f"{key}.")
    ]
    where = f" (from {shorten(sources[0], LONGEST)})" if sources else ""
    if problem["type"] == "extra_forbidden":
        plain = re.sub(r"\.\d+\b", "", key)
        near = (
            difflib.get_close_matches(plain, known_keys(model), n=1, cutoff=0.5)
            if len(key) <= LONGEST
            else []
        )
        if near and any("." in str(part) for part in problem["loc"]):
            return (
                f"{shorten(key, LONGEST)}{where}: a name with dots is no key; tables lie within "
                f"tables: write {write_nested(near[0], shorten_repr(problem['input']))}"
            )
        return f"{shorten(key, LONGEST)}{where}: there is no such setting" + (
            f"; did you mean {near[0]}?" if near else ""
        )
    given = shorten_repr(problem["input"])
    if problem["type"] == "model_type":
        return f"{shorten(key, LONGEST)}{where}: a table of settings is wanted; given {given}"
    if problem["type"] == "value_error":  # raised here, and complete
        return f"{shorten(key, LONGEST)}{where}: {problem['msg'].removeprefix('Value error, ')}"
    return f"{shorten(key, LONGEST)}{where}: {problem['msg']}; given {given}"


def write_nested(name: str, value: str) -> str:
    """A dotted name and its value as Python writes tables within tables.

    >>> write_nested("train.n_envs", "8")
    '{"train": {"n_envs": 8}}'
    """
    keys = name.split(".")
    return "".join(f'{{"{key}": ' for key in keys) + value + "}" * len(keys)


def known_keys(model: type[BaseModel], prefix: str = "") -> list[str]:
    """All dotted keys of a model."""
    keys = []
    for name, field in model.model_fields.items():
        if field.exclude:  # an old name
            continue
        keys.append(f"{prefix}{name}")
        for inner in (field.annotation, *get_args(field.annotation)):
            if isinstance(inner, type) and issubclass(inner, BaseModel):
                keys += known_keys(inner, f"{prefix}{name}.")
    return keys
