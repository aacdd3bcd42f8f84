"""A learned way of choosing links, as a file: weights and what they mean, in one safetensors file without pickle."""

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from flatout.crawl.observation import GLOBAL, LINK, Observation, flattened
from flatout.crawl.scorer import LinkScorer, ScorerWeights
from flatout.errors import BundleError
from flatout.run_directory import write_bytes
from flatout.slow_envs.model import flat, unflat

FORMAT, VERSION = "flatout.crawl-policy", 1


@dataclass(frozen=True)
class CrawlPolicy:
    """A link scorer with its weights."""

    model: LinkScorer
    weights: ScorerWeights
    notes: dict[str, Any] = field(default_factory=dict)  # how it was trained

    def act(self, observation: Observation) -> int:
        """The most likely of the allowed choices."""
        seen = flattened(observation)[None]
        return int(self.model.policy(self.weights, seen, np).mode(np)[0])

    def save(self, path: Path) -> None:
        """Write the file whole or not at all."""
        vector = flat(self.weights)
        facts = {
            "format": FORMAT,
            "version": VERSION,
            "global_columns": GLOBAL,
            "link_columns": LINK,
            "candidates": self.model.candidates,
            "width": self.model.width,
            "sha256": hashlib.sha256(vector.tobytes()).hexdigest(),
            "notes": self.notes,
        }
        write_bytes(path, safetensors.numpy.save({"weights": vector}, {"facts": json.dumps(facts, allow_nan=False)}))

    @classmethod
    def load(cls, path: Path) -> "CrawlPolicy":
        """Read a file; refuses what is missing, damaged, or made for other observations."""
        try:
            with safetensors.safe_open(str(path), "numpy") as file:
                facts = json.loads((file.metadata() or {}).get("facts", "{}"))
                vector = file.get_tensor("weights") if facts.get("format") == FORMAT else np.zeros(0, np.float32)
        except FileNotFoundError:
            raise BundleError(f"{path} is not there; `flatout crawl train` writes such a file") from None
        except (OSError, safetensors.SafetensorError) as error:
            raise BundleError(f"{path} cannot be read as a policy: {error}") from None
        check(path, facts, vector)
        model = LinkScorer(len(GLOBAL), len(LINK), facts["candidates"], facts["width"])
        return cls(model, unflat(vector, model.new_weights(0)), facts["notes"])


def check(path: Path, facts: dict[str, Any], vector: Any) -> None:
    """Refuse a file that this crawler cannot act by."""
    if facts.get("format") != FORMAT or facts.get("version") != VERSION:
        raise BundleError(
            f"{path} holds {facts.get('format')!r}, version {facts.get('version')!r}; this crawler reads {FORMAT!r}, "
            f"version {VERSION}: train a policy with `flatout crawl train`"
        )
    for name, own in (("global_columns", GLOBAL), ("link_columns", LINK)):
        other = sorted(set(facts[name]) ^ set(own))
        if tuple(facts[name]) != tuple(own):
            raise BundleError(
                f"{path} was trained on other {name.replace('_', ' ')} ({', '.join(other) or 'in another order'}): "
                "train it again with this version"
            )
    if hashlib.sha256(vector.tobytes()).hexdigest() != facts["sha256"]:
        raise BundleError(f"{path} is damaged: its weights are not those that were saved")
