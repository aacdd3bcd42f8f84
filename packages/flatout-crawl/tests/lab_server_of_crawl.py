"""A server on loopback that answers with bytes as they were written down, and remembers what it was
asked.
"""

import asyncio
import gzip
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from flatout_crawl.net.addresses import Lab
from flatout_crawl.net.exchange import RequestCaps
from flatout_crawl.net.http import LiveFetcher
from flatout_crawl.net.ledger import AuditLog, RequestBudget
from flatout_crawl.net.scope import Scope

Talk = Callable[[asyncio.StreamWriter], Awaitable[None]]  # writes an answer as it likes
PATIENT = RequestCaps(
    total_seconds=600.0, connect_seconds=600.0, read_seconds=600.0
)  # none of it is meant to pass


def reply(body: bytes = b"", status: int = 200, kind: str = "text/html", **headers: str) -> bytes:
    """A whole HTTP answer."""
    lines = [f"HTTP/1.1 {status} Some", f"Content-Length: {len(body)}"]
    if kind:
        lines.append(f"Content-Type: {kind}")
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def packed(body: bytes) -> bytes:
    """A whole HTTP answer with a compressed body."""
    return reply(gzip.compress(body), Content_Encoding="gzip")


class LabServer:
    """Answers by path: bytes, or a function that writes them; 404 otherwise, also for
    robots.txt.
    """

    def __init__(self) -> None:
        self.pages: dict[str, bytes | Talk] = {}
        self.asked: list[str] = []  # "GET /path"
        self.heads: list[str] = []  # all that was sent
        self.port = 0
        self.connections = 0
        self.tasks: set[asyncio.Task[Any]] = set()

    @property
    def door(self) -> str:
        return f"127.0.0.1:{self.port}"

    def url(self, path: str = "/") -> str:
        return f"http://{self.door}{path}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                method, path, _ = head.split(" ", 2)
                self.asked.append(f"{method} {path}")
                self.heads.append(head)
                answer = self.pages.get(path, reply(status=404))
                if callable(answer):
                    await answer(writer)
                    return
                writer.write(
                    answer.split(b"\r\n\r\n")[0] + b"\r\n\r\n" if method == "HEAD" else answer
                )
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            return  # the other side left
        finally:
            self.tasks.discard(task)
            writer.close()


@asynccontextmanager
async def lab_server() -> AsyncIterator[LabServer]:
    """A running server."""
    lab = LabServer()
    server = await asyncio.start_server(lab.serve, "127.0.0.1", 0)
    lab.port = server.sockets[0].getsockname()[1]
    try:
        yield lab
    finally:
        server.close()
        for task in tuple(lab.tasks):
            task.cancel()
        await asyncio.gather(*lab.tasks, return_exceptions=True)


@asynccontextmanager
async def fetching(run: Path, *servers: LabServer, **changes: Any) -> AsyncIterator[LiveFetcher]:
    """A fetcher that may ask these servers; `scope`, `total` and whatever else `LiveFetcher` takes
    can be given.
    """
    doors = [server.door for server in servers]
    scope = Scope.parse(changes.pop("scope", doors))
    with (
        RequestBudget(run, changes.pop("total", 100), changes.pop("per_host", None)) as budget,
        AuditLog(run) as audit,
    ):
        settings = {"lab": Lab.parse(doors), "caps": PATIENT, **changes}
        fetcher = LiveFetcher(scope, budget=budget, audit=audit, **settings)
        try:
            yield fetcher
        finally:
            await fetcher.close()
