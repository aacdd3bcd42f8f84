"""Taking limiter, on a simulated clock."""

import asyncio
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_clock_of_crawl import run_simulated

from flatout.errors import SettingsError
from flatout_crawl.net.politeness import (
    UNHURRIED,
    UNLIMITED,
    Politeness,
    RateLimiter,
    RequestOutcome,
    retry_after_seconds,
)

STEADY = Politeness(first_delay_seconds=1.0, adapts=False)
FINE, BROKEN, REFUSED = (
    RequestOutcome(200, 0.1),
    RequestOutcome(500, 0.1),
    RequestOutcome(0, 0.1, refused=True),
)


def now() -> float:
    return asyncio.get_running_loop().time()


async def visit(
    limiter: RateLimiter,
    rules: Politeness,
    outcome: RequestOutcome | None = FINE,
    host: str = "h",
    floor: float = 0,
) -> float:
    """One request; when it began, or -1 if the host is down."""
    if not await limiter.acquire(host, rules, floor):
        return -1.0
    begun = now()
    await asyncio.sleep(outcome.seconds if outcome else 0.0)
    limiter.release(host, outcome)
    return begun


def times(rules: Politeness, *outcomes: RequestOutcome | None, floor: float = 0.0) -> list[float]:
    """When requests began that were sent one after the other."""

    async def main() -> list[float]:
        limiter = RateLimiter()
        return [round(await visit(limiter, rules, outcome, floor=floor), 6) for outcome in outcomes]

    return run_simulated(main())


def test_one_request_a_second_and_more_slowly_if_the_site_wants_it() -> None:
    assert times(STEADY, *[FINE] * 4) == [0, 1, 2, 3]
    assert times(STEADY, *[FINE] * 3, floor=7.0) == [0, 7, 14]
    assert times(UNLIMITED, *[RequestOutcome(200, 0.0)] * 4) == [0, 0, 0, 0]


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 4), st.lists(st.floats(0.0, 5.0), min_size=2, max_size=15))
def test_no_two_starts_are_close_and_no_connections_too_many(
    connections: int, latencies: list[float]
) -> None:
    async def main() -> None:
        limiter, starts, open_now, most = RateLimiter(), [], 0, 0
        rules = replace(STEADY, connections=connections)

        async def one(latency: float) -> None:
            nonlocal open_now, most
            assert await limiter.acquire("h", rules)
            starts.append(now())
            open_now += 1
            most = max(most, open_now)
            await asyncio.sleep(latency)
            open_now -= 1
            limiter.release("h", RequestOutcome(200, latency))

        await asyncio.gather(*(one(latency) for latency in latencies))
        assert len(starts) == len(latencies) and most <= connections
        assert all(b - a >= 1.0 - 1e-9 for a, b in pairwise(starts))

    run_simulated(main())


def test_hosts_do_not_wait_for_each_other() -> None:
    async def main() -> list[float]:
        limiter = RateLimiter()
        return await asyncio.gather(*(visit(limiter, STEADY, host=f"h{k}") for k in range(10)))

    assert run_simulated(main()) == [0.0] * 10


def test_the_delay_follows_the_latency() -> None:
    quick = times(UNHURRIED, *[RequestOutcome(200, 0.1)] * 8)
    gaps = [b - a for a, b in pairwise(quick)]
    # from five seconds down to the least
    assert gaps[0] == pytest.approx((5 + 0.1) / 2) and gaps[-1] == 1.0
    slow = times(UNHURRIED, *[RequestOutcome(200, 8.0)] * 12)
    assert slow[-1] - slow[-2] == pytest.approx(8.0, abs=0.1)  # up to one at a time
    frozen = times(UNHURRIED, *[RequestOutcome(404, 0.1)] * 5)
    assert [b - a for a, b in pairwise(frozen)] == [5.0] * 4  # an error never shortens it
    endless = times(UNHURRIED, *[RequestOutcome(200, 500.0)] * 12)
    assert endless[-1] - endless[-2] == pytest.approx(
        500.0
    )  # its own latency; the delay itself is capped

    async def capped() -> float:
        limiter = RateLimiter()
        for _ in range(12):
            await visit(limiter, UNHURRIED, RequestOutcome(200, 500.0))
        return limiter.hosts["h"].delay

    assert run_simulated(capped()) == 60.0


def test_a_host_that_is_busy_is_given_ever_longer() -> None:
    rules = replace(STEADY, window=100, refusals=100)
    busy = RequestOutcome(503, 0.0)
    assert times(rules, busy, busy, busy, FINE, FINE) == [0, 5, 15, 35, 36]
    assert times(rules, RequestOutcome(429, 0.0, retry_after=30.0), FINE) == [0, 30]
    assert times(rules, RequestOutcome(200, 0.0, retry_after=30.0), FINE) == [0, 30]


def test_who_would_wait_too_long_is_told_so() -> None:
    async def main() -> None:
        limiter = RateLimiter()
        await visit(limiter, STEADY, RequestOutcome(503, 0.0, retry_after=1000.0))
        assert await visit(limiter, STEADY) == -1.0 and now() == 0.0
        await asyncio.sleep(1000.0)
        assert await visit(limiter, STEADY) == 1000.0
        assert await visit(limiter, STEADY, floor=1e6) == -1.0

    run_simulated(main())


@pytest.mark.parametrize(
    ("outcome", "needed"), [(REFUSED, 3), (BROKEN, 10), (RequestOutcome(0, 0.1), 10)]
)
def test_a_failing_host_is_left_alone(outcome: RequestOutcome, needed: int) -> None:
    begun = times(STEADY, *[outcome] * (needed + 5))
    assert begun == [*range(needed), *[-1] * 5]


def test_half_of_the_answers_may_be_errors_and_missing_pages_are_none() -> None:
    assert -1 not in times(STEADY, *[FINE, BROKEN] * 30)
    assert -1 in times(STEADY, *[FINE, BROKEN, BROKEN] * 10)
    assert -1 not in times(STEADY, *[RequestOutcome(404, 0.1)] * 30)
    assert -1 not in times(STEADY, *[REFUSED, REFUSED, FINE] * 3)


def test_one_request_finds_out_whether_the_host_is_back() -> None:
    async def main() -> None:
        limiter = RateLimiter()
        rules = replace(STEADY, connections=4, patience_seconds=1e6)
        for _ in range(3):
            await visit(limiter, rules, REFUSED)
        down_until = limiter.hosts["h"].breaker.down_until
        assert down_until == pytest.approx(62.1)
        await asyncio.sleep(62.1 - now())
        probes = await asyncio.gather(
            *(visit(limiter, rules, RequestOutcome(0, 5.0)) for _ in range(4))
        )
        assert (
            sorted(probes)[:3] == [-1.0] * 3 and max(probes) >= 62.1
        )  # one went, three were refused
        assert limiter.hosts["h"].breaker.down_until == pytest.approx(
            now() + 120.0
        )  # twice as long
        await asyncio.sleep(121.0)
        assert await visit(limiter, rules, FINE) > 0
        # closed again
        assert await visit(limiter, rules, BROKEN) > 0 and await visit(limiter, rules, FINE) > 0

    run_simulated(main())


def test_late_outcomes_do_not_lengthen_it() -> None:
    async def main() -> None:
        limiter = RateLimiter()
        rules = replace(UNLIMITED, connections=50)
        await asyncio.gather(
            *(visit(limiter, rules, RequestOutcome(0, 0.01 * k, refused=True)) for k in range(50))
        )
        assert limiter.hosts["h"].breaker.falls == 1

    run_simulated(main())


def test_a_cancelled_wait_gives_its_place_back() -> None:
    async def main() -> None:
        limiter = RateLimiter()
        await visit(limiter, STEADY)
        waiting = asyncio.create_task(visit(limiter, STEADY))
        await asyncio.sleep(0.5)
        waiting.cancel()
        assert await visit(limiter, STEADY, None) == 1.0
        assert await visit(limiter, STEADY) == 2.0

    run_simulated(main())


def test_retry_after_is_seconds_or_a_date() -> None:
    assert retry_after_seconds(" 120 ", 0.0) == 120.0
    assert retry_after_seconds("Wed, 21 Oct 2015 07:28:00 GMT", 1445412480.0 - 90.0) == 90.0
    assert retry_after_seconds("Wed, 21 Oct 2015 07:28:00 GMT", 2e9) == 0.0
    for nothing in ("", "soon", "-5", "1e9", "Wed, 99 Oct 2015", "9" * 50):
        assert retry_after_seconds(nothing, 0.0) == 0.0


@given(st.text(max_size=40))
def test_any_retry_after_is_survived(header: str) -> None:
    assert retry_after_seconds(header, 1e9) >= 0.0


@pytest.mark.parametrize(
    "bad",
    [
        {"delay_seconds": -1.0},
        {"patience_seconds": float("inf")},
        {"connections": 0},
        {"error_rate": 0.0},
    ],
)
def test_bad_settings_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(SettingsError):
        Politeness(**bad)  # type: ignore[arg-type]
