"""Checkpoints: every array of a training in one safetensors file, written whole or not at all.

Arrays are named by their place in the state (`lanes/network/actor/hidden/0/weight`). Facts travel
in the file's header. No pickle is read or written, and nothing here needs JAX: a driver without it
can take networks out.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from flatout.arrays import ArrayTree, NumpyArray
from flatout.errors import RunError
from flatout.foreign import JsonTable, parse_json, read_tensors
from flatout.runs import write_arrays

FORMAT = "flatout.checkpoint"
VERSION = 1
CURE = "restore the run from a copy, or start a new one"
Arrays = dict[str, NumpyArray]


class CheckpointFacts(NamedTuple):
    """What a checkpoint's header says of it."""

    version: Literal[1]
    facts: JsonTable
    sha256: str | None = None  # of the arrays; checkpoints of older versions have none


def rebuild_tree(template: ArrayTree, arrays: Mapping[str, NumpyArray], prefix: str) -> ArrayTree:
    """A tree like the template with the leaves of these names."""
    if not isinstance(template, tuple):
        if prefix not in arrays:
            raise RunError(f"the checkpoint lacks {prefix}; {CURE}")
        return arrays[prefix]
    fields = getattr(template, "_fields", range(len(template)))
    values = [
        rebuild_tree(value, arrays, f"{prefix}/{field}")
        for field, value in zip(fields, template, strict=True)
    ]
    return type(template)(*values) if hasattr(template, "_fields") else tuple(values)


def write_checkpoint(path: Path, arrays: Arrays, facts: Mapping[str, object]) -> None:
    """Replace the checkpoint by one with these arrays, which says these facts of itself."""
    about = {"version": VERSION, "facts": facts, "sha256": hash_arrays(arrays)}
    write_arrays(path, arrays, {FORMAT: about})


def hash_arrays(arrays: Arrays) -> str:
    """sha256 of names, kinds, shapes and numbers: a checkpoint that a bad disk changed is found
    out.
    """
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"{name} {array.dtype.str} {array.shape} ".encode())
        digest.update(np.require(array, requirements="C").data if array.size else b"")
    return digest.hexdigest()


def read_checkpoint(path: Path) -> tuple[Arrays, JsonTable]:
    """Arrays and facts of a checkpoint."""
    arrays, notes = read_tensors(path, RunError, CURE)
    about = parse_json(
        notes.get(FORMAT, "null"),
        CheckpointFacts,
        where=f"{path} is no checkpoint that this flatout reads",
        refuse=RunError,
        cure=CURE,
    )
    if about.sha256 is not None and about.sha256 != hash_arrays(arrays):
        raise RunError(f"{path} is damaged: its arrays are not those that were written; {CURE}")
    return arrays, about.facts


def check_arrays(path: Path, arrays: Arrays, expected: Mapping[str, tuple[int, ...]]) -> None:
    """Refuse a checkpoint whose arrays are not those of the program that wants to go on with it."""
    found = {name: array.shape for name, array in arrays.items()}
    different = sorted(name for name in expected if found.get(name) != expected[name])
    if different:
        name = different[0]
        raise RunError(
            f"{path} belongs to another training: {name} is {found.get(name, 'missing')}, this "
            f"one has {expected[name]}; resume with the settings it was started with, or start a "
            "new run"
        )
