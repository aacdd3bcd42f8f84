"""The memory of a crawl that may be killed: every answer is noted, and retraced when the crawl is begun again.

Retraced answers are those of the first time to the last digit, failures and seconds too, so a chooser comes to the same
state and goes on as if nothing had happened. Nothing is asked for twice. Bodies are in the archive, not here.
"""

import json
import os
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from flatout.crawl.archive import Archive
from flatout.crawl.fetching import Answer, Fetcher
from flatout.crawl.ledger import held, printable
from flatout.crawl.session import TECHNICAL
from flatout.errors import RunError

VISITS = "visits.jsonl"


class JsonLines:
    """A file of JSON lines that only grows, held by one process; half a line that a kill left is cut off."""

    def __init__(self, path: Path) -> None:
        self.handle, self.path = held(path), path
        try:
            self.rows = self.read()
        except ValueError as error:
            os.close(self.handle)
            raise RunError(f"{path}: damaged: {error}; begin in another folder") from None

    def read(self) -> list[dict[str, Any]]:
        """All rows that are whole."""
        content = self.path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        os.ftruncate(self.handle, len(whole))
        return [json.loads(line) for line in whole.splitlines()]

    def add(self, row: Mapping[str, Any], sync: bool = False) -> None:
        """Add a row by one write; `sync` also waits until the disk has it."""
        line = (json.dumps(row, allow_nan=False) + "\n").encode()
        if os.write(self.handle, line) != len(line):
            raise RunError(f"{self.path}: the disk is full; free some space and go on")
        if sync:
            os.fsync(self.handle)
        self.rows.append(dict(row))

    def cut(self, count: int) -> None:
        """Forget all rows after the first `count`."""
        del self.rows[count:]
        os.ftruncate(self.handle, sum(len(json.dumps(row).encode()) + 1 for row in self.rows))

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
    """A fetcher that answers from its notes as long as they last, then asks another one and notes what came."""

    def __init__(self, inner: Fetcher, archive: Archive, lines: JsonLines) -> None:
        self.inner, self.archive, self.lines = inner, archive, lines
        self.past = deque(lines.rows)
        self.retraced = False  # whether the last answer was of an earlier start

    @property
    def next_url(self) -> str | None:
        """What was asked for next the first time; None where the notes end."""
        return str(self.past[0]["asked"]) if self.past else None

    async def fetch(self, url: str) -> Answer:
        """The answer of the first time, or a new one."""
        if self.past:
            answer = self.noted(url, self.past.popleft())
            if answer is not None:
                self.retraced = True
                return answer
        self.retraced = False
        # What the archive holds was paid for, by this crawl just before it was killed or by another one.
        answer = self.archive.get(url) or await self.inner.fetch(url)
        answer = answer if answer.is_page else answer._replace(body=b"")  # an error's text is not kept for long
        if answer.failure not in TECHNICAL:  # those say nothing about the page: asked again the next time
            self.lines.add(row_of(url, answer))
        return answer

    def noted(self, url: str, row: Mapping[str, Any]) -> Answer | None:
        """A noted answer with its body; None, and the notes end here, if the archive lost it in a power cut."""
        if row["asked"] != url:
            raise RunError(
                f"{self.lines.path}: begins with {printable(str(row['asked']))}, not with {url}; give another folder"
            )
        body = b""
        if row["has_body"]:
            kept = self.archive.get(url)
            if kept is None or not kept.is_page:
                self.lines.cut(len(self.lines.rows) - len(self.past) - 1)
                self.past.clear()
                return None
            body = kept.body
        return Answer(
            row["url"], row["status"], body, row["content_type"], row["seconds"], row["requests"], row["failure"]
        )

    async def close(self) -> None:
        """Close the other fetcher; archive and notes stay open."""
        await self.inner.close()


def row_of(asked: str, answer: Answer) -> dict[str, Any]:
    """An answer as it is noted."""
    facts = answer._asdict()
    del facts["body"]
    return {"asked": asked, **facts, "has_body": bool(answer.body)}
