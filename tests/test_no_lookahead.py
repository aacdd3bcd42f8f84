"""The future must not reach the past: poison it, and nothing earlier changes by a bit; cut it off,
and nothing earlier changes by more than the rounding of arrays of another length.

Features: indicators of the first t bars are those of the whole history, and what the scaler learns
depends on the training rows alone.

Market: observations, rewards and accounts up to bar t do not depend on bars after t; an order made
at t meets bar t + 1.
"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flatout.bars.panel import PRICES, Panel
from flatout.features.indicators import INDICATORS, compute_indicators
from flatout.features.recipe import Recipe, fit
from flatout.features.scalers import SCALERS
from flatout.market import episode
from flatout.market.market import build_market
from flatout.settings.tables import Settings
from rounding import assert_close

PLAIN = (*(indicator.name for indicator in INDICATORS), "extra:funding")
COARSE = ("15m:roc", "30m:return_1", "1h:return_1", "10m:obv", "30m:extra:funding")
NAMES = (*PLAIN, *COARSE)
BARS = 400
COLUMNS = (*PRICES, "volume")


def market(seed: int) -> Panel:
    """Three assets: one plain, one with a gap in its bars, one that is listed late; and a further
    column.
    """
    rng = np.random.default_rng(seed)
    shape = (BARS, 3)
    close = 20 * np.exp(np.cumsum(rng.standard_t(4, shape) * 0.01, axis=0))
    open_ = np.vstack([close[:1], close[:-1]])
    high = np.maximum(open_, close) * np.exp(np.abs(rng.normal(0, 0.004, shape)))
    low = np.minimum(open_, close) * np.exp(-np.abs(rng.normal(0, 0.004, shape)))
    volume = np.exp(rng.normal(5, 1, shape))
    tradable = np.ones(shape, bool)
    for values in (open_, high, low, close):
        values[250:280, 1] = close[249, 1]
        values[:70, 2] = np.nan
    volume[250:280, 1] = volume[:70, 2] = 0
    tradable[250:280, 1] = tradable[:70, 2] = False
    time = np.datetime64("2022-01-01", "us") + np.arange(BARS) * np.timedelta64(300, "s")
    extras = {"funding": rng.normal(size=shape)}
    return Panel(("A", "B", "C"), time, 300, open_, high, low, close, volume, tradable, extras)


def poisoned(panel: Panel, from_row: int, poison: str) -> Panel:
    """Everything from that row on is another history: `nan`, `huge`, `tiny`, or `shuffled` bars."""
    rng = np.random.default_rng(from_row)
    order = from_row + rng.permutation(panel.n_bars - from_row)

    def spoil(values):
        values = values.copy()
        rest = values[from_row:].shape
        values[from_row:] = {
            "nan": np.full(rest, np.nan),
            "huge": 1e12 * (1 + rng.random(rest)),
            "tiny": 1e-12 * (1 + rng.random(rest)),
            "shuffled": np.nan_to_num(values[order], nan=1.0),
        }[poison]
        return values

    spoilt = {name: spoil(getattr(panel, name)) for name in COLUMNS}
    return replace(panel, **spoilt, extras={name: spoil(x) for name, x in panel.extras.items()})


def same_bits(a, b) -> bool:
    return np.ascontiguousarray(a).tobytes() == np.ascontiguousarray(b).tobytes()


def changed_features(a, b) -> list[str]:
    return [name for k, name in enumerate(NAMES) if not same_bits(a[:, :, k], b[:, :, k])]


@given(seed=st.integers(0, 2**32 - 1), t=st.integers(1, BARS))
@settings(max_examples=40, deadline=None)
def test_features_of_a_prefix_are_the_prefix_of_the_features(seed, t):
    panel = market(seed)
    part, whole = compute_indicators(panel.rows(0, t), NAMES), compute_indicators(panel, NAMES)[:t]
    for k, name in enumerate(NAMES):
        assert_close(part[:, :, k], whole[:, :, k], roundings=64, name=name)


@pytest.mark.parametrize("poison", ["nan", "huge", "tiny", "shuffled"])
@given(seed=st.integers(0, 2**32 - 1), t=st.integers(1, BARS - 1))
@settings(max_examples=15, deadline=None)
def test_poisoned_future_leaves_features_alone(poison, seed, t):
    panel = market(seed)
    spoilt = poisoned(panel, t, poison)
    assert (
        changed_features(
            compute_indicators(spoilt, NAMES)[:t], compute_indicators(panel, NAMES)[:t]
        )
        == []
    )


def test_the_poison_would_be_seen():
    panel = market(1)
    for poison in ("nan", "huge", "tiny", "shuffled"):
        after = compute_indicators(poisoned(panel, 300, poison), NAMES)[300:]
        assert changed_features(after, compute_indicators(panel, NAMES)[300:]) == list(NAMES)


@pytest.mark.parametrize("scaler", SCALERS)
@pytest.mark.parametrize("poison", ["nan", "huge", "shuffled"])
def test_poisoned_test_rows_leave_the_scaler_and_the_scaled_features_alone(scaler, poison):
    panel, train = market(2), np.arange(190, 320)
    spoilt = poisoned(panel, 320, poison)
    clean, dirty = (fit(Recipe(NAMES, scaler=scaler), bars, train) for bars in (panel, spoilt))
    assert same_bits(clean.scaler.statistics, dirty.scaler.statistics)
    assert same_bits(clean.transform(panel)[:320], dirty.transform(spoilt)[:320])
    assert not same_bits(clean.transform(panel)[320:], dirty.transform(spoilt)[320:])


@pytest.mark.parametrize("scaler", SCALERS)
def test_rows_between_training_rows_do_not_teach_the_scaler(scaler):
    """A test block inside the training range: its funding, an indicator without memory, is
    poisoned.
    """
    panel = market(3)
    train = np.r_[190:250, 300:350]
    funding = panel.extras["funding"].copy()
    funding[250:300] = 1e9
    spoilt = replace(panel, extras={"funding": funding})
    clean, dirty = (fit(Recipe(PLAIN, scaler=scaler), bars, train) for bars in (panel, spoilt))
    assert same_bits(clean.scaler.statistics, dirty.scaler.statistics)


# --- market ---------------------------------------------------------------------------------------

FIRST_DECISION = 200
RULES = {
    "capital": 1e4,
    "action": "trade",
    "costs": {"borrow_bps_per_year": 0.0},  # else the next close would rightly reach the cash
    "limits": {
        "max_short_weight": 0.4,
        "trailing_stop": 0.03,
        "cooldown_bars": 2,
        "max_held_bars": 9,
    },
    "reward": {
        "excess": 1.0,
        "differential_sharpe": 0.1,
        "drawdown": 0.1,
        "turnover": 0.1,
        "concentration": 0.1,
    },
}


def life(panel: Panel, fill: str, until: int) -> dict[int, list[np.ndarray]]:
    """What four accounts that trade at random see, earn and own at every bar up to `until`."""
    fitted = fit(
        Recipe(("return_1", "volatility", "extra:funding", "15m:return_1"), lookback=2),
        panel,
        np.arange(100, FIRST_DECISION),
    )
    made = build_market(panel, Settings.model_validate({"market": RULES | {"fill": fill}}), fitted)
    made = made.between(FIRST_DECISION, BARS)
    rng, (tape, shape, rules) = np.random.default_rng(0), (made.tape, made.shape, made.rules)
    state = episode.reset(np.zeros(4), shape, rules, np)
    seen = {FIRST_DECISION: [episode.observe(state, tape, shape, rules, np)]}
    for bar in range(FIRST_DECISION + 1, until + 1):
        state, outcome = episode.step(state, rng.uniform(-1, 1, (3, 4)), tape, shape, rules, np)
        seen[bar] = [
            episode.observe(state, tape, shape, rules, np),
            outcome.reward,
            outcome.terminated,
        ]
        seen[bar] += [*state.account, *state.marks, *outcome.terms, state.close]
    return seen


@pytest.mark.parametrize("fill", ["next_open", "next_close", "same_close"])
@pytest.mark.parametrize("poison", ["huge", "tiny", "shuffled"])
@pytest.mark.parametrize("t", [FIRST_DECISION, 251, 340])
def test_poisoned_future_reaches_the_market_at_its_own_bar(t: int, poison: str, fill: str) -> None:
    """All bars after t are another history: what happens up to t is the same to the bit, and bar t
    + 1 is not.

    So the order made at t, the same in both, met nothing later than bar t + 1, and nothing earlier.
    """
    panel = market(4)
    clean = life(panel, fill, t + 1)
    with np.errstate(all="ignore"):
        dirty = life(poisoned(panel, t + 1, poison), fill, t + 1)
    for bar in range(FIRST_DECISION, t + 1):
        assert all(same_bits(a, b) for a, b in zip(clean[bar], dirty[bar], strict=True)), bar
    assert not all(same_bits(a, b) for a, b in zip(clean[t + 1], dirty[t + 1], strict=True))


@pytest.mark.parametrize(("fill", "column"), [("next_open", "open"), ("next_close", "close")])
def test_order_fills_at_a_price_of_the_next_bar(fill: str, column: str) -> None:
    """Only the fill price of bar t + 1 changes; the accounts that arrive there paid another
    price.
    """
    panel, t = market(4), 300
    values = getattr(panel, column).copy()
    values[t + 1] *= 1.0001
    clean, dirty = (life(x, fill, t + 1) for x in (panel, replace(panel, **{column: values})))
    assert all(
        same_bits(a, b)
        for bar in range(FIRST_DECISION, t + 1)
        for a, b in zip(clean[bar], dirty[bar], strict=True)
    )
    cash = 3
    assert (clean[t + 1][cash] != dirty[t + 1][cash]).all()


def test_costs_of_an_order_do_not_know_the_close_of_its_bar() -> None:
    """Filled at the open of bar t + 1: its close marks the positions, but no fee, spread or impact
    depends on it.
    """
    panel, t = market(4), 300
    close = panel.close.copy()
    close[t + 1] *= 1.0001
    clean, dirty = (
        life(x, "next_open", t + 1)[t + 1] for x in (panel, replace(panel, close=close))
    )
    cash, units = 3, 4
    assert same_bits(clean[cash], dirty[cash])
    assert same_bits(clean[units], dirty[units])
    assert not same_bits(clean[-1], dirty[-1])
