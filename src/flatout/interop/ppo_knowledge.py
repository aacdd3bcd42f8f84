"""What was learned, whichever engine learned it: network, Adam's memory, and what fixes the noise to come.

On disk it is one zip file with `model.json` and `tensors.safetensors`; no pickle is written, and none is read.
"""

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray

from flatout.errors import BundleError
from flatout.policies.bundle_files import assemble, flatten
from flatout.policies.network import Network
from flatout.run_directory import write_bytes

FORMAT = "flatout.ppo"
VERSION = 1
FACTS, TENSORS = "model.json", "tensors.safetensors"
Arrays = dict[str, NDArray[Any]]


class Knowledge(NamedTuple):
    """All that a learner needs to go on in fresh environments."""

    network: Network  # NumPy arrays
    first: NDArray[np.float32]  # Adam's moments of all weights in one vector
    second: NDArray[np.float32]
    descents: int  # steps of Adam
    updates: int  # rollouts learned from
    seed: int


class Saved(NamedTuple):
    """What a file holds."""

    facts: dict[str, Any]
    arrays: Arrays


def new_knowledge(network: Network, seed: int) -> Knowledge:
    """Nothing learned yet."""
    size = sum(np.size(array) for array in flatten(network).values())
    return Knowledge(network, np.zeros(size, np.float32), np.zeros(size, np.float32), 0, 0, seed)


def knowledge_arrays(known: Knowledge) -> Arrays:
    """Its arrays by name."""
    named = {f"network.{name}": array for name, array in flatten(known.network).items()}
    return named | {"optimiser.first": known.first, "optimiser.second": known.second}


def knowledge_facts(known: Knowledge) -> dict[str, int]:
    """Its numbers by name."""
    return {"descents": known.descents, "updates": known.updates, "learner_seed": known.seed}


def knowledge_of(saved: Saved) -> Knowledge:
    """What a file knows."""
    network = assemble(part(saved.arrays, "network"))
    first, second = (saved.arrays[f"optimiser.{name}"] for name in ("first", "second"))
    facts = saved.facts
    return Knowledge(network, first, second, facts["descents"], facts["updates"], facts["learner_seed"])


def part(arrays: Mapping[str, NDArray[Any]], prefix: str) -> Arrays:
    """The arrays whose names begin so, without it."""
    start = f"{prefix}."
    return {name.removeprefix(start): array for name, array in arrays.items() if name.startswith(start)}


def write_model(path: Any, facts: Mapping[str, Any], arrays: Arrays) -> None:
    """Write a model whole or not at all; `path` gets the ending .zip if it has none, or is an open file."""
    tensors = safetensors.numpy.save({name: np.require(array, requirements="C") for name, array in arrays.items()})
    about = {"format": FORMAT, "version": VERSION, **facts, "tensors_sha256": hashlib.sha256(tensors).hexdigest()}
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(zipfile.ZipInfo(FACTS), json.dumps(about, indent=2, allow_nan=False))
        archive.writestr(zipfile.ZipInfo(TENSORS), tensors)
    if hasattr(path, "write"):
        path.write(file.getvalue())
        return
    target = with_ending(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(target, file.getvalue())
    except OSError as error:
        raise BundleError(f"cannot save a model as {target}: {error.strerror}; give a path to write to") from error


def with_ending(path: Any) -> Path:
    """The path, with .zip where it has no ending."""
    path = Path(path)
    return path if path.suffix else path.with_suffix(".zip")


def read_model(path: Any) -> Saved:
    """What `write_model` wrote; refuses what is missing, damaged or something else."""
    name, content = content_of(path)
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            inside = {one: archive.read(one) for one in archive.namelist() if one in (FACTS, TENSORS)}
            foreign = "policy.pth" in archive.namelist()
    except (zipfile.BadZipFile, EOFError) as error:
        raise BundleError(f"{name} is not a model, or was cut off: {error}; save it anew") from None
    if foreign:
        raise BundleError(
            f"{name} was saved by Stable-Baselines3; it holds pickles, and flatout reads none: load it there and hand "
            "its weights over with `model.set_parameters({'policy': theirs.policy.state_dict()})`"
        )
    if set(inside) != {FACTS, TENSORS}:
        raise BundleError(f"{name} is not a model that flatout.PPO saved")
    return checked(name, json.loads(inside[FACTS]), inside[TENSORS])


def content_of(path: Any) -> tuple[str, bytes]:
    """The bytes of a file, and what to call it."""
    if hasattr(path, "read"):
        return str(getattr(path, "name", "the file")), path.read()
    found = Path(path) if Path(path).exists() else with_ending(path)
    try:
        return str(found), found.read_bytes()
    except OSError as error:
        raise BundleError(f"cannot read {found}: {error.strerror}; give a file that `save` wrote") from error


def checked(name: str, facts: Any, tensors: bytes) -> Saved:
    """The content, if it is whole and of a version that this flatout reads."""
    if facts.get("format") != FORMAT or facts.get("version") != VERSION:
        raise BundleError(
            f"{name} has format {facts.get('format')!r}, version {facts.get('version')!r}; this flatout reads "
            f"{FORMAT!r}, version {VERSION}"
        )
    if hashlib.sha256(tensors).hexdigest() != facts.get("tensors_sha256"):
        raise BundleError(f"{name} is damaged: its tensors are not those that were saved")
    try:
        return Saved(facts, safetensors.numpy.load(tensors))
    except safetensors.SafetensorError as error:
        raise BundleError(f"{name}: its tensors cannot be read: {error}") from error
