"""All that the overlapping learner has learned, and what it starts from."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flatout.slow_envs.model import PolicyModel
from flatout.slow_envs.overlap import Overlap, Rule
from flatout.slow_envs.shared_memory import Shapes
from flatout.slow_envs.tape import Format

__all__ = ["LearnerState"]

Vector = NDArray[np.float32]


@dataclass(frozen=True)
class LearnerState:
    """All that was learned: weights, Adam's memory, and how many updates it took.

    >>> weights = np.zeros(3, np.float32)
    >>> LearnerState(weights, first=weights, second=weights, steps=0, version=0).vector.size
    3
    """

    vector: Vector
    first: Vector
    second: Vector
    steps: int  # of Adam
    version: int


class Assignment(NamedTuple):
    """What a learner starts from; sent to its process as it is."""

    model: PolicyModel
    rule: Rule
    overlap: Overlap
    form: Format
    state: LearnerState
    seed: int

    @property
    def ring(self) -> int:
        """How many segments may wait for the learner."""
        return self.overlap.waiting_batches * self.rule.batch_segments

    def shapes(self) -> Shapes:
        """What lies in shared memory: a ring of segments, and weights twice: one to read, one to
        write.
        """
        ring = {
            name: ((self.ring, *shape), kind) for name, (shape, kind) in self.form.shapes().items()
        }
        return {**ring, "weights": ((2, self.state.vector.size), np.float32)}
