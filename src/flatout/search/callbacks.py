"""What a running study calls back: after each round, when a stage begins, when it has something to
say, and while bars are replayed.
"""

from typing import Protocol

from flatout.search.study import Study
from flatout.search.study_state import TrialDecision


class OnRound(Protocol):
    """Called when a round of a study was processed."""

    def __call__(self, study: Study, decisions: list[TrialDecision], /) -> None:
        """`decisions` say what became of each trial of the round."""


class OnStage(Protocol):
    """Called when a stage of a study begins that comes before or after its trials."""

    def __call__(self, study: Study, stage: str, /) -> None:
        """`stage` is a sentence for people."""


class OnNote(Protocol):
    """Called when a study has something to say that its user should not miss."""

    def __call__(self, study: Study, note: str, /) -> None:
        """`note` is a sentence for people, which follows the study's name."""


class OnStageText(Protocol):
    """Called when a stage begins, where it is clear of which study."""

    def __call__(self, stage: str, /) -> None:
        """`stage` is a sentence for people."""


class OnBar(Protocol):
    """Called after each bar of a replay."""

    def __call__(self, bar: int, /) -> None:
        """`bar` is the number of bars replayed so far."""
