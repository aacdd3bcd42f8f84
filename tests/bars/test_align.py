"""Alignment against a plain loop: carried forward, never backward, not tradable where nothing was
traded.
"""

import math

import numpy as np
import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from flatout.bars.align import align
from flatout.bars.panel import Panel

BAR = 3600
Bar = tuple[float, float, float, float, float]  # open, high, low, close, volume

bars = st.tuples(
    st.floats(1, 2),
    st.floats(3, 4),
    st.floats(0.1, 0.9),
    st.floats(1, 2),
    st.sampled_from([0.0, 1.0, 7.5]),
)
history = st.lists(st.none() | bars, min_size=1, max_size=12)


def table(histories: list[list[Bar | None]]) -> pl.DataFrame:
    rows = [
        (f"S{asset}", row * BAR * 1_000_000, *bar, bar[3] * 2)
        for asset, history in enumerate(histories)
        for row, bar in enumerate(history)
        if bar is not None
    ]
    schema = ["symbol", "date", "open", "high", "low", "close", "volume", "extra signal"]
    kinds = {"symbol": pl.String, "date": pl.Int64} | dict.fromkeys(schema[2:], pl.Float64)
    return pl.DataFrame(rows, schema=kinds, orient="row")


def aligned(histories: list[list[Bar | None]], length: int = 12) -> Panel:
    time = np.arange(length, dtype=np.int64) * BAR * 1_000_000
    return align(table(histories), [f"S{i}" for i in range(len(histories))], time, BAR, ("signal",))


@given(st.lists(history, min_size=1, max_size=4))
@settings(max_examples=150, deadline=None)
def test_alignment_is_what_a_loop_says(histories: list[list[Bar | None]]) -> None:
    panel = aligned(histories)
    for asset, history in enumerate(histories):
        close = math.nan
        for row in range(12):
            bar = history[row] if row < len(history) else None
            close = bar[3] if bar else close
            expected = bar or (close, close, close, close, 0.0)
            got = [
                getattr(panel, n)[row, asset] for n in ("open", "high", "low", "close", "volume")
            ]
            np.testing.assert_array_equal(got, expected)
            assert panel.tradable[row, asset] == (bar is not None and bar[4] > 0)
            assert panel.exists[row, asset] == (bar is not None)
            np.testing.assert_equal(
                panel.extras["signal"][row, asset], bar[3] * 2 if bar else math.nan
            )


@given(st.lists(history, min_size=1, max_size=3), st.integers(1, 11))
@settings(max_examples=60, deadline=None)
def test_later_bars_change_nothing_earlier(histories: list[list[Bar | None]], now: int) -> None:
    whole, past = aligned(histories), aligned([history[:now] for history in histories], now)
    for name in ("open", "high", "low", "close", "volume", "tradable"):
        np.testing.assert_array_equal(getattr(whole, name)[:now], getattr(past, name))


def test_a_zero_volume_bar_keeps_its_prices_and_is_not_tradable() -> None:
    panel = aligned([[(1.0, 3.0, 0.5, 2.0, 1.0), (2.0, 3.0, 1.0, 2.5, 0.0), None]], 3)
    assert panel.close[:, 0].tolist() == [2.0, 2.5, 2.5]
    assert panel.high[:, 0].tolist() == [3.0, 3.0, 2.5]
    assert panel.tradable[:, 0].tolist() == [True, False, False]
    assert panel.exists[:, 0].tolist() == [True, True, False]


def test_symbols_stand_in_the_order_asked_for() -> None:
    one, two = (1.0, 3.0, 0.5, 1.5, 1.0), (2.0, 3.0, 1.0, 2.5, 1.0)
    time = np.array([0], dtype=np.int64)
    panel = align(table([[one], [two]]), ["S1", "S0"], time, BAR)
    assert panel.symbols == ("S1", "S0")
    assert panel.close.tolist() == [[2.5, 1.5]]
