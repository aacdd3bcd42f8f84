"""How waiting and learning overlap: the settings, each with what it means."""

from dataclasses import dataclass, field
from typing import Literal

from flatout.errors import SettingsError
from flatout.learners.hyperparameters import Hyperparameters
from flatout.slow_envs.batcher import Batching

__all__ = ["Care", "Overlap", "Reuse", "Rule"]

Objective = Literal["decoupled", "vtrace"]


@dataclass(frozen=True)
class Care:
    """What is done about environments that hang or break.

    >>> care = Care(step_deadline_s=10.0, first_pause_s=0.5)
    >>> [care.pause(failures) for failures in (1, 2, 3)]
    [0.5, 1.0, 2.0]
    """

    # a step that takes longer is cancelled and its environment restarted
    step_deadline_s: float = 30.0
    reset_deadline_s: float = 60.0
    most_failures: int = 5  # in a row; then the environment is left out for good
    first_pause_s: float = 0.1  # before the first restart; doubled each time
    longest_pause_s: float = 30.0
    least_alive: float = 0.5  # share of environments below which the run stops

    def __post_init__(self) -> None:
        if min(self.step_deadline_s, self.reset_deadline_s) <= 0 or self.most_failures < 1:
            raise SettingsError(
                f"step_deadline_s is {self.step_deadline_s}, reset_deadline_s "
                f"{self.reset_deadline_s}, most_failures {self.most_failures}: deadlines must be "
                "positive, and an environment may fail at least once"
            )
        if not 0 < self.least_alive <= 1:
            raise SettingsError(
                f"least_alive is {self.least_alive}; give a share of the environments in (0, 1]"
            )

    def pause(self, failures: int) -> float:
        """Seconds before the next restart."""
        return min(self.first_pause_s * 2 ** (failures - 1), self.longest_pause_s)


@dataclass(frozen=True)
class Reuse:
    """When the learner, having nothing new, learns once more from what it has.

    >>> Overlap(reuse=Reuse(most=0)).reuse.most
    0
    """

    most: int = 1  # times for each batch; 0 = never
    least_effective: float = 0.5  # share that the effective sample size must have of the batch
    largest_kl: float = 0.02  # distance of the policy from the one that acted


@dataclass(frozen=True)
class Overlap:
    """How experience becomes updates while environments wait.

    >>> Overlap(segment=16, max_lag=2).objective
    'decoupled'
    >>> Overlap(max_lag=-1)
    Traceback (most recent call last):
    flatout.errors.SettingsError: segment is 8, max_lag -1, ...: give at least 1, 0 and 1
    """

    serial: bool = False  # wait for all environments, then learn, as synchronous PPO does
    objective: Objective = "decoupled"
    segment: int = 8  # rows of one environment that travel together
    max_lag: int = 4  # updates; older steps are left out
    waiting_batches: int = 2  # so many may wait for the learner before environments must
    learner: Literal["process", "inline"] = "process"  # inline: no process, and simulated time
    update_s: float = 0.0  # how long an update takes on simulated time
    # largest weight of a step that the newest policy likes better than the one that took it
    rho: float = 1.0
    trace: float = 1.0  # the same, for what its successors tell of it
    reuse: Reuse = field(default_factory=Reuse)
    # how environments that cannot wait are stepped
    plain: Literal["auto", "inline", "thread", "process"] = "auto"
    care: Care = field(default_factory=Care)
    batching: Batching = field(default_factory=Batching)

    def __post_init__(self) -> None:
        if self.objective not in ("decoupled", "vtrace"):
            raise SettingsError(
                f"objective is {self.objective!r}; give 'decoupled' (PPO) or 'vtrace'"
            )
        if self.segment < 1 or self.max_lag < 0 or self.waiting_batches < 1:
            raise SettingsError(
                f"segment is {self.segment}, max_lag {self.max_lag}, waiting_batches "
                f"{self.waiting_batches}: give at least 1, 0 and 1"
            )


@dataclass(frozen=True, kw_only=True)
class Rule(Hyperparameters):
    """The update itself: PPO's hyperparameters, and how much it learns from at once.

    >>> Rule(batch_segments=32, learning_rate=1e-3).epochs
    4
    """

    batch_segments: int  # of an update
    minibatch: int = 256  # transitions
