"""What an environment's process and its parent say to each other, and the memory that both see.

Messages are a kind and a payload on a socket; observations, actions and rewards lie in shared
memory, one slot per part of a space. Spaces whose values have no fixed size (text, graphs,
sequences) go through the socket instead. This file knows neither processes nor event loops.
"""

import struct
from mmap import mmap
from socket import socket
from typing import Any, NamedTuple

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

HEADER = struct.Struct("<cQ")  # kind, length of what follows
RESET, STEP, APPLY, CLOSE = b"r", b"s", b"a", b"c"  # to the process
HELLO, RESULT, FAILURE, LAST_WORDS = b"h", b"o", b"f", b"l"  # from it
ALIGNMENT = 64  # bytes: every part begins at a cache line
VERDICT = ALIGNMENT  # bytes for reward, terminated and truncated
Views = Any  # an array, or a dict or tuple of views, as the space is built


class Hello(NamedTuple):
    """What a process says of its environment before anything else."""

    observation_space: Space[Any]
    action_space: Space[Any]
    metadata: dict[str, Any]
    render_mode: str | None


class Failure(NamedTuple):
    """An exception of the environment."""

    error: bytes  # pickled; empty if it cannot be
    said: str  # its kind and message
    text: str  # the traceback


class Slots(NamedTuple):
    """The shared memory by its meaning; None = such values go through the socket."""

    reward: NDArray[np.float64]  # ()
    ended: NDArray[np.bool_]  # (2,) terminated, truncated
    observation: Views | None
    action: Views | None


def fits(space: Space[Any]) -> bool:
    """Whether values of this space always have the same size."""
    if isinstance(space, spaces.Dict):
        return all(fits(one) for one in space.spaces.values())
    if isinstance(space, spaces.Tuple):
        return all(fits(one) for one in space.spaces)
    return isinstance(
        space, spaces.Box | spaces.Discrete | spaces.MultiBinary | spaces.MultiDiscrete
    )


def room(space: Space[Any]) -> int:
    """Bytes that a value needs."""
    if not fits(space):
        return 0
    if isinstance(space, spaces.Dict):
        return sum(room(one) for one in space.spaces.values())
    if isinstance(space, spaces.Tuple):
        return sum(room(one) for one in space.spaces)
    size = np.dtype(space.dtype).itemsize * int(np.prod(space.shape or ()))
    return -(-size // ALIGNMENT) * ALIGNMENT


def whole_room(observation_space: Space[Any], action_space: Space[Any]) -> int:
    """Bytes that all slots need."""
    return VERDICT + room(observation_space) + room(action_space)


def slots_in(memory: mmap, observation_space: Space[Any], action_space: Space[Any]) -> Slots:
    """The slots in this memory."""
    seen, done_by = VERDICT, VERDICT + room(observation_space)
    return Slots(
        np.frombuffer(memory, np.float64, 1).reshape(()),
        np.frombuffer(memory, np.bool_, 2, offset=8),
        views(observation_space, memory, seen) if fits(observation_space) else None,
        views(action_space, memory, done_by) if fits(action_space) else None,
    )


def views(space: Space[Any], memory: mmap, start: int) -> Views:
    """Arrays over the memory from this byte on, built as the space is."""
    if isinstance(space, spaces.Dict):
        found = {}
        for name, one in space.spaces.items():
            found[name] = views(one, memory, start)
            start += room(one)
        return found
    if isinstance(space, spaces.Tuple):
        parts = []
        for one in space.spaces:
            parts.append(views(one, memory, start))
            start += room(one)
        return tuple(parts)
    shape = space.shape or ()
    return np.frombuffer(memory, space.dtype, int(np.prod(shape)), offset=start).reshape(shape)


def write(into: Views, value: Any) -> None:
    """Put a value into its slots; one of another shape is an error, not a broadcast."""
    if isinstance(into, dict):
        for name, part in into.items():
            write(part, value[name])
    elif isinstance(into, tuple):
        for part, one in zip(into, value, strict=True):
            write(part, one)
    else:
        given = np.asarray(value)
        if given.shape != into.shape:
            raise ValueError(
                f"a value of shape {given.shape} was given where the space has {into.shape}"
            )
        np.copyto(into, given)


def read(slots: Views) -> Any:
    """A copy of the value in these slots."""
    if isinstance(slots, dict):
        return {name: read(part) for name, part in slots.items()}
    if isinstance(slots, tuple):
        return tuple(read(part) for part in slots)
    return slots.copy()[()]  # [()] makes a number of an array without axes


def send(door: socket, kind: bytes, payload: bytes = b"") -> None:
    """Send one message and wait until it is away."""
    door.sendall(HEADER.pack(kind, len(payload)) + payload)


def receive(door: socket) -> tuple[bytes, bytes]:
    """Wait for one message: kind and payload; EOFError if the other side is gone."""
    kind, length = HEADER.unpack(exactly(door, HEADER.size))
    return kind, exactly(door, length)


def exactly(door: socket, count: int) -> bytes:
    """That many bytes."""
    parts = []
    while count:
        part = door.recv(min(count, 1 << 20))
        if not part:
            raise EOFError("the other side of the socket is gone")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)
