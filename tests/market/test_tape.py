"""What the tape says about each bar, and when it is known."""

from dataclasses import replace

import numpy as np
import pytest

from flatout.bars.panel import DAY, DEAD_AFTER_DAYS, PRICES, Panel
from flatout.errors import RulesError
from flatout.market.execute import Bar
from flatout.market.tape import (
    Meeting,
    Tape,
    equal_weight_log_return,
    make_tape,
    meet,
    trailing_volatility,
)
from scenarios import random_panel

BARS, ASSETS, CAPITAL = 80, 3, 1000.0


def tape_of(panel: Panel) -> Tape:
    return make_tape(panel, np.zeros((panel.n_bars, panel.n_assets, 1), np.float32), CAPITAL)


def met_at(panel: Panel, t: int) -> Meeting:
    """(asset,) values, instead of one column per account."""
    mark, bar, benchmark = meet(tape_of(panel), np.array([t]), np)
    return Meeting(mark[:, 0], Bar(*(x[:, 0] for x in bar)), benchmark[0])


def listed_late(panel: Panel, asset: int, start: int) -> Panel:
    """The asset has no bar before `start`."""
    arrays = {name: getattr(panel, name).copy() for name in (*PRICES, "volume", "tradable")}
    for name, values in arrays.items():
        values[:start, asset] = np.nan if name in PRICES else 0
    return replace(panel, **arrays)


def test_order_at_t_meets_the_next_bar() -> None:
    panel = random_panel(0, BARS, ASSETS, gaps=False)
    for t in (0, 17, BARS - 2):
        met = met_at(panel, t)
        np.testing.assert_array_equal(met.mark, panel.close[t])
        for name in PRICES:
            np.testing.assert_array_equal(getattr(met.bar, name), getattr(panel, name)[t + 1])
        np.testing.assert_allclose(met.bar.volume, panel.volume[t + 1] / CAPITAL)


def test_many_accounts_meet_their_own_bars() -> None:
    tape = tape_of(random_panel(0, BARS, ASSETS))
    t = np.array([[3, 40], [3, 78]])
    many = meet(tape, t, np)
    assert many.mark.shape == (ASSETS, 2, 2)
    for at in np.ndindex(2, 2):
        one = meet(tape, t[at][None], np)
        np.testing.assert_array_equal(many.bar.low[:, *at], one.bar.low[:, 0])
        assert many.benchmark[at] == one.benchmark[0]


def test_impact_is_volatility_over_root_volume() -> None:
    """The volatility is that of bars up to t, the volume that of bar t + 1."""
    panel = random_panel(1, BARS, ASSETS, gaps=False)
    t = 60
    moves = np.diff(np.log(panel.close), axis=0)[t - 48 : t]  # the returns of bars t-47..t
    volatility = np.sqrt(np.mean(moves**2, axis=0))
    np.testing.assert_allclose(trailing_volatility(panel.close)[t], volatility, rtol=1e-9)
    np.testing.assert_allclose(
        met_at(panel, t).bar.impact_rate,
        volatility / np.sqrt(panel.volume[t + 1] / CAPITAL),
        rtol=1e-9,
    )


def test_volatility_does_not_see_the_next_bar() -> None:
    panel = random_panel(1, BARS, ASSETS)
    spoilt = panel.close.copy()
    spoilt[41:] *= 7
    np.testing.assert_array_equal(
        trailing_volatility(spoilt)[:41], trailing_volatility(panel.close)[:41]
    )
    assert (trailing_volatility(spoilt)[41] != trailing_volatility(panel.close)[41]).all()


def test_bar_that_is_not_tradable_has_no_volume_and_no_impact() -> None:
    panel = random_panel(2, BARS, ASSETS, gaps=False)
    tradable = panel.tradable.copy()
    tradable[31, 1] = False  # its volume stays: tradable decides
    met = met_at(replace(panel, tradable=tradable), 30)
    assert met.bar.volume[1] == met.bar.impact_rate[1] == 0
    assert (met.bar.volume[[0, 2]] > 0).all()
    np.testing.assert_array_equal(met.bar.close, panel.close[31])


def test_unlisted_asset_has_price_one_and_no_volume() -> None:
    panel = listed_late(random_panel(2, BARS, ASSETS, gaps=False), asset=1, start=30)
    tape, met, first = tape_of(panel), met_at(panel, 20), met_at(panel, 29)
    assert np.isfinite(tape.columns).all()
    assert met.mark[1] == met.bar.open[1] == met.bar.close[1] == 1
    assert met.bar.volume[1] == met.bar.impact_rate[1] == 0
    assert first.bar.open[1] == panel.open[30, 1]
    assert first.bar.volume[1] > 0


def test_volatility_of_a_new_listing_averages_its_own_returns() -> None:
    """Bars before the listing are no returns of 0: impact would be nearly free at first."""
    panel = listed_late(random_panel(2, BARS, ASSETS, gaps=False), asset=1, start=60)
    moves = np.diff(np.log(panel.close[60:70, 1]))
    assert trailing_volatility(panel.close)[69, 1] == pytest.approx(
        np.sqrt(np.mean(moves**2)), rel=0.1
    )


def test_benchmark_is_the_mean_simple_return() -> None:
    panel = random_panel(3, BARS, ASSETS)
    simple = panel.close[1:] / panel.close[:-1] - 1
    np.testing.assert_allclose(
        equal_weight_log_return(panel)[1:], np.log(1 + simple.mean(axis=1)), atol=1e-12
    )
    assert met_at(panel, 12).benchmark == pytest.approx(np.log(1 + simple[12].mean()))


def test_benchmark_leaves_out_unlisted_assets() -> None:
    panel = listed_late(random_panel(3, BARS, ASSETS), asset=1, start=30)
    simple = panel.close[1:] / panel.close[:-1] - 1
    assert met_at(panel, 20).benchmark == pytest.approx(np.log(1 + simple[20, [0, 2]].mean()))
    assert met_at(panel, 30).benchmark == pytest.approx(np.log(1 + simple[30].mean()))


def delisted(panel: Panel, asset: int, last: int) -> Panel:
    """The asset's last bar is `last`; its close is carried from there on."""
    arrays = {name: getattr(panel, name).copy() for name in (*PRICES, "volume", "tradable")}
    for name, values in arrays.items():
        values[last + 1 :, asset] = panel.close[last, asset] if name in PRICES else 0
    return replace(panel, **arrays)


def test_benchmark_leaves_out_dead_assets() -> None:
    """What has not traded for two weeks is no longer held; until then its last price earns 0, for
    nobody knows yet.
    """
    panel = delisted(replace(random_panel(3, BARS, ASSETS), bar_seconds=DAY), asset=1, last=30)
    panel = replace(panel, time=panel.time[0] + np.arange(BARS) * np.timedelta64(1, "D"))
    simple = panel.close[1:] / panel.close[:-1] - 1
    died = 31 + DEAD_AFTER_DAYS  # the first bar at whose close it is dead
    for t in (12, 30, 31, died - 1):
        assert met_at(panel, t).benchmark == pytest.approx(np.log(1 + simple[t].mean()))
    for t in (died, died + 1, BARS - 2):
        assert met_at(panel, t).benchmark == pytest.approx(np.log(1 + simple[t, [0, 2]].mean()))


def test_benchmark_does_not_know_that_an_asset_will_die() -> None:
    panel = replace(random_panel(3, BARS, ASSETS), bar_seconds=DAY)
    panel = replace(panel, time=panel.time[0] + np.arange(BARS) * np.timedelta64(1, "D"))
    living, dying = (equal_weight_log_return(x) for x in (panel, delisted(panel, asset=1, last=30)))
    np.testing.assert_array_equal(living[:31], dying[:31])
    assert (living[31:] != dying[31:]).all()


def test_benchmark_of_nothing_alive_earns_nothing() -> None:
    panel = random_panel(3, BARS, ASSETS)
    dead = replace(panel, tradable=np.zeros_like(panel.tradable))
    assert not equal_weight_log_return(dead).any()


@pytest.mark.parametrize("shape", [(BARS - 1, ASSETS, 1), (BARS, ASSETS - 1, 1)])
def test_refuses_features_of_another_panel(shape: tuple[int, ...]) -> None:
    with pytest.raises(
        RulesError, match=rf"{shape[0]} bars x {shape[1]} assets.*{BARS} x {ASSETS}"
    ):
        make_tape(random_panel(0, BARS, ASSETS), np.zeros(shape, np.float32), CAPITAL)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_refuses_features_that_are_not_finite(value: float) -> None:
    features = np.zeros((BARS, ASSETS, 2), np.float32)
    features[5, 1, 1] = value
    with pytest.raises(RulesError, match="NaN or infinite"):
        make_tape(random_panel(0, BARS, ASSETS), features, CAPITAL)


def test_features_lie_asset_by_asset() -> None:
    features = np.arange(BARS * ASSETS * 2, dtype=np.float32).reshape(BARS, ASSETS, 2)
    tape = make_tape(random_panel(0, BARS, ASSETS), features, CAPITAL)
    np.testing.assert_array_equal(tape.features[7], features[7].ravel())
