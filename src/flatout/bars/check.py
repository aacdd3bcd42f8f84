"""`check_bars`: what a panel lacks and what in it looks odd, per symbol. It reports and changes
nothing.

A jump is suspicious when the log return between two neighbouring existing bars exceeds both ten
robust standard deviations (1.4826 x the median absolute deviation of the symbol's returns) and 0.2,
that is about twenty percent. Prices do move like that; unadjusted splits and bad ticks do too.
"""

from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from flatout.bars.panel import BoolArray, FloatArray, Panel

SIGMAS = 10.0
LEAST_JUMP = 0.2
MAD_TO_SIGMA = 1.4826


@dataclass(frozen=True)
class SymbolReport:
    """One symbol's bars in numbers; gaps lie between its first and its last bar, on the panel's
    grid.
    """

    symbol: str
    rows: int  # bars that exist
    first: datetime | None  # None: the symbol has no bar at all
    last: datetime | None
    missing_bars: int
    gaps: int  # runs of missing bars
    longest_gap_bars: int
    longest_gap_start: datetime | None
    zero_volume_bars: int
    jumps: int  # suspicious ones
    worst_jump: float  # log return of the largest suspicious jump, 0 without one
    worst_jump_time: datetime | None


def check_bars(panel: Panel) -> list[SymbolReport]:
    """A report per symbol, in the panel's order."""
    return [report_symbol(panel, asset) for asset in range(panel.n_assets)]


def report_symbol(panel: Panel, asset: int) -> SymbolReport:
    exists = panel.exists[:, asset]
    bars = np.flatnonzero(exists)
    gap_starts, gap_lengths = gaps_of(exists)
    longest = int(np.argmax(gap_lengths)) if len(gap_lengths) else None
    jump_bars, jumps = jumps_of(panel.close[bars, asset])
    worst = int(np.argmax(np.abs(jumps))) if len(jumps) else None
    return SymbolReport(
        symbol=panel.symbols[asset],
        rows=len(bars),
        first=moment(panel, bars[0]) if len(bars) else None,
        last=moment(panel, bars[-1]) if len(bars) else None,
        missing_bars=int(gap_lengths.sum()),
        gaps=len(gap_lengths),
        longest_gap_bars=0 if longest is None else int(gap_lengths[longest]),
        longest_gap_start=None if longest is None else moment(panel, gap_starts[longest]),
        zero_volume_bars=int(np.sum(exists & (panel.volume[:, asset] == 0))),
        jumps=len(jumps),
        worst_jump=0.0 if worst is None else float(jumps[worst]),
        worst_jump_time=None if worst is None else moment(panel, bars[jump_bars[worst]]),
    )


def gaps_of(exists: BoolArray) -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], ...]:
    """Where runs of missing bars begin and how long they are, between the first and the last
    existing bar.
    """
    bars = np.flatnonzero(exists)
    lengths = np.diff(bars) - 1
    return bars[:-1][lengths > 0] + 1, lengths[lengths > 0]


def jumps_of(close: FloatArray) -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], FloatArray]:
    """The bars at which the close jumped suspiciously, and the log returns there."""
    returns = np.diff(np.log(close))
    if not len(returns):
        return np.zeros(0, dtype=np.int64), returns
    sigma = MAD_TO_SIGMA * float(np.median(np.abs(returns - np.median(returns))))
    found = np.flatnonzero(np.abs(returns) > max(SIGMAS * sigma, LEAST_JUMP))
    return found + 1, returns[found]


def moment(panel: Panel, bar: int) -> datetime:
    """The opening time of a bar."""
    naive: datetime = panel.time[bar].astype("datetime64[us]").item()
    return naive.replace(tzinfo=UTC)
