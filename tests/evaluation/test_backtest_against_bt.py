"""Backtests equal those of `bt`, a backtester that nobody here wrote, where the two follow the same
rules.

`bt` trades at the close on which it decides, in any amount, and pays a commission; flatout does
that with fill="same_close" and no other costs. Commissions of a rebalancing are booked by `bt` on
the day of the trade and by flatout in the bar that begins there, so days between rebalancings are
compared. `bt` buys asset after asset, flatout all together from what is left, which shows in the
second order of the commission.
"""

import bt
import numpy as np
import pandas as pd
import pytest

from flatout.bars.panel import DAY, Panel
from flatout.evaluation.backtest import backtest
from flatout.evaluation.baselines import BuyAndHold, EqualWeight, Policy
from flatout.market.market import build_market
from flatout.settings.tables import Settings
from scenarios import random_panel

pytestmark = pytest.mark.filterwarnings(
    "ignore::Warning:bt.*", "ignore::Warning:ffn.*", "ignore::Warning:pandas.*"
)

DAYS = 300
EVERY = 5  # days between rebalancings


def daily_panel() -> Panel:
    """Three assets that trade every day."""
    panel = random_panel(4, n_bars=DAYS, assets=3, gaps=False)
    days = np.datetime64("2021-01-01", "us") + np.arange(DAYS) * np.timedelta64(DAY, "s")
    return Panel(
        panel.symbols,
        days,
        DAY,
        panel.open,
        panel.high,
        panel.low,
        panel.close,
        panel.volume * 1e6,
        panel.tradable,
    )


def ours(panel: Panel, policy: Policy, fee: float) -> np.ndarray:
    """Equity at the closes from bar 1 on."""
    costs = {
        "tiers": [{"maker_bps": fee * 1e4, "taker_bps": fee * 1e4}],
        "half_spread_bps": 0,
        "impact": 0,
    }
    rules = {
        "fill": "same_close",
        "capital": 1.0,
        "costs": costs,
        "limits": {"min_notional": 0, "participation": 1},
    }
    market = build_market(
        panel, Settings.model_validate({"market": rules, "features": {"indicators": ["return_1"]}})
    )
    history = backtest(market, policy)
    assert history.bars[0] == 2  # the first decision is at the close of bar 1
    return history.equity[:, 0]


def theirs(panel: Panel, when: bt.algos.Algo, fee: float) -> np.ndarray:
    """The same by `bt`."""
    closes = pd.DataFrame(
        panel.close[1:], index=pd.DatetimeIndex(panel.time[1:]), columns=list(panel.symbols)
    )
    algos = [when, bt.algos.SelectAll(), bt.algos.WeighEqually(), bt.algos.Rebalance()]
    test = bt.Backtest(
        bt.Strategy("equal", algos),
        closes,
        integer_positions=False,
        commissions=lambda quantity, price: abs(quantity) * price * fee,
        initial_capital=1e6,
        progress_bar=False,
    )
    return bt.run(test).prices["equal"].to_numpy()[1:] / 100  # its first row is the day before


@pytest.mark.parametrize("fee", [0.0, 0.0025])
def test_buy_and_hold(fee: float) -> None:
    panel = daily_panel()
    found, expected = ours(panel, BuyAndHold(), fee), theirs(panel, bt.algos.RunOnce(), fee)
    np.testing.assert_allclose(found[1:], expected[1:], rtol=1e-9)


@pytest.mark.parametrize(("fee", "tolerance"), [(0.0, 1e-9), (0.0025, 2e-5)])
def test_equal_weight_rebalanced(fee: float, tolerance: float) -> None:
    panel = daily_panel()
    found = ours(panel, EqualWeight(period_seconds=EVERY * DAY), fee)
    expected = theirs(panel, bt.algos.RunEveryNPeriods(EVERY), fee)
    between = np.arange(len(found)) % EVERY != 0
    np.testing.assert_allclose(found[between], expected[between], rtol=tolerance)
    # rebalancing did something
    assert abs(found[-1] / ours(panel, BuyAndHold(), fee)[-1] - 1) > 1e-3
