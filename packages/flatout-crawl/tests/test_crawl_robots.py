"""robots.txt after RFC 9309."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from protego import Protego
from simulated_clock_of_crawl import run_simulated

from flatout.errors import SettingsError
from flatout_crawl.net.fetching import Answer
from flatout_crawl.net.robots import (
    KEPT_SECONDS,
    LONGEST_DELAY,
    MOST_BYTES,
    MOST_VERDICTS,
    RETRIED_SECONDS,
    Robots,
    agent_token,
    judge,
    read_rules,
    simplify_robots,
)
from flatout_crawl.net.scope import Origin

SITE = Origin("http", "example.org", 80)


def allows(text: str | bytes, path: str, agent: str = "flatout") -> bool:
    body = text if isinstance(text, bytes) else text.encode()
    return read_rules(body, agent).allows(f"http://example.org{path}")


def test_verdicts_are_kept_and_bounded() -> None:
    rules = read_rules(b"User-agent: *\nDisallow: /odd\n", "flatout")
    for _ in range(2):
        for k in range(MOST_VERDICTS + 2):
            kind = "odd" if k % 2 else "even"
            assert rules.allows(f"http://example.org/{kind}/{k}") == (kind == "even")
    kept = rules.verdict.cache_info()
    assert kept.currsize == kept.maxsize == MOST_VERDICTS


@pytest.mark.parametrize(
    ("rules", "path", "allowed"),
    [
        ("Disallow: /", "/x", False),
        ("Disallow:", "/x", True),
        ("Disallow: /a", "/abc", False),
        ("Disallow: /a/", "/a", True),
        ("Disallow: /A", "/a", True),  # paths are case-sensitive
        ("DISALLOW: /a", "/a", False),  # keywords are not
        (
            "Disallow: /example/\nAllow: /example/page.html",
            "/example/page.html",
            True,
        ),  # longest match
        ("Allow: /example/\nDisallow: /example/page.html", "/example/page.html", False),
        (
            "Allow: /example/page.html\nDisallow: /example/",
            "/example/page.htm",
            False,
        ),  # whatever the order
        ("Disallow: /p\nAllow: /p", "/p", True),  # equally long: allow
        ("Disallow: /*.gif$", "/a/b.gif", False),
        ("Disallow: /*.gif$", "/a/b.gif?x", True),
        ("Disallow: /*.gif", "/a/b.gif?x", False),
        ("Disallow: /a*c", "/abbbc/d", False),
        ("Disallow: /x?y=1", "/x?y=1&z", False),
        ("Disallow: /a%3cd", "/a%3Cd", False),
        ("Disallow: /ü", "/%C3%BC", False),
        ("Disallow: /a # because", "/a", False),
        ("Disallow: /", "/robots.txt", True),  # always allowed
    ],
)
def test_rules_of_the_rfc(rules: str, path: str, allowed: bool) -> None:
    assert allows(f"User-agent: *\n{rules}\n", path) is allowed
    # a byte order mark, other line ends
    assert allows(f"\ufeffUser-agent: *\r\n{rules}\r\n", path) is allowed


GROUPS = """
User-agent: other
User-agent: FlatOut
Disallow: /mine

User-agent: *
Disallow: /all

User-agent: flatout
Disallow: /also-mine
"""


def test_the_own_group_counts_wherever_it_stands_and_replaces_the_common_one() -> None:
    assert (
        not allows(GROUPS, "/mine") and not allows(GROUPS, "/also-mine") and allows(GROUPS, "/all")
    )
    assert not allows(GROUPS, "/all", "stranger") and allows(GROUPS, "/mine", "stranger")
    assert not allows(GROUPS, "/mine", "other") and allows(GROUPS, "/also-mine", "other")
    assert allows("Disallow: /\n", "/x")  # rules of no group bind nobody


def test_delays_and_sitemaps_are_read() -> None:
    text = (
        b"User-agent: *\nCrawl-delay: 2.5\nRequest-rate: 1/10s\nSitemap: "
        b"http://example.org/map.xml\n"
    )
    rules = read_rules(text, "flatout")
    assert rules.delay_seconds == 10.0 and rules.sitemaps == ("http://example.org/map.xml",)
    assert read_rules(b"User-agent: *\nCrawl-delay: 3\n", "flatout").delay_seconds == 3.0
    assert (
        read_rules(
            b"User-agent: *\nCrawl-delay: soon\nCrawl-delay: inf\nCrawl-delay: -1\n", "x"
        ).delay_seconds
        == 0.0
    )


def test_half_a_mebibyte_is_read_and_no_half_line() -> None:
    filler = b"# " + b"x" * 97 + b"\n"
    deep = b"User-agent: *\n" + filler * (500 * 1024 // 100 - 1)
    assert len(deep) < 500 * 1024 < MOST_BYTES
    assert not allows(deep + b"Disallow: /late\n", "/late")
    line = b"Disallow: /private-things\n"
    start = b"User-agent: *\nDisallow: /first\n"
    padding = b"#" * (MOST_BYTES - len(start) - len(b"\nDisallow: /p")) + b"\n"
    cut = start + padding + line
    assert allows(cut, "/public") and not allows(cut, "/first") and allows(cut, "/private-things")


LINES = (
    "User-agent: *", ("user-agent: "
                     "flat"), "User agent flatout", "useragent:FlatOut", "User-agent: fl*at*",
    "User-agent foo: bar", "user  agent: x", ("user  agent "
                                             "flatout"), "User-agent", "User-agent:",
                                             "User-agent: **",
    "u\u017fer-agent: "
    "flatout", "Sitemap: x", "Disallow: /a", "Allow: /a/b", "Disallow:", "junk", "x: y",
    "Crawl-delay: 3", "# c", "", ("User-agent: other # "
                                 "flatout"), "User-agent flatout:x", "user-agent:flatout:",
    "user agent :flatoutx", "user agent flatout", "User-agent: flatout/1.0", "User-agent: -",
    "User-agent: f*",
)  # fmt: skip


@given(st.lists(st.sampled_from(LINES), max_size=9), st.sampled_from(["\n", "\r", "\r\n", "\x0b"]))
def test_files_with_few_robots_left_say_the_same(lines: list[str], end: str) -> None:
    text = end.join(lines)
    whole, simple = Protego.parse(text), Protego.parse(simplify_robots(text, "flatout"))
    for path in ("/a/b", "/a/c", "/"):
        url = f"http://example.org{path}"
        assert simple.can_fetch(url, "flatout") == whole.can_fetch(url, "flatout")
    assert simple.crawl_delay("flatout") == whole.crawl_delay("flatout")
    assert list(simple.sitemaps) == list(whole.sitemaps)
    assert len(simple._user_agents) <= 2


def test_many_robots_with_many_rules_are_copied_once() -> None:
    """Protego alone would make a rule for each robot and each path: 200 million here."""
    agents = b"".join(b"User-agent: a%d\n" % k for k in range(14_000))
    body = agents + b"User-agent: flat\n" + b"".join(b"Disallow: /%d/\n" % k for k in range(14_000))
    assert len(body) < MOST_BYTES
    rules = read_rules(body, "flatout")
    assert sum(len(group._rules) for group in rules.parsed._user_agents.values()) == 2 * 14_000
    assert not rules.allows("http://example.org/13999/x") and rules.allows(
        "http://example.org/14000/x"
    )


@pytest.mark.parametrize(
    "rate", ["1/" + "9" * 400, "1/" + "9" * 400 + "d", "1/" + "9" * 5000, "9" * 400 + "/1"]
)
def test_rates_beyond_all_numbers_are_survived(rate: str) -> None:
    seconds = read_rules(f"User-agent: *\nRequest-rate: {rate}\n".encode(), "x").delay_seconds
    assert seconds == (LONGEST_DELAY if rate.startswith("1/") and len(rate) < 1000 else 0.0)


def test_a_delay_longer_than_a_day_is_a_day() -> None:
    assert read_rules(b"User-agent: *\nCrawl-delay: 1e300\n", "x").delay_seconds == LONGEST_DELAY


def test_any_bytes_are_survived() -> None:
    assert allows(bytes(range(256)) * 40, "/x")
    assert not allows(b"\xff\xfe\nUser-agent: *\nDisallow: /x\n", "/x")


@pytest.mark.parametrize(
    ("answer", "allowed"),
    [
        (Answer("u", 200, b"User-agent: *\nDisallow: /"), False),
        (Answer("u", 200, b""), True),
        (Answer("u", 404), True),
        (Answer("u", 401), True),
        (Answer("u", 403), True),
        (Answer("u", 410), True),
        (Answer("u", 429), False),
        (Answer("u", 500), False),
        (Answer("u", 503), False),
        (Answer("u", 304), False),
        (Answer("u", 0, failure="timeout"), False),
        (Answer("u", 0, failure="connection"), False),
        (Answer("u", 302, failure="scope"), False),
        (Answer("u", 302, failure="redirects"), False),
        (Answer("u", 200, b"User-agent: *\nAllow: /", failure="size"), False),
    ],
)
def test_what_an_answer_means(answer: Answer, allowed: bool) -> None:
    assert judge(answer, "flatout").allows("http://example.org/x") is allowed


class Source:
    """Answers one after the other, the last for ever."""

    def __init__(self, *answers: Answer) -> None:
        self.answers, self.asked = list(answers), list[str]()

    async def __call__(self, url: str) -> Answer:
        self.asked.append(url)
        await asyncio.sleep(1.0)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def test_rules_are_asked_for_once_by_many_and_again_after_a_day() -> None:
    async def main() -> None:
        source = Source(Answer("u", 200, b"User-agent: *\nDisallow: /x"))
        robots = Robots(source, "flatout/1.0")
        await asyncio.gather(*(robots.rules(SITE) for _ in range(50)))
        assert source.asked == ["http://example.org/robots.txt"]
        await asyncio.sleep(KEPT_SECONDS - 2)
        await robots.rules(SITE)
        assert len(source.asked) == 1
        await asyncio.sleep(2)
        await robots.rules(SITE)
        assert len(source.asked) == 2
        await robots.rules(SITE._replace(port=8080))
        assert source.asked[-1] == "http://example.org:8080/robots.txt"

    run_simulated(main())


def test_a_lost_file_is_asked_for_again_soon_and_a_refused_request_at_once() -> None:
    async def main() -> None:
        source = Source(Answer("u", 0, failure="budget"), Answer("u", 503), Answer("u", 404))
        robots = Robots(source, "flatout")
        assert (await robots.rules(SITE)).lost == "budget"
        assert (await robots.rules(SITE)).lost == "status 503"
        assert (await robots.rules(SITE)).lost == "status 503" and len(source.asked) == 2
        await asyncio.sleep(RETRIED_SECONDS)
        assert (await robots.rules(SITE)).allows("http://example.org/") and len(source.asked) == 3

    run_simulated(main())


def test_a_cancelled_caller_leaves_the_others_served() -> None:
    async def main() -> None:
        robots = Robots(Source(Answer("u", 404)), "flatout")
        first = asyncio.create_task(robots.rules(SITE))
        second = asyncio.create_task(robots.rules(SITE))
        await asyncio.sleep(0.5)
        first.cancel()
        assert (await second).allows("http://example.org/")

    run_simulated(main())


def test_the_product_token() -> None:
    assert agent_token("Flat-Out_x/2.0 (+https://example.org)") == "flat-out_x"
    with pytest.raises(SettingsError, match="product name"):
        agent_token("1.0")
