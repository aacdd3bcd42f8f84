"""What environments did, cut into segments of equal length: the form in which it travels to the
learner.

A segment is a run of rows of one environment. A row is something seen; an *acting* row also holds
what was done there and what came of it. A row that does not act ends what was before it: the last
observation of an episode that was cut short, or of one whose environment broke before it answered.
So no row ever holds a made-up outcome, and a segment may hold the ends of several episodes.
"""

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from flatout.learners.environment import Actions, Box
from flatout.slow_envs.batcher import Floats, RawActions, SampledAction

Scalar = TypeVar("Scalar", bound=np.generic)


class Segment(NamedTuple):
    """Rows of one environment; also, side by side along the second axis, a batch of runs of
    them.
    """

    observation: NDArray[np.float32]  # (row + 1, feature): the last is what came after the last row
    raw: RawActions  # (row,) or (row, action)
    log_prob: NDArray[np.float32]  # (row,) by whoever drew it
    version: NDArray[np.int64]  # (row,) of the weights that drew it
    reward: NDArray[np.float32]  # (row,)
    terminated: NDArray[np.bool_]  # (row,)
    acting: NDArray[np.bool_]  # (row,)
    env: NDArray[np.int64]  # () whose they are


class Format(NamedTuple):
    """What fixes the arrays of a segment."""

    rows: int
    observation: int
    actions: Actions

    def shapes(self) -> dict[str, tuple[tuple[int, ...], DTypeLike]]:
        """Shape and type of each array of a segment, by name."""
        row, kind = (self.rows,), np.float32 if isinstance(self.actions, Box) else np.int64
        return {
            "observation": ((self.rows + 1, self.observation), np.float32),
            "raw": ((*row, *self.actions.drawn_shape), kind),
            "log_prob": (row, np.float32),
            "version": (row, np.int64),
            "reward": (row, np.float32),
            "terminated": (row, np.bool_),
            "acting": (row, np.bool_),
            "env": ((), np.int64),
        }

    def new(self) -> Segment:
        """A segment of zeros in this format."""
        return Segment(
            **{name: np.zeros(shape, kind) for name, (shape, kind) in self.shapes().items()}
        )


def join_segments(segments: Sequence[Segment]) -> Segment:
    """A batch: segments of one environment follow each other as they came, and those of several
    stand side by side, (row, environment, ...), filled up with rows that do not act.
    """
    runs: dict[int, list[Segment]] = {}
    for segment in segments:
        runs.setdefault(int(segment.env), []).append(segment)
    rows, length = segments[0].reward.shape[0], max(map(len, runs.values()))
    whole = Segment._make(
        new_column(x, rows * length + (x is segments[0].observation), len(runs))
        for x in segments[0]
    )
    for k, run in enumerate(runs.values()):
        for n, segment in enumerate(run):
            place = slice(n * rows, (n + 1) * rows)
            for name in ("raw", "log_prob", "version", "reward", "terminated", "acting"):
                getattr(whole, name)[place, k] = getattr(segment, name)
            whole.observation[place, k] = segment.observation[:-1]
        whole.observation[len(run) * rows :, k] = run[-1].observation[-1]
        whole.env[k] = run[0].env
    return whole


def new_column(like: NDArray[Scalar], rows: int, runs: int) -> NDArray[Scalar]:
    """Zeros for such an array of so many rows and runs; one without rows has one number per run."""
    return np.zeros((rows, runs, *like.shape[1:]) if like.shape else (runs,), like.dtype)


class SegmentTape:
    """One environment's rows, until they fill a segment."""

    def __init__(self, form: Format, env: int = 0) -> None:
        self.form, self.env, self.open, self.filled = form, env, form.new(), 0
        self.continuing = False  # whether the last row waits for what it led to

    def add_step(
        self,
        *,
        seen: Floats,
        action: SampledAction,
        reward: float,
        then: Floats,
        terminated: bool,
        truncated: bool,
    ) -> list[Segment]:
        """Write down a step: what was seen, done, earned and seen then. Returns the segments that
        it filled.
        """
        row, rows = self.filled, self.open
        rows.observation[row], rows.raw[row], rows.log_prob[row] = (
            seen,
            action.raw,
            action.log_prob,
        )
        rows.version[row], rows.reward[row] = action.version, reward
        rows.terminated[row], rows.acting[row] = terminated, True
        self.continuing = not terminated
        full = self.advance(then)
        if truncated and not terminated:
            full += self.add_end(then)
        return full

    def add_end(self, seen: Floats) -> list[Segment]:
        """The episode goes no further than what is seen: whatever led here is worth what the critic
        says of it.
        """
        if not self.continuing:
            return []
        self.continuing = False
        # all else of a fresh row is zero: it does not act
        self.open.observation[self.filled] = seen
        return self.advance(seen)

    def advance(self, then: Floats) -> list[Segment]:
        """Count the row that was just written; returns the segment if that filled it."""
        self.filled += 1
        if self.filled < self.form.rows:
            return []
        full = self.open
        full.observation[-1] = then
        full.env[...] = self.env
        self.open, self.filled = self.form.new(), 0
        return [full]
