"""The embargo of a study covers all that its features look back, larger bars included: what judges
may change at will, and the features of what teaches after it stay.
"""

from dataclasses import replace

import numpy as np
import pytest

from flatout.bars.calendars import follow_calendar
from flatout.bars.panel import PRICES, Panel
from flatout.bars.synthetic import RandomWalk
from flatout.errors import SettingsError
from flatout.evaluation.audit_folds import check_folds
from flatout.evaluation.study_folds import make_study_folds
from flatout.features.indicators import compute_indicators
from flatout.folds.blocks import list_rows
from flatout.market.market import recipe_of
from flatout.settings.tables import Settings
from session_panels import session_times

DAYS = ("1d:volatility", "1d:return_5", "return_20")


def hours(calendar: str | None) -> Panel:
    """Around the clock, or of a calendar's sessions, whose days have seven bars."""
    panel = RandomWalk(n_bars=5000, seed=1, symbols=("A", "B")).panel()
    if calendar is None:
        return panel
    times = session_times(calendar, 3600, "2021-01-04", "2023-06-30")
    walk = replace(panel.rows(0, len(times)), time=times, year=None)
    return follow_calendar(walk, calendar)


def settings_of(**folds: object) -> Settings:
    features = {"indicators": DAYS, "lookback": 3}
    return Settings.model_validate({"features": features, "folds": {"groups": 3, **folds}})


@pytest.mark.parametrize("calendar", [None, "XNYS"])
def test_nothing_that_judges_reaches_the_features_of_what_teaches_later(
    calendar: str | None,
) -> None:
    panel, settings = hours(calendar), settings_of(kind="kfold")
    folds = make_study_folds(panel, settings)
    per_day = 24 if calendar is None else 7
    assert folds.embargo == recipe_of(settings.features).count_warmup(panel)
    assert 21 * per_day <= folds.embargo <= 22 * per_day + 2
    assert check_folds(panel, folds, settings).passed
    clean = compute_indicators(panel, DAYS)
    later = 0
    for split in folds.splits:
        judged = np.zeros((panel.n_bars, 1), bool)
        judged[list_rows(split.test)] = True
        garbage = np.exp(np.random.default_rng(0).normal(0, 2, panel.close.shape))
        spoilt = {name: np.where(judged, garbage, getattr(panel, name)) for name in PRICES}
        dirty = compute_indicators(replace(panel, **spoilt), DAYS)
        rows = list_rows(split.train)
        window = np.unique((rows[:, None] - np.arange(3)).ravel())  # the lookback of 3 bars
        np.testing.assert_array_equal(clean[window], dirty[window])
        later += int((rows > split.test[0].stop).sum())
        last = split.test[-1].stop
        if last + folds.embargo < folds.cut:  # a bar that learns earlier would see it
            assert (clean[last + 1] != dirty[last + 1]).any()
    assert later > 1000


def test_an_embargo_that_larger_bars_reach_across_is_refused() -> None:
    message = "folds.embargo_bars is 400, but observations look back 528 bars"
    with pytest.raises(SettingsError, match=message):
        make_study_folds(hours(None), settings_of(embargo_bars=400))


def test_an_audit_finds_folds_that_were_made_for_shorter_features() -> None:
    panel, settings = hours(None), settings_of()
    short = settings.model_copy(
        update={"features": settings.features.model_copy(update={"indicators": ("return_20",)})}
    )
    found = check_folds(panel, make_study_folds(panel, short), settings)
    assert not found.passed
    assert "shorter than what reaches across a boundary" in found.sentence
