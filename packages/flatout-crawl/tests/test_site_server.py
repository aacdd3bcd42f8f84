"""Sites over real sockets: the same answers, many clients, waits and faults by counts, and no
server left behind.
"""

import asyncio
import json
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from flatout.errors import RunError
from flatout_crawl.sites.latency import NO_LATENCY, Latency, constant, exponential, stragglers
from flatout_crawl.sites.site import SLOW, Site, SiteSettings, generate
from flatout_crawl.sites.site_server import Connection, Serving, listen, port_of, serve_sites
from worker_processes import lives

SETTINGS = SiteSettings(seed=7, pages=120)
SITE = generate(SETTINGS)
PATHS = [path for path in SITE.plan.plans if path not in SITE.plan.slow]


class Got(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


class Client:
    """One connection, kept alive."""

    def __init__(self, port: int) -> None:
        self.port = port

    async def __aenter__(self) -> "Client":
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()

    async def get(self, path: str, method: str = "GET", more: str = "") -> Got:
        self.send(path, method, more)
        return await self.receive(method)

    def send(self, path: str, method: str = "GET", more: str = "") -> None:
        self.writer.write(f"{method} {path} HTTP/1.1\r\nHost: x\r\n{more}\r\n".encode())

    async def receive(self, method: str = "GET") -> Got:
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
        first, *lines = head.strip().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines)
        body = (
            b""
            if method == "HEAD"
            else await self.reader.readexactly(int(headers["content-length"]))
        )
        return Got(int(first.split()[1]), headers, body)


async def started(latency: Latency = NO_LATENCY) -> tuple[asyncio.Server, Serving, int]:
    """A server in this loop."""
    serving = Serving(SITE, latency, seed=1)
    server = await listen(serving)
    return server, serving, port_of(server)


# --- the same answers -----------------------------------------------------------------------------


def test_everything_is_answered_as_the_site_does_on_one_connection() -> None:
    async def run() -> None:
        server, serving, port = await started()
        async with Client(port) as client:
            for path in (
                *PATHS,
                *SITE.plan.redirects,
                *SITE.plan.copies,
                *SITE.plan.errors,
                "/robots.txt",
                "/nowhere",
            ):
                got, (status, headers, body) = await client.get(path), SITE.answer(path)
                assert (got.status, got.body) == (status, body)
                assert got.headers == {**headers, "content-length": str(len(body))}
        assert serving.counters["connections"] == 1
        server.close()

    asyncio.run(run())


def test_64_clients_at_once_in_another_process() -> None:
    async def walk(port: int, first: int) -> int:
        async with Client(port) as client:
            for k in range(first, first + 12):
                path = PATHS[k % len(PATHS)]
                assert (await client.get(path)).body == SITE.answer(path).body
        return 12

    async def run(port: int) -> tuple[int, dict[str, int]]:
        counts = await asyncio.gather(*(walk(port, 3 * k) for k in range(64)))
        async with Client(port) as client:
            return sum(counts), json.loads((await client.get("/-/counters")).body)

    with serve_sites(SETTINGS, constant(0.002)) as server:
        asked, counters = asyncio.run(run(server.port))
        assert (server.host, server.ports, server.origin) == (
            "127.0.0.1",
            (server.port,),
            f"http://127.0.0.1:{server.port}",
        )
    assert (counters["requests"], counters["connections"], counters["errors"]) == (asked, 65, 0)
    assert not lives(server.pid)


def test_all_waiting_clients_are_held_at_once() -> None:
    async def run() -> None:
        server, serving, port = await started(constant(3_600.0))
        clients = [await Client(port).__aenter__() for _ in range(200)]
        for client in clients:
            client.send("/")
        while serving.counters["requests"] < 200:
            await asyncio.sleep(0.001)
        assert serving.counters["open"] == 200
        for client in clients:
            client.writer.close()
        while serving.counters["open"]:
            await asyncio.sleep(0.001)
        server.close()

    asyncio.run(asyncio.wait_for(run(), 600))


def test_requests_that_come_together_are_answered_in_order() -> None:
    async def run() -> None:
        server, _, port = await started(exponential(0.001))
        async with Client(port) as client:
            for path in PATHS[:20]:
                client.send(path)
            assert [(await client.receive()).body for _ in range(20)] == [
                SITE.answer(path).body for path in PATHS[:20]
            ]
        server.close()

    asyncio.run(run())


def test_heads_and_connections_that_do_not_last() -> None:
    async def run() -> None:
        server, _, port = await started()
        async with Client(port) as client:
            got = await client.get("/", "HEAD")
            assert got.headers["content-length"] == str(len(SITE.answer("/").body))
            assert (await client.get("/", more="Connection: close\r\n")).status == 200
            assert await client.reader.read() == b""
        server.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"POST / HTTP/1.1\r\n\r\n", 405),
        (b"nonsense\r\n\r\n", 400),
        (b"\xff\xfe / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nx: " + b"y" * 40_000, 431),
    ],
)
def test_what_is_not_understood_is_refused_and_closed(sent: bytes, status: int) -> None:
    async def run() -> None:
        server, serving, port = await started()
        async with Client(port) as client:
            client.writer.write(sent)
            assert (await client.receive()).status == status
            assert await client.reader.read() == b""
        assert serving.counters["errors"] == 1
        server.close()

    asyncio.run(run())


# --- waits and faults -----------------------------------------------------------------------------


def timers_of_answers(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The waits that the running loop is asked for before answers are sent."""
    loop, waits = asyncio.get_running_loop(), []
    unwatched = loop.call_later

    def call_later(delay: float, callback: Any, *given: Any) -> asyncio.TimerHandle:
        if getattr(callback, "__func__", None) is Connection.send:
            waits.append(delay)
        return unwatched(delay, callback, *given)

    monkeypatch.setattr(loop, "call_later", call_later)
    return waits


@pytest.mark.parametrize(
    "latency", [constant(0.001), exponential(0.001), stragglers(0.0, 0.2, 0.01)]
)
def test_every_request_is_answered_after_the_wait_drawn_for_it(
    latency: Latency, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        server, serving, port = await started(latency)
        waits, same = timers_of_answers(monkeypatch), Serving(SITE, latency, seed=1)
        async with Client(port) as client:
            for path in PATHS[:40]:
                assert (await client.get(path)).status == SITE.answer(path).status
        drawn = [latency.draw(same.rng).seconds for _ in range(40)]
        assert waits == [wait for wait in drawn if wait] != []
        assert serving.counters["requests"] == 40
        server.close()

    asyncio.run(run())


def test_faults_happen_as_often_as_they_are_counted() -> None:
    latency = Latency(close_share=0.2, error_share=0.2, busy_share=0.2, retry_after=9)

    async def once(port: int) -> str:
        async with Client(port) as client:
            try:
                got = await client.get("/")
            except (asyncio.IncompleteReadError, ConnectionResetError):
                return "close"
        assert got.status != 503 or got.headers["retry-after"] == "9"
        return {200: "", 500: "error", 503: "busy"}[got.status]

    async def run() -> None:
        server, serving, port = await started(latency)
        seen = Counter([await once(port) for _ in range(200)])
        for fault in ("close", "error", "busy"):
            assert seen[fault] == serving.counters[fault] > 10
        assert seen[""] > 30
        assert serving.counters["errors"] == seen["error"] + seen["busy"]
        async with Client(port) as client:
            assert (await client.get("/robots.txt")).status == 200
        server.close()

    asyncio.run(run())


def test_a_hang_is_for_ever_and_for_one_client_only() -> None:
    async def run() -> None:
        server, serving, port = await started(Latency(hang_share=1.0))
        async with Client(port) as client, Client(port) as other:
            client.send("/")
            while not serving.counters["hang"]:
                await asyncio.sleep(0.001)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(client.reader.read(1), 0.05)
            assert (await other.get("/robots.txt")).status == 200
        server.close()

    asyncio.run(run())


def test_slow_pages_wait_longer_and_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        server, _, port = await started(constant(0.001))
        path = min(SITE.plan.slow, key=SITE.plan.slow.__getitem__)
        waits = timers_of_answers(monkeypatch)
        async with Client(port) as client:
            got = await client.get(path)
            await client.get("/")
        assert waits == [0.001 + float(got.headers[SLOW]), 0.001]
        server.close()

    asyncio.run(run())


def test_prepared_answers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flatout_crawl.sites.site_server.MOST_KEPT", 5)
    serving = Serving(SITE)
    for month in range(1, 13):
        serving.prepare_answer(f"/calendar/2030/{month:02d}/", False)
    assert len(serving.kept) <= 5


# --- processes ------------------------------------------------------------------------------------


def test_several_sites_and_a_folder_from_one_process(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("<p>from a file</p>")
    other = SiteSettings(seed=8, pages=100, hazards=False)

    async def first_page(port: int, path: str = "/") -> bytes:
        async with Client(port) as client:
            return (await client.get(path)).body

    with serve_sites([SETTINGS, other, tmp_path], Latency(busy_share=0.0)) as server:
        bodies = [asyncio.run(first_page(port)) for port in server.ports[:2]]
        assert (
            asyncio.run(first_page(server.ports[2], f"/{tmp_path.name}/")) == b"<p>from a file</p>"
        )
    assert bodies == [SITE.answer("/").body, generate(other).answer("/").body]


def test_a_served_site_is_the_site_under_another_origin() -> None:
    async def follow(site: Site, port: int) -> None:
        async with Client(port) as client:
            for url in sorted(site.targets):
                assert (await client.get(url.removeprefix(site.origin))).body == site.answer(
                    url
                ).body

    with serve_sites(SETTINGS) as server:
        asyncio.run(follow(SITE.at(server.origin), server.port))


def test_the_server_ends_with_whoever_started_it() -> None:
    program = (
        "import os, signal\n"
        "from flatout_crawl.sites.site_server import serve_sites\n"
        "from flatout_crawl.sites.site import SiteSettings\n"
        "with serve_sites(SiteSettings(seed=1, pages=100)) as server:\n"
        "    print(server.pid, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    pid = int(ended.stdout)
    deadline = time.monotonic() + 600
    while lives(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not lives(pid)


def test_a_server_that_cannot_start_says_so(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(RunError, match="ended at once"), serve_sites(tmp_path / "nowhere"):
        pass
    assert "there is no such folder" in capfd.readouterr().err


def test_the_command_line_alone() -> None:
    command = [
        sys.executable,
        "-m",
        "flatout_crawl.sites.site_server",
        "--seed",
        "7",
        "--pages",
        "120",
        "--latency",
        "constant:0.001",
    ]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin and process.stdout
        facts = json.loads(process.stdout.readline())
        assert facts["pid"] == process.pid and facts["ports"] == [facts["port"]]

        async def run() -> bytes:
            async with Client(facts["port"]) as client:
                return (await client.get("/")).body

        assert asyncio.run(run()) == SITE.answer("/").body
        process.stdin.close()
        assert process.wait(timeout=600) == 0
