"""What a learner does with segments as they come: batches of the oldest first, again from the last
while that is still worth it, and account of its time and of the data's age.
"""

import time
from collections import Counter, deque
from typing import NamedTuple, Protocol

from flatout.slow_envs.overlap import Overlap, Rule
from flatout.slow_envs.tape import Segment, join_segments

__all__ = ["Update"]


class UpdateResult(NamedTuple):
    """What the learner itself tells of an update."""

    version: int
    figures: dict[str, float]
    lags: Counter[int]  # rows that taught, by how many updates older their policy was
    too_old: int  # rows that were left out


class SegmentLearner(Protocol):
    """What learns from batches of segments: see `torch_learner.TorchSegmentLearner`."""

    rule: Rule

    def update(self, batch: Segment) -> UpdateResult: ...
    def is_worth_reusing(self, batch: Segment) -> bool: ...


class Update(NamedTuple):
    """One update as the environments' process learns of it.

    >>> ages = Counter({0: 60, 1: 4})
    >>> update = Update(1, {"loss": 0.5}, ages, too_old=0, again=False, seconds=0.1)
    >>> update.figures["loss"], max(update.lags)
    (0.5, 1)
    """

    version: int
    figures: dict[str, float]
    lags: Counter[int]  # rows that taught, by how many updates older their policy was
    too_old: int  # rows that were left out
    again: bool  # learned from a batch that had been learned from before
    seconds: float  # it took


class Learning:
    """Gathers segments into batches, and has the learner make updates of them."""

    def __init__(self, learner: SegmentLearner, overlap: Overlap) -> None:
        self.learner, self.overlap = learner, overlap
        self.waiting: deque[Segment] = deque()
        self.last: Segment | None = None
        self.times_used = 0

    @property
    def rule(self) -> Rule:
        """The rule that the learner follows now."""
        return self.learner.rule

    def add_segment(self, segment: Segment) -> None:
        """One more segment; its arrays stay as they are until `gather_batch` has taken it."""
        self.waiting.append(segment)

    def gather_batch(self) -> int:
        """Make the oldest segments the next batch if there are enough; how many it took."""
        count = self.rule.batch_segments
        if len(self.waiting) < count:
            return 0
        self.last, self.times_used = (
            join_segments([self.waiting.popleft() for _ in range(count)]),
            0,
        )
        return count

    def make_update(self) -> Update | None:
        """One update, if there is something to learn from."""
        if self.last is None or (self.times_used and not self.may_reuse(self.last)):
            return None
        begun = time.perf_counter()
        made = self.learner.update(self.last)
        self.times_used += 1
        seconds = time.perf_counter() - begun
        return Update(**made._asdict(), again=self.times_used > 1, seconds=seconds)

    def may_reuse(self, batch: Segment) -> bool:
        """Whether the last batch may teach once more; if not, it is forgotten: it will not become
        so again. When half of the next one is there, it would only make that older.
        """
        timely = 2 * len(self.waiting) < self.rule.batch_segments
        if (
            timely
            and self.times_used <= self.overlap.reuse.most
            and self.learner.is_worth_reusing(batch)
        ):
            return True
        self.last = None
        return False
