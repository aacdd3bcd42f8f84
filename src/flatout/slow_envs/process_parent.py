"""The process of a plain environment as its parent sees it: started, asked, listened to, and ended.

Observations, actions and rewards lie in memory that both see; a socket tells when they are ready.
What goes on in the process: `process_worker.py`.
"""

import asyncio
import os
import pickle
import signal
import subprocess
import threading
from contextlib import suppress
from mmap import mmap
from socket import socketpair

from flatout.children import own_program
from flatout.errors import FlatoutError
from flatout.slow_envs.process_wire import (
    CLOSE,
    FAILURE,
    HEADER,
    HELLO,
    LAST_WORDS,
    Failure,
    Hello,
    Slots,
    receive,
    slots_in,
)
from flatout.slow_envs.shared_memory import anonymous_file

CLOSE_S = 5.0  # a process that needs longer to close its environment is killed


class WorkerDied(FlatoutError):  # noqa: N818 (it says what happened)
    """The process of an environment ended on its own; the message says how."""


class EnvFailedError(FlatoutError):
    """The environment raised something that cannot be sent from its process; the message says
    what.
    """


class Worker:
    """The process as its parent sees it."""

    def __init__(self, packed: bytes) -> None:
        self.door, theirs = socketpair()
        self.memory = filled_file(packed)
        starter = "main" if threading.current_thread() is threading.main_thread() else "thread"
        words = [str(theirs.fileno()), str(self.memory), str(os.getpid()), starter]
        with theirs:
            self.process = subprocess.Popen(
                own_program("flatout.slow_envs.process_worker", *words),
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), self.memory),
                # One environment needs one core: several processes with all threads each would
                # fight for them.
                env={"OMP_NUM_THREADS": "1", **os.environ},
            )
        self.hello: Hello | None = None
        self.slots: Slots | None = None

    def meet(self) -> Hello:
        """What the environment is; waits for the process to have made it, if need be."""
        if self.hello is None:
            try:
                self.door.setblocking(True)
                told = receive(self.door)
            except (OSError, EOFError) as error:
                raise self.death() from error
            self.greet(*told)
        assert self.hello is not None
        return self.hello

    async def meet_soon(self) -> None:
        """The same without blocking the event loop."""
        if self.hello is None:
            self.greet(*await self.heard())

    def greet(self, kind: bytes, payload: bytes) -> None:
        """Take in the hello of a process that has made its environment."""
        told = self.understood(kind, payload)
        if kind != HELLO:
            raise AssertionError(f"a process began with {kind!r}")
        hello: Hello = pickle.loads(told)
        self.slots = slots_in(mmap(self.memory, 0), hello.observation_space, hello.action_space)
        self.hello = hello

    async def ask(self, kind: bytes, payload: bytes = b"") -> bytes:
        """Send a request and await its answer. If that is cancelled, the process is killed."""
        return self.understood(*await self.heard(HEADER.pack(kind, len(payload)) + payload))

    async def heard(self, message: bytes = b"") -> tuple[bytes, bytes]:
        """Send this and await a message."""
        loop = asyncio.get_running_loop()
        self.door.setblocking(False)
        try:
            await loop.sock_sendall(self.door, message)
            kind, length = HEADER.unpack(await self.exactly(loop, HEADER.size))
            return kind, await self.exactly(loop, length) if length else b""
        except (OSError, EOFError) as error:
            raise self.death() from error
        except BaseException:  # cancelled: nobody knows what the process is doing
            self.end()
            raise

    async def exactly(self, loop: asyncio.AbstractEventLoop, count: int) -> bytes:
        """That many bytes."""
        parts = []
        while count:
            part = await loop.sock_recv(self.door, min(count, 1 << 20))
            if not part:
                raise EOFError("the process is gone")
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def understood(self, kind: bytes, payload: bytes) -> bytes:
        """The payload of an answer; failures are raised."""
        if kind == FAILURE:
            if self.hello is None:  # it could not make its environment, and has ended
                self.end()
            raise original(pickle.loads(payload))
        if kind == LAST_WORDS:
            raise self.death(payload.decode())
        return payload

    def death(self, words: str = "") -> WorkerDied:
        """How the process ended, as an exception."""
        try:
            code = self.process.wait(CLOSE_S)
            how = cause(code)
        except subprocess.TimeoutExpired:
            how = "closed its socket without ending, and was killed"
        self.end()
        died = WorkerDied(
            f"the process of an environment (pid {self.process.pid}) {how}; what it printed is in "
            f"this program's "
            "output; reset() starts another one"
        )
        if words:
            died.add_note(f"Its last words:\n{words}")
        return died

    @property
    def lives(self) -> bool:
        """Whether it can be asked; it may have died without our having noticed."""
        return self.door.fileno() >= 0

    def end(self) -> None:
        """Kill the process, if it is there, and let go of what joins us to it."""
        if not self.lives:
            return
        self.process.kill()
        self.process.wait()
        self.door.close()
        self.slots = None
        os.close(self.memory)

    async def retire(self) -> None:
        """Have it close its environment and end; kill it if that takes too long."""
        try:
            async with asyncio.timeout(CLOSE_S) as limit:
                await self.ask(CLOSE)
                with suppress(
                    OSError
                ):  # the end of the socket is that of the process, however it is told
                    await asyncio.get_running_loop().sock_recv(self.door, 1)
        except WorkerDied:
            return  # it had gone before
        except TimeoutError:
            if not limit.expired():  # the environment's own
                raise
        finally:
            self.end()


def original(failure: Failure) -> Exception:
    """The exception that the environment raised, with the traceback of its process as a note."""
    error: Exception = EnvFailedError(f"the environment raised {failure.said}")
    if failure.error:
        error = pickle.loads(failure.error)
    error.add_note(f"In the environment's process:\n{failure.text}")
    return error


def cause(code: int) -> str:
    """How a process ended."""
    if code >= 0:
        return f"ended with exit code {code}"
    return f"was ended by signal {-code} ({signal.Signals(-code).name})"


def filled_file(content: bytes) -> int:
    """A file without a name that holds this; it is gone with its last user, however the processes
    end.
    """
    number = anonymous_file()
    with open(number, "wb", closefd=False) as file:
        file.write(content)
    os.lseek(number, 0, os.SEEK_SET)
    return number
