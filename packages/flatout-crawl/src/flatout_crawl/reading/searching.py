"""A user's pattern searched for in a stranger's page, by a process of its own: whatever the two do
together, it ends.

Regular expressions can take exponential time, and selectors such as `div:has(p)` quadratic time on
pages made for it, in C code that nothing within a process can stop. So the system ends the process
when it has computed for two seconds, and a new one does the next search. It ends with the process
that started it, too.
"""

import atexit
import os
import re
import resource
import signal
import struct
import subprocess
import sys
import threading
from functools import lru_cache
from pathlib import Path
from typing import IO, Literal, cast

from selectolax.lexbor import LexborHTMLParser

from flatout.children import own_program
from flatout.errors import RunError

Kind = Literal["css", "regex"]
KINDS: tuple[Kind, ...] = ("css", "regex")
COMPUTED_SECONDS = 2.0  # of one search; an honest page of a megabyte takes 0.02
WAITED_SECONDS = 20.0  # the same by the clock on the wall, should the machine be busy
MOST_BYTES = 4 << 20  # searched of a page
MORE_MEMORY = 1 << 29  # bytes, beyond what the process has before it begins
HEAD = struct.Struct("<BII")  # kind, length of the pattern, length of the content
READY, FOUND, NOTHING = b"r", b"1", b"0"


class Searcher:
    """Does one search at a time, for all threads of a process."""

    def __init__(self, seconds: float = COMPUTED_SECONDS) -> None:
        self.seconds = seconds  # of computing, for one search
        self.lock = threading.Lock()
        self.process: subprocess.Popen[bytes] | None = None
        self.owner = 0  # the process that started it: a fork must not write into the same pipe
        self.given_up = 0  # searches that took too long

    def find(self, kind: Kind, pattern: str, content: bytes) -> bool | None:
        """Whether the pattern is in the content; None where the search took too long."""
        words, content = pattern.encode("utf-8", "surrogatepass"), content[:MOST_BYTES]
        with self.lock:
            process = self.running()
            try:
                sent = cast(IO[bytes], process.stdin)
                sent.write(HEAD.pack(KINDS.index(kind), len(words), len(content)) + words + content)
                sent.flush()
                answer = cast(IO[bytes], process.stdout).read(1)
            except OSError:
                answer = b""
            # interrupted: an answer to this must not be taken for one to the next
            except BaseException:
                self.end()
                raise
            if answer:
                return answer == FOUND
            self.given_up += 1
            self.end()
            return None

    def running(self) -> subprocess.Popen[bytes]:
        """The process, started if need be."""
        if self.process is None or self.owner != os.getpid():
            command = own_program("flatout_crawl.reading.searching", str(self.seconds))
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            self.owner = os.getpid()
            if cast(IO[bytes], self.process.stdout).read(len(READY)) != READY:
                self.end()
                raise RunError(
                    f"the process that searches pages cannot be started; try it: "
                    f"{' '.join(command)}"
                )
        return self.process

    def end(self) -> None:
        """End the process; the next search starts another."""
        process, self.process = self.process, None
        if process is None or self.owner != os.getpid():
            return
        process.kill()
        for pipe in (process.stdin, process.stdout):
            try:
                cast(IO[bytes], pipe).close()
            except OSError:  # what was not sent yet cannot be sent
                continue
        process.wait()


SEARCHER = Searcher()
atexit.register(SEARCHER.end)


def serve(taken: IO[bytes], given: IO[bytes], seconds: float) -> None:
    """What the process does: search until nobody asks any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches both; the other one decides
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    limit_memory()
    send_word(given, READY)
    while head := taken.read(HEAD.size):
        kind, words, length = HEAD.unpack(head)
        pattern, content = taken.read(words).decode("utf-8", "surrogatepass"), taken.read(length)
        # Their signals are left to end the process: Python's own handlers would wait for the C code
        # to return.
        signal.setitimer(signal.ITIMER_PROF, seconds)
        signal.setitimer(signal.ITIMER_REAL, WAITED_SECONDS)
        found = holds(KINDS[kind], pattern, content)
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        send_word(given, FOUND if found else NOTHING)


def limit_memory() -> None:
    """A page that needs more ends the process; where the system does not say how much it has, there
    is no limit.
    """
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except OSError:
        return
    limit = pages * resource.getpagesize() + MORE_MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def send_word(given: IO[bytes], word: bytes) -> None:
    """Send one word to the other process at once."""
    given.write(word)
    given.flush()


def holds(kind: Kind, pattern: str, content: bytes) -> bool:
    """Whether the pattern is in the content."""
    if kind == "css":
        return LexborHTMLParser(content).css_first(pattern) is not None
    return compile_pattern(pattern).search(content.decode("utf-8", "replace")) is not None


@lru_cache(maxsize=16)
def compile_pattern(pattern: str) -> re.Pattern[str]:
    """A regular expression as it is searched for."""
    return re.compile(pattern, re.IGNORECASE)


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer, float(sys.argv[1]))
