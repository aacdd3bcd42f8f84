"""The memory of a crawl that may be killed: every answer is noted, and retraced when the crawl is
begun again.

Retraced answers are those of the first time to the last digit, failures and seconds too, so a
chooser comes to the same state and goes on as if nothing had happened. Nothing is asked for twice.
Bodies are in the archive, not here.
"""

import json
import os
from collections import deque
from dataclasses import asdict, dataclass
from itertools import accumulate
from pathlib import Path
from typing import Annotated, Any, Generic, Self, TypeVar

from pydantic import AfterValidator, Field

from flatout.errors import RunError
from flatout.foreign import parse_json, read_file
from flatout_crawl.choosers.session import TECHNICAL
from flatout_crawl.net.fetching import Answer, Fetcher
from flatout_crawl.net.ledger import LONGEST_LINE, append, hold_file, printable
from flatout_crawl.net.scope import canonical
from flatout_crawl.runs.archive import Archive, Count, Seconds

VISITS = "visits.jsonl"
VISITS_BYTES = 256 << 20  # of a file of JSON lines
ELSEWHERE = "begin in another folder"
R = TypeVar("R")


def check_url(url: str) -> str:
    """A URL that can be asked for."""
    if canonical(url) is None:
        raise ValueError("it is no URL that can be crawled")
    return url


Url = Annotated[str, AfterValidator(check_url)]
HttpStatus = Annotated[int, Field(ge=0, le=999)]


@dataclass(frozen=True)
class VisitRow:
    """What is noted of an answer."""

    asked: Url
    url: Url
    status: HttpStatus
    content_type: str
    seconds: Seconds
    requests: Count
    failure: Annotated[str, Field(max_length=100)]
    has_body: bool


class JsonLines(Generic[R]):
    """A file of JSON lines of one shape that only grows, held by one process; half a line that a
    kill left is cut off.
    """

    def __init__(self, path: Path, shape: type[R]) -> None:
        self.handle, self.path, self.shape = hold_file(path), path, shape
        try:
            content = read_file(path, VISITS_BYTES, cure=ELSEWHERE)
            lines = content[: content.rfind(b"\n") + 1].splitlines(keepends=True)
            self.rows = [self.read(line, number) for number, line in enumerate(lines, 1)]
        except BaseException:
            self.close()
            raise
        self.ends = list(accumulate(map(len, lines)))  # of the rows in the file
        self.cut(len(self.rows))

    def read(self, line: bytes, number: int) -> R:
        """Check and parse one line of the file."""
        where = f"{self.path}: line {number}"
        if len(line) > LONGEST_LINE:
            raise RunError(
                f"{where} has {len(line):,} bytes, and at most {LONGEST_LINE:,} are "
                f"read; {ELSEWHERE}"
            )
        return parse_json(line, self.shape, where, cure=ELSEWHERE)

    def add(self, row: R, sync: bool = False) -> None:
        """Add a row by one write; `sync` also waits until the disk has it."""
        line = (json.dumps(asdict(row), allow_nan=False) + "\n").encode()  # type: ignore[call-overload]
        append(self.handle, self.path, line)
        if sync:
            os.fsync(self.handle)
        self.rows.append(row)
        self.ends.append((self.ends[-1] if self.ends else 0) + len(line))

    def cut(self, count: int) -> None:
        """Forget all rows after the first `count`."""
        del self.rows[count:], self.ends[count:]
        os.ftruncate(self.handle, self.ends[-1] if self.ends else 0)

    def close(self) -> None:
        """Let go of the file; twice does no harm."""
        handle, self.handle = self.handle, -1
        if handle >= 0:
            os.close(handle)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Retracing:
    """A fetcher that answers from its notes as long as they last, then asks another one and notes
    what came.
    """

    def __init__(self, inner: Fetcher, archive: Archive, lines: JsonLines[VisitRow]) -> None:
        self.inner, self.archive, self.lines = inner, archive, lines
        self.past = deque(lines.rows)
        self.retraced = False  # whether the last answer was of an earlier start

    @property
    def next_url(self) -> str | None:
        """What was asked for next the first time; None where the notes end."""
        return self.past[0].asked if self.past else None

    async def fetch(self, url: str) -> Answer:
        """The answer of the first time, or a new one."""
        if self.past:
            answer = self.read_note(url, self.past.popleft())
            if answer is not None:
                self.retraced = True
                return answer
        self.retraced = False
        # What the archive holds was paid for, by this crawl just before it was killed or by another
        # one.
        answer = self.archive.get(url) or await self.inner.fetch(url)
        # an error's text is not kept for long
        answer = answer if answer.is_page else answer._replace(body=b"")
        # those say nothing about the page: asked again the next time
        if answer.failure not in TECHNICAL:
            self.lines.add(row_of(url, answer))
        return answer

    def read_note(self, url: str, row: VisitRow) -> Answer | None:
        """A noted answer with its body; None, and the notes end here, if the archive lost it in a
        power cut.
        """
        if row.asked != url:
            raise RunError(
                f"{self.lines.path}: begins with {printable(row.asked)}, not with "
                f"{url}; {ELSEWHERE}"
            )
        body = b""
        if row.has_body:
            kept = self.archive.get(url)
            if kept is None or not kept.is_page:
                self.lines.cut(len(self.lines.rows) - len(self.past) - 1)
                self.past.clear()
                return None
            body = kept.body
        return Answer(
            url=row.url,
            status=row.status,
            body=body,
            content_type=row.content_type,
            seconds=row.seconds,
            requests=row.requests,
            failure=row.failure,
        )

    async def close(self) -> None:
        """Close the other fetcher; archive and notes stay open."""
        await self.inner.close()


def row_of(asked: str, answer: Answer) -> VisitRow:
    """An answer as it is noted."""
    facts: dict[str, Any] = answer._asdict()
    del facts["body"]
    return VisitRow(asked, **facts, has_body=bool(answer.body))
