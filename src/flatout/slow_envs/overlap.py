"""How waiting and learning overlap: the settings, each with what it means."""

from dataclasses import dataclass, field
from typing import Literal, get_args

from flatout.errors import SettingsError
from flatout.learners.hyperparameters import Hyperparameters
from flatout.slow_envs.batcher import Batching
from flatout.slow_envs.field_kinds import check_kinds

__all__ = ["Care", "Overlap", "Reuse", "Rule"]

Objective = Literal["decoupled", "vtrace"]
Learner = Literal["process", "inline"]
Plain = Literal["auto", "inline", "thread", "process"]


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
        check_kinds(self)
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

    def __post_init__(self) -> None:
        check_kinds(self)
        if min(self.most, self.least_effective, self.largest_kl) < 0:
            raise SettingsError(
                f"most is {self.most}, least_effective {self.least_effective}, largest_kl "
                f"{self.largest_kl}: none of them may be below 0"
            )


@dataclass(frozen=True)
class Overlap:
    """How experience becomes updates while environments wait.

    serial           wait for all environments, then learn, as synchronous PPO does
    objective        "decoupled": PPO with the policy that acted apart from the one that limits the
                     step; "vtrace": V-trace
    segment          rows (steps) of one environment that travel to the learner together
    max_lag          by how many updates the policy that took a step may be older than the newest;
                     older steps are left out
    waiting_batches  so many may wait for the learner before environments must
    learner          "process": learns in a process of its own; "inline": in this one, in turns with
                     the environments, on simulated time
    update_s         how long an update takes on simulated time, in seconds
    rho              largest weight of a step that the newest policy likes better than the one that
                     took it
    trace            the same, for what its successors tell of it
    reuse            a `Reuse`: whether the learner, having nothing new, learns from old steps again
    plain            how environments that cannot wait are stepped: "auto", "inline", "thread" or
                     "process", as `kind` of `flatout.AsyncioVectorEnv`
    care             a `Care`: deadlines, and what becomes of environments that hang or break
    batching         a `Batching`: when a forward pass begins, and for how many

    `Reuse` and `Care` stand in `flatout.slow_envs.overlap`, `Batching` in `.batcher` beside it.

    >>> from flatout import Overlap
    >>> Overlap(segment=16, max_lag=2).objective
    'decoupled'
    >>> Overlap(max_lag=-1)
    Traceback (most recent call last):
    flatout.errors.SettingsError: segment is 8, max_lag -1, ...: give at least 1, 0 and 1
    """

    serial: bool = False
    objective: Objective = "decoupled"
    segment: int = 8
    max_lag: int = 4
    waiting_batches: int = 2
    learner: Learner = "process"
    update_s: float = 0.0
    rho: float = 1.0
    trace: float = 1.0
    reuse: Reuse = field(default_factory=Reuse)
    plain: Plain = "auto"
    care: Care = field(default_factory=Care)
    batching: Batching = field(default_factory=Batching)

    def __post_init__(self) -> None:
        check_kinds(self)
        if self.objective not in ("decoupled", "vtrace"):
            raise SettingsError(
                f"objective is {self.objective!r}; give 'decoupled' (PPO) or 'vtrace'"
            )
        if self.segment < 1 or self.max_lag < 0 or self.waiting_batches < 1:
            raise SettingsError(
                f"segment is {self.segment}, max_lag {self.max_lag}, waiting_batches "
                f"{self.waiting_batches}: give at least 1, 0 and 1"
            )
        for name, choices in (("learner", get_args(Learner)), ("plain", get_args(Plain))):
            if getattr(self, name) not in choices:
                raise SettingsError(
                    f"{name} is {getattr(self, name)!r}: give one of {', '.join(choices)}"
                )
        if min(self.update_s, self.rho, self.trace) < 0:
            raise SettingsError(
                f"update_s is {self.update_s}, rho {self.rho}, trace {self.trace}: none of them "
                "may be below 0"
            )


@dataclass(frozen=True, kw_only=True)
class Rule(Hyperparameters):
    """The update itself: PPO's hyperparameters, and how much it learns from at once.

    >>> Rule(batch_segments=32, learning_rate=1e-3).epochs
    4
    """

    batch_segments: int  # of an update
    minibatch: int = 256  # transitions
