"""What was learned, whichever engine learned it: network, Adam's memory, and what fixes the noise
to come.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flatout.errors import BundleError
from flatout.policies.bundle_files import array_shapes, assemble, check_tensors, flatten
from flatout.policies.network import Network, Sizes
from flatout.sb3.model_file import CURE, ModelFile

Arrays = dict[str, NDArray[Any]]


class Knowledge(NamedTuple):
    """All that a learner needs to go on in fresh environments."""

    network: Network  # NumPy arrays
    first: NDArray[np.float32]  # Adam's moments of all weights in one vector
    second: NDArray[np.float32]
    descents: int  # steps of Adam
    updates: int  # rollouts learned from
    seed: int


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


def knowledge_of(file: ModelFile, sizes: Sizes) -> Knowledge:
    """What a file knows; its arrays must be those of a network of these sizes."""
    network, optimiser = part(file.arrays, "network"), part(file.arrays, "optimiser")
    check_tensors(network, array_shapes(sizes), file.name)
    weights = sum(array.size for array in network.values())
    check_tensors(optimiser, {"first": (weights,), "second": (weights,)}, f"{file.name}: optimiser")
    if (optimiser["second"] < 0).any():
        raise BundleError(f"{file.name}: optimiser.second holds squares below 0; {CURE}")
    facts = file.facts
    return Knowledge(
        assemble(network),
        **optimiser,
        descents=facts.descents,
        updates=facts.updates,
        seed=facts.learner_seed,
    )


def part(arrays: Mapping[str, NDArray[Any]], prefix: str) -> Arrays:
    """The arrays whose names begin so, without it."""
    start = f"{prefix}."
    return {
        name.removeprefix(start): array for name, array in arrays.items() if name.startswith(start)
    }
