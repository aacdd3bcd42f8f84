"""`Panel`: aligned OHLCV bars of many symbols on one time grid.

A panel is immutable and already checked: `bars/read.py` refuses bad files, `bars/synthetic.py`
makes its own. A bar that is missing is not tradable and carries the last close as its four prices
and zero volume, for marking only; before a symbol's first bar there is no price at all (NaN).
Nothing is ever filled backwards. This file knows nothing about files, features or markets.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from flatout.bars.bar_size import bar_name
from flatout.bars.trading_year import TradingYear, estimate_year
from flatout.foreign import shorten

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
TimeArray = NDArray[np.datetime64]

PRICES = ("open", "high", "low", "close")
EXTRA = "extra:"  # among indicators, `extra:NAME` is the further column NAME of `Panel.extras`
DAY = 86_400
# An asset that has not traded for so long counts as dead: no exchange's holidays last longer, nor
# do most suspensions (ten trading days are two weeks).
DEAD_AFTER_DAYS = 14
LONGEST_SYMBOLS = 60  # letters of them in a line about a panel


@dataclass(frozen=True)
class Panel:
    """Bars of `symbols` on one grid of bar-open times in UTC; arrays are (time, asset). Mostly
    `flatout.read_bars` makes them.

    symbols                 one name for each asset
    time                    (time,) the bars' opens in UTC, datetime64[us]
    bar_seconds             the size of the bars
    open, high, low, close  prices; NaN before a symbol's first bar
    volume                  in units of the asset
    tradable                whether the bar exists and something was traded in it
    extras                  further columns by name, known at the bar's close
    present                 which bars are in the source, if that is known; others are carried
    year                    how many bars a year has, if a calendar or a longer panel tells it;
                            else the times do

    >>> from flatout.bars.synthetic import built_in_market
    >>> panel: Panel = built_in_market(n_bars=100)
    >>> panel.symbols[0], panel.n_bars, panel.close.shape
    ('ALFA', 100, (100, 5))
    """

    symbols: tuple[str, ...]
    time: TimeArray
    bar_seconds: int
    open: FloatArray
    high: FloatArray
    low: FloatArray
    close: FloatArray
    volume: FloatArray
    tradable: BoolArray
    extras: Mapping[str, FloatArray] = field(default_factory=dict)
    present: BoolArray | None = None
    year: TradingYear | None = None

    def __repr__(self) -> str:
        """One line: which symbols, how many bars of which size, and from when to when."""
        symbols = shorten(", ".join(self.symbols), LONGEST_SYMBOLS)
        times = [str(time)[:16] for time in self.time[[0, -1]]] if self.n_bars else []
        span = f", {' to '.join(times)} UTC" if times else ""
        return f"Panel({symbols}: {self.n_bars:,} bars of {bar_name(self.bar_seconds)}{span})"

    @property
    def n_bars(self) -> int:
        return len(self.time)

    @property
    def n_assets(self) -> int:
        return len(self.symbols)

    @property
    def always_open(self) -> bool:
        """Whether the market never closes, as crypto markets do not; exchanges have nights,
        weekends and holidays.
        """
        return self.trading_year.always_open

    @cached_property
    def trading_year(self) -> TradingYear:
        """How many bars a year has and how that is known: from a named exchange calendar, else
        from the times of the bars (`estimate_year` says how).
        """
        return self.year or estimate_year(self.time, self.bar_seconds)

    @cached_property
    def exists(self) -> BoolArray:
        """Which bars are real rather than carried; without that knowledge, every bar that has a
        price.
        """
        return np.isfinite(self.close) if self.present is None else self.present

    @cached_property
    def alive(self) -> BoolArray:
        """Which assets count as alive at the close of each bar: those that traded within the last
        `DEAD_AFTER_DAYS`, or the last two bars where bars are longer.

        Row t follows from the bars up to t: that an asset will never trade again is not known when
        it stops. What trades again is alive again.
        """
        now = self.time.astype("datetime64[s]").astype(np.int64)[:, None]
        never = np.iinfo(np.int64).min // 2
        last = np.maximum.accumulate(np.where(self.tradable, now, never), axis=0)
        recent: BoolArray = now - last <= max(DEAD_AFTER_DAYS * DAY, 2 * self.bar_seconds)
        return recent

    @property
    def bars_per_year(self) -> float:
        """How many bars annualise a per-bar figure, and over how many an annual rate is spread:
        those of 365 days.
        """
        return self.trading_year.bars

    @cached_property
    def fingerprint(self) -> str:
        """sha256 over symbols, times and values: equal bars have equal ones, wherever they were
        read from.
        """
        digest = hashlib.sha256()
        digest.update("\x00".join((*self.symbols, str(self.bar_seconds))).encode())
        arrays = [
            self.time.astype("datetime64[us]").astype(np.int64),
            self.tradable.astype(np.uint8),
        ]
        arrays += [getattr(self, name) for name in (*PRICES, "volume")]
        for name in sorted(self.extras):
            digest.update(name.encode())
            arrays.append(self.extras[name])
        for array in arrays:
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def rows(self, start: int, stop: int) -> "Panel":
        """The bars start..stop-1 of all symbols; a year has as many as in the whole panel."""
        cut = slice(start, stop)
        return Panel(
            symbols=self.symbols,
            time=self.time[cut],
            bar_seconds=self.bar_seconds,
            open=self.open[cut],
            high=self.high[cut],
            low=self.low[cut],
            close=self.close[cut],
            volume=self.volume[cut],
            tradable=self.tradable[cut],
            extras={name: values[cut] for name, values in self.extras.items()},
            present=None if self.present is None else self.present[cut],
            year=self.trading_year,
        )
