"""The messages between an environment's process and its parent, and the memory that both see.

Messages are a kind and a payload on a socket; observations, actions and rewards lie in shared
memory, one slot per part of a space. Spaces whose values have no fixed size (text, graphs,
sequences) go through the socket instead. This file knows neither processes nor event loops.
"""

import struct
from mmap import mmap
from socket import socket
from typing import NamedTuple

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

from flatout.slow_envs.gymnasium_types import EnvInfo, SpaceValue

HEADER = struct.Struct("<cQ")  # kind, length of what follows
RESET, STEP, APPLY, CLOSE = b"r", b"s", b"a", b"c"  # to the process
HELLO, RESULT, FAILURE, LAST_WORDS = b"h", b"o", b"f", b"l"  # from it
ALIGNMENT = 64  # bytes: every part begins at a cache line
VERDICT = ALIGNMENT  # bytes for reward, terminated and truncated
# an array, or a dict or tuple of views, as the space is built
Views = NDArray[np.generic] | dict[str, "Views"] | tuple["Views", ...]


class Hello(NamedTuple):
    """What a process says of its environment before anything else."""

    observation_space: Space[SpaceValue]
    action_space: Space[SpaceValue]
    metadata: EnvInfo
    render_mode: str | None


class EnvFailure(NamedTuple):
    """An exception of the environment, as it travels to the parent."""

    error: bytes  # pickled; empty if it cannot be
    message: str  # its kind and its text
    traceback: str


class Slots(NamedTuple):
    """The shared memory by its meaning; None = such values go through the socket."""

    reward: NDArray[np.float64]  # ()
    ended: NDArray[np.bool_]  # (2,) terminated, truncated
    observation: Views | None
    action: Views | None


def has_fixed_size(space: Space[object]) -> bool:
    """Whether values of this space always have the same size."""
    if isinstance(space, spaces.Dict):
        return all(has_fixed_size(one) for one in space.spaces.values())
    if isinstance(space, spaces.Tuple):
        return all(has_fixed_size(one) for one in space.spaces)
    return isinstance(
        space, spaces.Box | spaces.Discrete | spaces.MultiBinary | spaces.MultiDiscrete
    )


def bytes_of(space: Space[object]) -> int:
    """Bytes that a value of this space needs, in whole cache lines."""
    if not has_fixed_size(space):
        return 0
    if isinstance(space, spaces.Dict):
        return sum(bytes_of(one) for one in space.spaces.values())
    if isinstance(space, spaces.Tuple):
        return sum(bytes_of(one) for one in space.spaces)
    size = np.dtype(space.dtype).itemsize * int(np.prod(space.shape or ()))
    return -(-size // ALIGNMENT) * ALIGNMENT


def bytes_of_slots(observation_space: Space[object], action_space: Space[object]) -> int:
    """Bytes that the slots of these spaces need together."""
    return VERDICT + bytes_of(observation_space) + bytes_of(action_space)


def map_slots(memory: mmap, observation_space: Space[object], action_space: Space[object]) -> Slots:
    """Arrays over this memory for reward, ends, observation and action."""
    first, second = VERDICT, VERDICT + bytes_of(observation_space)
    return Slots(
        reward=np.frombuffer(memory, np.float64, 1).reshape(()),
        ended=np.frombuffer(memory, np.bool_, 2, offset=8),
        observation=view_values(observation_space, memory, first)
        if has_fixed_size(observation_space)
        else None,
        action=view_values(action_space, memory, second) if has_fixed_size(action_space) else None,
    )


def view_values(space: Space[object], memory: mmap, start: int) -> Views:
    """Arrays over the memory from this byte on, built as the space is."""
    if isinstance(space, spaces.Dict):
        found: dict[str, Views] = {}
        for name, one in space.spaces.items():
            found[name] = view_values(one, memory, start)
            start += bytes_of(one)
        return found
    if isinstance(space, spaces.Tuple):
        parts = []
        for one in space.spaces:
            parts.append(view_values(one, memory, start))
            start += bytes_of(one)
        return tuple(parts)
    shape = space.shape or ()
    return np.frombuffer(memory, space.dtype, int(np.prod(shape)), offset=start).reshape(shape)


def write_value(into: Views, value: SpaceValue) -> None:
    """Put a value into its slots; one of another shape is an error, not a broadcast."""
    if isinstance(into, dict):
        for name, part in into.items():
            write_value(part, value[name])
    elif isinstance(into, tuple):
        for part, one in zip(into, value, strict=True):
            write_value(part, one)
    else:
        given = np.asarray(value)
        if given.shape != into.shape:
            raise ValueError(
                f"a value of shape {given.shape} was given where the space has {into.shape}"
            )
        np.copyto(into, given)


def read_value(slots: Views) -> SpaceValue:
    """A copy of the value in these slots."""
    if isinstance(slots, dict):
        return {name: read_value(part) for name, part in slots.items()}
    if isinstance(slots, tuple):
        return tuple(read_value(part) for part in slots)
    return slots.copy()[()]  # [()] makes a number of an array without axes


def send(connection: socket, kind: bytes, payload: bytes = b"") -> None:
    """Send one message and wait until it is away."""
    connection.sendall(HEADER.pack(kind, len(payload)) + payload)


def receive(connection: socket) -> tuple[bytes, bytes]:
    """Wait for one message: kind and payload; EOFError if the other side is gone."""
    kind, length = HEADER.unpack(receive_exactly(connection, HEADER.size))
    return kind, receive_exactly(connection, length)


def receive_exactly(connection: socket, count: int) -> bytes:
    """Wait for that many bytes; EOFError if the other side is gone."""
    parts = []
    while count:
        part = connection.recv(min(count, 1 << 20))
        if not part:
            raise EOFError("the other side of the socket is gone")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)
