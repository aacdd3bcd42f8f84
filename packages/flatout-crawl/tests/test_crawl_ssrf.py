"""Nothing but public addresses and the named doors of the laboratory is ever dialled."""

import asyncio
import socket
from pathlib import Path

import aiohttp
import pytest
from aiohttp.abc import AbstractResolver, ResolveResult
from lab_server_of_crawl import fetching, lab_server, reply

from flatout_crawl.net.addresses import ForbiddenAddressError, Guard, Lab
from flatout_crawl.net.connecting import SENDER, GuardedConnector

CONTACT = "probe/1.0 (+https://example.org/probe)"


class Scripted(AbstractResolver):
    """Answers what it was given, the last for ever, and counts."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers, self.lookups = list(answers), 0

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        self.lookups += 1
        found = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return [
            ResolveResult(hostname=host, host=ip, port=port, family=family, proto=0, flags=0)
            for ip in found
        ]

    async def close(self) -> None:
        return


class Quiet:
    """A sender that only notes where it got to."""

    def __init__(self) -> None:
        self.reached = ""

    def attempt(self) -> None:
        return

    def note_connection(self, host: str, port: int) -> None:
        self.reached = f"{host}:{port}"


def test_loopback_is_refused_unless_it_is_the_laboratory(tmp_path: Path) -> None:
    async def main() -> None:
        async with lab_server() as inside, lab_server() as lab:
            lab.pages["/"] = inside.pages["/"] = reply(b"page")
            scope = [lab.door, inside.door, "*.example.org"]
            async with fetching(tmp_path, lab, scope=scope, user_agent=CONTACT) as fetcher:
                assert (await fetcher.fetch(lab.url())).is_page
                answer = await fetcher.fetch(inside.url())
                assert (answer.failure, answer.status) == ("address", 0)
            assert inside.connections == 0

    asyncio.run(main())


@pytest.mark.parametrize(
    "host",
    ["[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]"],
)
def test_ipv6_disguises_of_loopback_are_refused(tmp_path: Path, host: str) -> None:
    async def main() -> None:
        async with lab_server() as inside:
            entry = f"{host}:{inside.port}"
            async with fetching(tmp_path, scope=[entry], user_agent=CONTACT) as fetcher:
                assert (await fetcher.fetch(f"http://{entry}/")).failure == "address"
            assert inside.connections == 0

    asyncio.run(main())


@pytest.mark.parametrize(
    "host",
    ["127.1", "2130706433", "0x7f.1", "0177.0.0.1", "0x7f000001", "127.0.0.01", "localhost."],
)
def test_other_spellings_of_loopback_are_refused(tmp_path: Path, host: str) -> None:
    async def main() -> None:
        async with lab_server() as lab:
            async with fetching(tmp_path, lab) as fetcher:
                answer = await fetcher.fetch(f"http://{host}:{lab.port}/")
                assert answer.failure == "scope" and answer.requests == 0
            assert lab.connections == 0

    asyncio.run(main())


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_to_another_port_are_refused(tmp_path: Path, status: int) -> None:
    async def main() -> None:
        async with lab_server() as inside, lab_server() as lab:
            lab.pages["/"] = reply(status=status, Location=inside.url("/secret"))
            async with fetching(tmp_path, lab) as fetcher:  # off the allow-list
                answer = await fetcher.fetch(lab.url())
                assert (answer.failure, answer.url, answer.requests) == (
                    "scope",
                    inside.url("/secret"),
                    1,
                )
            scope = [lab.door, inside.door]
            async with fetching(
                tmp_path, lab, scope=scope, user_agent=CONTACT
            ) as fetcher:  # on it, but inside
                answer = await fetcher.fetch(lab.url())
                assert (answer.failure, answer.url) == ("address", inside.url("/secret"))
            assert inside.connections == 0

    asyncio.run(main())


@pytest.mark.parametrize(
    "location",
    ["http://169.254.169.254/latest/meta-data/", "file:///etc/passwd", "gopher://127.0.0.1/", "http://127.1/",
     "//[::1]/", "http://user:word@127.0.0.1/", "http://\x80\xff/", "http://[/", "javascript:x"],
)  # fmt: skip
def test_redirects_to_anywhere_else_are_dead_ends(tmp_path: Path, location: str) -> None:
    async def main() -> None:
        async with lab_server() as lab:
            lab.pages["/"] = reply(status=302, Location=location)
            async with fetching(tmp_path, lab) as fetcher:
                answer = await fetcher.fetch(lab.url())
                assert (answer.failure, answer.status, answer.requests) == ("scope", 302, 1)

    asyncio.run(main())


def test_robots_txt_passes_the_same_gates(tmp_path: Path) -> None:
    async def main() -> None:
        async with lab_server() as inside, lab_server() as lab:
            lab.pages["/robots.txt"] = reply(status=302, Location=inside.url("/robots.txt"))
            lab.pages["/"] = reply(b"page")
            async with fetching(tmp_path, lab) as fetcher:
                assert (await fetcher.fetch(lab.url())).failure == "robots"
            assert inside.connections == 0 and lab.asked == ["GET /robots.txt"]

    asyncio.run(main())


def test_names_that_lead_inside_are_refused_even_into_the_laboratory(tmp_path: Path) -> None:
    async def main() -> None:
        async with lab_server() as lab:
            scope = [f"site.example:{lab.port}"]
            for ips in (
                ["127.0.0.1"],
                ["93.184.216.34", "127.0.0.1"],
                ["::1"],
                ["169.254.169.254"],
                ["100.64.0.1"],
            ):
                resolver = Scripted(ips)
                async with fetching(
                    tmp_path, lab, scope=scope, user_agent=CONTACT, resolver=resolver
                ) as fetcher:
                    assert (
                        await fetcher.fetch(f"http://site.example:{lab.port}/")
                    ).failure == "address"
                assert resolver.lookups == 1
            assert lab.connections == 0

    asyncio.run(main())


def test_a_resolver_that_changes_its_mind_gains_nothing(tmp_path: Path) -> None:
    """What is dialled is checked when it is dialled: here nobody filters the resolver's second
    answer.
    """

    async def main() -> None:
        async with lab_server() as inside:
            guard = Guard(Lab())
            connector = GuardedConnector(guard)
            connector._resolver = Scripted(
                ["127.0.0.1"]
            )  # as if its answer had changed after the check
            quiet = Quiet()
            SENDER.set(quiet)
            async with aiohttp.ClientSession(connector=connector) as session:
                with pytest.raises(ForbiddenAddressError):
                    await session.get(f"http://site.example:{inside.port}/")
            assert inside.connections == 0 and quiet.reached == ""

    asyncio.run(main())


def test_a_connection_kept_alive_is_checked_again() -> None:
    async def main() -> None:
        async with lab_server() as lab:
            lab.pages["/"] = reply(b"page")
            connector = GuardedConnector(Guard(Lab.parse([lab.door])))
            quiet = Quiet()
            SENDER.set(quiet)
            async with aiohttp.ClientSession(connector=connector) as session:
                await (await session.get(lab.url())).read()
                assert quiet.reached == lab.door
                connector.guard = Guard(Lab())
                with pytest.raises(ForbiddenAddressError):
                    await session.get(lab.url())
            assert lab.connections == 1 and lab.asked == ["GET /"]

    asyncio.run(main())


@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"])
def test_proxies_are_ignored(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with lab_server() as proxy, lab_server() as lab:
            monkeypatch.setenv(name, proxy.url())
            lab.pages["/"] = reply(b"page")
            async with fetching(tmp_path, lab) as fetcher:
                assert (await fetcher.fetch(lab.url())).is_page
            assert proxy.connections == 0 and lab.asked == ["GET /robots.txt", "GET /"]

    asyncio.run(main())
