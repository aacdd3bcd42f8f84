"""Small messages to another process, sent without ever waiting.

Two sides that both wait for the other to read would wait for ever; so one of them, the event
loop's, never does: what finds no room in the connection is kept, and sent when there is room again.
"""

import asyncio
import select
from collections import deque
from multiprocessing.connection import Connection


class Outbox:
    """The sending side of a connection in an event loop."""

    def __init__(self, connection: Connection, loop: asyncio.AbstractEventLoop) -> None:
        self.connection, self.loop = connection, loop
        self.unsent: deque[object] = deque()
        self.waiting = False  # for room
        self.room = select.poll()
        self.room.register(connection.fileno(), select.POLLOUT)

    def send(self, message: object) -> None:
        """Send soon, in order; that the other side is gone shows when its messages end."""
        self.unsent.append(message)
        if not self.waiting:
            self.flush()

    def flush(self) -> None:
        """Send what there is room for. A connection is said to have room while most of it is free:
        for all of a small message.
        """
        try:
            while self.unsent and self.room.poll(0):
                self.connection.send(self.unsent.popleft())
        except (BrokenPipeError, ConnectionResetError):
            self.unsent.clear()
        self.watch_room(bool(self.unsent))

    def watch_room(self, needed: bool) -> None:
        """Let the loop say when there is room, or no longer."""
        if needed != self.waiting:
            self.waiting = needed
            if needed:
                self.loop.add_writer(self.connection.fileno(), self.flush)
            else:
                self.loop.remove_writer(self.connection.fileno())

    def close(self) -> None:
        """Send nothing more; before the connection is closed."""
        self.unsent.clear()
        self.watch_room(False)
