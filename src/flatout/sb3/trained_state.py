"""What was learned, whichever engine learned it: network, Adam's memory, and what fixes the noise
to come.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flatout.errors import BundleError
from flatout.policies.bundle_files import array_shapes, assemble, check_tensors, flatten
from flatout.policies.network import Network, Sizes
from flatout.sb3.model_file import CURE, Arrays, ModelFile


class TrainedState(NamedTuple):
    """All that a learner needs to go on in fresh environments."""

    network: Network  # NumPy arrays
    first: NDArray[np.float32]  # Adam's moments of all weights in one vector
    second: NDArray[np.float32]
    descents: int  # steps of Adam
    updates: int  # rollouts learned from
    seed: int


def new_learner_state(network: Network, seed: int) -> TrainedState:
    """The state of a learner that has this network and has learned nothing yet."""
    size = sum(np.size(array) for array in flatten(network).values())
    return TrainedState(
        network=network,
        first=np.zeros(size, np.float32),
        second=np.zeros(size, np.float32),
        descents=0,
        updates=0,
        seed=seed,
    )


def state_arrays(state: TrainedState) -> Arrays:
    """The arrays of a state under their names in a file."""
    named = {f"network.{name}": array for name, array in flatten(state.network).items()}
    return named | {"optimiser.first": state.first, "optimiser.second": state.second}


def state_facts(state: TrainedState) -> dict[str, int]:
    """The numbers of a state under their names in a file."""
    return {"descents": state.descents, "updates": state.updates, "learner_seed": state.seed}


def read_learner_state(file: ModelFile, sizes: Sizes) -> TrainedState:
    """The state in a file, whose arrays must be those of a network of these sizes."""
    network, optimiser = (
        select_arrays(file.arrays, "network"),
        select_arrays(file.arrays, "optimiser"),
    )
    check_tensors(network, array_shapes(sizes), file.name)
    weights = sum(array.size for array in network.values())
    check_tensors(optimiser, {"first": (weights,), "second": (weights,)}, f"{file.name}: optimiser")
    if (optimiser["second"] < 0).any():
        raise BundleError(f"{file.name}: optimiser.second holds squares below 0; {CURE}")
    facts = file.facts
    return TrainedState(
        assemble(network),
        **optimiser,
        descents=facts.descents,
        updates=facts.updates,
        seed=facts.learner_seed,
    )


def select_arrays(arrays: Arrays, prefix: str) -> Arrays:
    """The arrays whose names begin with the prefix and a point, without them."""
    start = f"{prefix}."
    return {
        name.removeprefix(start): array for name, array in arrays.items() if name.startswith(start)
    }
