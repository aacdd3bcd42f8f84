"""The panel: which market it is of, its fingerprint and its cuts."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flatout.bars.panel import DAY, DEAD_AFTER_DAYS, Panel


def panel_of(start: str, steps: list[int], bar_seconds: int = 3600) -> Panel:
    time = np.datetime64(start, "us") + np.cumsum([0, *steps]).astype("timedelta64[s]")
    ones = np.ones((len(time), 2))
    return Panel(
        ("A", "B"), time, bar_seconds, ones, ones, ones, ones, ones, ones > 0, {"signal": ones}
    )


@pytest.mark.parametrize(
    ("start", "steps", "expected"),
    [
        ("2024-01-05", [3600] * 48, True),  # into a Saturday
        ("2024-01-01", [3600] * 48, True),  # Monday to Wednesday without a break
        ("2024-01-01T14", [3600] * 6 + [18 * 3600] + [3600] * 6, False),  # two sessions
        ("2024-01-01", [86_400] * 4 + [3 * 86_400] + [86_400] * 4, False),  # two weeks of weekdays
    ],
)
def test_always_open(start: str, steps: list[int], expected: bool) -> None:
    assert panel_of(start, steps, min(steps)).always_open is expected


def test_bars_per_year() -> None:
    assert panel_of("2024-01-06", [3600] * 3).bars_per_year == 365 * 24
    weekdays = [86_400] * 4 + [3 * 86_400] + [86_400] * 4
    assert panel_of("2024-01-01", weekdays, 86_400).bars_per_year == 252
    sessions = ([3600] * 8 + [16 * 3600]) * 4 + [3600] * 8 + [64 * 3600]
    assert panel_of("2024-01-01T08", sessions * 2).bars_per_year == 252 * 9  # not 252 x 6.5


@pytest.mark.parametrize("name", ["open", "high", "low", "close", "volume", "tradable", "time"])
def test_every_value_is_in_the_fingerprint(name: str) -> None:
    panel = panel_of("2024-01-01", [3600] * 5)
    changed = getattr(panel, name).copy()
    changed[-1] = changed[-1] + (np.timedelta64(1, "us") if name == "time" else 1)
    if name == "tradable":
        changed[-1] = False
    assert replace(panel, **{name: changed}).fingerprint != panel.fingerprint
    assert replace(panel).fingerprint == panel.fingerprint
    assert replace(panel, extras={}).fingerprint != panel.fingerprint


def test_rows_cut_everything() -> None:
    whole = panel_of("2024-01-01", [3600] * 5)
    whole = replace(whole, present=whole.tradable)
    part = whole.rows(1, 3)
    assert part.n_bars == 2
    assert part.present is not None
    assert part.present.shape == part.close.shape == part.extras["signal"].shape == (2, 2)
    assert part.time.tolist() == whole.time[1:3].tolist()


def test_without_knowledge_every_priced_bar_exists() -> None:
    panel = panel_of("2024-01-01", [3600] * 2)
    close = panel.close.copy()
    close[0, 0] = np.nan
    assert replace(panel, close=close).exists.tolist() == [
        [False, True],
        [True, True],
        [True, True],
    ]


def traded_at(rows: list[int], n_bars: int, bar_seconds: int = DAY) -> Panel:
    """The second asset trades in these rows only."""
    panel = panel_of("2024-01-01", [bar_seconds] * (n_bars - 1), bar_seconds)
    tradable = panel.tradable.copy()
    tradable[:, 1] = np.isin(np.arange(n_bars), rows)
    return replace(panel, tradable=tradable)


def test_an_asset_is_dead_when_it_has_not_traded_for_two_weeks() -> None:
    """And alive again when it trades again; before it ever traded it is not alive either."""
    panel = traded_at([3, 4, 30], 40)
    assert panel.alive[:, 0].all()
    expected = [3 <= t <= 4 + DEAD_AFTER_DAYS or t >= 30 for t in range(40)]
    assert panel.alive[:, 1].tolist() == expected


def test_nights_and_weekends_count_as_time() -> None:
    """Ten bars in ten sessions over two weekends: the time that passed counts, not the bars."""
    weeks = [DAY] * 4 + [3 * DAY] + [DAY] * 4 + [3 * DAY] + [DAY] * 4
    panel = panel_of("2024-01-01", weeks, 3600)
    tradable = panel.tradable.copy()
    tradable[1:, 1] = False
    assert replace(panel, tradable=tradable).alive[:, 1].tolist() == [True] * 11 + [False] * 4


def test_one_bar_without_a_trade_kills_no_asset_however_long_it_is() -> None:
    assert (
        traded_at([0, 1], 6, bar_seconds=30 * DAY).alive[:, 1].tolist() == [True] * 4 + [False] * 2
    )


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 60))
def test_what_is_alive_follows_from_the_bars_so_far(seed: int, known: int) -> None:
    """Whether an asset will ever trade again is not known."""
    rows = np.flatnonzero(np.random.default_rng(seed).random(60) < 0.1).tolist()
    panel = traded_at(rows, 60)
    np.testing.assert_array_equal(panel.rows(0, known).alive, panel.alive[:known])


def test_a_panel_is_one_line() -> None:
    panel = panel_of("2024-01-01", [4 * 3600] * 1499, 4 * 3600)
    assert repr(panel) == "Panel(A, B: 1,500 bars of 4h, 2024-01-01T00:00 to 2024-09-06T20:00 UTC)"
    assert repr(panel.rows(0, 0)) == "Panel(A, B: 0 bars of 4h)"
    many = replace(panel, symbols=tuple(f"S{k}" for k in range(1000)))
    assert len(repr(many)) < 150
