"""How long a made-up server takes, and how it fails: drawn per request from a seeded generator.

It only draws; the waiting is done by `sim` on whatever clock runs, and by `site_server` on a real
one.
"""

from dataclasses import dataclass
from math import log1p
from typing import Literal, NamedTuple, Protocol

from flatout.errors import SettingsError
from flatout.foreign import shorten_repr

Fault = Literal["", "hang", "close", "error", "busy"]
SPELLINGS = "none, constant:SECONDS, exponential:MEAN or stragglers:SECONDS,SHARE,SLOW_SECONDS"


class Uniform(Protocol):
    """`random.Random` or NumPy's `Generator`."""

    def random(self) -> float:
        """A number from 0 up to but not 1."""
        ...


class LatencyDraw(NamedTuple):
    """How long one request takes, and how it fails if it does."""

    seconds: float
    fault: Fault = ""


@dataclass(frozen=True)
class Latency:
    """A distribution of waits. `straggler_share` of the requests take `straggler_seconds`; the
    others `seconds`, as they are or as the mean of an exponential distribution. The shares of
    faults are drawn apart from the waits.
    """

    seconds: float = 0.0
    exponential: bool = False
    straggler_share: float = 0.0
    straggler_seconds: float = 2.0
    hang_share: float = 0.0  # no answer, ever
    close_share: float = 0.0  # the connection is closed instead of an answer
    error_share: float = 0.0  # status 500
    busy_share: float = 0.0  # status 503 with Retry-After
    retry_after: int = 1  # seconds, sent with 503

    def __post_init__(self) -> None:
        shares = (self.hang_share, self.close_share, self.error_share, self.busy_share)
        if min(self.seconds, self.straggler_seconds, self.retry_after) < 0:
            raise SettingsError(f"{self}: no wait can be shorter than 0 seconds")
        if self.exponential and self.straggler_share:
            raise SettingsError(f"{self}: waits are exponential or have stragglers, not both")
        if min(*shares, self.straggler_share) < 0 or sum(shares) > 1 or self.straggler_share > 1:
            raise SettingsError(f"{self}: shares lie between 0 and 1, those of faults together too")

    def __call__(self, rng: Uniform) -> float:
        """A wait, without faults."""
        if self.straggler_share and rng.random() < self.straggler_share:
            return self.straggler_seconds
        return -log1p(-rng.random()) * self.seconds if self.exponential else self.seconds

    def draw(self, rng: Uniform) -> LatencyDraw:
        """A wait and a fault, if any."""
        seconds, chance = self(rng), rng.random()
        shares: tuple[tuple[Fault, float], ...] = (
            ("hang", self.hang_share),
            ("close", self.close_share),
            ("error", self.error_share),
            ("busy", self.busy_share),
        )
        for fault, share in shares:
            if chance < share:
                return LatencyDraw(seconds, fault)
            chance -= share
        return LatencyDraw(seconds)

    @property
    def spelled(self) -> str:
        """The waits as `parse_latency` reads them; faults are not part of it."""
        if self.straggler_share:
            return (
                f"stragglers:{self.seconds!r},{self.straggler_share!r},{self.straggler_seconds!r}"
            )
        return f"{'exponential' if self.exponential else 'constant'}:{self.seconds!r}"

    @property
    def mean(self) -> float:
        """The mean wait of requests that are answered."""
        return (
            self.straggler_share * self.straggler_seconds
            + (1 - self.straggler_share) * self.seconds
        )


NO_LATENCY = Latency()


def constant(seconds: float) -> Latency:
    """Waits that are always equally long."""
    return Latency(seconds)


def exponential(mean: float) -> Latency:
    """Mostly short, sometimes long."""
    return Latency(mean, exponential=True)


def stragglers(seconds: float, share: float, slow_seconds: float) -> Latency:
    """Constant but for a share that is slow."""
    return Latency(seconds, straggler_share=share, straggler_seconds=slow_seconds)


def parse_latency(text: str) -> Latency:
    """A latency as it is written on the command line."""
    kind, _, rest = text.partition(":")
    try:
        numbers = [float(number) for number in rest.split(",")] if rest else []
    except ValueError as error:
        raise SettingsError(f"latency {shorten_repr(text)}: {error}; write {SPELLINGS}") from error
    match kind, numbers:
        case "none", []:
            return NO_LATENCY
        case "constant", [seconds]:
            return constant(seconds)
        case "exponential", [mean]:
            return exponential(mean)
        case "stragglers", [seconds, share, slow_seconds]:
            return stragglers(seconds, share, slow_seconds)
    raise SettingsError(f"latency {shorten_repr(text)} is not known: write {SPELLINGS}")
