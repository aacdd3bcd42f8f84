"""The crawler's door to the world: a URL goes in, an answer comes out. A failure is an answer too,
never an exception: whoever crawls must learn to live with it.
"""

from typing import NamedTuple, Protocol

Failure = str  # one of FAILURES, or "" for none
FAILURES = (
    "scope",  # not on the allow-list, or redirected off it
    "robots",  # robots.txt forbids it, or could not be had
    "address",  # the name resolves to an address that must not be dialled
    "budget",  # no requests left, or the kill file is there
    "timeout",
    "connection",
    "size",  # too large, also after decompression
    "type",  # not a page
    "redirects",  # too many
    "down",  # the host fails so often that it is left alone for a while
)


class Answer(NamedTuple):
    """What a request led to, redirects included."""

    url: str  # where it ended, after redirects
    status: int  # of HTTP; 0 where there was no answer
    body: bytes = b""
    content_type: str = ""  # without parameters, lower case: "text/html"
    seconds: float = 0.0  # how long it took, waiting for the rate limit included
    # how many were sent for it; 0 if it came from an archive or was refused before
    requests: int = 1
    failure: Failure = ""

    @property
    def is_page(self) -> bool:
        """Whether there is something to read."""
        return not self.failure and self.status == 200 and bool(self.body)


class Fetcher(Protocol):
    """Where pages come from: memory, an archive, or the network."""

    async def fetch(self, url: str) -> Answer:
        """The answer for this URL; never raises for what the other side does."""
        ...

    async def close(self) -> None:
        """Give back connections and files."""
        ...
