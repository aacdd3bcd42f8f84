"""Pages kept on disk, so that each is fetched once ever: recorded live, learned from as often as
one likes.

One SQLite file. Writes are transactions: a process killed in the middle of one leaves the file as
it was before. It may come from others: it must have exactly the tables that are made here, and
every row is checked when it is read.
"""

import asyncio
import contextlib
import sqlite3
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Self

import numpy as np
from pydantic import Field

from flatout.errors import RunError
from flatout.foreign import shorten_repr, validate_shape
from flatout_crawl.net.fetching import Answer, Fetcher
from flatout_crawl.net.ledger import printable
from flatout_crawl.net.scope import canonical, origin_of
from flatout_crawl.runs.sqlite_files import check_neighbours, tables, tables_of

VERSION = 1
APPLICATION = 0x666C6174  # "flat", so that another program's database is not taken for an archive
MOST_BYTES = 64 << 20  # of one body; more is damage or malice
MOST_REQUESTS = 1_000  # for one page, its redirects included
ANEW = "record it anew"
BROKEN = (sqlite3.Error, UnicodeDecodeError)  # the second where SQLite quotes what it cannot read
# May be otherwise the next time, so not kept. The rest is a property of the page: too large, no
# page, redirected away.
PASSING = ("timeout", "connection", "down", "budget", "address", "robots")

SCHEMA = """
CREATE TABLE pages (
  url TEXT PRIMARY KEY, status INTEGER NOT NULL, content_type TEXT NOT NULL, failure TEXT NOT NULL,
  size INTEGER NOT NULL, body BLOB NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE asked (
  url TEXT PRIMARY KEY, page TEXT NOT NULL REFERENCES pages (url), host TEXT NOT NULL,
  seconds REAL NOT NULL, requests INTEGER NOT NULL, recorded_at REAL NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX asked_host ON asked (host, recorded_at);
"""
GET = """
SELECT page, status, body, content_type, seconds, requests, failure, size
FROM asked JOIN pages ON pages.url = asked.page WHERE asked.url = ?
"""

OWN_TABLES = tables_of(SCHEMA)

Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0, le=MOST_REQUESTS)]
Latency = Callable[[np.random.Generator], float]  # seconds to wait for an answer


class SiteFacts(NamedTuple):
    """What is recorded of one host."""

    host: str  # with its port, unless that is the usual one
    pages: int
    first_at: float  # Unix time
    last_at: float


class ArchiveRow(NamedTuple):
    """What is stored of an answer."""

    page: str
    status: Annotated[int, Field(ge=0, le=999)]
    body: bytes  # compressed
    content_type: Annotated[str, Field(max_length=1_000)]
    seconds: Seconds
    requests: Count
    failure: Annotated[str, Field(max_length=100)]
    size: Annotated[int, Field(ge=0, le=MOST_BYTES)]


class Archive:
    """Recorded answers by the URL that was asked for. May be used by several threads, and read by
    other processes.
    """

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self.path, self.lock = Path(path), threading.Lock()
        if read_only and not self.path.is_file():
            raise RunError(f"{path}: there is no archive; record one first")
        check_neighbours(self.path)
        try:
            self.base = sqlite3.connect(
                self.path, isolation_level=None, check_same_thread=False, timeout=30.0
            )
            with contextlib.ExitStack() as stack:
                stack.callback(self.base.close)
                self.prepare(read_only)
                stack.pop_all()  # it stays open unless it was refused
        except BROKEN as error:
            raise RunError(
                f"{path}: cannot be used as an archive: {error}; give another file"
            ) from error

    def prepare(self, read_only: bool) -> None:
        """Make the tables in a new file; refuse any other than an archive of this version."""
        self.base.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 2 * MOST_BYTES)
        self.base.execute("PRAGMA trusted_schema = 0")
        version, application = self.pragma("user_version"), self.pragma("application_id")
        if (version, application) == (0, 0) and not read_only:
            self.create()
        elif (version, application) != (VERSION, APPLICATION):
            raise RunError(
                f"{self.path}: not an archive of version {VERSION} (version {version}, application "
                f"{application:#x}); record it anew into another file"
            )
        elif tables(self.base) != OWN_TABLES:  # a view in the place of a table may compute for ever
            raise RunError(
                f"{self.path}: its tables are not those of an archive; {ANEW} into another file"
            )
        self.base.execute(
            "PRAGMA synchronous = NORMAL"
        )  # with WAL: a power cut may cost the last pages, never the file
        if read_only:
            self.base.execute("PRAGMA query_only = 1")

    def create(self) -> None:
        """The tables, in one transaction; several processes may try."""
        self.base.execute("PRAGMA journal_mode = WAL")
        with self.base:
            self.base.execute("BEGIN IMMEDIATE")
            if self.pragma("user_version") == VERSION:
                return  # another one was first
            if self.base.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]:
                raise RunError(
                    f"{self.path}: another program's database; give another file for the archive"
                )
            for statement in SCHEMA.split(";"):
                self.base.execute(statement)
            self.base.execute(f"PRAGMA user_version = {VERSION}")
            self.base.execute(f"PRAGMA application_id = {APPLICATION}")

    def pragma(self, name: str) -> int:
        """A number in the file's header."""
        return int(self.base.execute(f"PRAGMA {name}").fetchone()[0])

    def put(self, answer: Answer, asked_url: str) -> None:
        """Keep an answer under the URL that was asked for and, after redirects, under where it
        ended.
        """
        asked_url = canonical(asked_url) or asked_url
        now, body = time.time(), zlib.compress(answer.body, 6)
        page = (
            answer.url,
            answer.status,
            answer.content_type,
            answer.failure,
            len(answer.body),
            body,
        )
        rows = [
            (
                asked_url,
                answer.url,
                host_of(asked_url),
                answer.seconds,
                max(1, answer.requests),
                now,
            )
        ]
        if asked_url != answer.url and not answer.failure:
            rows.append((answer.url, answer.url, host_of(answer.url), answer.seconds, 1, now))
        with self.explain_errors(), self.lock, self.base:
            self.base.execute("BEGIN IMMEDIATE")
            self.base.execute("INSERT OR REPLACE INTO pages VALUES (?, ?, ?, ?, ?, ?)", page)
            self.base.execute("INSERT OR REPLACE INTO asked VALUES (?, ?, ?, ?, ?, ?)", rows[0])
            if rows[1:]:  # its own record, if it has one, says better what it costs
                self.base.execute("INSERT OR IGNORE INTO asked VALUES (?, ?, ?, ?, ?, ?)", rows[1])

    def get(self, url: str) -> Answer | None:
        """The answer recorded for this URL, or None. `requests` is what it took when it was
        recorded.
        """
        known = canonical(url) or url
        for found in self.read(GET, known):
            named = dict(zip(ArchiveRow._fields, found, strict=True))
            row = validate_shape(
                named, ArchiveRow, f"{self.path}: the page {printable(known)}", cure=ANEW
            )
            if canonical(row.page) is None:
                raise RunError(
                    f"{self.path}: damaged: {shorten_repr(row.page)} is no page's URL; {ANEW}"
                )
            body = self.unpack_body(row.body, row.size)
            return Answer(
                url=row.page,
                status=row.status,
                body=body,
                content_type=row.content_type,
                seconds=row.seconds,
                requests=row.requests,
                failure=row.failure,
            )
        return None

    def read(self, query: str, *values: str) -> list[Any]:
        """All rows that a query gives."""
        with self.explain_errors(), self.lock:
            return self.base.execute(query, values).fetchall()

    @contextlib.contextmanager
    def explain_errors(self) -> Iterator[None]:
        """Turn SQLite's errors about a damaged file or a full disk into a sentence."""
        try:
            yield
        except BROKEN as error:
            raise RunError(
                f"{self.path}: damaged, or the disk is full: {error}; free some space, or {ANEW}"
            ) from None

    def unpack_body(self, body: bytes, size: int) -> bytes:
        """A stored body; archives may come from others, so it may not be larger than it says."""
        stream = zlib.decompressobj()
        try:
            whole = stream.decompress(body, size + 1)  # never 0, which would mean: without a limit
        except zlib.error as error:
            raise RunError(f"{self.path}: damaged: {error}; {ANEW}") from None
        if len(whole) != size or not stream.eof:
            raise RunError(f"{self.path}: damaged: a page is not {size} bytes long; {ANEW}")
        return whole

    def urls(self) -> tuple[str, ...]:
        """All URLs that were asked for, in order of their names."""
        rows = self.read("SELECT url FROM asked ORDER BY url")
        return tuple(
            row[0] for row in validate_shape(rows, list[tuple[str]], str(self.path), cure=ANEW)
        )

    @property
    def count(self) -> int:
        """How many URLs have an answer."""
        return int(self.read("SELECT count(*) FROM asked")[0][0])

    def sites(self) -> tuple[SiteFacts, ...]:
        """What is recorded of each host."""
        query = (
            "SELECT host, count(*), min(recorded_at), max(recorded_at) FROM asked GROUP BY "
            "host ORDER BY host"
        )
        return tuple(validate_shape(self.read(query), list[SiteFacts], str(self.path), cure=ANEW))

    def close(self) -> None:
        """Close the database file."""
        with self.lock:
            self.base.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def host_of(url: str) -> str:
    """The host of a URL as it is written in it."""
    origin = origin_of(url)
    return origin.host if origin.port in (80, 443) else f"{origin.host}:{origin.port}"


class ArchiveFetcher:
    """A recorded site as if it were there. What is not recorded is not found, and counts like any
    request.
    """

    def __init__(self, archive: Archive, latency: Latency | None = None, seed: int = 0) -> None:
        self.archive, self.latency = archive, latency
        self.rng = np.random.default_rng(seed)

    async def fetch(self, url: str) -> Answer:
        """The recorded answer, after a wait drawn from the latency."""
        begun = asyncio.get_running_loop().time()
        if self.latency is not None:
            await asyncio.sleep(self.latency(self.rng))
        answer = self.archive.get(url) or Answer(canonical(url) or url, 404, requests=1)
        return answer._replace(seconds=asyncio.get_running_loop().time() - begun)

    async def close(self) -> None:
        """The archive stays open: others may read it."""


class RecordingFetcher:
    """Another fetcher, each page asked for once ever: what is in the archive comes from there, with
    0 requests.
    """

    def __init__(self, inner: Fetcher, archive: Archive) -> None:
        self.inner, self.archive = inner, archive
        self.locks: dict[str, asyncio.Lock] = {}
        self.users: Counter[str] = Counter()  # of the locks

    async def fetch(self, url: str) -> Answer:
        """From the archive, or else from the other fetcher into it."""
        known = canonical(url) or url
        lock = self.locks.setdefault(known, asyncio.Lock())
        self.users[known] += 1
        try:
            async with lock:  # whoever wants the same page waits for it
                return await self.once(known)
        finally:
            self.users[known] -= 1
            if not self.users[known]:
                del self.users[known], self.locks[known]

    async def once(self, url: str) -> Answer:
        """Ask the archive, then the other fetcher."""
        answer = self.archive.get(url)
        if answer is not None:
            return answer._replace(requests=0, seconds=0.0)
        answer = await self.inner.fetch(url)
        if is_lasting(answer):
            self.archive.put(answer, url)
        return answer

    async def close(self) -> None:
        """Close the other fetcher; the archive stays open."""
        await self.inner.close()


def is_lasting(answer: Answer) -> bool:
    """Whether the same answer is to be expected the next time."""
    return (
        answer.requests > 0
        and answer.failure not in PASSING
        and answer.status < 500
        and answer.status != 429
    )
