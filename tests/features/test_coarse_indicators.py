"""Indicators of larger bars: against pandas and TA-Lib, and the past alone decides them."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import talib
from feature_panels import at_times, every, listed_late, random_panel, with_gap
from hypothesis import given, settings
from hypothesis import strategies as st

from flatout.bars.calendars import follow_calendar
from flatout.bars.panel import PRICES, Panel
from flatout.bars.resample import resample
from flatout.bars.synthetic import RandomWalk
from flatout.errors import RecipeError
from flatout.features.indicators import INDICATORS, compute_indicators, count_warmup, warmup
from flatout.features.recipe import FittedRecipe, Recipe, fit
from rounding import assert_close
from session_panels import session_times

HOUR, DAY = 3600, 86_400
RULES = {"1h": "1h", "4h": "4h", "1d": "1D"}
EVERY = tuple(f"1h:{indicator.name}" for indicator in INDICATORS)
SHORT = ("1h:return_1", "1h:willr", "30m:obv", "4h:return_1", "1h:extra:mood", "roc")


def five_minutes(seed: int, bars: int, start: str = "2024-01-06", assets: int = 2) -> Panel:
    """Around the clock; one asset has a gap, and a further column has holes."""
    panel = at_times(random_panel(seed, bars=bars, assets=assets), every(300, bars, start), 300)
    panel = with_gap(panel, bars // 2, bars // 2 + 20)
    mood = np.random.default_rng(seed).normal(size=panel.close.shape)
    mood[::7] = np.nan
    return replace(panel, extras={"mood": mood})


def new_york(bar: int = 1800, first: str = "2023-08-15", last: str = "2024-01-10") -> Panel:
    """Sessions with holidays, half days and a change of clocks."""
    times = session_times("XNYS", bar, first, last)
    return at_times(random_panel(4, bars=len(times)), times, bar)


# --- oracles --------------------------------------------------------------------------------------


def by_pandas(
    panel: Panel, asset: int, rule: str, of_bars: Callable[[pd.DataFrame], np.ndarray]
) -> np.ndarray:
    """Resampled by pandas, then joined to the bars as of their closes."""
    index = pd.DatetimeIndex(panel.time)
    values = {name: getattr(panel, name)[:, asset] for name in (*PRICES, "volume")}
    table = pd.DataFrame(values, index=index)
    traded = table[panel.tradable[:, asset]].resample(rule)
    joined = traded.agg(
        {"open": "first", "high": "max", "low": "min", "close": "last", "volume": "sum"}
    )
    joined["close"] = joined["close"].ffill()
    for name in ("open", "high", "low"):
        joined[name] = joined[name].fillna(joined["close"])
    joined = joined[joined.index >= index[0]]  # the first began before the bars
    joined = joined[joined["close"].notna()]
    if not panel.always_open:
        joined = joined[joined["volume"] > 0]  # nights and weekends
    value = of_bars(joined.astype(float))
    known = pd.DataFrame({"at": joined.index + pd.Timedelta(rule), "value": value})
    asked = pd.DataFrame({"at": index + pd.Timedelta(seconds=panel.bar_seconds)})
    return pd.merge_asof(asked, known, on="at")["value"].to_numpy()


ORACLES: dict[str, Callable[[pd.DataFrame], np.ndarray]] = {
    "rsi": lambda bars: (talib.RSI(bars["close"].to_numpy(), 14) - 50) / 50,
    "cci": lambda bars: (
        talib.CCI(*(bars[n].to_numpy() for n in ("high", "low", "close")), 14) / 100
    ),
    "volatility": lambda bars: np.log(bars["close"]).diff().rolling(20).std(ddof=0).to_numpy(),
    "return_5": lambda bars: np.log(bars["close"] / bars["close"].shift(5)).to_numpy(),
    "volume": lambda bars: np.log(
        (1 + bars["volume"] / bars["volume"].rolling(50).mean()).to_numpy() / 2
    ),
}


@pytest.mark.parametrize("name", ORACLES)
@pytest.mark.parametrize("size", ["1h", "4h"])
@pytest.mark.parametrize("start", ["2024-01-06", "2024-01-06T02:35"])
def test_equals_pandas_and_talib_around_the_clock(name: str, size: str, start: str) -> None:
    panel = five_minutes(1, 9000, start)
    for asset in range(2):
        got = compute_indicators(panel, (f"{size}:{name}",))[:, asset, 0]
        want = by_pandas(panel, asset, RULES[size], ORACLES[name])
        compare_where_warm(got, want, count_warmup(panel, (f"{size}:{name}",)))


@pytest.mark.parametrize("name", ["volatility", "return_5", "cci"])
def test_equals_pandas_and_talib_in_sessions(name: str) -> None:
    """Without a calendar, as pandas has none: a day is over when its time has passed."""
    panel = new_york()
    got = compute_indicators(panel, (f"1d:{name}",))[:, 0, 0]
    want = by_pandas(panel, 0, "1D", ORACLES[name])
    compare_where_warm(got, want, count_warmup(panel, (f"1d:{name}",)))


def compare_where_warm(got: np.ndarray, want: np.ndarray, warm: int) -> None:
    assert len(got) - warm > 100
    np.testing.assert_allclose(got[warm:], want[warm:], rtol=1e-7, atol=1e-8)
    assert not (np.isfinite(got) & ~np.isfinite(want)).any()


@pytest.mark.parametrize("name", EVERY)
def test_every_indicator_is_that_of_bars_that_are_resampled_before(name: str) -> None:
    panel = five_minutes(2, 3000, "2024-01-06T00:35")
    whole = resample(panel, "1h")
    values = compute_indicators(whole, (name.removeprefix("1h:"),))[:, :, 0]
    got = compute_indicators(panel, (name,))[:, :, 0]
    # At the last five minutes of an hour that hour is known, until those of the next.
    for row in range(0, panel.n_bars, 17):
        close = panel.time[row] + np.timedelta64(300, "s")
        over = np.flatnonzero(whole.time + np.timedelta64(HOUR, "s") <= close)
        want = values[over[-1]] if len(over) else np.full(2, np.nan)
        np.testing.assert_array_equal(got[row], want)


def test_own_and_larger_bars_stand_side_by_side_in_the_order_of_their_names() -> None:
    panel = five_minutes(3, 2500)
    names = ("4h:return_1", "rsi", "1h:rsi", "extra:mood", "1h:volume", "volatility")
    together = compute_indicators(panel, names)
    for k, name in enumerate(names):
        np.testing.assert_array_equal(together[:, :, k], compute_indicators(panel, (name,))[..., 0])
    assert not np.array_equal(together[..., 1], together[..., 2], equal_nan=True)


def test_a_further_column_has_the_last_value_of_the_larger_bar() -> None:
    panel = five_minutes(5, 100)
    got = compute_indicators(panel, ("1h:extra:mood",))[:, :, 0]
    mood = panel.extras["mood"]
    for row in range(100):
        end = (row + 1) // 12 * 12  # bars up to the last full hour
        for asset in range(2):
            hour = mood[max(end - 12, 0) : end, asset]
            known = hour[~np.isnan(hour)]
            np.testing.assert_equal(got[row, asset], known[-1] if len(known) else np.nan)
    with pytest.raises(RecipeError, match="no further column 'funding'; it has: mood"):
        compute_indicators(panel, ("1h:extra:funding",))


def test_an_asset_listed_late_begins_with_its_own_larger_bars() -> None:
    panel = listed_late(five_minutes(6, 600), asset=1, start=150)
    values = compute_indicators(panel, ("1h:return_1",))
    # It has bars in the hours 12 and 13; the latter is over at bar 167.
    assert np.isnan(values[:167, 1]).all()
    assert np.isfinite(values[167:, 1]).all()
    assert np.isfinite(values[23:, 0]).all()


# --- the past alone -------------------------------------------------------------------------------

PANELS = {
    "around the clock": five_minutes(7, 700, "2024-01-06T00:25"),
    "sessions": replace(new_york(300, "2023-11-20", "2023-12-05"), extras={}),
    "named sessions": follow_calendar(new_york(300, "2023-11-20", "2023-12-05"), "XNYS"),
}


def names_on(panel: Panel) -> tuple[str, ...]:
    """Short ones; days only in sessions, whose days are short."""
    known = tuple(name for name in SHORT if panel.extras or "extra" not in name)
    return known if panel.extras else (*known, "1d:return_1")


def spoil(panel: Panel, row: int, how: str) -> Panel:
    """Everything from that bar on is another history."""
    rng = np.random.default_rng(row)
    later = np.arange(panel.n_bars)[:, None] >= row
    garbage = {
        "nan": np.full(panel.close.shape, np.nan),
        "huge": 1e9 * (1 + rng.random(panel.close.shape)),
        "tiny": 1e-9 * (1 + rng.random(panel.close.shape)),
    }[how]
    columns = {name: np.where(later, garbage, getattr(panel, name)) for name in (*PRICES, "volume")}
    extras = {name: np.where(later, garbage, x) for name, x in panel.extras.items()}
    return replace(panel, **columns, extras=extras)


@pytest.mark.parametrize("kind", PANELS)
@given(share=st.floats(0, 1))
@settings(max_examples=30, deadline=None)
def test_values_of_a_prefix_are_the_prefix_of_the_values(kind: str, share: float) -> None:
    panel = PANELS[kind]
    names, t = names_on(panel), round(share * panel.n_bars)
    part, whole = (compute_indicators(bars, names) for bars in (panel.rows(0, t), panel))
    for k, name in enumerate(names):
        assert_close(part[:, :, k], whole[:t, :, k], roundings=64, name=name)


@pytest.mark.parametrize("how", ["nan", "huge", "tiny"])
@pytest.mark.parametrize("kind", PANELS)
def test_a_poisoned_future_changes_nothing_before_it(kind: str, how: str) -> None:
    """At every bar of two hours, among them those in the middle of a larger bar: what follows may
    not reach back into the bars of the same hour, nor of the same day.
    """
    panel = PANELS[kind]
    names = names_on(panel)
    clean = compute_indicators(panel, names)
    for row in range(400, 425):
        with np.errstate(all="ignore"):
            dirty = compute_indicators(spoil(panel, row, how), names)
        assert clean[:row].tobytes() == dirty[:row].tobytes()
        changed = (clean[row:] != dirty[row:]) & ~(np.isnan(clean[row:]) & np.isnan(dirty[row:]))
        assert changed.any(axis=(0, 1)).all()


def test_the_rest_of_an_hour_does_not_reach_its_first_half() -> None:
    panel = five_minutes(8, 240)
    values = compute_indicators(panel, ("1h:return_1",))[:, 0, 0]
    steps = np.flatnonzero(np.diff(values[23:])) + 24
    assert steps.tolist() == list(range(35, 240, 12))  # the close of the last five minutes


# --- warm-up --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", PANELS)
@pytest.mark.parametrize("name", ["1h:return_1", "1h:roc", "4h:return_5", "30m:volatility", "roc"])
def test_nothing_older_than_the_warm_up_reaches_a_value(kind: str, name: str) -> None:
    """What the embargo of folds rests on: other bars before it change nothing."""
    panel = PANELS[kind]
    reach = count_warmup(panel, (name,))
    values = compute_indicators(panel, (name,))
    assert np.isfinite(values[reach:]).all()
    noticed = 0
    for row in range(reach + 1, panel.n_bars, 13):
        before = np.arange(panel.n_bars)[:, None]
        for oldest, same in ((row - reach, True), (row - reach + 60, None)):
            other = {
                column: np.where(before < oldest, 1.0, getattr(panel, column))
                for column in (*PRICES, "volume")
            }
            changed = compute_indicators(replace(panel, **other), (name,))[row]
            if same:
                assert_close(changed, values[row], roundings=1024, size=1.0)
            else:
                noticed += not np.allclose(changed, values[row])
    assert noticed  # nearer bars do change it


def test_a_history_that_begins_elsewhere_gives_the_same_numbers() -> None:
    """As of a machine that trades live and keeps the last bars only."""
    panel = five_minutes(9, 5000, assets=8)
    names = ("1h:rsi", "1h:atr_regime", "30m:macd_hist", "1h:volatility")
    reach = count_warmup(panel, names)
    whole = compute_indicators(panel, names)
    for start in (1001, 2007):
        later = compute_indicators(panel.rows(start, 5000), names)
        error = np.abs(later - whole[start:])[reach:] / np.nanstd(whole, axis=(0, 1))
        assert error.max() < 1e-3


def test_a_recipe_counts_the_longest_way_back_and_its_lookback() -> None:
    hours = RandomWalk(n_bars=800, seed=1).panel()
    assert hours.bar_seconds == HOUR
    assert Recipe(("rsi", "return_1"), 3).count_warmup(hours) == warmup("rsi") + 2
    assert Recipe(("rsi", "1d:volatility"), 3).count_warmup(hours) == 22 * 24 - 2 + 2


# --- recipes --------------------------------------------------------------------------------------


def test_a_recipe_without_a_value_says_how_many_bars_it_takes() -> None:
    hours = RandomWalk(n_bars=400, seed=1).panel()
    with pytest.raises(RecipeError, match=r"no value of 1d:volatility in .* warm-up takes 528 bar"):
        fit(Recipe(("rsi", "1d:volatility")), hours, np.arange(300))


def test_a_fitted_recipe_comes_back_with_its_calendar(tmp_path) -> None:
    named = follow_calendar(new_york(), "XNYS")
    fitted = fit(Recipe(("1d:return_1", "1h:roc", "rsi")), named, np.arange(300))
    fitted.save(tmp_path)
    loaded = FittedRecipe.load(tmp_path)
    assert loaded.calendar == "XNYS"
    assert loaded.schema_hash == fitted.schema_hash
    np.testing.assert_array_equal(loaded.transform(named), fitted.transform(named))


def test_a_calendar_matters_to_larger_bars_and_to_nothing_else() -> None:
    """With it the last bar of a session knows the day, without it the next bar does."""
    plain = new_york()
    named, rows = follow_calendar(plain, "XNYS"), np.arange(300)
    message = "fitted on bars with 'XNYS', given bars with no exchange calendar: .* give bars with"
    with pytest.raises(RecipeError, match=message):
        fit(Recipe(("1d:return_1",)), named, rows).transform(plain)
    with pytest.raises(RecipeError, match=r"with no exchange calendar, given .*XNYS"):
        fit(Recipe(("1d:return_1",)), plain, rows).transform(named)
    own = [fit(Recipe(("return_1",)), bars, rows) for bars in (plain, named)]
    np.testing.assert_array_equal(own[0].transform(named), own[1].transform(plain))
    assert own[0].schema_hash == own[1].schema_hash


def test_a_recipe_whose_sizes_its_bars_do_not_fill_is_refused(tmp_path) -> None:
    fitted = fit(Recipe(("1h:return_1",)), five_minutes(1, 300), np.arange(200))
    with pytest.raises(RecipeError, match="bars given are of 40m, which do not fill them"):
        replace(fitted, bar_seconds=2400)
