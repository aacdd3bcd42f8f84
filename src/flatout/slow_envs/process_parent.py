"""The process of a plain environment as its parent sees it: started, asked, awaited, and ended.

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
    EnvFailure,
    Hello,
    Slots,
    map_slots,
    receive,
)
from flatout.slow_envs.shared_memory import open_anonymous_file

CLOSE_S = 5.0  # a process that needs longer to close its environment is killed


class WorkerDied(FlatoutError):  # noqa: N818 (it says what happened)
    """The process of an environment ended on its own; the message says how."""


class EnvFailedError(FlatoutError):
    """The environment raised something that cannot be sent from its process; the message says
    what.
    """


class EnvProcess:
    """A process that holds one environment: started at once, and asked for steps."""

    def __init__(self, packed: bytes) -> None:
        self.connection, theirs = socketpair()
        self.memory = write_anonymous_file(packed)
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

    def wait_for_hello(self) -> Hello:
        """What the environment is; waits for the process to have made it, if need be."""
        if self.hello is None:
            try:
                self.connection.setblocking(True)
                kind, payload = receive(self.connection)
            except (OSError, EOFError) as error:
                raise self.new_death() from error
            self.read_hello(kind, payload)
        assert self.hello is not None
        return self.hello

    async def await_hello(self) -> None:
        """Wait for the process to have made its environment, without blocking the event loop."""
        if self.hello is None:
            self.read_hello(*await self.exchange())

    def read_hello(self, kind: bytes, payload: bytes) -> None:
        """Take the first message of a process, which says what its environment is."""
        content = self.read_answer(kind, payload)
        if kind != HELLO:
            raise AssertionError(f"a process began with {kind!r}")
        hello: Hello = pickle.loads(content)
        self.slots = map_slots(mmap(self.memory, 0), hello.observation_space, hello.action_space)
        self.hello = hello

    async def ask(self, kind: bytes, payload: bytes = b"") -> bytes:
        """Send a request and await its answer. If that is cancelled, the process is killed."""
        return self.read_answer(*await self.exchange(HEADER.pack(kind, len(payload)) + payload))

    async def exchange(self, message: bytes = b"") -> tuple[bytes, bytes]:
        """Send a message and await the next one of the process: its kind and payload."""
        loop = asyncio.get_running_loop()
        self.connection.setblocking(False)
        try:
            await loop.sock_sendall(self.connection, message)
            kind, length = HEADER.unpack(await self.receive_exactly(loop, HEADER.size))
            return kind, await self.receive_exactly(loop, length) if length else b""
        except (OSError, EOFError) as error:
            raise self.new_death() from error
        except BaseException:  # cancelled: nobody knows what the process is doing
            self.kill()
            raise

    async def receive_exactly(self, loop: asyncio.AbstractEventLoop, count: int) -> bytes:
        """Await that many bytes; EOFError if the process is gone."""
        parts = []
        while count:
            part = await loop.sock_recv(self.connection, min(count, 1 << 20))
            if not part:
                raise EOFError("the process is gone")
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def read_answer(self, kind: bytes, payload: bytes) -> bytes:
        """The payload of an answer; failures are raised."""
        if kind == FAILURE:
            if self.hello is None:  # it could not make its environment, and has ended
                self.kill()
            raise original_error(pickle.loads(payload))
        if kind == LAST_WORDS:
            raise self.new_death(payload.decode())
        return payload

    def new_death(self, words: str = "") -> WorkerDied:
        """An exception that says how the process ended; kills it if it has not."""
        try:
            code = self.process.wait(CLOSE_S)
            how = describe_exit(code)
        except subprocess.TimeoutExpired:
            how = "closed its socket without ending, and was killed"
        self.kill()
        died = WorkerDied(
            f"the process of an environment (pid {self.process.pid}) {how}; what it printed is in "
            "this program's output; reset() starts another one"
        )
        if words:
            died.add_note(f"Its last words:\n{words}")
        return died

    @property
    def is_alive(self) -> bool:
        """Whether it can be asked; it may have died without our having noticed."""
        return self.connection.fileno() >= 0

    def kill(self) -> None:
        """Kill the process, if it is there, and let go of what joins us to it."""
        if not self.is_alive:
            return
        self.process.kill()
        self.process.wait()
        self.connection.close()
        self.slots = None
        os.close(self.memory)

    async def close(self) -> None:
        """Have it close its environment and end; kill it if that takes too long."""
        try:
            async with asyncio.timeout(CLOSE_S) as limit:
                await self.ask(CLOSE)
                # the end of the socket is that of the process, however it shows
                with suppress(OSError):
                    await asyncio.get_running_loop().sock_recv(self.connection, 1)
        except WorkerDied:
            return  # it had gone before
        except TimeoutError:
            if not limit.expired():  # the environment's own
                raise
        finally:
            self.kill()


def original_error(failure: EnvFailure) -> Exception:
    """The exception that the environment raised, with the traceback of its process as a note."""
    error: Exception = EnvFailedError(f"the environment raised {failure.message}")
    if failure.error:
        error = pickle.loads(failure.error)
    error.add_note(f"In the environment's process:\n{failure.traceback}")
    return error


def describe_exit(code: int) -> str:
    """How a process ended, as the end of a sentence."""
    if code >= 0:
        return f"ended with exit code {code}"
    return f"was ended by signal {-code} ({signal.Signals(-code).name})"


def write_anonymous_file(content: bytes) -> int:
    """A file without a name that holds this; it is gone with its last user, however the processes
    end.
    """
    number = open_anonymous_file()
    with open(number, "wb", closefd=False) as file:
        file.write(content)
    os.lseek(number, 0, os.SEEK_SET)
    return number
