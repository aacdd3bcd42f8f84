"""Bars against the sessions of a calendar: each fault is planted and found, and nothing else."""

from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest

from flatout.bars.panel import Panel
from flatout.bars.session_check import SessionReport, check_sessions
from session_panels import panel_at, session_times

pytest.importorskip("exchange_calendars")
BAR = 1800
FIRST, LAST = "2023-06-01", "2024-01-31"


def panel_with(added: list[str], removed: list[str]) -> Panel:
    """Half hours of New York, with some bars more and some fewer."""
    times = session_times("XNYS", BAR, FIRST, LAST)
    gone = np.array(removed, "datetime64[us]")
    kept = times[~np.isin(times, gone)]
    return panel_at(np.union1d(kept, np.array(added, "datetime64[us]")), BAR)


def at(*moment: int) -> datetime:
    year, month, day, hour, minute = moment
    return datetime(year, month, day, hour, minute, tzinfo=UTC)


def test_a_clean_panel_has_no_findings() -> None:
    [report] = check_sessions(panel_with([], []), "NYSE")
    assert report == SessionReport("A", 0, None, 0, None, 0, None)


def test_holidays_half_days_nights_and_missing_bars_are_told_apart() -> None:
    added = [
        "2023-07-04T15:00",  # a holiday
        "2023-11-25T15:00",  # a Saturday
        "2023-11-24T18:00",  # after the half day's close at 13:00 in New York
        "2023-08-01T12:00",  # before the open
    ]
    removed = ["2023-09-05T13:30", "2023-09-05T14:00", "2023-11-24T17:30"]
    [report] = check_sessions(panel_with(added, removed), "XNYS")
    assert (report.closed_day_bars, report.first_closed_day_bar) == (2, at(2023, 7, 4, 15, 0))
    assert (report.outside_bars, report.first_outside_bar) == (2, at(2023, 8, 1, 12, 0))
    assert (report.missing_bars, report.first_missing_bar) == (3, at(2023, 9, 5, 13, 30))


def test_bars_at_lunch_are_outside() -> None:
    times = session_times("XTKS", BAR, FIRST, LAST)
    lunch = np.datetime64("2023-08-01T02:30", "us")  # 11:30 in Tokyo
    [report] = check_sessions(panel_at(np.union1d(times, [lunch]), BAR), "XTKS")
    assert (report.closed_day_bars, report.outside_bars, report.missing_bars) == (0, 1, 0)
    assert report.first_outside_bar == at(2023, 8, 1, 2, 30)


def test_daily_bars() -> None:
    times = session_times("XLON", 86_400, FIRST, LAST)
    boxing_day, gone = np.datetime64("2023-12-26", "us"), np.datetime64("2023-10-10", "us")
    bars = np.union1d(times[times != gone], [boxing_day])
    [report] = check_sessions(panel_at(bars, 86_400), "XLON")
    assert (report.closed_day_bars, report.outside_bars, report.missing_bars) == (1, 0, 1)
    assert (report.first_closed_day_bar, report.first_missing_bar) == (
        at(2023, 12, 26, 0, 0),
        at(2023, 10, 10, 0, 0),
    )


def test_symbols_are_judged_between_their_own_first_and_last_bar() -> None:
    panel = panel_at(session_times("XNYS", BAR, FIRST, LAST), BAR, ("OLD", "NEW", "NONE"))
    present = np.ones((panel.n_bars, 3), np.bool_)
    present[:1000, 1] = False
    present[1500, 1] = False
    present[:, 2] = False
    old, new, none = check_sessions(replace(panel, present=present), "XNYS")
    assert (old.missing_bars, new.missing_bars, none.missing_bars) == (0, 1, 0)
    assert new.first_missing_bar == panel.time[1500].item().replace(tzinfo=UTC)
