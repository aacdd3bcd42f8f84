"""The workload that all trainers of the benches get: networks of one width, and as much to learn
from at once.
"""

from typing import NamedTuple

WIDTHS = (64, 256)
N_ENVS, ROLLOUT, MINIBATCH, EPOCHS = 64, 8192, 2048, 4


class LearnerShape(NamedTuple):
    """How large a trainer's networks are, and how much it learns from at once."""

    width: int  # of both hidden layers
    rollout: int = ROLLOUT  # transitions
    minibatch: int = MINIBATCH  # transitions
    epochs: int = EPOCHS
