"""How many bars a year has, from the times of the bars: beside the sessions of real exchanges, for
short samples, and for markets that never close.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from flatout.bars.panel import Panel
from flatout.bars.resample import resample
from flatout.bars.trading_year import TradingYear, clock_year, estimate_year
from session_panels import Times, panel_at, session_times

HOUR, DAY, WEEK = 3600, 86_400, 7 * 86_400
FIRST, LAST = "2019-01-01", "2023-12-31"
YEARS = 5 * 365.25 / 365  # of 365 days


def weekly(hours: list[float], weeks: float) -> Times:
    """Bars that open at these hours of every week, counted from Monday 00:00 UTC."""
    offsets = np.array(hours) * HOUR
    every = (np.arange(int(weeks) + 2)[:, None] * WEEK + offsets).ravel()
    kept = np.sort(every[every < weeks * WEEK]).astype("timedelta64[s]")
    return np.datetime64("2024-01-01", "s") + kept


def sessions(opens: float, bars: int, days: int = 5, bar: int = HOUR) -> list[float]:
    """The hours of the week at which bars open in sessions of so many bars."""
    return [24 * day + opens + k * bar / HOUR for day in range(days) for k in range(bars)]


NEW_YORK = sessions(14.5, 7)
MONDAY_TO_FRIDAY = sessions(0, 24)
SUNDAY_EVENING_TO_FRIDAY = [22.0 + 144 + k for k in range(2)] + [float(k) for k in range(118)]


@pytest.mark.parametrize("bar", [300, 1800, HOUR, DAY])
@pytest.mark.parametrize("name", ["XNYS", "XLON", "XTKS", "XASX", "24/5", "XSHG", "CMES"])
def test_a_year_has_the_bars_of_the_exchange(name: str, bar: int) -> None:
    times = session_times(name, bar, FIRST, LAST)
    year = estimate_year(times, bar)
    assert year.origin == "counted"
    assert year.bars == pytest.approx(len(times) / YEARS, rel=0.01)
    days = len(session_times(name, DAY, FIRST, LAST))
    assert year.bars / year.bars_per_day == pytest.approx(days / YEARS, rel=0.02)


@pytest.mark.parametrize(
    ("hours", "per_day", "days"),
    [
        (NEW_YORK, 7, 252),
        (sessions(8, 9), 9, 252),  # London: the last one is half a bar
        (sessions(0, 2) + sessions(3.5, 3), 5, 252),  # Tokyo with its lunch break
        (MONDAY_TO_FRIDAY, 24, 252),
        (SUNDAY_EVENING_TO_FRIDAY, 24, 252),
        ([h - 1 for h in sessions(24, 6)], 6, 252),  # Sydney: from 23:00 of the day before
        ([24 * day + 10.0 for day in (0, 1, 2, 3, 4)], 1, 252),
        ([24 * day + 10.0 + k for day in (0, 1, 2, 3, 6) for k in range(5)], 5, 252),  # from Sunday
    ],
)
@given(start=st.integers(0, 60), weeks=st.floats(1.6, 25))
def test_short_samples_are_not_off_by_a_weekend(
    hours: list[float], per_day: float, days: float, start: int, weeks: float
) -> None:
    times = weekly(hours, weeks + 13)[start:]
    times = times[times < times[0] + np.timedelta64(int(weeks * WEEK), "s")]
    year = estimate_year(times, DAY if per_day == 1 else HOUR)
    assert (year.origin, year.bars_per_day, year.bars) == ("short", per_day, per_day * days)


def test_short_samples_with_a_holiday_and_a_half_day() -> None:
    """New York, 16 to 29 November 2023."""
    times = session_times("XNYS", HOUR, "2023-11-16", "2023-11-29")
    assert len(times) == 8 * 7 + 4
    assert estimate_year(times, HOUR).bars == 252 * 7


@given(weeks=st.floats(27, 80), start=st.integers(0, 100))
def test_whole_weeks_are_counted(weeks: float, start: int) -> None:
    times = weekly(NEW_YORK, weeks + 3)[start:]
    assert estimate_year(times, HOUR).bars == pytest.approx(35 * 365 / 7)


@pytest.mark.parametrize("missing_weeks", [4, 30])
def test_holes_are_no_holidays(missing_weeks: int) -> None:
    times = weekly(NEW_YORK, 60 + missing_weeks)
    hole = np.datetime64("2024-05-08T16", "s")
    kept = times[(times < hole) | (times > hole + np.timedelta64(missing_weeks * WEEK, "s"))]
    assert estimate_year(kept, HOUR).bars == pytest.approx(35 * 365 / 7, rel=0.005)


CLOCK: SearchStrategy[int] = st.sampled_from([60, 300, 900, HOUR, 4 * HOUR, DAY])


@given(bar=CLOCK, bars=st.integers(1, 2000), start=st.integers(0, 10**6))
def test_markets_that_never_close_have_365_days_of_24_hours(
    bar: int, bars: int, start: int
) -> None:
    times = np.datetime64(start * 300, "s") + np.arange(bars) * np.timedelta64(bar, "s")
    year = estimate_year(times, bar)
    assert year == clock_year(bar)
    assert year.bars == 365 * DAY / bar
    assert year.seconds_per_bar == bar  # to the last bit: costs are what they were
    assert year.describe() == f"{365 * DAY // bar:,} (bars around the clock)"


def test_missing_bars_do_not_close_a_market() -> None:
    times = np.datetime64("2024-01-01", "s") + np.arange(2000) * np.timedelta64(HOUR, "s")
    kept = np.random.default_rng(0).random(2000) < 0.8
    assert estimate_year(times[kept], HOUR).always_open
    assert estimate_year(times[kept][:150], HOUR).always_open  # Monday to Sunday


@pytest.mark.parametrize(
    ("times", "always_open"),
    [
        (weekly(SUNDAY_EVENING_TO_FRIDAY, 30), False),
        (weekly(SUNDAY_EVENING_TO_FRIDAY, 1.9), False),
        ([*weekly(NEW_YORK, 40), np.datetime64("2024-06-01T15", "s")], False),  # Saturday
    ],
)
def test_some_bars_on_weekends_do_not_make_a_market_always_open(
    times: Times, always_open: bool
) -> None:
    ascending = np.sort(np.array(times, "datetime64[s]"))
    assert estimate_year(ascending, HOUR).always_open is always_open


def test_a_part_has_the_year_of_the_whole() -> None:
    panel = panel_at(weekly(MONDAY_TO_FRIDAY, 40), HOUR)
    part = panel.rows(0, 48)
    assert part.trading_year == panel.trading_year
    assert not part.always_open
    alone = panel_at(part.time, HOUR)
    assert alone.always_open  # two days without a break show nothing else


def test_larger_bars_are_counted_anew() -> None:
    panel: Panel = panel_at(weekly(sessions(12, 8), 40), HOUR)
    assert panel.bars_per_year == pytest.approx(40 * 365 / 7)
    assert resample(panel, "4h").bars_per_year == pytest.approx(10 * 365 / 7)


def test_where_the_number_comes_from_is_said() -> None:
    assert TradingYear(1764, 7, "counted").describe() == (
        "1,764 (from the data: 7 bars a day, 252 days)"
    )
    assert TradingYear(1757.2, 6.98, "calendar", "XNYS").describe() == (
        "1,757 (calendar XNYS: 6.98 bars a day, 252 days)"
    )
    assert TradingYear(252, 1, "counted").describe() == "252 (from the data: 1 bar a day, 252 days)"
    assert "252 days assumed, as so few bars show no holidays" in (
        TradingYear(1764, 7, "short").describe()
    )
