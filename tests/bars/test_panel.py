"""The panel: which market it is of, its fingerprint and its cuts."""

from dataclasses import replace

import numpy as np
import pytest

from flatout.bars.panel import Panel


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
