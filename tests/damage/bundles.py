"""Damaged policies: loaded, asked for an action, put into a market, exported and saved again.

Half of them are signed anew after the damage, as a stranger would: hashes fit, and only what the
files promise each other can tell. Those that are not signed anew must answer as the honest policy
does, or be refused.
"""

import hashlib
import json
import random
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from damage.mutations import damage_folder, damage_json, damage_tensors, damage_tree
from damage.one_case import SilentlyWrong
from flatout.bars.panel import Panel
from flatout.evaluation.saved_policy import bars_of_training
from flatout.export.policy_export import export_policy
from flatout.features.recipe import Recipe, fit
from flatout.policies.bundle import Bundle
from flatout.policies.bundle_files import content_hash
from small_bundles import INDICATORS, bundle_of, network_of, panel_of

COUNT = 1000
SIGNED = "signed"  # a file beside the policy: its hashes were made to fit
TARGETS = ("onnx", "joblib", "sb3")


@cache
def panel() -> Panel:
    return panel_of()


@cache
def honest() -> dict[str, Bundle]:
    """Policies of several kinds by name."""
    quantiles = fit(Recipe(INDICATORS, 2, "quantile"), panel(), np.arange(100))
    return {
        "linear": bundle_of(panel(), 1),
        "quantiles": bundle_of(
            panel(), 2, recipe=quantiles, activation="relu", distribution="squashed_gaussian"
        ),
        "gated": bundle_of(
            panel(), 3, network=network_of(31, 4, hidden=(8, 8)), gates=np.array([1.0, 0.0])
        ),
    }


@cache
def answers(name: str) -> bytes:
    """What an honest policy does and sees."""
    return answer(honest()[name])


def answer(bundle: Bundle) -> bytes:
    """What a policy does with fixed observations, and its features of the panel."""
    seen = np.random.default_rng(0).normal(0, 1, (20, bundle.observation_size)).astype(np.float32)
    return bundle.act(seen).tobytes() + bundle.market(panel()).tape.features.tobytes()


def prepare(folder: Path) -> None:
    for name, bundle in honest().items():
        bundle.save(folder / name)


def damage(number: int, originals: Path, folder: Path) -> str:
    rng = random.Random(number)
    name = rng.choice(sorted(honest()))
    policy = folder / name
    shutil.copytree(originals / name, policy)
    if rng.random() < 0.5:
        return f"{name}: {damage_folder(policy, rng, folder)}"
    (folder / SIGNED).touch()
    return f"{name}, signed anew: {damage_and_sign(policy, rng)}"


def damage_and_sign(policy: Path, rng: random.Random) -> str:
    """Damage one of the four files, and let all hashes fit."""
    (recipe,) = policy.glob("recipe-*")
    kind = rng.choice(("facts", "facts", "tensors", "tensors", "recipe", "statistics"))
    if kind == "facts":
        facts = json.loads((policy / "policy.json").read_text())
        changed, said = damage_tree(
            facts, rng, rng.choice(((), ("market",), ("hidden",), ("notes",)))
        )
        (policy / "policy.json").write_bytes(changed)
    elif kind == "tensors":
        (path,) = policy.glob("policy-*")
        said = damage_tensor_file(path, rng)
    elif kind == "recipe":
        changed, said = damage_json((recipe / "recipe.json").read_bytes(), rng)
        (recipe / "recipe.json").write_bytes(changed)
    else:
        (path,) = recipe.glob("recipe-*")
        said = damage_tensor_file(path, rng)
    try:
        sign_recipe(recipe)
        sign_policy(policy)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        return f"{kind}: {said} (beyond signing: {type(error).__name__})"
    return f"{kind}: {said}"


def damage_tensor_file(path: Path, rng: random.Random) -> str:
    """Bytes and header, or whole arrays: gone, new, of another shape, or with a number that is
    none.
    """
    if rng.random() < 0.4:
        changed, said = damage_tensors(path.read_bytes(), rng)
        path.write_bytes(changed)
        return said
    arrays = safetensors.numpy.load_file(path)
    name = rng.choice(sorted(arrays))
    kind = rng.choice(("gone", "new", "turned", "cut", "doubles", "wild"))
    if kind == "gone":
        del arrays[name]
    elif kind == "new":
        arrays["actor.hidden.2.weight"] = np.ones((8, 8), np.float32)
    elif kind == "turned":
        arrays[name] = np.ascontiguousarray(arrays[name].T)
    elif kind == "cut":
        arrays[name] = arrays[name][: rng.randrange(len(arrays[name]))]
    elif kind == "doubles":
        arrays[name] = arrays[name].astype(
            np.float64 if arrays[name].dtype == np.float32 else np.float32
        )
    else:
        wild = arrays[name].copy()
        wild.reshape(-1)[rng.randrange(wild.size)] = rng.choice(
            (np.nan, np.inf, -np.inf, 1e38, -1e38, 0.0)
        )
        arrays[name] = wild
    safetensors.numpy.save_file(arrays, path)
    return f"{name} {kind}"


def sign_recipe(recipe: Path) -> None:
    """Let the recipe's hashes fit its files."""
    (path,) = recipe.glob("recipe-*")
    facts, tensors = json.loads((recipe / "recipe.json").read_text()), path.read_bytes()
    facts["tensors_sha256"] = hashlib.sha256(tensors).hexdigest()
    names = ("symbols", "bar_seconds")
    meaning = {name: facts[name] for name in names} | facts["recipe"]
    facts["schema_hash"] = hashlib.sha256(json.dumps(meaning, sort_keys=True).encode()).hexdigest()
    (recipe / "recipe.json").write_text(json.dumps(facts))
    path.rename(recipe / f"recipe-{facts['tensors_sha256'][:12]}.safetensors")


def sign_policy(policy: Path) -> None:
    """Let the policy's hashes fit its files."""
    (recipe,), (path,) = policy.glob("recipe-*"), policy.glob("policy-*")
    facts = json.loads((policy / "policy.json").read_text())
    facts["tensors_sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    facts["recipe_sha256"] = signed_recipe(recipe)
    facts["content_sha256"] = content_hash(facts)
    (policy / "policy.json").write_text(json.dumps(facts))
    path.rename(policy / f"policy-{facts['tensors_sha256'][:12]}.safetensors")
    recipe.rename(policy / f"recipe-{facts['recipe_sha256'][:12]}")


def signed_recipe(recipe: Path) -> str:
    """The hash by which a policy knows its recipe."""
    facts = json.loads((recipe / "recipe.json").read_text())
    (path,) = recipe.glob("recipe-*")
    content = path.read_bytes()
    digest = hashlib.sha256(
        json.dumps([facts["schema_hash"], facts["training"]], sort_keys=True).encode()
    )
    digest.update(content[8 + int.from_bytes(content[:8], "little") :])
    return digest.hexdigest()


def attempt(folder: Path) -> str:
    signed = (folder / SIGNED).exists()
    (policy,) = (path for path in folder.iterdir() if path.name != SIGNED)
    bundle = Bundle.load(policy)
    found = answer(bundle)
    bars_of_training(bundle, panel(), 0, 150)
    if not signed and found != answers(policy.name):
        raise SilentlyWrong("it answers otherwise than the honest policy, and nothing is said")
    if signed and bundle.hidden != honest()[policy.name].hidden:
        raise SilentlyWrong(f"its layers are {bundle.hidden} wide")
    out = folder / "out"
    written = [export_to(policy, out, to) for to in TARGETS]
    bundle.save(policy)
    if answer(Bundle.load(policy)) != found:
        raise SilentlyWrong("saved again, it answers otherwise")
    return "read" if any(written) else "read, not exported"


def export_to(policy: Path, out: Path, to: str) -> Any:
    """The export, or None where the format cannot say what the policy is."""
    from flatout.errors import BundleError
    from flatout.export.policy_export import TARGETS as FORMATS

    try:
        return export_policy(policy, to, out / f"x{FORMATS[to].suffix}")
    except BundleError:
        return None
