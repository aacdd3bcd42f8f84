"""Arrays in memory that two processes share: no copies through pipes, and nothing left behind when
either is killed.

The memory has no name: the other process inherits its file descriptor, and the system frees it with
the last of them.
"""

import mmap
import os
import tempfile
from collections.abc import Mapping

import numpy as np
from numpy.typing import DTypeLike, NDArray

ALIGNMENT = 64
Shapes = Mapping[str, tuple[tuple[int, ...], DTypeLike]]  # shape and type by name


class SharedArrays:
    """Named arrays in one block: a new one, or that of an inherited descriptor."""

    def __init__(self, shapes: Shapes, descriptor: int | None = None) -> None:
        size = max(sum(padded_bytes(shape, kind) for shape, kind in shapes.values()), 1)
        self.descriptor = new_block(size) if descriptor is None else descriptor
        self.block = mmap.mmap(self.descriptor, size)
        self.arrays: dict[str, NDArray[np.generic]] = {}
        offset = 0
        for name, (shape, kind) in shapes.items():
            self.arrays[name] = np.ndarray(shape, kind, self.block, offset)
            offset += padded_bytes(shape, kind)

    def __getitem__(self, name: str) -> NDArray[np.generic]:
        return self.arrays[name]

    def close(self) -> None:
        """Let go of it; arrays that were handed out keep their memory as long as they live."""
        if self.descriptor >= 0:
            self.arrays.clear()
            os.close(self.descriptor)
            self.descriptor = -1


def padded_bytes(shape: tuple[int, ...], kind: DTypeLike) -> int:
    """Bytes that an array takes, whole cache lines."""
    size = int(np.prod(shape)) * np.dtype(kind).itemsize
    return -(-size // ALIGNMENT) * ALIGNMENT


def new_block(size: int) -> int:
    """The descriptor of a new block of so many bytes."""
    descriptor = open_anonymous_file()
    os.ftruncate(descriptor, size)
    return descriptor


def open_anonymous_file() -> int:
    """The descriptor of a file without a name, in memory where the system can."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("flatout")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
