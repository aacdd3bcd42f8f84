"""The computed optimum is reached in the real market: the kernel, run by the best policy,
earns it.
"""

import numpy as np
import pytest

from flatout.bars.synthetic import (
    OneJump,
    OracleFeature,
    PlantedSignal,
    RandomWalk,
    Sine,
    SyntheticMarket,
)
from flatout.evaluation.backtest import backtest
from flatout.evaluation.baselines import BuyAndHold, Floats, Moment
from flatout.market.market import Market, build_market
from flatout.settings.tables import Settings
from oracles.optimum import ChainPolicy, PathPolicy, optimum, share_of_optimum

COST_BPS = 10.0
N_BARS = 4000


def market_of(process: SyntheticMarket) -> Market:
    """The process with proportional costs only."""
    costs = {
        "tiers": [{"maker_bps": COST_BPS, "taker_bps": COST_BPS}],
        "half_spread_bps": 0,
        "impact": 0,
    }
    limits = {"min_notional": 0, "participation": 1}
    features = {"indicators": ["return_1"]}
    rules = {"costs": costs, "limits": limits, "capital": 1.0}
    return build_market(
        process.panel(), Settings.model_validate({"market": rules, "features": features})
    )


class Best:
    """Follows the computed policy: from the nearest weight on its grid to the target of the state
    that is seen.
    """

    def __init__(self, policy: ChainPolicy, seen: Floats) -> None:
        self.policy, self.seen = policy, seen

    def __call__(self, moment: Moment) -> Floats:
        now = self.seen[len(moment.closes) - 1]
        state = np.argmin(np.abs(self.policy.states[:, 0] - now))
        point = np.argmin(np.abs(self.policy.points[:, 0] - moment.weights[0, 0]))
        target = self.policy.target[state, point]
        return (
            np.zeros((1, 1))
            if target == point
            else self.policy.points[target][None] - moment.weights
        )


class Planned:
    """Follows the best weights of a known path."""

    def __init__(self, policy: PathPolicy) -> None:
        self.policy = policy

    def __call__(self, moment: Moment) -> Floats:
        return self.policy.weights[len(moment.closes) - 1] - moment.weights


@pytest.mark.long
@pytest.mark.parametrize(
    ("process", "extra"),
    [
        (PlantedSignal(n_bars=N_BARS, strength_bps=60, seed=1), "signal"),
        (OracleFeature(n_bars=N_BARS, seed=1), "oracle"),
    ],
)
def test_the_best_policy_earns_the_optimum(process: SyntheticMarket, extra: str) -> None:
    best = optimum(process, COST_BPS * 1e-4)
    assert isinstance(best.policy, ChainPolicy)
    market = market_of(process)
    history = backtest(market, Best(best.policy, process.panel().extras[extra][:, 0]))
    growth = np.diff(np.log(history.equity[:, 0]))
    error = growth.std() / np.sqrt(len(growth))
    assert abs(growth.mean() - best.value_per_bar) < 4 * error + best.tolerance
    assert share_of_optimum(float(growth.mean()), best) > 0.85


@pytest.mark.parametrize("process", [Sine(n_bars=1500), OneJump(n_bars=1500, jump_bar=700)])
def test_the_best_plan_of_a_known_path_is_reached(process: SyntheticMarket) -> None:
    best = optimum(process, COST_BPS * 1e-4)
    assert isinstance(best.policy, PathPolicy)
    history = backtest(market_of(process), Planned(best.policy))
    earned = float(np.log(history.equity[-1, 0])) / (process.n_bars - 1)
    assert share_of_optimum(earned, best) == pytest.approx(1, abs=0.01)


@pytest.mark.slow
def test_nothing_can_be_earned_on_a_random_walk() -> None:
    """Buying and holding earns half the variance less than nothing, and its costs: the kernel adds
    no drift.
    """
    growths = []
    for seed in range(12):
        walk = RandomWalk(n_bars=800, seed=seed, symbols=("WALK",))
        history = backtest(market_of(walk), BuyAndHold())
        growths.append(np.log(history.equity[-1, 0]) / len(history.bars))
    expected = walk.drift - np.log1p(COST_BPS * 1e-4) / len(history.bars)
    error = walk.sigma / np.sqrt(len(growths) * len(history.bars))
    assert expected < 0
    assert abs(np.mean(growths) - expected) < 3 * error
