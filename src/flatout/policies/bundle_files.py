"""A policy on disk: `policy.json`, `policy-<hash>.safetensors`, and the recipe in the folder
`recipe-<hash>`.

Why a kill loses nothing: tensors and recipe lie under names made of their content, so a new policy
never writes over files that the old `policy.json` names (a recipe that both share is written again
with the same bytes). Writing `policy.json`, one atomic move, is the moment at which the new policy
takes the old one's place. Only then the files that it does not name are removed; a kill before or
amid that leaves files that nobody reads, for the next save to remove. No pickle is read or written.
This file knows nothing about what a policy does.
"""

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from flatout.arrays import Array, NumpyArray
from flatout.errors import BundleError, RecipeError, SettingsError
from flatout.features.recipe import HASH, FittedRecipe, find_written_files
from flatout.foreign import (
    JsonTable,
    Sha256,
    finite,
    parse_json,
    parse_tensors,
    read_file,
    shorten_repr,
    validate_shape,
)
from flatout.market.episode import ACCOUNT_FEATURES
from flatout.policies.network import Layer, Network, Perceptron, Sizes
from flatout.runs import pack_arrays, write_bytes, write_json
from flatout.settings.fields import AtLeastOne, Model
from flatout.settings.loading import validate
from flatout.settings.tables import MarketSettings
from flatout.settings.train import Activation, DistributionName

FORMAT = "flatout.policy"
VERSION = 1
JSON_FILE = "policy.json"
JSON_BYTES = 8 << 20
MOST_WEIGHTS = 100_000_000  # 400 MB
# of an array's name, kind, shape and place in the header of a safetensors file, at most
NAME_BYTES = 512
TENSOR_FILE = "policy-{}.safetensors"
RECIPE_FOLDER = "recipe-{}"
SHOWN = 400  # letters of what is wrong with the market's settings
WHERE = "give a folder that a training saved a policy in"
CURE = "get an undamaged copy, use the flatout that saved it, or train it anew"
Tensors = dict[str, NDArray[np.float32]]
Shapes = dict[str, tuple[int, ...]]


class PolicyFacts(Model):
    """What `policy.json` says."""

    format: Literal["flatout.policy"]
    version: Literal[1]
    activation: Activation
    distribution: DistributionName
    hidden: Annotated[list[AtLeastOne], Field(min_length=1)]
    observation_size: AtLeastOne
    action_size: AtLeastOne
    choices: AtLeastOne | None = None  # of each number of a `discrete` action
    assets: AtLeastOne | None = None  # that a network looks at one after another
    # that taught it, where it was saved for others
    taught_symbols: Annotated[list[str], Field(min_length=1)] | None = None
    market: object  # `settings` says what is wrong with it
    notes: JsonTable
    schema_hash: Sha256
    tensors_sha256: Sha256
    recipe_sha256: Sha256
    content_sha256: Sha256

    @property
    def sizes(self) -> Sizes:
        """What fixes the arrays of the network."""
        if self.assets:
            own = (self.observation_size - len(ACCOUNT_FEATURES)) // self.assets
            inputs = max(2 * own, 0) + len(ACCOUNT_FEATURES)
            outputs = self.choices or sum(divmod(self.action_size, self.assets))  # and cash
            return Sizes(inputs, tuple(self.hidden), outputs, 0 if self.choices else outputs)
        return network_sizes(
            self.observation_size, tuple(self.hidden), self.action_size, self.choices
        )


def network_sizes(
    observation: int, hidden: tuple[int, ...], actions: int, choices: int | None
) -> Sizes:
    """What fixes the arrays of a network for so many actions, each a number or one of `choices`."""
    if choices is None:
        return Sizes(observation, hidden, actions, actions)
    return Sizes(observation, hidden, actions * choices, 0)


# --- networks as named arrays


def flatten(network: Network) -> dict[str, Array]:
    """The network's arrays by name, as in `actor.hidden.0.weight`."""
    arrays = {"log_std": network.log_std}
    for part in ("actor", "critic"):
        perceptron: Perceptron = getattr(network, part)
        layers = {f"hidden.{k}": layer for k, layer in enumerate(perceptron.hidden)} | {
            "head": perceptron.head
        }
        for place, layer in layers.items():
            arrays |= {f"{part}.{place}.{name}": array for name, array in layer._asdict().items()}
    return arrays


def assemble(arrays: Mapping[str, Array]) -> Network:
    """The network of named arrays; KeyError names what is missing."""

    def layer(place: str) -> Layer:
        return Layer(arrays[f"{place}.weight"], arrays[f"{place}.bias"])

    def perceptron(part: str) -> Perceptron:
        count = sum(
            name.startswith(f"{part}.hidden.") and name.endswith(".weight") for name in arrays
        )
        return Perceptron(
            tuple(layer(f"{part}.hidden.{k}") for k in range(count)), layer(f"{part}.head")
        )

    return Network(perceptron("actor"), perceptron("critic"), arrays["log_std"])


def array_shapes(sizes: Sizes) -> Shapes:
    """The names of a network's arrays, and their shapes."""
    shapes: Shapes = {"log_std": (sizes.deviations,)}
    for part, outputs in (("actor", sizes.head), ("critic", 1)):
        for k, (inputs, width) in enumerate(sizes.layers):
            shapes |= {
                f"{part}.hidden.{k}.weight": (inputs, width),
                f"{part}.hidden.{k}.bias": (width,),
            }
        shapes |= {
            f"{part}.head.weight": (outputs, sizes.hidden[-1]),
            f"{part}.head.bias": (outputs,),
        }
    return shapes


def check_tensors(arrays: Mapping[str, NumpyArray], shapes: Shapes, where: str) -> None:
    """Refuse all but arrays of exactly these names and shapes, of finite single-precision
    numbers.
    """
    for name in sorted(arrays):
        if name not in shapes:
            raise BundleError(
                f"{where} holds {shorten_repr(name)}, which is no part of this network; {CURE}"
            )
    for name, shape in shapes.items():
        if name not in arrays:
            raise BundleError(f"{where} lacks {name!r}, which is {shape}; {CURE}")
        found = arrays[name]
        if found.shape != shape or found.dtype != np.float32:
            raise BundleError(
                f"{where}: {name} is {found.dtype} {found.shape}, not float32 {shape}; {CURE}"
            )
        if not finite(found):
            raise BundleError(f"{where}: {name} holds NaN or infinite values; {CURE}")


# --- writing


def write(folder: Path, facts: Mapping[str, object], arrays: Tensors, recipe: FittedRecipe) -> None:
    """Put a policy into the folder; the module's docstring says why the order matters."""
    tensors = pack_arrays(arrays)
    named = {
        "format": FORMAT,
        "version": VERSION,
        **facts,
        "tensors_sha256": hashlib.sha256(tensors).hexdigest(),
        "recipe_sha256": recipe_hash(recipe),
    }
    written = PolicyFacts.model_validate({**named, "content_sha256": content_hash(named)})
    try:
        folder.mkdir(parents=True, exist_ok=True)
        check_link(recipe_folder(folder, written))
        recipe.save(recipe_folder(folder, written))
        write_bytes(tensor_path(folder, written), tensors)
        write_json(folder / JSON_FILE, written.model_dump(exclude_unset=True))
        remove_others(folder, written)
    except OSError as error:
        raise BundleError(
            f"cannot save a policy in {folder}: {error.strerror}; give a folder to write in"
        ) from error


def check_link(path: Path) -> None:
    """Refuse to write through a link: it may lead anywhere."""
    if path.is_symlink():
        raise BundleError(f"{path} is a symbolic link, through which nothing is written: remove it")


def remove_others(folder: Path, facts: PolicyFacts) -> None:
    """Remove what earlier saves left behind: only files that a save makes, and folders that are
    empty then.
    """
    for path in set(folder.glob(TENSOR_FILE.format(HASH))) - {tensor_path(folder, facts)}:
        if path.is_file() and not path.is_symlink():
            path.unlink()
    for old in set(folder.glob(RECIPE_FOLDER.format(HASH))) - {recipe_folder(folder, facts)}:
        if old.is_dir() and not old.is_symlink():
            for path in find_written_files(old):
                path.unlink()
            with suppress(OSError):  # somebody keeps something in it
                old.rmdir()


def tensor_path(folder: Path, facts: PolicyFacts) -> Path:
    """Where the tensors are that the facts name."""
    return folder / TENSOR_FILE.format(facts.tensors_sha256[:12])


def recipe_folder(folder: Path, facts: PolicyFacts) -> Path:
    """Where the recipe is that the facts name."""
    return folder / RECIPE_FOLDER.format(facts.recipe_sha256[:12])


def recipe_hash(recipe: FittedRecipe) -> str:
    """sha256 of all that a fitted recipe holds."""
    digest = hashlib.sha256(
        json.dumps([recipe.schema_hash, asdict(recipe.training)], sort_keys=True).encode()
    )
    digest.update(np.ascontiguousarray(recipe.scaler.statistics).tobytes())
    return digest.hexdigest()


def content_hash(facts: Mapping[str, object]) -> str:
    """sha256 of all facts but itself: a description that was changed by hand or by a bad disk is
    found out.
    """
    others = {name: value for name, value in facts.items() if name != "content_sha256"}
    return hashlib.sha256(json.dumps(others, sort_keys=True).encode()).hexdigest()


# --- reading


def read(folder: Path) -> tuple[PolicyFacts, Tensors, FittedRecipe]:
    """Facts, tensors and recipe of a policy, each of them whole."""
    facts = read_facts(folder / JSON_FILE)
    return (
        facts,
        read_tensors(tensor_path(folder, facts), facts),
        read_recipe(recipe_folder(folder, facts), facts),
    )


def read_facts(path: Path) -> PolicyFacts:
    """What `policy.json` says."""
    content = read_file(path, JSON_BYTES, BundleError, WHERE)
    given = parse_json(content, dict[str, object], where=str(path), refuse=BundleError, cure=CURE)
    facts = validate_shape(given, PolicyFacts, where=str(path), refuse=BundleError, cure=CURE)
    if content_hash(given) != facts.content_sha256:
        raise BundleError(
            f"{path} is damaged or was changed: its content_sha256 does not fit; {CURE}"
        )
    return facts


def read_tensors(path: Path, facts: PolicyFacts) -> Tensors:
    """The arrays that the facts name, all of them and no others."""
    shapes = array_shapes(facts.sizes) | {"gates": (len(facts.hidden),)}
    weights = check_size(facts.sizes)
    content = read_file(
        path, 4 * (weights + len(facts.hidden)) + NAME_BYTES * len(shapes), BundleError, CURE
    )
    if hashlib.sha256(content).hexdigest() != facts.tensors_sha256:
        raise BundleError(f"{path} is damaged or belongs to another {JSON_FILE}; {CURE}")
    arrays = parse_tensors(content, str(path), BundleError, CURE).arrays
    if "gates" not in arrays:
        del shapes["gates"]
    check_tensors(arrays, shapes, str(path))
    return arrays


def check_size(sizes: Sizes) -> int:
    """Refuse networks of more weights than anybody has; how many there are."""
    layers = sum((inputs + 1) * width for inputs, width in sizes.layers)
    weights = 2 * layers + (sizes.hidden[-1] + 1) * (sizes.head + 1) + sizes.deviations
    if weights > MOST_WEIGHTS:
        raise BundleError(
            f"a network for {sizes.observation:,} numbers with layers of "
            f"{shorten_repr(list(sizes.hidden))} has "
            f"{weights:,} weights; {MOST_WEIGHTS:,} are allowed: take fewer indicators, bars, "
            f"symbols or units"
        )
    return weights


def read_recipe(folder: Path, facts: PolicyFacts) -> FittedRecipe:
    """The recipe that the facts name."""
    try:
        recipe = FittedRecipe.load(folder)
    except RecipeError as error:
        raise BundleError(f"the policy's recipe cannot be used: {error}") from error
    if recipe_hash(recipe) != facts.recipe_sha256:
        raise BundleError(f"{folder} holds another recipe than {JSON_FILE} names; {CURE}")
    return recipe


def market_settings(values: object, path: Path) -> MarketSettings:
    """The market settings in `policy.json`."""
    try:
        return validate({"market": values}, {"market": str(path)}).market
    except SettingsError as error:
        raise BundleError(
            f"the policy's market settings cannot be used: {str(error)[:SHOWN]}; {CURE}"
        ) from None
