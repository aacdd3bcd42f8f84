"""The live fetcher against real servers on loopback."""

import asyncio
import json
import socket
from pathlib import Path

import pytest
from lab_server_of_crawl import PATIENT, LabServer, fetching, lab_server, packed, reply

from flatout.errors import SettingsError
from flatout_crawl.net.exchange import RequestCaps
from flatout_crawl.net.ledger import AUDIT_FILE, BUDGET_FILE, STOP_FILE
from flatout_crawl.net.politeness import UNHURRIED, UNLIMITED, Politeness
from flatout_crawl.net.scope import origin_of


def audit_of(run: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (run / AUDIT_FILE).read_text().splitlines()]


def test_a_page_comes_with_its_type_and_is_written_down(tmp_path: Path) -> None:
    async def main() -> None:
        async with lab_server() as lab:
            lab.pages["/a?b=c"] = reply(b"<p>page", kind="Text/HTML; charset=utf-8")
            lab.pages["/z"] = packed(b"<p>packed")
            async with fetching(tmp_path, lab) as fetcher:
                answer = await fetcher.fetch(lab.url("/x/../a?b=c#d"))
                assert (
                    answer.is_page
                    and answer.body == b"<p>page"
                    and answer.content_type == "text/html"
                )
                assert (
                    answer.url == lab.url("/a?b=c") and answer.requests == 1 and answer.seconds > 0
                )
                assert (await fetcher.fetch(lab.url("/z"))).body == b"<p>packed"
                missing = await fetcher.fetch(lab.url("/missing"))
                assert (missing.status, missing.failure, missing.body) == (404, "", b"")
                assert fetcher.budget.spent == 4
            rows = audit_of(tmp_path)
            assert [row["url"] for row in rows] == [
                lab.url(p) for p in ("/robots.txt", "/a?b=c", "/z", "/missing")
            ]
            assert [row["status"] for row in rows] == [404, 200, 200, 404]
            assert {row["address"] for row in rows} == {lab.door} and {
                row["method"] for row in rows
            } == {"GET"}
            assert rows[1]["bytes"] == 7 and lab.connections == 1  # kept alive

    asyncio.run(main())


def test_what_is_sent_is_plain(tmp_path: Path) -> None:
    async def main() -> None:
        async with lab_server() as lab:
            lab.pages["/"] = reply(b"page", Set_Cookie="session=1; Path=/")
            async with fetching(
                tmp_path, lab, user_agent="flatout/1.0 (+https://example.org/bot)"
            ) as fetcher:
                await fetcher.fetch(lab.url())
                await fetcher.fetch(lab.url())
                head = await fetcher.head(lab.url())
            assert (head.status, head.content_type, head.body) == (200, "text/html", b"")
            assert lab.asked == ["GET /robots.txt", "GET /", "GET /", "HEAD /"]
            for sent in lab.heads:
                names = {line.split(":")[0].lower() for line in sent.split("\r\n")[1:] if line}
                assert names == {"host", "user-agent", "accept", "accept-encoding"}
                assert "User-Agent: flatout/1.0 (+https://example.org/bot)" in sent
                assert "Accept-Encoding: gzip, deflate\r\n" in sent

    asyncio.run(main())


def test_robots_txt_is_obeyed_in_the_laboratory_too(tmp_path: Path) -> None:
    async def main() -> None:
        async with lab_server() as lab:
            rules = (
                b"User-agent: flatout\nDisallow: /no\nSitemap: /map.xml\nSitemap: "
                b"http://evil.example/map.xml\n"
            )
            rules += f"Sitemap: {lab.url('/map.xml')}\n".encode()
            lab.pages |= {
                "/robots.txt": reply(rules, kind="text/plain"),
                "/yes": reply(b"page"),
                "/no": reply(b"page"),
            }
            lab.pages["/to-no"] = reply(status=302, Location="/no")
            async with fetching(tmp_path, lab) as fetcher:
                assert (await fetcher.fetch(lab.url("/yes"))).is_page
                refused = await fetcher.fetch(lab.url("/no"))
                assert (refused.failure, refused.requests) == ("robots", 0)
                redirected = await fetcher.fetch(lab.url("/to-no"))
                assert (redirected.failure, redirected.url, redirected.requests) == (
                    "robots",
                    lab.url("/no"),
                    1,
                )
                assert await fetcher.sitemaps(lab.url()) == (lab.url("/map.xml"),)
                assert await fetcher.sitemaps("http://evil.example/") == ()
            assert lab.asked == ["GET /robots.txt", "GET /yes", "GET /to-no"]

    asyncio.run(main())


@pytest.mark.parametrize(
    ("robots", "failure"),
    [
        (reply(status=404), ""),
        (reply(status=403), ""),
        (reply(status=500), "robots"),
        (reply(status=429), "robots"),
        (reply(b"\x89PNG", kind="image/png"), "robots"),
        (reply(b"User-agent: *\nDisallow: /", kind=""), "robots"),
        (reply(b"User-agent: *\nDisallow: /", kind="text/html"), "robots"),
        (reply(b"User-agent: *\nDisallow: /\n" + b"#" * 1_000_000, kind="text/plain"), "robots"),
        (reply(b"User-agent: *\nDisallow: /x\n" + b"#" * 1_000_000, kind="text/plain"), ""),
    ],
)
def test_what_becomes_of_robots_txt_decides(tmp_path: Path, robots: bytes, failure: str) -> None:
    async def main() -> None:
        async with lab_server() as lab:
            lab.pages |= {"/robots.txt": robots, "/": reply(b"page")}
            async with fetching(tmp_path, lab) as fetcher:
                assert (await fetcher.fetch(lab.url())).failure == failure

    asyncio.run(main())


@pytest.mark.parametrize(("hops", "failure"), [(5, "robots"), (6, "robots")])
def test_robots_txt_may_be_redirected_five_times(tmp_path: Path, hops: int, failure: str) -> None:
    async def main() -> None:
        async with lab_server() as lab:
            lab.pages |= {
                f"/r{k}": reply(status=301, Location=f"/r{k + 1}") for k in range(1, hops)
            }
            lab.pages |= {
                f"/r{hops}": reply(b"User-agent: *\nDisallow: /a", kind="text/plain"),
                "/": reply(b"page"),
            }
            lab.pages |= {"/robots.txt": reply(status=301, Location="/r1"), "/a": reply(b"page")}
            async with fetching(tmp_path, lab) as fetcher:
                assert (await fetcher.fetch(lab.url("/a"))).failure == "robots"
                assert (await fetcher.fetch(lab.url("/"))).failure == ("" if hops <= 5 else failure)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("target", "allowed"),
    [("/private/rules", False), ("/docs/rules", True), ("/robots.txt?x", False)],
)
def test_robots_txt_does_not_lead_off_the_allow_list(
    tmp_path: Path, target: str, allowed: bool
) -> None:
    async def main() -> None:
        async with lab_server() as lab:
            lab.pages |= {
                "/robots.txt": reply(status=302, Location=target),
                "/docs/a": reply(b"page"),
            }
            lab.pages[target] = reply(b"User-agent: *\nDisallow:\n", kind="text/plain")
            async with fetching(tmp_path, lab, scope=[f"{lab.door}/docs/"]) as fetcher:
                answer = await fetcher.fetch(lab.url("/docs/a"))
            assert (answer.failure, answer.is_page) == (
                ("", True) if allowed else ("robots", False)
            )
            assert (f"GET {target}" in lab.asked) == allowed

    asyncio.run(main())


def test_the_budget_holds_across_redirects_restarts_and_robots(tmp_path: Path) -> None:
    async def main() -> None:
        async with lab_server() as lab:
            lab.pages |= {"/": reply(status=302, Location="/a"), "/a": reply(b"page")}
            async with fetching(tmp_path, lab, total=4) as fetcher:
                assert (await fetcher.fetch(lab.url())).is_page  # robots.txt, /, /a
                half = await fetcher.fetch(lab.url())
                assert (half.failure, half.requests) == ("budget", 1)
            async with fetching(tmp_path, lab, total=4) as fetcher:
                none = await fetcher.fetch(lab.url())
                assert (none.failure, none.requests) == ("budget", 0)
            assert len(lab.asked) == 4 == len(audit_of(tmp_path))

    asyncio.run(main())


def test_each_host_has_its_own_budget(tmp_path: Path) -> None:
    async def main() -> None:
        async with lab_server() as one, lab_server() as two:
            one.pages["/"] = two.pages["/"] = reply(b"page")
            async with fetching(tmp_path, one, two, per_host=2) as fetcher:
                assert (await fetcher.fetch(one.url())).is_page
                assert (await fetcher.fetch(one.url())).failure == "budget"
                assert (await fetcher.fetch(two.url())).is_page

    asyncio.run(main())


def test_the_kill_file_ends_it_at_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with lab_server() as lab:
            lab.pages["/"] = reply(b"page")
            async with fetching(tmp_path, lab) as fetcher:
                assert (await fetcher.fetch(lab.url())).is_page
                (tmp_path / STOP_FILE).touch()
                assert (await fetcher.fetch(lab.url())).failure == "budget"
            assert len(lab.asked) == 2

    asyncio.run(main())


def test_an_attempt_that_aiohttp_repeats_is_counted(tmp_path: Path) -> None:
    async def main() -> None:
        async with lab_server() as lab:

            async def hang_up(writer: asyncio.StreamWriter) -> None:
                return

            lab.pages["/"] = hang_up
            async with fetching(tmp_path, lab) as fetcher:
                answer = await fetcher.fetch(lab.url())
                assert answer.failure == "connection" and answer.requests == lab.asked.count(
                    "GET /"
                )
                assert fetcher.budget.spent == len(lab.asked) == len(audit_of(tmp_path))
            async with fetching(
                tmp_path, lab, total=fetcher.budget.spent + 2
            ) as fetcher:  # robots.txt and one more
                assert (await fetcher.fetch(lab.url())).failure == "budget"
            assert len((tmp_path / BUDGET_FILE).read_text().splitlines()) == len(lab.asked)

    asyncio.run(main())


def test_a_dead_host_is_soon_down(tmp_path: Path) -> None:
    async def main() -> None:
        dead = LabServer()
        with socket.socket() as taken:  # bound, and nobody listens
            taken.bind(("127.0.0.1", 0))
            dead.port = taken.getsockname()[1]
            async with fetching(tmp_path, dead) as fetcher:
                assert (await fetcher.fetch(dead.url())).failure == "connection"
        quick = Politeness(delay_seconds=0.0, first_delay_seconds=0.0, window=4, connections=8)
        async with lab_server() as lab:
            lab.pages |= {"/": reply(status=500), "/a": reply(b"page")}
            async with fetching(tmp_path, lab, politeness=quick) as fetcher:
                failures = [(await fetcher.fetch(lab.url())).failure for _ in range(6)]
                assert failures == ["", "", "down", "down", "down", "down"]
                assert (await fetcher.fetch(lab.url("/a"))).failure == "down"
            # with robots.txt three outcomes, two of them errors
            assert lab.asked.count("GET /") == 2

    asyncio.run(main())


def test_retry_after_is_obeyed(tmp_path: Path) -> None:
    async def main() -> None:
        async with lab_server() as lab:
            lab.pages |= {"/": reply(b"page"), "/busy": reply(status=429, Retry_After="100000")}
            async with fetching(tmp_path, lab) as fetcher:
                assert (await fetcher.fetch(lab.url("/busy"))).status == 429
                assert (await fetcher.fetch(lab.url("/"))).failure == "down"
            assert "GET /" not in lab.asked

    asyncio.run(main())


def test_crawl_delay_is_obeyed_in_the_laboratory_too(tmp_path: Path) -> None:
    async def main() -> None:
        async with lab_server() as lab:
            lab.pages |= {
                "/robots.txt": reply(b"User-agent: *\nCrawl-delay: 9999", kind="text/plain")
            }
            lab.pages |= {"/": reply(b"page")}
            async with fetching(tmp_path, lab) as fetcher:
                assert (
                    await fetcher.fetch(lab.url())
                ).failure == "down"  # longer than anyone would wait

    asyncio.run(main())


def test_many_at_once_in_the_laboratory(tmp_path: Path) -> None:
    async def main() -> None:
        async with lab_server() as lab:
            lab.pages |= {f"/{k}": reply(b"page %d" % k) for k in range(300)}
            async with fetching(tmp_path, lab, total=1000) as fetcher:
                answers = await asyncio.gather(
                    *(fetcher.fetch(lab.url(f"/{k}")) for k in range(300))
                )
                assert [a.body for a in answers] == [b"page %d" % k for k in range(300)]
                assert fetcher.budget.spent == 301 == len(lab.asked)
            assert 1 < lab.connections <= UNLIMITED.connections + 1

    asyncio.run(main())


def test_a_cancelled_fetch_is_counted_and_gives_its_place_back(tmp_path: Path) -> None:
    async def main() -> None:
        async with lab_server() as lab:

            async def silent(writer: asyncio.StreamWriter) -> None:
                await asyncio.Event().wait()

            lab.pages |= {"/slow": silent, "/": reply(b"page")}
            one = Politeness(delay_seconds=0.0, first_delay_seconds=0.0)  # one connection
            async with fetching(tmp_path, lab, politeness=one) as fetcher:
                task = asyncio.create_task(fetcher.fetch(lab.url("/slow")))
                while "GET /slow" not in lab.asked:
                    await asyncio.sleep(0.01)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                assert (await fetcher.fetch(lab.url())).is_page and fetcher.budget.spent == 3
            assert [row["failure"] for row in audit_of(tmp_path)] == ["", "cancelled", ""]

    asyncio.run(main())


def test_out_of_scope_costs_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with lab_server() as lab:
            async with fetching(tmp_path, lab, scope=[f"{lab.door}/docs"]) as fetcher:
                for url in (
                    "http://example.org/",
                    lab.url("/docs-private"),
                    lab.url("/"),
                    "javascript:x",
                    "\x1b[2J",
                    "",
                ):
                    answer = await fetcher.fetch(url)
                    assert (answer.failure, answer.requests, answer.status) == ("scope", 0, 0)
                    assert answer.url.isprintable()
                assert fetcher.budget.spent == 0
                assert (await fetcher.fetch(lab.url("/docs/x"))).status == 404
            assert lab.asked == ["GET /robots.txt", "GET /docs/x"]

    asyncio.run(main())


@pytest.mark.parametrize(
    "agent",
    [
        "flatout",
        "flatout/1.0",
        "flatout (contact me)",
        ("1 (+https://example.org)"),
        "ä (+https://e.org)",
        "flatout (+https://example.org)\r\nX: y",
    ],
)
def test_whoever_meets_the_public_says_who_they_are(tmp_path: Path, agent: str) -> None:
    async def main() -> None:
        async with fetching(tmp_path, scope=["example.org"], user_agent=agent):
            raise AssertionError("accepted")

    with pytest.raises(SettingsError, match="user agent"):
        asyncio.run(main())


def test_public_hosts_are_treated_unhurriedly(tmp_path: Path) -> None:
    async def main() -> None:
        agent = "flatout (+https://example.org)"
        async with fetching(
            tmp_path, scope=["example.org", "*.example.com"], user_agent=agent
        ) as fetcher:
            from_http = fetcher.treatment(origin_of("http://example.org/"))
            assert (
                from_http
                == fetcher.treatment(origin_of("https://example.org/"))
                == ("example.org", UNHURRIED)
            )

    asyncio.run(main())


def test_bad_caps_are_refused() -> None:
    with pytest.raises(SettingsError):
        RequestCaps(page_bytes=0)
    with pytest.raises(SettingsError):
        RequestCaps(redirects=-1)
    assert PATIENT.redirects == 5
