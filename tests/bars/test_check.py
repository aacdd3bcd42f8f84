"""What the report says of panels whose faults are known."""

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from bar_files import line, real_data, save, times

from flatout.bars.check import check_bars
from flatout.bars.panel import Panel
from flatout.bars.read import read_bars


def test_gaps_and_empty_bars(tmp_path: Path) -> None:
    dates = times(30)
    kept = dates[2:5] + dates[6:10] + dates[13:25]
    rows = [line(t) for t in dates] + [
        line(t, "BBB", volume=0 if t == dates[7] else 1) for t in kept
    ]
    whole, holes = check_bars(read_bars(save(tmp_path / "x.csv", rows)))
    assert (whole.symbol, whole.rows, whole.missing_bars, whole.gaps, whole.longest_gap_bars) == (
        "AAA",
        30,
        0,
        0,
        0,
    )
    assert whole.longest_gap_start is None
    assert (holes.symbol, holes.rows, holes.missing_bars, holes.gaps, holes.longest_gap_bars) == (
        "BBB",
        19,
        4,
        2,
        3,
    )
    assert holes.longest_gap_start == datetime(2024, 1, 1, 10, tzinfo=UTC)
    assert (holes.first, holes.last) == (
        datetime(2024, 1, 1, 2, tzinfo=UTC),
        datetime(2024, 1, 2, 0, tzinfo=UTC),
    )
    assert (whole.zero_volume_bars, holes.zero_volume_bars) == (0, 1)


def priced(close: np.ndarray) -> Panel:
    close = close[:, None]
    time = np.datetime64("2024-01-01", "us") + (np.arange(len(close)) * 3600).astype(
        "timedelta64[s]"
    )
    return Panel(("A",), time, 3600, close, close, close, close, np.ones_like(close), close > 0)


def test_a_split_is_a_jump_and_ordinary_days_are_not() -> None:
    returns = np.random.default_rng(0).normal(0, 0.01, 500)
    (calm,) = check_bars(priced(np.exp(np.cumsum(returns))))
    assert (calm.jumps, calm.worst_jump, calm.worst_jump_time) == (0, 0.0, None)
    returns[100], returns[200] = 0.25, -np.log(4)
    (split,) = check_bars(priced(np.exp(np.cumsum(returns))))
    assert split.jumps == 2
    assert split.worst_jump == pytest.approx(-np.log(4))
    assert split.worst_jump_time == datetime(2024, 1, 9, 8, tzinfo=UTC)


@pytest.mark.parametrize(
    ("scale", "jump", "found"), [(0.001, 0.19, 0), (0.001, 0.21, 1), (0.05, 0.4, 0), (0.05, 0.7, 1)]
)
def test_a_jump_exceeds_both_ten_sigmas_and_a_fifth(scale: float, jump: float, found: int) -> None:
    returns = np.random.default_rng(1).uniform(-1.35 * scale, 1.35 * scale, 400)
    returns[50] = jump
    (report,) = check_bars(priced(np.exp(np.cumsum(returns))))
    assert report.jumps == found


def test_symbols_with_one_bar_or_none() -> None:
    close = np.array([np.nan, np.nan, 5.0])
    (one,) = check_bars(priced(close))
    assert (one.rows, one.missing_bars, one.jumps, one.first) == (1, 0, 0, one.last)
    (none,) = check_bars(priced(close[:2]))
    assert (none.rows, none.first, none.last, none.jumps) == (0, None, None, 0)


def test_real_gaps() -> None:
    (report,) = check_bars(read_bars(real_data("btc_spot_1h_2017_2024.parquet")))
    assert (report.rows, report.missing_bars) == (58_418, 128)
    for report in check_bars(read_bars(real_data("crypto_spot_5m_btc_eth_2023.parquet"))):
        assert (report.missing_bars, report.gaps, report.longest_gap_bars) == (16, 1, 16)
