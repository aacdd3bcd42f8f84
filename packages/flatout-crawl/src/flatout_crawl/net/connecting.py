"""Connections for the crawler: each attempt to send a request is reported before it is made, and
each connection, new or kept alive, is checked for the address at its other end.

aiohttp sends a request a second time on its own if the first connection breaks; here that shows.
"""

from contextvars import ContextVar
from typing import Any, Protocol

import aiohttp
from aiohttp.abc import AbstractResolver

from flatout_crawl.net.addresses import Guard, GuardedResolver


class Sender(Protocol):
    """Who sends a request and wants to know about every attempt."""

    def attempt(self) -> None:
        """A request is about to be sent; raise to forbid it."""
        ...

    def note_connection(self, host: str, port: int) -> None:
        """This address is at the other end."""
        ...


SENDER: ContextVar[Sender] = ContextVar("sender")  # set by whoever calls aiohttp, in the same task


class GuardedConnector(aiohttp.TCPConnector):
    """aiohttp's connections under guard. How many there are at a host is up to politeness."""

    def __init__(self, guard: Guard, resolver: AbstractResolver | None = None) -> None:
        super().__init__(
            limit=0,
            resolver=GuardedResolver(resolver),
            socket_factory=guard.open_socket,
            happy_eyeballs_delay=None,  # one address after the other: a forbidden one ends it
            use_dns_cache=False,  # the system has one, and what is dialled is checked anyway
        )
        self.guard = guard

    async def connect(self, req: Any, traces: Any, timeout: Any) -> Any:
        """A connection for one attempt."""
        sender = SENDER.get()
        sender.attempt()
        connection = await super().connect(req, traces, timeout)
        try:
            peer = connection.transport.get_extra_info("peername") if connection.transport else None
            if peer is None:
                raise aiohttp.ServerDisconnectedError
            host, port = str(peer[0]), int(peer[1])
            self.guard.check(host, port)
            sender.note_connection(host, port)
        except BaseException:
            connection.close()
            raise
        return connection
