"""Rate limits per host: how long to wait, how to back off, and when to leave it alone.

Time is the event loop's, so everything here runs on a simulated clock too. It knows hosts by a name
only and sends nothing itself.
"""

import asyncio
import math
import re
from collections import deque
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import NamedTuple

from flatout.errors import SettingsError

BUSY = (429, 503)
LONGEST_BACKOFF = 3600.0  # seconds, where the host names none
is_seconds = re.compile(r"[0-9]{1,12}").fullmatch


@dataclass(frozen=True)
class Politeness:
    """How a host is treated: delays, connections and patience."""

    delay_seconds: float = 1.0  # least time between the starts of two requests
    first_delay_seconds: float = 5.0  # before anything is known of the host
    longest_delay_seconds: float = 60.0  # that slow answers may lead to
    connections: int = 1  # at a time
    adapts: bool = True  # slow answers lengthen the delay: one request per answer's time
    backoff_seconds: float = 5.0  # after the first 429 or 503 without Retry-After; doubles
    patience_seconds: float = 120.0  # for whoever would have to wait longer, the host is down
    window: int = 20  # outcomes the error rate is taken over, half of them at least
    error_rate: float = 0.5  # above it the host is down
    refusals: int = 3  # connections refused in a row that make it down
    down_seconds: float = 60.0  # the first time; doubles
    longest_down_seconds: float = 3600.0

    def __post_init__(self) -> None:
        seconds = [value for name, value in vars(self).items() if name.endswith("_seconds")]
        if not all(math.isfinite(value) and value >= 0 for value in seconds):
            raise SettingsError(f"{self}: every number of seconds must be finite and not negative")
        if min(self.connections, self.window, self.refusals) < 1 or not 0 < self.error_rate <= 1:
            raise SettingsError(
                f"{self}: connections, window and refusals must be at least 1, and error_rate "
                f"within (0, 1]"
            )


UNHURRIED = Politeness()
UNLIMITED = Politeness(  # for a server of one's own; the circuit breaker stays
    delay_seconds=0.0,
    first_delay_seconds=0.0,
    connections=256,
    adapts=False,
    backoff_seconds=0.1,
    down_seconds=5.0,
)


class RequestOutcome(NamedTuple):
    """How a request ended, as far as its host's limits care."""

    status: int  # 0: no answer
    seconds: float
    refused: bool = False  # no connection came about
    retry_after: float = 0.0  # seconds the host asked for

    @property
    def is_error(self) -> bool:
        """Whether the host, not the page, seems to be in trouble."""
        return self.status == 0 or self.status == 429 or self.status >= 500


def retry_after_seconds(header: str, now: float) -> float:
    """Seconds that a Retry-After header asks for, a number or a date; 0 if it says nothing. `now`
    is Unix time.
    """
    header = header.strip()
    if is_seconds(header):
        return float(header)
    try:
        when = parsedate_to_datetime(header)
        return max(0.0, (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() - now)
    except (ValueError, OverflowError):
        return 0.0


class HostLimiter:
    """When one host may be asked again."""

    def __init__(self, settings: Politeness) -> None:
        self.settings = settings
        self.slots = asyncio.Semaphore(settings.connections)
        self.delay = max(settings.first_delay_seconds, settings.delay_seconds)
        self.last_at = -math.inf  # when the last request began
        self.not_before = -math.inf  # what the host asked for
        self.busy = 0  # 429 and 503 in a row
        self.breaker = Breaker(settings)

    async def acquire(self, floor: float) -> bool:
        """Wait until a request may be sent; False if the host is down or the wait would be too
        long.
        """
        clock = asyncio.get_running_loop().time
        if self.is_down(clock(), floor):
            return False
        await self.slots.acquire()
        try:
            while not self.is_down(clock(), floor):
                wait = self.next_at(floor) - clock()
                if wait <= 0:
                    self.last_at = clock()
                    self.breaker.begin()
                    return True
                await asyncio.sleep(wait)
        except BaseException:
            self.slots.release()
            raise
        self.slots.release()
        return False

    def next_at(self, floor: float) -> float:
        """When the next request may begin."""
        return max(self.last_at + max(self.delay, floor), self.not_before)

    def is_down(self, now: float, floor: float) -> bool:
        """Whether nobody should wait for this host."""
        return (
            self.breaker.is_open(now) or self.next_at(floor) - now > self.settings.patience_seconds
        )

    def release(self, outcome: RequestOutcome | None) -> None:
        """End a request and learn from its outcome; None if nothing was sent."""
        self.slots.release()
        self.breaker.probing = False
        if outcome is not None:
            now = asyncio.get_running_loop().time()
            self.adapt(outcome)
            self.back_off(outcome, now)
            self.breaker.judge(outcome, now)

    def adapt(self, outcome: RequestOutcome) -> None:
        """Move halfway to one request per answer's time; an error never shortens the delay."""
        if not self.settings.adapts or outcome.status == 0:
            return
        wanted = (self.delay + outcome.seconds) / 2
        if outcome.status != 200:
            wanted = max(wanted, self.delay)
        low, high = self.settings.delay_seconds, self.settings.longest_delay_seconds
        self.delay = max(low, min(wanted, high))

    def back_off(self, outcome: RequestOutcome, now: float) -> None:
        """Stay away for as long as the host asks for, or ever longer while it is busy."""
        self.busy = self.busy + 1 if outcome.status in BUSY else 0
        wait = outcome.retry_after
        if self.busy and not wait:
            wait = min(
                self.settings.backoff_seconds * 2.0 ** min(self.busy - 1, 30), LONGEST_BACKOFF
            )
        if wait > 0:
            self.not_before = max(self.not_before, now + wait)


class Breaker:
    """Leaves a failing host alone for a while, then lets one request find out whether it is
    back.
    """

    def __init__(self, settings: Politeness) -> None:
        self.settings = settings
        self.down_until = -math.inf
        self.falls = 0  # times it went down since it last answered well
        self.probing = False  # the request that finds out is under way
        self.refusals = 0  # connections refused in a row
        self.errors: deque[bool] = deque(maxlen=settings.window)

    def is_open(self, now: float) -> bool:
        """Whether the host is left alone now."""
        return now < self.down_until or (self.falls > 0 and self.probing)

    def begin(self) -> None:
        """A request is sent; while the host is on probation it is the only one."""
        self.probing = self.falls > 0

    def judge(self, outcome: RequestOutcome, now: float) -> None:
        """Take an outcome into account; those of requests sent before the host went down are late
        and say nothing.
        """
        if now < self.down_until:
            return
        if self.falls:
            if outcome.is_error:
                self.fall(now)
            else:
                self.falls = 0
            return
        self.errors.append(outcome.is_error)
        self.refusals = self.refusals + 1 if outcome.refused else 0
        enough = len(self.errors) >= max(1, self.settings.window // 2)
        if self.refusals >= self.settings.refusals or (
            enough and sum(self.errors) > self.settings.error_rate * len(self.errors)
        ):
            self.fall(now)

    def fall(self, now: float) -> None:
        """The host is down, each time for longer."""
        span = self.settings.down_seconds * 2.0 ** min(self.falls, 30)
        self.down_until = now + min(span, self.settings.longest_down_seconds)
        self.falls, self.refusals = self.falls + 1, 0
        self.errors.clear()


class RateLimiter:
    """The limits of every host that was met."""

    def __init__(self) -> None:
        self.hosts: dict[str, HostLimiter] = {}

    async def acquire(self, host: str, settings: Politeness, floor: float = 0.0) -> bool:
        """Wait until this host may be asked, at least `floor` seconds after the last time; False if
        it should be left alone.
        """
        known = self.hosts.get(host)
        if known is None:
            known = self.hosts[host] = HostLimiter(settings)
        return await known.acquire(floor)

    def release(self, host: str, outcome: RequestOutcome | None) -> None:
        """End a request that `acquire` let begin; None if nothing was sent."""
        self.hosts[host].release(outcome)
