"""Which symbols are one market under two names: a file that was renamed, a suffix, another venue.

The registry of trials knows no prices, but the moves of each symbol from midnight to midnight, in
whole basis points. They are the same for bars of any size, from any file, however rounded.
"""

import base64
import binascii
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from flatout.bars.panel import FloatArray, Panel

LEAST_DAYS = 10  # that two symbols must share, or nothing is known
ALIKE = 0.999  # correlation from which on they are one; coins that move together have 0.9
NONE = np.iinfo(np.int16).min  # of a day without prices at both of its ends
Moves = NDArray[np.int16]
Whole = Annotated[int, Field(ge=-(10**7), le=10**7)]


@dataclass(frozen=True)
class DailyMoves:
    """What the price of a symbol did on each day, in basis points."""

    first: Whole  # day, counted from 1970-01-01
    moves: Annotated[str, Field(max_length=10**6)]  # 16-bit numbers, base64

    def decode(self) -> Moves:
        """(day,) basis points; `NONE` where there were no prices. Nothing if it is damaged."""
        try:
            data = base64.b64decode(self.moves, validate=True)
        except (binascii.Error, ValueError):
            data = b""
        return np.frombuffer(data[: len(data) // 2 * 2], "<i2").astype(np.int16)


def list_daily_moves(panel: Panel, stop: int) -> dict[str, DailyMoves]:
    """The moves of each symbol on the whole days of the bars before bar `stop`."""
    ends = panel.time[:stop].astype("datetime64[s]").astype(np.int64) + panel.bar_seconds
    days = ends // 86_400  # a bar that ends at midnight is the last of the day before it
    midnights = np.arange(days[0] + 1, days[-1] + 1)
    if len(midnights) < 2:
        return {}
    last = np.searchsorted(ends, midnights * 86_400, side="right") - 1
    return {
        symbol: DailyMoves(int(midnights[0]), encode(panel.close[last, k]))
        for k, symbol in enumerate(panel.symbols)
    }


def encode(closes: FloatArray) -> str:
    """The moves between closes, as text."""
    with np.errstate(invalid="ignore", divide="ignore"):
        moves = np.diff(np.log(closes)) * 1e4
    whole = np.where(np.isfinite(moves), np.clip(np.rint(moves), NONE + 1, -(NONE + 1)), NONE)
    return base64.b64encode(whole.astype("<i2").tobytes()).decode()


def move_alike(one: DailyMoves, other: DailyMoves) -> bool:
    """Whether two symbols did the same on the days that both have, if these are enough."""
    first, second = one.decode(), other.decode()
    begin = max(one.first, other.first)
    end = min(one.first + len(first), other.first + len(second))
    if end - begin < LEAST_DAYS:
        return False
    a, b = (
        first[begin - one.first : end - one.first],
        second[begin - other.first : end - other.first],
    )
    known = (a != NONE) & (b != NONE)
    x, y = a[known].astype(np.float64), b[known].astype(np.float64)
    if len(x) < LEAST_DAYS or np.std(x) == 0 or np.std(y) == 0:
        return False
    return bool(np.corrcoef(x, y)[0, 1] > ALIKE)
