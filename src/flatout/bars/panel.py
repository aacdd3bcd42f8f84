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

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
TimeArray = NDArray[np.datetime64]

PRICES = ("open", "high", "low", "close")
EXTRA = "extra:"  # among indicators, `extra:NAME` is the further column NAME of `Panel.extras`
DAY = 86_400
TRADING_DAYS = 252
SESSION_SECONDS = 6.5 * 3600


@dataclass(frozen=True)
class Panel:
    """Bars of `symbols` on one grid of bar-open times in UTC; arrays are (time, asset).

    >>> from flatout.bars.synthetic import built_in_market
    >>> panel: Panel = built_in_market(n_bars=100)
    >>> panel.symbols[0], panel.n_bars, panel.close.shape
    ('ALFA', 100, (100, 5))
    """

    symbols: tuple[str, ...]
    time: TimeArray  # (time,) datetime64[us], UTC, the bar's open
    bar_seconds: int
    open: FloatArray
    high: FloatArray
    low: FloatArray
    close: FloatArray
    volume: FloatArray  # in units of the asset
    tradable: BoolArray  # the bar exists and something was traded in it
    extras: Mapping[str, FloatArray] = field(
        default_factory=dict
    )  # further columns, known at the bar's close
    # which bars are in the source, if known; the others are carried
    present: BoolArray | None = None

    @property
    def n_bars(self) -> int:
        return len(self.time)

    @property
    def n_assets(self) -> int:
        return len(self.symbols)

    @cached_property
    def always_open(self) -> bool:
        """Whether bars fall on weekends, as they do in crypto markets but not on stock
        exchanges.
        """
        days = self.time.astype("datetime64[D]").astype(np.int64)
        if np.any((days + 3) % 7 >= 5):
            return True
        # Less than a week need not contain a weekend: what tells then is whether the nights are on
        # the grid.
        nights = bool(np.all(np.diff(self.time) == np.timedelta64(self.bar_seconds, "s")))
        return nights and bool(days[-1] - days[0] < 7)

    @cached_property
    def exists(self) -> BoolArray:
        """Which bars are real rather than carried; without that knowledge, every bar that has a
        price.
        """
        return np.isfinite(self.close) if self.present is None else self.present

    @property
    def bars_per_year(self) -> float:
        """How many bars annualise a per-bar figure: 365 days of 24 h, or 252 days of 6.5 h on an
        exchange.
        """
        if self.always_open:
            return 365 * DAY / self.bar_seconds
        return TRADING_DAYS * max(1.0, SESSION_SECONDS / self.bar_seconds)

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
        """The bars start..stop-1 of all symbols."""
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
        )
