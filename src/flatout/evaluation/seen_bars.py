"""Which bars somebody saw, as symbols and time, and how much of them somebody else saw before.

Neither prices nor bar sizes are compared: bars that were resampled, rounded, cut or read from
another file are still the same stretch of the same market. Two symbols that move alike are two
symbols here; `daily_moves` tells them.
"""

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property

from pydantic import AwareDatetime

from flatout.bars.panel import Panel
from flatout.folds.blocks import Block


@dataclass(frozen=True)
class TimeSpan:
    """From the open of a first bar to the close of a last one."""

    first: AwareDatetime
    end: AwareDatetime


@dataclass(frozen=True)
class SeenBars:
    """Some symbols in one stretch of time."""

    symbols: tuple[str, ...]  # as their source spells them
    span: TimeSpan

    @cached_property
    def names(self) -> frozenset[str]:
        """The symbols, whatever their spelling."""
        return frozenset(map(normalise_symbol, self.symbols))


def normalise_symbol(symbol: str) -> str:
    """A symbol as it is compared: capital letters and digits only, without the exchange before a
    colon, or the settlement after the colon of a pair that is written with a stroke.

    >>> {normalise_symbol(s) for s in ("BTC/USDT", "BTCUSDT", "BTC-USDT", "btc_usdt")}
    {'BTCUSDT'}
    >>> normalise_symbol("BTC/USDT:USDT"), normalise_symbol("BINANCE:BTCUSDT")
    ('BTCUSDT', 'BTCUSDT')
    """
    text = unicodedata.normalize("NFKC", symbol).upper()
    before, _, after = text.partition(":")
    name = before if "/" in before or not after else after
    return "".join(filter(str.isalnum, name)) or text


def span_of(panel: Panel, block: Block) -> TimeSpan:
    """The time of a block of bars."""
    first, last = (
        datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=int(time))
        for time in panel.time[[block.first, block.stop - 1]].astype("datetime64[us]").astype(int)
    )
    return TimeSpan(first, last + timedelta(seconds=panel.bar_seconds))


def share_seen(bars: SeenBars, others: Iterable[SeenBars]) -> float:
    """How much of some bars lies in any of the others: the share of time, averaged over symbols.
    For one other that is the share of the symbols that are in it, times the share of the time.
    """
    others = [other for other in others if bars.names & other.names]
    seen = sum(
        (
            add_up_time(bars.span, [other.span for other in others if name in other.names])
            for name in bars.names
        ),
        timedelta(),
    )
    return seen / (len(bars.names) * (bars.span.end - bars.span.first))


def add_up_time(within: TimeSpan, spans: Sequence[TimeSpan]) -> timedelta:
    """How much of a span of time the others cover together."""
    covered, reached = timedelta(), within.first
    for span in sorted(spans, key=lambda span: span.first):
        end = min(span.end, within.end)
        covered += max(end - max(span.first, reached), timedelta())
        reached = max(reached, end)
    return covered
