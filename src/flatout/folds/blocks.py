"""Stretches of neighbouring bars, as pairs of numbers. Knows neither training nor tests."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Block(NamedTuple):
    """The bars first, first + 1, ..., stop - 1."""

    first: int
    stop: int

    @property
    def length(self) -> int:
        """How many bars it has; zero or less if it is empty."""
        return self.stop - self.first

    def __str__(self) -> str:
        return f"{self.first}..{self.stop}"


def merge(blocks: Iterable[Block]) -> tuple[Block, ...]:
    """The bars of some blocks as blocks that neither touch nor overlap, in time order."""
    merged: list[Block] = []
    for block in sorted(block for block in blocks if block.length > 0):
        if merged and block.first <= merged[-1].stop:
            merged[-1] = Block(merged[-1].first, max(merged[-1].stop, block.stop))
        else:
            merged.append(block)
    return tuple(merged)


def subtract(whole: Block, away: Iterable[Block]) -> tuple[Block, ...]:
    """The maximal runs of bars of `whole` that lie in no block of `away`."""
    left: list[Block] = []
    start = whole.first
    for block in merge(away):
        left.append(Block(start, min(block.first, whole.stop)))
        start = max(start, block.stop)
    left.append(Block(start, whole.stop))
    return tuple(block for block in left if block.length > 0)


def list_rows(blocks: Sequence[Block]) -> NDArray[np.int64]:
    """The row numbers of the bars of some blocks, block after block."""
    return np.concatenate([np.arange(block.first, block.stop) for block in blocks])
