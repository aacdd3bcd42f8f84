"""A network as other libraries know it: hidden layers one after another, without those that its
gates skip.

This file knows no library; what a gate does to a layer is `policies/network.py`'s business.
"""

from typing import NamedTuple

from flatout.policies.bundle import Floats
from flatout.policies.network import Layer, Perceptron


class Share(NamedTuple):
    """A hidden layer and how much of its output counts; the rest is what went into it."""

    layer: Layer
    share: float


def shares_of(perceptron: Perceptron, gates: Floats | None) -> list[Share]:
    """The hidden layers that do something. The first always counts whole, and a gate of 0 leaves a
    layer out: the result is the same network, not an approximation.
    """
    open_ = [1.0] * len(perceptron.hidden) if gates is None else [1.0, *map(float, gates[1:])]
    return [
        Share(layer, share) for layer, share in zip(perceptron.hidden, open_, strict=True) if share
    ]
