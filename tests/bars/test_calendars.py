"""Named exchange calendars: the year that they give, and what is said of names that are none."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from flatout.bars.calendars import (
    expect_bars,
    find_kind,
    follow_calendar,
    name_calendar,
    resolve_calendar,
)
from flatout.bars.panel import Panel
from flatout.bars.read import read_bars
from flatout.bars.resample import resample
from flatout.errors import BarsError
from session_panels import Times, panel_at, session_times

pytest.importorskip("exchange_calendars")
HOUR, DAY = 3600, 86_400
FIRST, LAST = "2019-01-01", "2023-12-31"
YEARS = 5 * 365.25 / 365


def sessions_of(name: str, bar: int, first: str = FIRST, last: str = LAST) -> Panel:
    return panel_at(session_times(name, bar, first, last), bar)


@pytest.mark.parametrize(
    ("name", "bar"),
    [(name, bar) for name in ("XNYS", "XLON", "24/5", "CMES") for bar in (300, 1800, HOUR, DAY)]
    # Hours that begin anew after lunch are no bars of one size, and refused.
    + [(name, bar) for name in ("XHKG", "XTKS") for bar in (300, 1800, DAY)],
)
def test_the_year_is_that_of_the_sessions(name: str, bar: int) -> None:
    panel = follow_calendar(sessions_of(name, bar), name)
    assert panel.bars_per_year == pytest.approx(panel.n_bars / YEARS, rel=0.005)
    year = panel.trading_year
    assert (year.origin, year.calendar) == ("calendar", name)
    days = len(session_times(name, DAY, FIRST, LAST))
    assert year.bars / year.bars_per_day == pytest.approx(days / YEARS, rel=0.005)


def test_few_bars_have_the_whole_year_of_their_calendar() -> None:
    """Ten days around Christmas, from which nothing could be counted."""
    few = follow_calendar(sessions_of("XNYS", HOUR, "2023-12-19", "2023-12-29"), "XNYS")
    many = follow_calendar(sessions_of("XNYS", HOUR), "XNYS")
    assert few.bars_per_year == pytest.approx(many.bars_per_year, rel=0.01)


@pytest.mark.parametrize("name", ["XNYS", "XLON", "XTKS"])
@pytest.mark.parametrize("bar", [1800, DAY])
def test_every_bar_of_a_session_is_expected_and_no_other(name: str, bar: int) -> None:
    panel = sessions_of(name, bar)
    found = expect_bars(panel, name)
    inside = (found.expected >= found.given[0]) & (found.expected <= found.given[-1])
    assert found.expected[inside].tolist() == found.given.tolist()
    assert found.in_session.all()
    assert found.trading_day.all()


def test_bars_may_stand_on_the_clock_or_on_the_open() -> None:
    """Bars of 4 h from 9:30 in New York move by an hour in UTC in summer; those of `resample` stand
    on midnight in UTC all year.
    """
    opens = panel_at(session_times("XNYS", 4 * HOUR, FIRST, LAST), 4 * HOUR)
    minutes = panel_at(session_times("XNYS", 1800, FIRST, LAST), 1800)
    on_midnight = resample(minutes, "4h")
    for panel in (opens, on_midnight):
        found = expect_bars(panel, "XNYS")
        assert found.in_session.all()
        inside = (found.expected >= found.given[0]) & (found.expected <= found.given[-1])
        assert int(inside.sum()) == panel.n_bars


@pytest.mark.parametrize("hours", [0, -9])
def test_daily_bars_open_at_midnight_in_utc_or_in_the_city(hours: int) -> None:
    days = session_times("XTKS", DAY, FIRST, LAST)
    panel = panel_at(days + np.timedelta64(hours, "h"), DAY)
    assert expect_bars(panel, "XTKS").in_session.all()


def test_larger_bars_keep_the_calendar() -> None:
    panel = follow_calendar(panel_at(session_times("XLON", 1800, FIRST, LAST), 1800), "LSE")
    larger = resample(panel, "2h")
    assert larger.trading_year.calendar == "XLON"
    assert larger.bars_per_year == pytest.approx(larger.n_bars / YEARS, rel=0.005)


def test_around_the_clock_is_a_calendar_too() -> None:
    times = np.datetime64("2024-01-01", "s") + np.arange(500) * np.timedelta64(HOUR, "s")
    panel = panel_at(times, HOUR)
    assert follow_calendar(panel, "24/7").bars_per_year == panel.bars_per_year == 8760
    assert follow_calendar(panel, "exchange") is panel
    assert find_kind("24/7") == find_kind("always_open") == "always_open"
    assert find_kind("24/5") == find_kind("exchange") == "exchange"


def csv_of(times: Times, path: Path) -> Path:
    pl.DataFrame(
        {"date": times.astype("datetime64[us]"), "open": 1.0, "high": 1.0, "low": 1.0}
        | {"close": 1.0, "volume": 1.0, "symbol": "AAA"}
    ).write_csv(path)
    return path


def test_sunday_is_a_day_like_others_where_the_calendar_says_so(tmp_path: Path) -> None:
    """Riyadh trades from Sunday to Thursday: bars alone would look like a market that never
    closes.
    """
    times = session_times("XSAU", HOUR, "2023-01-01", "2023-12-31")
    path = csv_of(times, tmp_path / "bars.csv")
    assert read_bars(path).n_bars > 8000
    panel = read_bars(path, calendar="XSAU")
    assert panel.n_bars == len(times)
    assert name_calendar(panel) == "XSAU"
    assert panel.bars_per_year == pytest.approx(len(times), rel=0.01)
    assert not read_bars(path, calendar="exchange").always_open


@pytest.mark.parametrize(
    ("name", "near"), [("XNY", "XNYS"), ("nyse", "NYSE"), ("XLND", "XLON"), ("24/8", "24/7")]
)
def test_unknown_names_are_refused_with_near_ones(name: str, near: str, tmp_path: Path) -> None:
    with pytest.raises(BarsError, match=rf"'{name}' is unknown; nearest: .*{near}"):
        resolve_calendar(name)
    path = csv_of(session_times("XNYS", DAY, "2023-01-01", "2023-02-01"), tmp_path / "bars.csv")
    with pytest.raises(BarsError, match=r"or 'always_open' or 'exchange'"):
        read_bars(path, calendar="moon")


def test_days_that_a_calendar_does_not_know() -> None:
    early = replace(
        sessions_of("XNYS", DAY, "2023-01-01", "2023-03-01"),
        time=session_times("XNYS", DAY, "2023-01-01", "2023-03-01") - np.timedelta64(90 * 365, "D"),
    )
    with pytest.raises(BarsError, match="XHKG does not know the days 193") as refused:
        follow_calendar(early, "XHKG")
    assert len(str(refused.value)) < 500


def test_without_the_package_a_sentence_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = csv_of(session_times("XNYS", DAY, "2023-01-01", "2023-02-01"), tmp_path / "bars.csv")
    monkeypatch.setitem(sys.modules, "exchange_calendars", None)
    with pytest.raises(BarsError, match=r"pip install 'flatout\[calendars\]'"):
        read_bars(path, calendar="XNYS")
    assert read_bars(path, calendar="exchange").n_bars == read_bars(path).n_bars == 21
