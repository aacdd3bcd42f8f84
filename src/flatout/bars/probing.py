"""Table files are tried out in another process before this one reads them; see `table_probe.py`.

One process tries all files of a folder. What was tried is known by its digest and not tried again.
"""

import contextlib
import hashlib
import json
import os
import select
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from flatout.bars.refusal import refusal
from flatout.children import own_program
from flatout.foreign import shorten

START_SECONDS = 120.0
SECONDS = 6.0  # for a small file
BYTES_PER_SECOND = 2e6  # more time for a large one; ten times as many are usual
CHECK = "Check that it is complete and of the kind its extension says."
tried: set[bytes] = set()


class Probe:
    """Refuses table files that cannot be read; its process is started for the first one that is
    new.
    """

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None

    def check(self, path: Path, content: bytes) -> None:
        """Refuse a file whose reader would fail, never end, or fill the memory."""
        suffix = path.suffix.lower()
        digest = hashlib.sha256(suffix.encode() + content).digest()
        if digest in tried:
            return
        if self.process is None:
            self.start(path)
        fault = self.ask(content, suffix)
        if fault is not None:
            raise refusal(path, f"the file cannot be read: {shorten(fault)}", CHECK)
        tried.add(digest)

    def start(self, path: Path) -> None:
        """Start the process and wait until it is ready."""
        try:
            self.process = subprocess.Popen(
                own_program("flatout.bars.table_probe"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                env={
                    **os.environ,
                    "POLARS_MAX_THREADS": "2",
                },  # the stacks of a hundred threads are not the file's
            )
        except OSError as error:
            reason = f"no process can be started to read it: {error.strerror}"
            raise refusal(path, reason, "End other programs, or try again later.") from None
        if self.answer(START_SECONDS) != "ready":
            raise refusal(
                path, "the process that reads it does not start", "Install flatout again."
            )

    def ask(self, content: bytes, suffix: str) -> str | None:
        """What is wrong with the file, or None."""
        assert self.process is not None and self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended: there will be no answer
            self.process.stdin.write(
                json.dumps({"bytes": len(content), "suffix": suffix}).encode() + b"\n"
            )
            rest = memoryview(content)
            while rest:
                rest = rest[self.process.stdin.write(rest) or 0 :]
        return self.answer(SECONDS + len(content) / BYTES_PER_SECOND)

    def answer(self, seconds: float) -> str | None:
        """What the process says next; if it says nothing, why, and it is no longer asked."""
        assert self.process is not None and self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], seconds)[0]:
            self.close()
            return f"it takes longer than {seconds:.0f} s"
        line = self.process.stdout.readline()
        if not line:
            self.close()
            return "it is damaged, or takes too much memory"
        return json.loads(line)

    def close(self) -> None:
        """End the process, if there is one."""
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process = None


current: ContextVar[Probe | None] = ContextVar("current", default=None)


@contextmanager
def probing() -> Iterator[Probe]:
    """One probe for all that is read within the block, however deep."""
    outer = current.get()
    if outer is not None:
        yield outer
        return
    probe = Probe()
    token = current.set(probe)
    try:
        yield probe
    finally:
        current.reset(token)
        probe.close()
