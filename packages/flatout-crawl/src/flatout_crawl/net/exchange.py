"""One request and what comes back, under limits. It does not know whether the request should be
made: see `http.py`.
"""

import asyncio
from dataclasses import dataclass
from typing import NamedTuple

import aiohttp
from yarl import URL

from flatout.errors import FlatoutError, SettingsError
from flatout_crawl.net.addresses import ForbiddenAddressError
from flatout_crawl.net.connecting import SENDER
from flatout_crawl.net.fetching import Failure
from flatout_crawl.net.ledger import AuditEntry, AuditLog, RequestBudget, printable
from flatout_crawl.net.robots import MOST_BYTES
from flatout_crawl.net.unpacking import ENCODINGS, TooLargeError, Unpacker, UnreadableError

REDIRECTS = (301, 302, 303, 307, 308)
PAGE_TYPES = ("text/html", "application/xhtml+xml")
PIECE_BYTES = 64 * 1024
LONGEST_TYPE = 100


@dataclass(frozen=True)
class RequestCaps:
    """What one request may cost."""

    page_bytes: int = 4 << 20  # as they come, and decompressed
    ratio: float = 100.0  # decompressed to compressed, beyond the first MiB
    redirects: int = 5
    total_seconds: float = 30.0  # of one hop, from connecting to the last byte
    connect_seconds: float = 10.0
    read_seconds: float = 15.0  # between two pieces

    def __post_init__(self) -> None:
        if (
            min(
                self.page_bytes,
                self.ratio,
                self.total_seconds,
                self.connect_seconds,
                self.read_seconds,
            )
            <= 0
        ):
            raise SettingsError(f"{self}: all of these must be above 0")
        if self.redirects < 0:
            raise SettingsError(f"{self}: redirects must be 0 or more")


class Errand(NamedTuple):
    """What a request is for, which decides what it may bring."""

    method: str  # GET or HEAD
    for_robots: bool = False

    def takes(self, content_type: str) -> bool:
        """Whether a body of this type is wanted. A robots.txt under any kind of text, or none
        named, is obeyed.
        """
        if self.for_robots:
            return not content_type or content_type.startswith("text/")
        return content_type in PAGE_TYPES


PAGE, PEEK, ROBOTS = Errand("GET"), Errand("HEAD"), Errand("GET", for_robots=True)


class HopReply(NamedTuple):
    """What one hop of a request led to."""

    status: int = 0
    body: bytes = b""
    content_type: str = ""
    location: str | None = None  # where it redirects to
    retry_after: str = ""
    failure: Failure = ""


class BudgetError(FlatoutError):
    """No request may be sent any more."""


class Exchange:
    """One hop. Every attempt is entered in the budget before it is made and in the audit log after
    it.
    """

    def __init__(
        self,
        url: str,
        errand: Errand,
        host: str,
        caps: RequestCaps,
        budget: RequestBudget,
        audit: AuditLog,
    ) -> None:
        self.url, self.errand, self.host, self.caps = url, errand, host, caps
        self.budget, self.audit = budget, audit
        self.clock = asyncio.get_running_loop().time
        self.begun = self.clock()
        self.attempts = self.recorded = 0
        self.address, self.status, self.taken = "", 0, 0

    def attempt(self) -> None:
        """Enter a request that is about to be sent."""
        if self.attempts > self.recorded:
            self.record("connection")  # it broke, and aiohttp tries again
        if why := self.budget.take(self.host):
            raise BudgetError(why)
        self.attempts += 1
        self.address, self.begun = "", self.clock()

    def note_connection(self, host: str, port: int) -> None:
        """Note the address at the other end."""
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def record(self, failure: str) -> None:
        """One line in the audit log."""
        seconds = self.clock() - self.begun
        self.audit.write(
            AuditEntry(
                method=self.errand.method,
                url=self.url,
                address=self.address,
                status=self.status,
                bytes=self.taken,
                seconds=seconds,
                failure=failure,
            )
        )
        self.recorded = self.attempts

    async def run(self, session: aiohttp.ClientSession) -> HopReply:
        """Send it and read what comes."""
        failure, token = "cancelled", SENDER.set(self)
        try:
            reply = await self.run_guarded(session)
            failure = reply.failure
            return reply
        finally:
            SENDER.reset(token)
            if self.attempts > self.recorded:
                self.record(failure)

    async def run_guarded(self, session: aiohttp.ClientSession) -> HopReply:
        """What the other side does wrong, as a failure."""
        try:
            async with asyncio.timeout(self.caps.total_seconds):
                return await self.ask(session)
        except ForbiddenAddressError:
            return HopReply(failure="address")
        except BudgetError:
            return HopReply(failure="budget")
        except TimeoutError:
            return HopReply(self.status, failure="timeout")
        except (aiohttp.ClientError, OSError):
            return HopReply(self.status, failure="connection")

    async def ask(self, session: aiohttp.ClientSession) -> HopReply:
        """Send it; the body is read only if it is wanted."""
        url = URL(self.url, encoded=True)  # to the letter what was checked
        async with session.request(self.errand.method, url, allow_redirects=False) as response:
            headers, self.status = response.headers, response.status
            kind = (
                printable(headers.get("Content-Type", "").split(";", 1)[0], LONGEST_TYPE)
                .strip()
                .lower()
            )
            reply = HopReply(
                status=self.status,
                body=b"",
                content_type=kind,
                location=None,
                retry_after=headers.get("Retry-After", ""),
            )
            if self.status in REDIRECTS and "Location" in headers:
                return reply._replace(location=headers["Location"])
            if self.errand.method == "HEAD" or not 200 <= self.status < 300:
                return reply
            encoding = headers.get("Content-Encoding", "").strip().lower()
            if not self.errand.takes(kind) or encoding not in ENCODINGS:
                return reply._replace(failure="type")
            return await self.read(response, encoding, reply)

    async def read(
        self, response: aiohttp.ClientResponse, encoding: str, reply: HopReply
    ) -> HopReply:
        """The body, within its limits. A robots.txt that is too long is cut, as its standard
        wants.
        """
        cuts = self.errand.for_robots
        most = MOST_BYTES + 1 if cuts else self.caps.page_bytes
        if not cuts and (response.content_length or 0) > most:
            return reply._replace(failure="size")
        unpacker = Unpacker(encoding, most, self.caps.ratio)
        try:
            async for piece in response.content.iter_chunked(PIECE_BYTES):
                self.taken += len(piece)
                unpacker.feed(piece)
            return reply._replace(body=unpacker.finish())
        except TooLargeError:
            return (
                reply._replace(body=bytes(unpacker.body))
                if cuts
                else reply._replace(failure="size")
            )
        except UnreadableError:
            return reply._replace(failure="type")
