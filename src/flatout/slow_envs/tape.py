"""What environments did, cut into segments of equal length: the form in which it travels to the learner.

A segment is a run of rows of one environment. A row is something seen; an *acting* row also holds what was done there
and what came of it. A row that does not act ends what was before it: the last observation of an episode that was cut
short, or of one whose environment broke before it answered. So no row ever holds a made-up outcome, and a segment may
hold the ends of several episodes.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flatout.learners.environment import Box, Discrete
from flatout.slow_envs.batcher import Decision, Floats


class Segment(NamedTuple):
    """Rows of one environment; also, stacked along the second axis, a batch of them."""

    observation: NDArray[np.float32]  # (row + 1, feature): the last is what came after the last row
    raw: NDArray[Any]  # (row,) or (row, action) as drawn
    log_prob: NDArray[np.float32]  # (row,) by whoever drew it
    version: NDArray[np.int64]  # (row,) of the weights that drew it
    reward: NDArray[np.float32]  # (row,)
    terminated: NDArray[np.bool_]  # (row,)
    acting: NDArray[np.bool_]  # (row,)


class Format(NamedTuple):
    """What fixes the arrays of a segment."""

    rows: int
    observation: int
    actions: Box | Discrete

    def shapes(self) -> dict[str, tuple[tuple[int, ...], Any]]:
        """Shape and type of each array."""
        box = isinstance(self.actions, Box)
        row = (self.rows,)
        return {
            "observation": ((self.rows + 1, self.observation), np.float32),
            "raw": ((*row, self.actions.size) if box else row, np.float32 if box else np.int64),
            "log_prob": (row, np.float32),
            "version": (row, np.int64),
            "reward": (row, np.float32),
            "terminated": (row, np.bool_),
            "acting": (row, np.bool_),
        }

    def new(self) -> Segment:
        """An empty one."""
        return Segment(**{name: np.zeros(shape, kind) for name, (shape, kind) in self.shapes().items()})


class Tape:
    """One environment's rows, until they fill a segment."""

    def __init__(self, form: Format) -> None:
        self.form, self.open, self.filled = form, form.new(), 0
        self.continuing = False  # whether the last row waits for what it led to

    def act(
        self, seen: Floats, decision: Decision, reward: float, then: Floats, terminated: bool, truncated: bool
    ) -> list[Segment]:
        """Write down a step: what was seen, done, earned and seen then. Returns the segments that it filled."""
        row, rows = self.filled, self.open
        rows.observation[row], rows.raw[row], rows.log_prob[row] = seen, decision.raw, decision.log_prob
        rows.version[row], rows.reward[row] = decision.version, reward
        rows.terminated[row], rows.acting[row] = terminated, True
        self.continuing = not terminated
        full = self.advance(then)
        if truncated and not terminated:
            full += self.cut(then)
        return full

    def cut(self, seen: Floats) -> list[Segment]:
        """The episode goes no further than what is seen: whatever led here is worth what the critic says of it."""
        if not self.continuing or not self.filled:  # an open segment's last row has its own place for it
            self.continuing = False
            return []
        row = self.filled
        self.open.observation[row], self.open.acting[row], self.open.terminated[row] = seen, False, False
        self.open.raw[row], self.open.log_prob[row], self.open.reward[row] = 0, 0, 0
        self.open.version[row] = self.open.version[row - 1]
        self.continuing = False
        return self.advance(seen)

    def advance(self, then: Floats) -> list[Segment]:
        """One more row is written."""
        self.filled += 1
        if self.filled < self.form.rows:
            return []
        full = self.open
        full.observation[-1] = then
        self.open, self.filled = self.form.new(), 0
        return [full]
