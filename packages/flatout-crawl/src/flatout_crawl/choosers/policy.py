"""A learned way of choosing links, as a file: weights and what they mean, in one safetensors file
without pickle.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray
from pydantic import Field

from flatout.errors import BundleError
from flatout.foreign import parse_json, read_tensors, shorten_repr
from flatout.runs import write_bytes
from flatout.slow_envs.model import flatten_weights, unflatten_weights
from flatout_crawl.choosers.observation import GLOBAL, LINK, Observation, flatten_observation
from flatout_crawl.choosers.scorer import LinkScorer, ScorerWeights

FORMAT, VERSION = "flatout.crawl-policy", 1
TRAIN = "train a policy with `flatout crawl train`"
MOST_CANDIDATES, MOST_WIDTH = 4_096, 1_024
SHOWN_COLUMNS = 8  # in a refusal


@dataclass(frozen=True)
class FormatFacts:
    """What kind of file it is."""

    format: str = ""
    version: int = 0


@dataclass(frozen=True)
class CrawlPolicyFacts(FormatFacts):
    """What the weights in a policy's file mean."""

    global_columns: tuple[str, ...] = ()
    link_columns: tuple[str, ...] = ()
    candidates: Annotated[int, Field(ge=1, le=MOST_CANDIDATES)] = 0
    width: Annotated[int, Field(ge=2, le=MOST_WIDTH)] = 0
    sha256: str = ""
    notes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class CrawlPolicy:
    """A link scorer with its weights."""

    model: LinkScorer
    weights: ScorerWeights
    notes: dict[str, Any] = field(default_factory=dict)  # how it was trained

    def act(self, observation: Observation) -> int:
        """The most likely of the allowed choices."""
        seen = flatten_observation(observation)[None]
        return int(self.model.policy(self.weights, seen, np).mode(np)[0])

    def save(self, path: Path) -> None:
        """Write the file whole or not at all."""
        vector = flatten_weights(self.weights)
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
        write_bytes(
            path,
            safetensors.numpy.save(
                {"weights": vector}, {"facts": json.dumps(facts, allow_nan=False)}
            ),
        )

    @classmethod
    def load(cls, path: Path) -> "CrawlPolicy":
        """Read a file; refuses what is missing, damaged, or made for other observations."""
        if not path.exists():
            raise BundleError(f"{path} is not there; `flatout crawl train` writes such a file")
        arrays, notes = read_tensors(path, BundleError, TRAIN)
        kind = parse_json(
            notes.get("facts", "{}"),
            shape=FormatFacts,
            where=f"{path}: facts",
            refuse=BundleError,
            cure=TRAIN,
        )
        if (kind.format, kind.version) != (FORMAT, VERSION):
            raise BundleError(
                f"{path} holds {shorten_repr(kind.format)}, version {shorten_repr(kind.version)}; "
                f"this crawler reads {FORMAT!r}, version {VERSION}: {TRAIN}"
            )
        facts = parse_json(
            notes["facts"],
            shape=CrawlPolicyFacts,
            where=f"{path}: facts",
            refuse=BundleError,
            cure=TRAIN,
        )
        check_columns(path, facts)
        model = LinkScorer(len(GLOBAL), len(LINK), facts.candidates, facts.width)
        return cls(
            model,
            unflatten_weights(check_weights(path, facts, arrays, model), model.new_weights(0)),
            facts.notes,
        )


def check_columns(path: Path, facts: CrawlPolicyFacts) -> None:
    """Refuse a policy for other observations than this crawler makes."""
    for name, given, own in (
        ("global columns", facts.global_columns, GLOBAL),
        ("link columns", facts.link_columns, LINK),
    ):
        if given != tuple(own):
            other = [*sorted(set(given) - set(own)), *sorted(set(own) - set(given))]
            columns = ", ".join(map(shorten_repr, other[:SHOWN_COLUMNS])) + (
                "…" if len(other) > SHOWN_COLUMNS else ""
            )
            raise BundleError(
                f"{path} was trained on other {name} ({columns or 'in another order'}): train it "
                f"again with this version"
            )


def check_weights(
    path: Path, facts: CrawlPolicyFacts, arrays: Mapping[str, NDArray[Any]], model: LinkScorer
) -> NDArray[np.float32]:
    """The weights, if they are those that were saved and fit the network that the file speaks
    of.
    """
    vector = arrays.get("weights")
    if vector is None or vector.dtype != np.float32 or vector.shape != (model.weights_count,):
        what = (
            "no weights"
            if vector is None
            else f"weights of type {vector.dtype} and shape {vector.shape}"
        )
        raise BundleError(
            f"{path} is damaged: it has {what}, not {model.weights_count} of float32; {TRAIN}"
        )
    if hashlib.sha256(vector.tobytes()).hexdigest() != facts.sha256:
        raise BundleError(f"{path} is damaged: its weights are not those that were saved; {TRAIN}")
    if not np.isfinite(vector).all():
        raise BundleError(f"{path} is damaged: some of its weights are no numbers; {TRAIN}")
    return vector
