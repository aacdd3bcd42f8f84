"""Two policies, and what the tests of this folder do to their files."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from flatout.features.recipe import Recipe, fit
from flatout.policies import bundle_files
from flatout.policies.bundle import Bundle
from market.small_markets import INDICATORS
from small_bundles import bundle_of, panel_of

PANEL = panel_of()
OLD, NEW = bundle_of(PANEL, 1), bundle_of(PANEL, 2)
OTHER_RECIPE = fit(Recipe(INDICATORS, 2, "zscore"), PANEL, np.arange(50, 150))


def content(bundle: Bundle) -> dict[str, Any]:
    """All that a bundle holds, in comparable form."""
    return {
        "tensors": {
            name: array.tobytes() for name, array in bundle_files.flatten(bundle.network).items()
        },
        "gates": None if bundle.gates is None else bundle.gates.tobytes(),
        "names": (
            bundle.activation,
            bundle.distribution,
            bundle.settings,
            bundle.notes,
            bundle.schema_hash,
        ),
        "recipe": bundle_files.recipe_hash(bundle.recipe),
    }


def observations(bundle: Bundle, *leading: int) -> np.ndarray:
    return (
        np.random.default_rng(0)
        .normal(0, 1, (*leading, bundle.observation_size))
        .astype(np.float32)
    )


def saved(folder: Path) -> tuple[Path, Path, Path]:
    """The old policy in a folder: its JSON, its tensors, its recipe's folder."""
    OLD.save(folder)
    (tensors,), (recipe,) = folder.glob("policy-*"), folder.glob("recipe-*")
    return folder / "policy.json", tensors, recipe


def rewrite(path: Path, change: dict[str, Any]) -> None:
    """A description with other facts, and a content hash that fits them: from a stranger's hand."""
    facts = json.loads(path.read_text()) | change
    facts = {name: value for name, value in facts.items() if value != "REMOVED"}
    path.write_text(json.dumps(facts | {"content_sha256": bundle_files.content_hash(facts)}))


def write_tensors(folder: Path, tensors: bytes) -> None:
    """Other tensors in a policy's folder, whose hash fits: from a stranger's hand."""
    digest = hashlib.sha256(tensors).hexdigest()
    rewrite(folder / "policy.json", {"tensors_sha256": digest})
    (folder / f"policy-{digest[:12]}.safetensors").write_bytes(tensors)
