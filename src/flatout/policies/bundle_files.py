"""A policy on disk: `policy.json`, `policy-<hash>.safetensors`, and the recipe in the folder `recipe-<hash>`.

Why a kill loses nothing: tensors and recipe lie under names made of their content, so a new policy never writes over
files that the old `policy.json` names (a recipe that both share is written again with the same bytes). Writing
`policy.json`, one atomic move, is the moment at which the new policy takes the old one's place. Only then the files
that it does not name are removed; a kill before or amid that leaves files that nobody reads, for the next save to
remove. No pickle is read or written. This file knows nothing about what a policy does.
"""

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray

from flatout.arrays import Array
from flatout.errors import BundleError, RecipeError, SettingsError
from flatout.features.recipe import FittedRecipe
from flatout.policies.network import Layer, Network, Perceptron
from flatout.run_directory import write_bytes, write_json
from flatout.settings import MarketSettings, validate

FORMAT = "flatout.policy"
VERSION = 1
JSON_FILE = "policy.json"
HASH = "[0-9a-f]" * 12  # the start of a sha256, as a pattern
TENSOR_FILE = "policy-{}.safetensors"
RECIPE_FOLDER = "recipe-{}"
Tensors = dict[str, NDArray[np.float32]]


# --- networks as named arrays ----------------------------------------------------------------------


def flatten(network: Network) -> dict[str, Array]:
    """The network's arrays by name, as in `actor.hidden.0.weight`."""
    arrays = {"log_std": network.log_std}
    for part in ("actor", "critic"):
        perceptron: Perceptron = getattr(network, part)
        layers = {f"hidden.{k}": layer for k, layer in enumerate(perceptron.hidden)} | {"head": perceptron.head}
        for place, layer in layers.items():
            arrays |= {f"{part}.{place}.{name}": array for name, array in layer._asdict().items()}
    return arrays


def assemble(arrays: Mapping[str, Array]) -> Network:
    """The network of named arrays; KeyError names what is missing."""

    def layer(place: str) -> Layer:
        return Layer(arrays[f"{place}.weight"], arrays[f"{place}.bias"])

    def perceptron(part: str) -> Perceptron:
        count = sum(name.startswith(f"{part}.hidden.") and name.endswith(".weight") for name in arrays)
        return Perceptron(tuple(layer(f"{part}.hidden.{k}") for k in range(count)), layer(f"{part}.head"))

    return Network(perceptron("actor"), perceptron("critic"), arrays["log_std"])


# --- writing ---------------------------------------------------------------------------------------


def write(folder: Path, facts: Mapping[str, Any], arrays: Tensors, recipe: FittedRecipe) -> None:
    """Put a policy into the folder; the module's docstring says why the order matters."""
    tensors = safetensors.numpy.save(arrays)
    named = {
        "format": FORMAT,
        "version": VERSION,
        **facts,
        "tensors_sha256": hashlib.sha256(tensors).hexdigest(),
        "recipe_sha256": recipe_hash(recipe),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        recipe.save(recipe_folder(folder, named))
        write_bytes(tensor_path(folder, named), tensors)
        write_json(folder / JSON_FILE, {**named, "content_sha256": content_hash(named)})
        remove_others(folder, named)
    except OSError as error:
        raise BundleError(f"cannot save a policy in {folder}: {error.strerror}; give a folder to write in") from error


def remove_others(folder: Path, facts: Mapping[str, Any]) -> None:
    """Remove what earlier saves left behind: only names that a save makes."""
    for path in set(folder.glob(TENSOR_FILE.format(HASH))) - {tensor_path(folder, facts)}:
        path.unlink()
    for path in set(folder.glob(RECIPE_FOLDER.format(HASH))) - {recipe_folder(folder, facts)}:
        shutil.rmtree(path)


def tensor_path(folder: Path, facts: Mapping[str, Any]) -> Path:
    """Where the tensors are that the facts name."""
    return folder / TENSOR_FILE.format(str(facts.get("tensors_sha256"))[:12])


def recipe_folder(folder: Path, facts: Mapping[str, Any]) -> Path:
    """Where the recipe is that the facts name."""
    return folder / RECIPE_FOLDER.format(str(facts.get("recipe_sha256"))[:12])


def recipe_hash(recipe: FittedRecipe) -> str:
    """sha256 of all that a fitted recipe holds."""
    digest = hashlib.sha256(json.dumps([recipe.schema_hash, asdict(recipe.training)], sort_keys=True).encode())
    digest.update(np.ascontiguousarray(recipe.scaler.statistics).tobytes())
    return digest.hexdigest()


def content_hash(facts: Mapping[str, Any]) -> str:
    """sha256 of all facts but itself: a description that was changed by hand or by a bad disk is found out."""
    others = {name: value for name, value in facts.items() if name != "content_sha256"}
    return hashlib.sha256(json.dumps(others, sort_keys=True).encode()).hexdigest()


# --- reading ---------------------------------------------------------------------------------------


def read(folder: Path) -> tuple[dict[str, Any], Tensors, FittedRecipe]:
    """Facts, tensors and recipe of a policy, each of them whole."""
    facts = read_facts(folder / JSON_FILE)
    return facts, read_tensors(tensor_path(folder, facts), facts), read_recipe(recipe_folder(folder, facts), facts)


def read_facts(path: Path) -> dict[str, Any]:
    """What `policy.json` says."""
    try:
        facts = json.loads(read_bytes(path))
    except ValueError as error:
        raise BundleError(f"{path} is not JSON, perhaps cut off: {error}") from error
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        raise BundleError(f"{path} is not a policy (format {FORMAT!r})")
    if facts.get("version") != VERSION:
        raise BundleError(
            f"{path} has version {facts.get('version')!r}; this flatout reads version {VERSION}: "
            "use the flatout that saved it, or train it anew"
        )
    if content_hash(facts) != facts.get("content_sha256"):
        raise BundleError(f"{path} is damaged or was changed: its content_sha256 does not fit; save the policy anew")
    return facts


def read_tensors(path: Path, facts: Mapping[str, Any]) -> Tensors:
    """The arrays that the facts name."""
    content = read_bytes(path)
    if hashlib.sha256(content).hexdigest() != facts.get("tensors_sha256"):
        raise BundleError(f"{path} is damaged or belongs to another {JSON_FILE}")
    try:
        return safetensors.numpy.load(content)
    except safetensors.SafetensorError as error:
        raise BundleError(f"{path} is not a safetensors file: {error}") from error


def read_recipe(folder: Path, facts: Mapping[str, Any]) -> FittedRecipe:
    """The recipe that the facts name."""
    try:
        recipe = FittedRecipe.load(folder)
    except RecipeError as error:
        raise BundleError(f"the policy's recipe cannot be used: {error}") from error
    if recipe_hash(recipe) != facts.get("recipe_sha256"):
        raise BundleError(f"{folder} holds another recipe than {JSON_FILE} names")
    return recipe


def read_bytes(path: Path) -> bytes:
    """The file, or an error that says what to give."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise BundleError(
            f"cannot read {path}: {error.strerror}; give a folder that a training saved a policy in"
        ) from error


def market_settings(values: Any, path: Path) -> MarketSettings:
    """The market settings in `policy.json`."""
    try:
        return validate({"market": values}, {"market": str(path)}).market
    except SettingsError as error:
        raise BundleError(f"the policy's market settings cannot be used: {error}") from error
