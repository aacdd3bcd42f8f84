"""Checkpoints: every array of a training in one safetensors file, written whole or not at all.

Arrays are named by their place in the state (`lanes/network/actor/hidden/0/weight`). Facts travel in the file's
header. No pickle is read or written, and nothing here needs JAX: a driver without it can take networks out.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray

from flatout.errors import RunError
from flatout.run_directory import write_bytes

FORMAT = "flatout.checkpoint"
VERSION = 1
Arrays = dict[str, NDArray[Any]]


def rebuilt(template: Any, arrays: Mapping[str, NDArray[Any]], prefix: str) -> Any:
    """A tree like the template with the leaves of these names."""
    if not isinstance(template, tuple):
        return arrays[prefix]
    fields = getattr(template, "_fields", range(len(template)))
    values = [rebuilt(value, arrays, f"{prefix}/{field}") for field, value in zip(fields, template, strict=True)]
    return type(template)(*values) if hasattr(template, "_fields") else tuple(values)


def write_checkpoint(path: Path, arrays: Arrays, facts: Mapping[str, Any]) -> None:
    """Replace the checkpoint."""
    about = json.dumps({"version": VERSION, "facts": facts}, sort_keys=True)
    content = {name: np.require(array, requirements="C") for name, array in arrays.items()}  # 0-d stays 0-d
    write_bytes(path, safetensors.numpy.save(content, metadata={FORMAT: about}))  # one key: several have no order


def read_checkpoint(path: Path) -> tuple[Arrays, dict[str, Any]]:
    """Arrays and facts of a checkpoint."""
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            about = json.loads((file.metadata() or {}).get(FORMAT, "{}"))
            if about.get("version") != VERSION:
                raise RunError(f"{path} is not a checkpoint that this flatout reads (version {VERSION})")
            return {name: file.get_tensor(name) for name in file.keys()}, about["facts"]  # noqa: SIM118
    except FileNotFoundError:
        raise RunError(f"{path}: there is no checkpoint") from None
    except (OSError, safetensors.SafetensorError) as error:
        raise RunError(f"{path} cannot be read as a checkpoint: {error}") from None


def check_arrays(path: Path, arrays: Arrays, expected: Mapping[str, tuple[int, ...]]) -> None:
    """Refuse a checkpoint whose arrays are not those of the program that wants to go on with it."""
    found = {name: array.shape for name, array in arrays.items()}
    different = sorted(name for name in expected if found.get(name) != expected[name])
    if different:
        name = different[0]
        raise RunError(
            f"{path} belongs to another training: {name} is {found.get(name, 'missing')}, this one has "
            f"{expected[name]}; resume with the settings it was started with, or start a new run"
        )
