"""The reward's terms are of one size on real and on made-up bars, and penalties turn no ranking
round.

The yardstick is the mean size of a bar's return when all assets are held equally. All policies
trade the real kernel by target weights and pay 10 bps.
"""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from bars.bar_files import real_data
from flatout.bars.read import read_bars
from flatout.bars.synthetic import PlantedSignal, built_in_market
from flatout.market import episode
from flatout.market.market import Market, build_market
from flatout.market.rewards import RewardTerms, weigh_terms
from flatout.market.tape import meet
from flatout.search.space import apply_values, middle_value
from flatout.settings.study import usual_space
from flatout.settings.tables import Settings

Floats = NDArray[np.float64]
# target weights (account, asset) from the number of the bar, the bar and the weights held
Rule = Callable[[int, NDArray[np.int32], Floats], Floats]

BARS = 1000
ACCOUNTS = 8  # on stretches of their own
TERMS = [name for name in RewardTerms._fields if name != "turnover"]
PENALTIES = ("drawdown", "concentration")
# An account in one asset moves more than twice as much as one in five that go their own ways.
MOST = 3.0
# Of both penalties together in the middle of the default space, for the most one-sided account.
MOST_IN_THE_MIDDLE = 0.1
COSTS = {"tiers": [{"maker_bps": 10, "taker_bps": 10}], "half_spread_bps": 0, "impact": 0}
SYNTHETIC = {
    "built-in": lambda: built_in_market(n_bars=8 * BARS),
    "planted": lambda: PlantedSignal(n_bars=8 * BARS).panel(),
    "three planted": lambda: PlantedSignal(n_bars=8 * BARS, symbols=("A", "B", "C")).panel(),
}
REAL = {
    "five minutes": "crypto_spot_5m_10coins_2024.parquet",
    "hours": "crypto_spot_1h_30coins_2021H1.parquet",
    "hours of bitcoin": "btc_spot_1h_2017_2024.parquet",
    "days": "dow29_daily_2009_2023.parquet",
}
MARKETS = [*SYNTHETIC, *(pytest.param(name, marks=pytest.mark.long) for name in REAL)]


class Played(NamedTuple):
    """What came of a rule: (bar, account) each."""

    terms: RewardTerms
    market: Floats  # log return of holding all assets equally


@cache
def market_of(name: str) -> Market:
    panel = SYNTHETIC[name]() if name in SYNTHETIC else read_bars(real_data(REAL[name]))
    return build_market(panel, settings_in_the_middle())


def settings_in_the_middle() -> Settings:
    """Reward weights from the middle of the default search space, whatever it holds."""
    space = {name: knob for name, knob in usual_space().items() if ".reward." in name}
    settings = Settings.model_validate(
        {
            "market": {"costs": COSTS, "limits": {"min_notional": 0}},
            "features": {"indicators": ["return_1"], "scaler": "zscore"},
        }
    )
    return apply_values(settings, {name: middle_value(knob) for name, knob in space.items()})


def play(market: Market, rule: Rule) -> Played:
    """All accounts side by side, from bars that lie evenly apart."""
    tape, rules = market.arrays(np.float64)
    first = int(rules.segments.first[0])
    starts = np.linspace(first, market.panel.n_bars - BARS - 2, ACCOUNTS).astype(np.int32)
    state = episode.reset(np.zeros(ACCOUNTS), market.shape, rules, np)._replace(t=starts)
    terms, benchmark = [], []
    for k in range(BARS):
        met = meet(tape, state.t, np)
        worth = state.marks.equity
        held = (state.account.units * met.mark / worth).T
        order = ((rule(k, state.t, held) - held) * worth[:, None]).T
        state, outcome = episode.trade(state, order, met, market.shape.fill, rules, np)
        terms.append(outcome.terms)
        benchmark.append(met.benchmark)
    return Played(
        RewardTerms(*(np.array(x) for x in zip(*terms, strict=True))), np.array(benchmark)
    )


def one_asset(held: Floats) -> Floats:
    return np.eye(held.shape[1])[np.zeros(len(held), int)]


def equal(k: int, t: NDArray[np.int32], held: Floats) -> Floats:
    return np.full_like(held, 1 / held.shape[1])


def one_and_hold(k: int, t: NDArray[np.int32], held: Floats) -> Floats:
    return one_asset(held) if k == 0 else held


def in_and_out(k: int, t: NDArray[np.int32], held: Floats) -> Floats:
    return one_asset(held) * (k % 2)


def cash(k: int, t: NDArray[np.int32], held: Floats) -> Floats:
    return np.zeros_like(held)


def random_weights(k: int, t: NDArray[np.int32], held: Floats) -> Floats:
    shares = np.random.default_rng(k).dirichlet(np.ones(held.shape[1] + 1), len(held))
    return shares[:, 1:]  # the first is cash


RULES: dict[str, Rule] = {
    "equal": equal,
    "one and hold": one_and_hold,
    "in and out": in_and_out,
    "random": random_weights,
}


@cache
def played(name: str, rule: str) -> Played:
    return play(market_of(name), RULES[rule])


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("market", MARKETS)
def test_every_term_is_of_the_size_of_a_return(market: str, rule: str) -> None:
    found = played(market, rule)
    yardstick = np.mean(np.abs(found.market))
    sizes = {name: np.mean(np.abs(getattr(found.terms, name))) / yardstick for name in TERMS}
    assert max(sizes.values()) <= MOST, sizes
    assert np.mean(-found.terms.turnover * 10e-4) <= MOST * yardstick  # with a weight of 10 bps


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("market", MARKETS)
def test_penalties_in_the_middle_of_the_space_are_a_share_of_a_return(
    market: str, rule: str
) -> None:
    found, weights = played(market, rule), settings_in_the_middle().market.reward
    taken = sum(-np.mean(getattr(found.terms, name)) * getattr(weights, name) for name in PENALTIES)
    assert 0 < taken <= MOST_IN_THE_MIDDLE * np.mean(np.abs(found.market))


@pytest.mark.parametrize("name", ["planted", "three planted"])
def test_penalties_in_the_middle_of_the_space_turn_no_ranking_round(name: str) -> None:
    """Who reads the signal earns more than who owns nothing, who earns more than who trades at
    random: by the reward as well as by the money.
    """
    market = market_of(name)
    signal = market.panel.extras["signal"]

    def read_signal(k: int, t: NDArray[np.int32], held: Floats) -> Floats:
        seen = signal[t]
        return np.where(seen == 0, held, np.where(seen > 0, 1 / market.shape.n_assets, 0.0))

    rules = market.rules.reward
    rewards, money = [], []
    for rule in (read_signal, cash, random_weights):
        terms = play(market, rule).terms
        rewards.append(float(np.mean(weigh_terms(terms, rules))))
        money.append(float(np.mean(terms.log_return)))
    assert money[0] > money[1] == 0 > money[2]
    assert rewards[0] > rewards[1] == 0 > rewards[2]
    kept = rewards[0] / float(rules.scale) / money[0]
    assert kept > 0.5  # most of what the signal is worth still counts
