"""Sites in memory: answers as over a network, waits on the loop's clock."""

import asyncio
from collections import Counter

import pytest

from flatout.slow_envs.clock import run_virtually
from flatout_crawl.net.fetching import FAILURES, Answer, Fetcher
from flatout_crawl.sites.latency import NO_LATENCY, Latency, constant, exponential, stragglers
from flatout_crawl.sites.sim import SimFetcher
from flatout_crawl.sites.site import SLOW, SiteSettings, generate

SITE = generate(SiteSettings(seed=5, pages=150))
PAGES = [url for url in SITE.graph if SLOW not in SITE.answer(url).headers]


def fetched(
    urls: list[str], latency: Latency = NO_LATENCY, seed: int = 0, **named: float
) -> list[Answer]:
    """One after another, on simulated time."""

    async def run() -> list[Answer]:
        fetcher: Fetcher = SimFetcher(SITE, latency, seed, **named)
        answers = [await fetcher.fetch(url) for url in urls]
        await fetcher.close()
        return answers

    return run_virtually(run())


def one(url: str, latency: Latency = NO_LATENCY) -> Answer:
    return fetched([url], latency)[0]


def test_a_page_is_what_the_site_answers() -> None:
    for url in PAGES[:20]:
        assert one(url) == Answer(url, 200, SITE.answer(url).body, "text/html", 0.0, 1)


def test_errors_are_answers() -> None:
    for url, status in SITE.errors.items():
        answer = one(url)
        assert (answer.status, answer.failure, answer.requests, answer.is_page) == (
            status,
            "",
            1,
            False,
        )


def test_redirects_are_followed_and_counted() -> None:
    ends = Counter()
    for url in SITE.redirects:
        answer, hops, at = one(url), 1, url
        while at in SITE.redirects and hops <= 5:
            at, hops = SITE.redirects[at], hops + 1
        if answer.failure == "scope":
            assert not answer.url.startswith(SITE.origin) and answer.requests == hops - 1
        elif answer.failure == "redirects":
            assert answer.requests == 6
        else:
            assert (answer.url, answer.requests, answer.status) == (at, hops, 200)
        ends[answer.failure, answer.requests > 2] += 1
    assert {failure for failure, _ in ends} == {"", "scope", "redirects"}
    assert ends["", True]  # a chain


def test_what_may_not_be_asked_for_is_not() -> None:
    answers = [one(url) for url in SITE.forbidden] + [one(f"{SITE.origin}/login")]
    assert {(answer.failure, answer.requests, answer.status) for answer in answers} == {
        ("robots", 0, 0)
    }
    for url in ("http://elsewhere.lab/", f"{SITE.origin}.evil.lab/", "", "https://site5.lab/"):
        assert (one(url).failure, one(url).requests) == ("scope", 0)


@pytest.mark.parametrize("latency", [constant(0.05), exponential(0.05), stragglers(0.05, 0.1, 2.0)])
def test_waits_pass_on_the_loops_clock(latency: Latency) -> None:
    async def run() -> tuple[float, list[Answer]]:
        fetcher = SimFetcher(SITE, latency, seed=1)
        answers = [await fetcher.fetch(PAGES[k % len(PAGES)]) for k in range(3_000)]
        return asyncio.get_running_loop().time(), answers

    passed, answers = run_virtually(run())
    assert passed == pytest.approx(sum(answer.seconds for answer in answers))
    assert passed / 3_000 == pytest.approx(latency.mean, rel=0.15)


def test_waits_overlap() -> None:
    async def run() -> float:
        fetcher = SimFetcher(SITE, constant(1.0))
        await asyncio.gather(*(fetcher.fetch(url) for url in PAGES[:50]))
        return asyncio.get_running_loop().time()

    assert run_virtually(run()) == pytest.approx(1.0)


def test_slow_pages_take_their_time_more() -> None:
    slow = next(url for url in SITE.graph if SLOW in SITE.answer(url).headers)
    assert one(slow, constant(0.5)).seconds == pytest.approx(
        0.5 + float(SITE.answer(slow).headers[SLOW])
    )


def test_faults_by_shares() -> None:
    latency = Latency(0.1, hang_share=0.1, close_share=0.2, error_share=0.2, busy_share=0.1)
    answers = fetched([PAGES[k % len(PAGES)] for k in range(2_000)], latency, timeout_s=7.0)
    kinds = Counter((answer.failure, answer.status) for answer in answers)
    shares = {
        ("timeout", 0): 0.1,
        ("connection", 0): 0.2,
        ("", 500): 0.2,
        ("", 503): 0.1,
        ("", 200): 0.4,
    }
    assert kinds.keys() == shares.keys()
    for kind, share in shares.items():
        assert kinds[kind] / 2_000 == pytest.approx(share, abs=0.04)
    assert all(
        abs(answer.seconds - 7.0) < 1e-6 for answer in answers if answer.failure == "timeout"
    )
    assert all(answer.failure in ("", *FAILURES) for answer in answers)


def test_equal_seeds_draw_equal_waits() -> None:
    urls = PAGES[:30]
    first = fetched(urls, exponential(0.1), seed=4)
    assert fetched(urls, exponential(0.1), seed=4) == first
    assert fetched(urls, exponential(0.1), seed=5) != first


def test_real_time_works_as_well() -> None:
    answer = asyncio.run(SimFetcher(SITE, constant(0.001)).fetch(SITE.seed_url))
    assert answer._replace(seconds=0.0) == one(SITE.seed_url)
