"""Which rows of which bars a scaler was fitted on: as given, and as a recipe remembers them."""

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict

from flatout.errors import RecipeError
from flatout.features.scalers import Rows
from flatout.foreign import shorten_repr

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII)


@dataclass(frozen=True)
class TrainingRows:
    """Which rows of which bars the scaler was fitted on."""

    count: int
    first: int  # row numbers in the panel
    last: int
    first_time: str  # bar-open times, UTC
    last_time: str
    panel_fingerprint: str

    __pydantic_config__ = ConfigDict(extra="forbid")

    def __post_init__(self) -> None:
        if not 0 <= self.first < self.last or not 2 <= self.count <= self.last - self.first + 1:
            raise RecipeError(
                f"{self.count} training rows from {self.first} to {self.last} cannot be"
            )
        if (
            not is_time(self.first_time)
            or not is_time(self.last_time)
            or self.first_time >= self.last_time
        ):
            raise RecipeError(
                "training rows have times such as 2024-01-31T23:00:00Z, the first before the "
                f"last, got {shorten_repr(self.first_time)} and {shorten_repr(self.last_time)}"
            )


def is_time(text: str) -> bool:
    """Whether it is a moment as a recipe writes it."""
    try:
        return bool(TIME.fullmatch(text)) and not np.isnat(np.datetime64(text[:-1]))
    except ValueError:
        return False


def row_numbers(rows: Rows, n_bars: int) -> NDArray[np.int64]:
    """Sorted row numbers from a mask over all rows or from row numbers."""
    given = np.asarray(rows)
    if given.ndim != 1 or not given.size:
        raise RecipeError(
            f"training rows must be a non-empty list of rows, got shape {given.shape}"
        )
    if given.dtype == np.bool_:
        if len(given) != n_bars:
            raise RecipeError(
                f"the mask of training rows has {len(given)} entries, the panel {n_bars} bars"
            )
        given = np.flatnonzero(given)
    elif not np.issubdtype(given.dtype, np.integer):
        raise RecipeError(f"training rows must be a mask or row numbers, got {given.dtype}")
    numbers = np.unique(given).astype(np.int64)
    if len(numbers) < 2 or numbers[0] < 0 or numbers[-1] >= n_bars:
        raise RecipeError(f"training rows must be at least 2 of 0 to {n_bars - 1}, got {numbers}")
    return numbers
