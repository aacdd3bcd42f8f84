"""What a report says its figures rest on: how many bars a year has."""

from flatout.bars.calendars import follow_calendar
from flatout.bars.synthetic import built_in_market
from flatout.search.report_assumed import describe_year
from session_panels import panel_at, session_times

HOUR = 3600


def test_the_year_of_the_data_is_said_with_its_days() -> None:
    panel = panel_at(session_times("XNYS", HOUR, "2019-01-01", "2023-12-31"), HOUR)
    [said] = describe_year(panel)
    assert said.startswith("bars per year: 1,756 (from the data: 6.98 bars a day, 252 days);")
    assert said.endswith("spread over them, nights, weekends and holidays included")


def test_around_the_clock_nothing_is_closed() -> None:
    [said] = describe_year(built_in_market(n_bars=100))
    assert said.startswith("bars per year: 8,760 (bars around the clock);")
    assert "nights" not in said


def test_a_calendar_that_does_not_fit_the_bars_is_told() -> None:
    """Bars of London under the calendar of New York."""
    panel = panel_at(session_times("XLON", HOUR, "2022-01-01", "2023-12-31"), HOUR)
    [fitting] = describe_year(follow_calendar(panel, "XLON"))
    assert "calendar XLON: 8.96 bars a day" in fitting
    said, warning = describe_year(follow_calendar(panel, "XNYS"))
    assert "calendar XNYS" in said
    assert warning.startswith("the bars themselves count 2,2")
