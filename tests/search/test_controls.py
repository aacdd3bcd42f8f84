"""Controls: a market in which nothing can be known, and one whose only change is that tomorrow can
be seen.
"""

from dataclasses import replace

import numpy as np
import pytest
from small_studies import small_panel, small_settings

from flatout.bars.panel import PRICES, Panel
from flatout.bars.synthetic import RandomWalk
from flatout.evaluation.backtest import backtest
from flatout.evaluation.baselines import Moment
from flatout.features.recipe import fit
from flatout.market.market import build_market, cast, recipe_of
from flatout.market.tape import make_tape
from flatout.search.controls import (
    NOISE,
    ORACLE,
    Control,
    gain_of_next_bar,
    make_bars_without_edge,
    make_controls,
)
from flatout.search.market_study import make_study
from flatout.settings.tables import Fill, Settings
from rounding import assert_close

FREE = {"tiers": [{"maker_bps": 0.0, "taker_bps": 0.0}], "half_spread_bps": 0.0, "impact": 0.0}


@pytest.fixture(scope="module")
def controls() -> dict[str, Control]:
    study = make_study(small_panel(), small_settings(), 4, 1)
    return make_controls(study.panel, study.settings, study.folds)


def correlation(panel: Panel) -> float:
    """Of the signal with the return of the bar that follows."""
    moves = np.diff(np.log(panel.close), axis=0)
    return float(np.corrcoef(panel.extras["signal"][:-1].ravel(), moves.ravel())[0, 1])


def test_noise_has_no_edge() -> None:
    """Bars as volatile as the user's, on the same grid, whose signal says nothing."""
    panel = small_panel(4000)
    noise = make_bars_without_edge(panel, seed=0)
    assert correlation(panel) > 0.3
    assert abs(correlation(noise)) < 4 / np.sqrt(
        noise.close.size
    )  # standard errors, here and below
    assert noise.symbols == panel.symbols
    np.testing.assert_array_equal(noise.time, panel.time)
    moves, theirs = (np.diff(np.log(p.close), axis=0) for p in (noise, panel))
    np.testing.assert_allclose(
        moves.std(axis=0), np.median(theirs.std(axis=0)), rtol=4 / np.sqrt(2 * len(moves))
    )
    lags = [np.corrcoef(moves[:-lag, 0], moves[lag:, 0])[0, 1] for lag in range(1, 20)]
    assert np.max(np.abs(lags)) < 4 / np.sqrt(len(moves))
    assert abs(np.expm1(moves).mean()) < 4 * moves.std() / np.sqrt(moves.size)


def test_noise_is_made_of_nothing_but_the_seed_and_the_volatility() -> None:
    panel = small_panel()
    noise = make_bars_without_edge(panel, seed=3)
    np.testing.assert_array_equal(noise.close, make_bars_without_edge(panel, seed=3).close)
    assert (noise.close != make_bars_without_edge(panel, seed=4).close).any()
    mine, theirs = (np.diff(np.log(p.close[:, 0])) for p in (noise, panel))
    assert abs(np.corrcoef(mine, theirs)[0, 1]) < 4 / np.sqrt(len(mine))
    np.testing.assert_array_equal(
        np.sort(noise.extras["signal"], axis=0), np.sort(panel.extras["signal"], axis=0)
    )
    assert (noise.extras["signal"] != panel.extras["signal"]).any()


# the price at which an order is filled, and how many bars after its own
HELD: dict[Fill, tuple[str, int]] = {
    "next_open": ("open", 1),
    "next_close": ("close", 1),
    "same_close": ("close", 0),
}
FILLS = pytest.mark.parametrize("fill", HELD)


@FILLS
def test_the_oracle_is_the_gain_from_fill_to_fill(fill: Fill) -> None:
    """From the price at which an order made now is filled to that of an order one bar later."""
    panel, (name, late) = small_panel(), HELD[fill]
    found, price = gain_of_next_bar(panel, fill), getattr(panel, name)
    gain = np.zeros_like(price)
    for t in range(panel.n_bars - 1 - late):
        gain[t] = np.log(price[t + 1 + late] / price[t + late])
    assert_close(found, np.clip(gain / gain.std(), -3, 3), roundings=8, size=3.0)
    assert (found[-1 - late :] == 0).all()  # of what lies behind the bars nothing is said
    assert (found[: -1 - late] != 0).all()
    assert found.dtype == np.float32


@FILLS
def test_who_follows_the_oracle_earns_all_gains(fill: Fill) -> None:
    """In the market itself: without costs, in when a gain comes and out otherwise."""
    panel, (name, late) = RandomWalk(n_bars=300, symbols=("ONE",)).panel(), HELD[fill]
    market = build_market(
        panel,
        Settings.model_validate(
            {"market": {"costs": FREE, "fill": fill}, "features": {"indicators": ["roc"]}}
        ),
    )
    says = gain_of_next_bar(panel, fill)[:, 0]
    first = int(market.rules.segments.first[0])

    def follower(moment: Moment) -> np.ndarray:
        return (says[len(moment.closes) - 1] > 0) * 1.0 - moment.weights

    history = backtest(market, follower)
    price = getattr(panel, name)[late:, 0]
    gains = np.log(price[1:] / price[:-1])[first:]
    earned = np.log(history.equity[-1, 0])
    np.testing.assert_allclose(
        earned, np.maximum(gains, 0).sum(), atol=0.03
    )  # the last bar is marked at its close
    assert earned > 5 * abs(np.log(panel.close[-1, 0] / panel.close[first, 0]))


@FILLS
def test_the_oracle_control_follows_the_fill_rule_of_the_settings(fill: Fill) -> None:
    settings = small_settings()
    market = settings.market.model_copy(update={"fill": fill})
    study = make_study(small_panel(), settings.model_copy(update={"market": market}), 4, 1)
    oracle = make_controls(study.panel, study.settings, study.folds)[ORACLE]
    seen = oracle.tape.features.reshape(study.panel.n_bars, study.panel.n_assets, -1)
    np.testing.assert_array_equal(seen[:, :, 0], gain_of_next_bar(study.panel, fill))


def test_nothing_but_the_first_feature_knows_tomorrow(controls: dict[str, Control]) -> None:
    study = make_study(small_panel(), small_settings(), 4, 1)
    oracle = controls[ORACLE]
    [train] = oracle.train
    fitted = fit(recipe_of(study.settings.features), study.panel, np.arange(*train))
    plain = cast(
        make_tape(study.panel, fitted.transform(study.panel), study.settings.market.capital),
        np.float32,
    )
    np.testing.assert_array_equal(oracle.tape.columns, plain.columns)
    shape = (study.panel.n_bars, study.panel.n_assets, -1)
    seen, usual = oracle.tape.features.reshape(shape), plain.features.reshape(shape)
    np.testing.assert_array_equal(seen[:, :, 1:], usual[:, :, 1:])
    np.testing.assert_array_equal(seen[:, :, 0], gain_of_next_bar(study.panel, "next_open"))
    assert (seen[:, :, 0] != usual[:, :, 0]).mean() > 0.9
    np.testing.assert_array_equal(oracle.fitted.scaler.statistics, fitted.scaler.statistics)


@pytest.mark.parametrize("name", [NOISE, ORACLE])
def test_controls_are_judged_on_bars_that_did_not_teach(
    controls: dict[str, Control], name: str
) -> None:
    control = controls[name]
    [train], [test] = control.train, control.test
    study = make_study(small_panel(), small_settings(), 4, 1)
    assert study.folds.first == train.first
    assert train.stop == test.first - study.folds.purge
    assert test.stop == study.panel.n_bars == len(control.tape.features)
    assert 100 < test.length <= study.test_bars
    assert control.fitted.training.first == train.first
    assert control.fitted.training.last == train.stop - 1


@FILLS
def test_before_its_first_bar_a_symbol_gains_nothing(fill: Fill) -> None:
    """The step from no price to the first one is no gain, and must not drown the others."""
    panel = small_panel()
    late = {name: getattr(panel, name).copy() for name in PRICES}
    for column in late.values():
        column[:300, 1] = np.nan
    found = gain_of_next_bar(replace(panel, **late), fill)
    assert np.isfinite(found).all()
    assert (found[:299, 1] == 0).all()
    usual = gain_of_next_bar(panel, fill)
    for asset, first in ((0, 0), (1, 299)):
        np.testing.assert_allclose(
            np.std(found[first:, asset]), np.std(usual[first:, asset]), rtol=0.2
        )
