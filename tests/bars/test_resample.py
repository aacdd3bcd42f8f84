"""Resampling against a plain loop over buckets, and the rule for the ends."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flatout.bars.panel import Panel
from flatout.bars.resample import resample
from flatout.errors import BarsError

COLUMNS = ("open", "high", "low", "close", "volume")


def random_panel(
    n_bars: int, seed: int, start: str = "2024-01-01", bar: int = 300, traded: float = 0.5
) -> Panel:
    """Bars that are missing, empty or traded at random, carried as a reader carries them."""
    rng = np.random.default_rng(seed)
    shape = n_bars, 2
    present = rng.random(shape) < 0.8
    volume = np.where(present & (rng.random(shape) < traded), rng.integers(1, 9, shape), 0).astype(
        float
    )
    close, low = rng.uniform(5, 6, shape), rng.uniform(1, 5, shape)
    open_, high = rng.uniform(5, 6, shape), rng.uniform(6, 9, shape)
    signal = np.where(present, rng.uniform(size=shape), np.nan)
    for asset in range(2):
        last = math.nan
        for row in range(n_bars):
            if not present[row, asset]:
                for values in (open_, high, low, close):
                    values[row, asset] = last
            last = close[row, asset]
    time = np.datetime64(start, "us") + (np.arange(n_bars) * bar).astype("timedelta64[s]")
    extras = {"signal": signal}
    return Panel(
        ("A", "B"), time, bar, open_, high, low, close, volume, volume > 0, extras, present
    )


def oracle(
    panel: Panel, target: int, asset: int
) -> list[tuple[int, list[float], bool, bool, float]]:
    """Time, five values, tradable, present and signal of each complete bucket, by looping."""
    seconds = panel.time.astype("datetime64[s]").astype(np.int64).tolist()
    result = []
    for start in sorted({t // target * target for t in seconds}):
        rows = [row for row, t in enumerate(seconds) if start <= t < start + target]
        if start < seconds[0] or start + target > seconds[-1] + panel.bar_seconds:
            continue
        traded = [row for row in rows if panel.tradable[row, asset]]
        values = [float(panel.close[rows[-1], asset])] * 4 + [0.0]
        if traded:
            values = [
                panel.open[traded[0], asset],
                max(panel.high[row, asset] for row in traded),
                min(panel.low[row, asset] for row in traded),
                panel.close[traded[-1], asset],
                sum(panel.volume[row, asset] for row in traded),
            ]
        known = [x for row in rows if not math.isnan(x := panel.extras["signal"][row, asset])]
        present = any(panel.exists[row, asset] for row in rows)
        result.append((start, values, bool(traded), present, known[-1] if known else math.nan))
    return result


@given(
    n_bars=st.integers(1, 60),
    seed=st.integers(0, 999),
    offset=st.integers(0, 20),
    bar=st.sampled_from(["10m", "15m", "30m", "1h"]),
    traded=st.sampled_from([0.1, 0.5, 1.0]),
)
@settings(max_examples=200, deadline=None)
def test_resampling_is_what_a_loop_says(
    n_bars: int, seed: int, offset: int, bar: str, traded: float
) -> None:
    start = str(np.datetime64("2024-01-01", "us") + np.timedelta64(300 * offset, "s"))
    panel = random_panel(n_bars, seed, start, traded=traded)
    target = {"10m": 600, "15m": 900, "30m": 1800, "1h": 3600}[bar]
    expected = oracle(panel, target, 0)
    if not expected:
        with pytest.raises(BarsError, match="fill no bar"):
            resample(panel, bar)
        return
    result = resample(panel, bar)
    assert result.bar_seconds == target
    for asset in range(2):
        expected = oracle(panel, target, asset)
        starts, values, tradable, present, signal = zip(*expected, strict=True)
        assert result.time.astype("datetime64[s]").astype(int).tolist() == list(starts)
        got = np.stack([getattr(result, name)[:, asset] for name in COLUMNS], axis=1)
        np.testing.assert_array_equal(
            got, np.array(values)
        )  # prices are copies, volumes sums of whole numbers
        assert result.tradable[:, asset].tolist() == list(tradable)
        assert result.exists[:, asset].tolist() == list(present)
        np.testing.assert_array_equal(result.extras["signal"][:, asset], signal)


def test_partial_buckets_at_both_ends_are_dropped() -> None:
    panel = random_panel(12 + 12 + 12, 0, "2024-01-01T00:05")
    result = resample(panel, "1h")
    assert (
        result.time.tolist()
        == np.array(["2024-01-01T01", "2024-01-01T02"], "datetime64[us]").tolist()
    )
    whole = resample(random_panel(36, 0), "1h")
    assert whole.n_bars == 3
    assert resample(random_panel(35, 0), "1h").n_bars == 2


def test_a_bar_to_come_does_not_change_a_bar_that_is_over() -> None:
    panel = random_panel(40, 3)
    earlier, later = resample(panel.rows(0, 25), "1h"), resample(panel, "1h")
    np.testing.assert_array_equal(earlier.close, later.close[:2])


def test_sessions_keep_their_days() -> None:
    """Two sessions from 14:30 to 21:00: the half bucket inside the data stays, those at the ends
    go.
    """
    day = np.datetime64("2024-01-01T14:30", "us") + (np.arange(13) * 1800).astype("timedelta64[s]")
    time = np.concatenate([day, day + np.timedelta64(1, "D"), day + np.timedelta64(7, "D")])
    panel = replace(random_panel(39, 0, bar=1800, traded=1.0), time=time)
    result = resample(panel, "1h")
    assert not result.always_open
    hours = [t.hour for t in result.time.tolist()]
    assert hours == [*range(15, 21), *range(14, 21), *range(14, 21)]


def test_the_same_size_changes_nothing() -> None:
    panel = random_panel(10, 0)
    assert resample(panel, "5m") is panel


def test_refusals() -> None:
    panel = random_panel(100, 0)
    with pytest.raises(BarsError, match="does not divide a day"):
        resample(panel, "25m")
    with pytest.raises(BarsError, match="Bars of 5m do not make bars of 8m"):
        resample(panel, "8m")
    with pytest.raises(BarsError, match="Bars of 5m do not make bars of 1m"):
        resample(panel, "1m")
    with pytest.raises(BarsError, match="100 bars of 5m fill no bar of 1d"):
        resample(panel, "1d")
    half_past = random_panel(24, 0, "2024-01-01T00:30", bar=3600)
    with pytest.raises(
        BarsError,
        match=r"The bar of 1h at 2024-01-01T03:30.* is not over when its 4h bucket ends \(6 such",
    ):
        resample(half_past, "4h")


def test_bars_before_1970_are_joined_like_others() -> None:
    for start in ("1969-12-31T23:00", "1955-03-01"):
        result = resample(random_panel(36, 0, start, traded=1.0), "1h")
        hours = np.datetime64(start, "us") + np.arange(3) * np.timedelta64(1, "h")
        assert result.time.tolist() == hours.tolist()
        later = resample(random_panel(36, 0, traded=1.0), "1h")
        np.testing.assert_array_equal(result.volume, later.volume)
