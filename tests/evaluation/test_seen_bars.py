"""How much of some bars others saw: against a count of days and symbols one by one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from study_records import bars, days

from flatout.bars.resample import resample
from flatout.bars.synthetic import RandomWalk
from flatout.evaluation.seen_bars import SeenBars, normalise_symbol, share_seen, span_of
from flatout.folds.blocks import Block

SYMBOLS = ("BTC", "ETH", "LTC")
SEEN = st.builds(
    lambda first, length, symbols: bars(first, first + length, *symbols),
    st.integers(0, 30),
    st.integers(1, 20),
    st.lists(st.sampled_from(SYMBOLS), min_size=1, unique=True),
)


def cells(seen: SeenBars) -> set[tuple[str, int]]:
    """Its days and symbols, one by one."""
    origin = days(0, 1).first
    first, end = ((time - origin).days for time in (seen.span.first, seen.span.end))
    return {(name, day) for name in seen.symbols for day in range(first, end)}


@given(SEEN, st.lists(SEEN, max_size=5))
def test_the_share_is_that_of_days_and_symbols(mine: SeenBars, others: list[SeenBars]) -> None:
    own = cells(mine)
    seen = own & set().union(*map(cells, others))
    assert share_seen(mine, others) == pytest.approx(len(seen) / len(own))
    assert share_seen(mine, reversed(others)) == share_seen(mine, others)
    assert share_seen(mine, [*others, mine]) == 1.0


@given(SEEN, SEEN)
def test_of_one_other_it_is_symbols_times_time(mine: SeenBars, other: SeenBars) -> None:
    symbols = len(set(mine.symbols) & set(other.symbols)) / len(mine.symbols)
    one = bars(0, 1, "X").symbols
    time = share_seen(SeenBars(one, mine.span), [SeenBars(one, other.span)])
    assert share_seen(mine, [other]) == pytest.approx(symbols * time)


def test_bars_that_touch_do_not_overlap() -> None:
    assert share_seen(bars(0, 10), [bars(10, 20), bars(-5, 0)]) == 0.0


@pytest.mark.parametrize(
    ("spellings", "name"),
    [
        (("BTC/USDT", "BTCUSDT", "BTC-USDT", "btc_usdt", "btc usdt"), "BTCUSDT"),
        (("BTC/USDT:USDT", "BINANCE:BTCUSDT", "binance:btc-usdt"), "BTCUSDT"),
        (("BRK.B", "BRK-B", "NYSE:BRK.B"), "BRKB"),
        (("AAPL", "NASDAQ:AAPL", " aapl "), "AAPL"),
        (("$$",), "$$"),
        (("ABC:",), "ABC"),
    ],
)
def test_spellings_of_a_symbol(spellings: tuple[str, ...], name: str) -> None:
    assert {normalise_symbol(symbol) for symbol in spellings} == {name}


def test_different_symbols_stay_different() -> None:
    names = ("BTC/USDT", "BTC/USD", "ETH/USDT", "NASDAQ:AAPL", "NASDAQ:MSFT", "1000SHIB")
    assert len({normalise_symbol(symbol) for symbol in names}) == len(names)


@given(st.text(min_size=1))
def test_every_symbol_has_a_name(symbol: str) -> None:
    assert normalise_symbol(symbol)


def test_the_time_of_a_block_is_that_of_its_bars_whatever_their_size() -> None:
    panel = RandomWalk(n_bars=48, symbols=("ONE",)).panel()
    larger = resample(panel, "4h")
    assert span_of(panel, Block(0, 48)) == span_of(larger, Block(0, larger.n_bars))
    span = span_of(panel, Block(4, 8))
    assert np.datetime64(span.first.replace(tzinfo=None)) == panel.time[4]
    assert np.datetime64(span.end.replace(tzinfo=None)) == panel.time[8]
