"""Would a crawl be refused? Real servers on loopback, and none."""

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest
from lab_server_of_crawl import PATIENT, lab_server, reply
from recorded_sites import record, site
from simulated_clock_of_crawl import run_skipping, skip

from flatout.errors import RunError
from flatout_crawl.runs import health
from flatout_crawl.runs.health import HealthFinding, examine, require, without_requests
from flatout_crawl.runs.order import CrawlOrder

PAGE = (
    b"<html><title>home</title><body>solar power <a href='/a'>a</a> <a "
    b"href='http://other.lab/'>b</a></body></html>"
)
CLOSED = reply(b"User-agent: *\nDisallow: /\n", kind="text/plain")
RULE = {"keywords": ["solar power"]}


def order_at(door: str, **changed: Any) -> CrawlOrder:
    given: dict[str, Any] = {"relevance": RULE, "allow": (door,), "lab": (door,)}
    return CrawlOrder(f"http://{door}/", **(given | changed))


def examined(pages: dict[str, Any], **changed: Any) -> tuple[dict[str, HealthFinding], list[str]]:
    """All checks against a server with these pages, and what it was asked for."""

    async def look() -> tuple[dict[str, HealthFinding], list[str]]:
        async with lab_server() as server:
            server.pages.update(pages)
            findings = await examine(order_at(server.door, **changed), None)
            return {found.name: found for found in findings}, server.asked

    return run_skipping(look())


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No request runs out of time because a machine is slow."""
    assert health.QUICK.total_seconds < 5
    monkeypatch.setattr(health, "QUICK", PATIENT)


def test_a_site_that_may_be_crawled() -> None:
    async def robots(writer: asyncio.StreamWriter) -> None:
        skip(2.0)  # the delay that it asks for has passed when it is read
        writer.write(
            reply(b"User-agent: *\nCrawl-delay: 2\nDisallow: /private/\n", kind="text/plain")
        )

    found, asked = examined({"/": reply(PAGE), "/robots.txt": robots})
    assert all(finding.ok for finding in found.values()), found
    assert list(found) == [
        "scope",
        "relevance",
        "disk",
        "manners",
        "address",
        "robots.txt",
        "seed page",
    ]
    assert "asks for 2 s between requests" in found["robots.txt"].sentence
    assert "1 of its 2 links are in scope" in found["seed page"].sentence
    assert asked == ["GET /robots.txt", "GET /"]


@pytest.mark.parametrize(
    ("pages", "name", "message"),
    [
        ({"/": reply(PAGE), "/robots.txt": CLOSED}, "robots.txt", "forbids"),
        ({"/": reply(PAGE), "/robots.txt": reply(status=500)}, "robots.txt", "it gave status 500"),
        ({}, "seed page", "it gave status 404"),
        ({"/": reply(b"%PDF", kind="application/pdf")}, "seed page", "no HTML page"),
        ({"/": reply(b"<p>nothing</p>")}, "seed page", "0 of its 0 links are in scope"),
        ({"/": reply(status=301, Location="http://other.lab/")}, ("seed "
                                                                 "page"), "not on the allow-list"),
    ],
)  # fmt: skip
def test_what_a_site_refuses_is_reported(pages: dict[str, Any], name: str, message: str) -> None:
    found, _ = examined(pages)
    assert [finding.name for finding in found.values() if not finding.ok] == [name]
    assert message in found[name].sentence


def test_a_dead_server_is_told_soon() -> None:
    with socket.socket() as taken:  # bound, and nobody listens
        taken.bind(("127.0.0.1", 0))
        findings = asyncio.run(examine(order_at(f"127.0.0.1:{taken.getsockname()[1]}"), None))
    assert findings[-1].name == "robots.txt"
    assert not findings[-1].ok
    assert "is the server running" in findings[-1].sentence


def test_a_server_that_says_nothing_is_told_when_its_time_is_up() -> None:

    async def silent(writer: asyncio.StreamWriter) -> None:
        skip(PATIENT.total_seconds)
        await asyncio.Event().wait()

    found, _ = examined({"/robots.txt": silent})
    assert "did not answer in time" in found["robots.txt"].sentence


def test_loopback_without_a_laboratory_is_refused_unasked() -> None:
    found, asked = examined({"/": reply(PAGE)}, lab=(), user_agent="x/1 (+https://example.org/x)")
    assert not found["address"].ok
    assert "--lab" in found["address"].sentence
    assert asked == []


@pytest.mark.parametrize("host", ["169.254.169.254", "10.0.0.7", "127.0.0.1:9"])
def test_an_address_that_must_not_be_dialled_is_refused_before_any_request(host: str) -> None:
    order = CrawlOrder(f"http://{host}/", RULE, (host,), user_agent="x/1 (+https://example.org/x)")
    (found,) = [finding for finding in without_requests(order, None) if not finding.ok]
    assert found.name == "address"
    assert "must not be dialled" in found.sentence


def test_a_name_that_leads_to_loopback_is_refused() -> None:
    order = CrawlOrder(
        "http://localhost/", RULE, ("localhost",), user_agent="x/1 (+https://example.org/x)"
    )
    (found,) = [finding for finding in asyncio.run(examine(order, None)) if not finding.ok]
    assert found.name == "address"
    assert "must not be dialled" in found.sentence


def test_who_meets_the_public_says_who_they_are() -> None:
    (found,) = [
        f
        for f in without_requests(
            CrawlOrder("http://a.example.org/", RULE, ("a.example.org",)), None
        )
        if not f.ok
    ]
    assert found.name == "manners"
    assert "names nobody to turn to" in found.sentence
    assert "--user-agent" in found.sentence


def test_a_seed_page_off_the_allow_list_is_refused() -> None:
    findings = without_requests(order_at("127.0.0.1:8000", allow=("127.0.0.1:8000/docs/",)), None)
    with pytest.raises(RunError, match=r"the crawl is refused: scope: .* is not on the allow-list"):
        require(findings)


def test_a_kill_file_and_a_full_disk_refuse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = order_at("127.0.0.1:8000")
    require(without_requests(order, tmp_path))
    (tmp_path / "requests.log").write_text("a\na\n")
    assert "98 of 100 requests are left" in str(without_requests(order, tmp_path))
    (tmp_path / "STOP").touch()
    with pytest.raises(RunError, match="STOP is there, which stops every crawl here: remove it"):
        require(without_requests(order, tmp_path))
    monkeypatch.setattr(health, "LEAST_FREE_BYTES", 10**18)
    with pytest.raises(RunError, match="free some space"):
        require(without_requests(order, tmp_path / "not" / "there"))


def test_a_recording_is_looked_at_without_the_network(tmp_path: Path) -> None:
    made = site()
    archive = record(made, tmp_path / "a.sqlite")
    good = CrawlOrder(made.seed_url, {"regex": "x"}, archive=str(archive))
    findings = asyncio.run(examine(good, None))
    assert all(found.ok for found in findings)
    assert "--topic" in next(found.sentence for found in findings if found.name == "relevance")
    bad = CrawlOrder("http://elsewhere.lab/", RULE, archive=str(archive))
    assert [found.name for found in asyncio.run(examine(bad, None)) if not found.ok] == [
        "seed page"
    ]
