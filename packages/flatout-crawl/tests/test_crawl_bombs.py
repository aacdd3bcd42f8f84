"""Servers that mean harm get an Answer with a failure, in bounded time and memory."""

import asyncio
import gzip
import zlib
from dataclasses import replace
from pathlib import Path

import pytest
from lab_server_of_crawl import PATIENT, Talk, fetching, lab_server, packed, reply
from simulated_clock_of_crawl import run_skipping, skip

from flatout_crawl.net.exchange import RequestCaps
from flatout_crawl.net.fetching import Answer

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n"


SLOW = RequestCaps(total_seconds=3600.0, connect_seconds=3600.0, read_seconds=600.0)
PAUSE = 100.0  # far below what may lie between two pieces


class Dawdling:
    """Writes these pieces, then keeps whoever asked waiting until they leave: in silence, or with a
    piece now and then, which ends long after everybody should have left.
    """

    def __init__(self, *pieces: bytes, endless: bytes = b"") -> None:
        self.pieces, self.endless, self.left = pieces, endless, False

    async def __call__(self, writer: asyncio.StreamWriter) -> None:
        writer.write(b"".join(self.pieces))
        await writer.drain()
        await asyncio.sleep(0.02)  # whoever asked gets to read
        waited = 0.0
        while not self.left:
            if waited < 2 * SLOW.total_seconds:
                writer.write(self.endless)
                await writer.drain()
            await asyncio.sleep(0.001)
            skip(PAUSE)
            waited += PAUSE


def answer_to(tmp_path: Path, page: bytes | Talk, caps: RequestCaps = PATIENT) -> Answer:
    """What a fetcher makes of this page."""

    async def main() -> Answer:
        async with lab_server() as lab:
            lab.pages["/"] = page
            lab.pages["/fine"] = reply(b"page")
            async with fetching(tmp_path, lab, caps=caps) as fetcher:
                answer = await fetcher.fetch(lab.url())
                if isinstance(page, Dawdling):
                    page.left = True  # the clock skips no more
                assert (await fetcher.fetch(lab.url("/fine"))).is_page  # it did not catch anything
                return answer

    return run_skipping(main())


def writing(*pieces: bytes, endless: bytes = b"") -> Talk:
    """Write these pieces, then perhaps one more for ever."""

    async def talk(writer: asyncio.StreamWriter) -> None:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        while endless:
            writer.write(endless)
            await writer.drain()
            await asyncio.sleep(0)

    return talk


def chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


SMALL = replace(PATIENT, page_bytes=200_000)


def test_bodies_up_to_the_limit_are_read(tmp_path: Path) -> None:
    assert len(answer_to(tmp_path, reply(b"x" * 200_000), SMALL).body) == 200_000
    assert len(answer_to(tmp_path, packed(b"x" * 200_000), SMALL).body) == 200_000


@pytest.mark.parametrize(
    "page",
    [
        reply(b"x" * 200_001),
        HEAD + b"Content-Length: 99999999999\r\n\r\nx",
        packed(bytes(200_001)),
        reply(zlib.compress(bytes(50_000_000)), Content_Encoding="deflate"),
        writing(HEAD + b"\r\n", endless=b"x" * 65536),
        writing(HEAD + b"Transfer-Encoding: chunked\r\n\r\n", endless=chunk(b"x" * 65536)),
        writing(
            HEAD + b"Content-Encoding: gzip\r\n\r\n" + gzip.compress(b"x"),
            endless=gzip.compress(b"") * 1000,
        ),
    ],
    ids=["long", "announced", "gzip", "deflate", "endless", "endless-chunks", "endless-members"],
)
def test_too_much_is_refused(tmp_path: Path, page: bytes | Talk) -> None:
    answer = answer_to(tmp_path, page, SMALL)
    assert (answer.failure, answer.body) == ("size", b"")


def test_a_bomb_within_a_bomb_stays_packed(tmp_path: Path) -> None:
    inner = gzip.compress(bytes(10_000_000))
    assert answer_to(tmp_path, packed(inner), SMALL).body == inner


def test_a_megabyte_from_a_kilobyte_is_no_page(tmp_path: Path) -> None:
    # below the size limit, above the ratio
    assert answer_to(tmp_path, packed(bytes(3 << 20))).failure == "size"


@pytest.mark.parametrize(
    "page",
    [
        Dawdling(),
        Dawdling(b"HTTP/1.1 200"),
        Dawdling(HEAD + b"Content-Length: 10\r\n\r\nabc"),
    ],
    ids=["nothing", "half-line", "half-body"],
)
def test_silent_servers_are_left_before_the_time_for_all_is_up(tmp_path: Path, page: Talk) -> None:
    answer = answer_to(tmp_path, page, SLOW)
    assert (answer.failure, answer.body) == ("timeout", b"")
    assert SLOW.read_seconds <= answer.seconds < SLOW.total_seconds


@pytest.mark.parametrize(
    "page",
    [
        Dawdling(b"HTTP/1.1 200 OK\r\n", endless=b"X-a: b\r\n"),
        Dawdling(HEAD + b"Content-Length: 100000\r\n\r\n", endless=b"x"),
        Dawdling(HEAD + b"Transfer-Encoding: chunked\r\n\r\n", endless=chunk(b"x")),
        Dawdling(endless=b"HTTP/1.1 100 Continue\r\n\r\n"),
    ],
    ids=["headers", "body", "chunks", "continue"],
)
def test_slow_servers_are_left(tmp_path: Path, page: Talk) -> None:
    """A piece now and then does not make the time for all of them longer."""
    answer = answer_to(tmp_path, page, SLOW)
    assert (answer.failure, answer.body) == ("timeout", b"")
    assert SLOW.total_seconds <= answer.seconds < 2 * SLOW.total_seconds


@pytest.mark.parametrize(
    "page",
    [
        writing(b"HTTP/1.1 200 OK\r\nX-long: " + b"x" * 100_000 + b"\r\n\r\n"),
        writing(b"HTTP/1.1 200 OK\r\n", endless=b"X-a: b\r\n" * 100),
        writing(b"HTTP/1.1 200 " + b"x" * 100_000 + b"\r\n\r\n"),
        writing(b"SSH-2.0-OpenSSH_9.2\r\n"),
        writing(bytes(range(256)) * 10),
        writing(b"HTTP/1.1 999999 Odd\r\n\r\n"),
        writing(),
        writing(HEAD + b"Content-Length: 10\r\n\r\nabc"),
        writing(HEAD + b"Content-Length: -1\r\n\r\nabc"),
        writing(HEAD + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nabc"),
        writing(HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nabc"),
        writing(HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nab"),
    ],
    ids=[
        "long-header",
        "many-headers",
        "long-reason",
        "ssh",
        "noise",
        "status",
        "closed",
        "short-body",
        "negative-length",
        "two-lengths",
        "no-chunk",
        "half-chunk",
    ],
)
def test_what_is_not_http_is_a_broken_connection(tmp_path: Path, page: Talk) -> None:
    answer = answer_to(tmp_path, page)
    assert (answer.failure, answer.body) == ("connection", b"")


def test_a_body_longer_than_it_says_is_cut_and_the_rest_is_nobodys(tmp_path: Path) -> None:
    answer = answer_to(
        tmp_path,
        HEAD + b"Content-Length: 4\r\n\r\npageHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx",
    )
    assert answer.body == b"page"


@pytest.mark.parametrize(
    "page",
    [
        reply(b"%PDF", kind="application/pdf"),
        reply(b"x", kind="text/plain"),
        reply(b"x", kind="image/svg+xml"),
        reply(b"x", kind=""),
        reply(b"x", kind="\x80\xff"),
        reply(gzip.compress(b"page"), Content_Encoding="br"),
        reply(gzip.compress(b"page"), Content_Encoding="zstd"),
        reply(gzip.compress(b"page"), Content_Encoding="gzip, gzip"),
        reply(b"not gzip at all", Content_Encoding="gzip"),
        reply(gzip.compress(b"page")[:-9], Content_Encoding="gzip"),
    ],
)
def test_what_is_not_a_page_is_refused(tmp_path: Path, page: bytes) -> None:
    answer = answer_to(tmp_path, page)
    assert (answer.failure, answer.status, answer.body) == ("type", 200, b"")
    assert answer.content_type.isprintable() and answer.content_type.encode() is not None


def test_redirects_end(tmp_path: Path) -> None:
    async def main() -> None:
        async with lab_server() as lab:
            lab.pages |= {f"/{k}": reply(status=302, Location=f"/{k + 1}") for k in range(20)}
            lab.pages |= {"/20": reply(b"page"), "/loop": reply(status=301, Location="/pool")}
            lab.pages |= {
                "/pool": reply(status=301, Location="/loop"),
                "/self": reply(status=308, Location="#x"),
            }
            lab.pages |= {"/mute": reply(status=302)}
            async with fetching(tmp_path, lab) as fetcher:
                five = await fetcher.fetch(lab.url("/15"))
                assert (five.url, five.requests, five.is_page) == (lab.url("/20"), 6, True)
                six = await fetcher.fetch(lab.url("/14"))
                assert (six.failure, six.requests, six.status) == ("redirects", 6, 302)
                for path, requests in (("/loop", 2), ("/self", 1)):
                    answer = await fetcher.fetch(lab.url(path))
                    assert (answer.failure, answer.requests) == ("redirects", requests)
                mute = await fetcher.fetch(lab.url("/mute"))
                assert (mute.failure, mute.status, mute.is_page) == ("", 302, False)

    asyncio.run(main())
