"""A path beside its own decisions at other times: p values of traders without skill are uniform."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from flatout.bars.panel import Panel
from flatout.bars.synthetic import RandomWalk
from flatout.evaluation.baselines import Moment, Policy
from flatout.evaluation.comparison import compare
from flatout.evaluation.shifted import LEFT_OUT, draw_moves, t_value
from flatout.market.market import Market, build_market
from flatout.settings.tables import Settings

SETTINGS = Settings.model_validate({"features": {"indicators": ["return_1"]}})
SYMBOLS = ("AAA", "BBB")
SIGMA = 0.01
MARKETS = 200


def make_market(kind: str, seed: int, bars: int) -> Market:
    """A market without an edge: a walk with a drift, or with fat tails."""
    panel = RandomWalk(n_bars=bars, seed=seed, symbols=SYMBOLS, sigma=SIGMA).panel()
    if kind == "fat-tailed":
        rng = np.random.default_rng(seed)
        jumps = np.cumsum(SIGMA * rng.standard_t(3, (bars, len(SYMBOLS))), axis=0)
    else:
        drift = {"flat": 0.0, "rising": 0.001, "falling": -0.001}[kind]
        jumps = drift * np.arange(bars)[:, None]
    return build_market(scale_prices(panel, np.exp(jumps)), SETTINGS)


def scale_prices(panel: Panel, factor: NDArray[np.float64]) -> Panel:
    """Each bar's prices times a factor."""
    return replace(
        panel,
        open=panel.open * factor,
        high=panel.high * factor,
        low=panel.low * factor,
        close=panel.close * factor,
    )


def follow(sign: int, bars: int) -> Policy:
    """Holds more of what rose (or, with sign -1, of what fell) over some bars."""

    def policy(moment: Moment) -> NDArray[np.float64]:
        past = min(bars, len(moment.closes) - 1)
        gain = np.log(moment.closes[-1] / moment.closes[-1 - past]) / (SIGMA * np.sqrt(past))
        return np.clip(0.5 + sign * gain / 2, 0, 1)[None] / len(SYMBOLS) - moment.weights

    return policy


def wander(seed: int) -> Policy:
    """Weights that know nothing and last some twenty bars."""
    rng = np.random.default_rng(seed)

    def policy(moment: Moment) -> NDArray[np.float64]:
        if rng.random() < 0.9:
            return np.zeros_like(moment.weights)
        return rng.uniform(0, 0.5, moment.weights.shape) - moment.weights

    return policy


def raise_stakes(seed: int, growth: float) -> Policy:
    """Bets at random beside equal weights, larger while it is behind, and none once its own t value
    is 1.7.
    """
    rng, half = np.random.default_rng(seed), 0.5 / len(SYMBOLS)
    bet, size, total, squares, done = np.zeros(2), half if growth == 1 else 0.01, 0.0, 0.0, False

    def policy(moment: Moment) -> NDArray[np.float64]:
        nonlocal bet, size, total, squares, done
        if moment.age and not done:
            won = float(bet @ (moment.closes[-1] / moment.closes[-2] - 1))
            total, squares = total + won, squares + won * won
            done = moment.age >= 24 and total >= 1.7 * np.sqrt(squares)
            size = min(half, size * growth) if moment.age % 12 == 0 else size
        if moment.age % 3 == 0:
            bet = size * rng.choice([-1.0, 1.0], len(SYMBOLS))
        bet = bet * (not done)
        return (half + bet)[None] - moment.weights

    return policy


FOREVER = 10**6  # bars: since the first one
TRADERS: dict[str, Callable[[int], Policy]] = {
    "trend": lambda seed: follow(1, 8),
    "contrarian": lambda seed: follow(-1, 8),
    "wander": wander,
}
SLOW: dict[str, Callable[[int], Policy]] = {
    "slow contrarian": lambda seed: follow(-1, 40),
    "grid": lambda seed: follow(-1, FOREVER),
    "stops when ahead": lambda seed: raise_stakes(seed, 1.0),
    "raises its stakes": lambda seed: raise_stakes(seed, 1.25),
}


def p_values(kind: str, trader: str, markets: int, bars: int, copies: int) -> NDArray[np.float64]:
    found = [
        compare(
            make_market(kind, seed, bars),
            (TRADERS | SLOW)[trader](seed),
            {},
            lucky=copies,
            seed=seed,
        ).p_value()
        for seed in range(markets)
    ]
    return np.array(found)


def cautious(p: NDArray[np.float64]) -> NDArray[np.float64]:
    """The distribution of p values if both parts of them spoke apart: the rank among the copies,
    which is uniform, and the t value, which the wildest third of a block makes smaller by a share
    that is large even in fat tails. In truth they agree often, so that fewer are large.
    """
    scaled: NDArray[np.float64] = stats.norm.cdf(stats.norm.ppf(p) / 0.6)
    return p * scaled


@pytest.mark.slow
@pytest.mark.parametrize("trader", TRADERS)
@pytest.mark.parametrize("kind", ["flat", "rising", "falling", "fat-tailed"])
def test_p_values_of_traders_without_skill_are_uniform(kind: str, trader: str) -> None:
    """Never stochastically smaller, by a one-sided test of Kolmogorov and Smirnov; and no larger
    than their two parts make them if they never agree, or nobody could pass.
    """
    found = p_values(kind, trader, MARKETS, bars=400, copies=99)
    smaller = stats.kstest(found, "uniform", alternative="greater").pvalue
    larger = stats.kstest(found, cautious, alternative="less").pvalue
    # twelve cases and two sides
    assert min(smaller, larger) > 0.01 / 24, (smaller, larger)


@pytest.mark.slow
@pytest.mark.parametrize("trader", SLOW)
@pytest.mark.parametrize("kind", ["flat", "rising", "falling", "fat-tailed"])
def test_p_values_of_long_memories_are_not_small(kind: str, trader: str) -> None:
    """Copies of what remembers long know the bars that they meet, and those of what looks at its
    own results do not stop with it: a third of them would pass at 5 % by their rank alone. What is
    promised holds up to the 5 % that the gate asks for. Above, who stops when ahead has piled up
    what would have gone on to larger and to smaller values.
    """
    found = p_values(kind, trader, MARKETS, bars=400, copies=99)
    for level in (0.01, 0.02, 0.05):
        error = np.sqrt(level * (1 - level) / MARKETS)
        assert np.mean(found <= level) < level + 3 * error, level


@pytest.mark.slow
@pytest.mark.xfail(reason="above 5 % who looks at its own results has small p values too often")
@pytest.mark.parametrize("trader", SLOW)
@pytest.mark.parametrize("kind", ["flat", "rising", "falling", "fat-tailed"])
def test_p_values_of_long_memories_are_never_smaller_than_uniform(kind: str, trader: str) -> None:
    """At any level: what is still missing."""
    found = p_values(kind, trader, MARKETS, bars=400, copies=99)
    assert stats.kstest(found, "uniform", alternative="greater").pvalue > 0.01 / 16
    assert np.mean(found <= 0.05) < 0.05 + 3 * np.sqrt(0.05 * 0.95 / MARKETS)


@pytest.mark.parametrize("trader", TRADERS | SLOW)
def test_p_values_are_not_small_in_a_rising_market(trader: str) -> None:
    found = p_values("rising", trader, 16, bars=180, copies=19)
    assert stats.kstest(found, "uniform", alternative="greater").pvalue > 1e-4


def test_foresight_is_found() -> None:
    market = make_market("falling", 0, 300)
    closes = market.panel.close

    def policy(moment: Moment) -> NDArray[np.float64]:
        now = len(moment.closes) - 1
        ahead = closes[min(now + 5, len(closes) - 1)] / closes[now] - 1
        return (ahead > 0)[None] / len(SYMBOLS) - moment.weights

    result = compare(market, policy, {}, lucky=39)
    assert result.p_value() == 1 / 40


WALKS, BARS, BLOCKS = 600, 1440, 4


def stake_returns(growth: float, seed: int) -> NDArray[np.float64]:
    """(walk, bar) of bets without an edge that stop for good at a t value of 1.7, their stakes
    growing until then.
    """
    rng, won = np.random.default_rng(seed), np.zeros((WALKS, BARS))
    total, squares, done = np.zeros(WALKS), np.zeros(WALKS), np.zeros(WALKS, bool)
    stake = 1.0 if growth == 1 else 0.05
    for bar in range(BARS):
        if bar % 12 == 0:
            stake = min(1.0, stake * growth)
        won[:, bar] = stake * rng.normal(0, SIGMA, WALKS) * ~done
        total, squares = total + won[:, bar], squares + won[:, bar] ** 2
        done |= (bar >= 24) & (total >= 1.7 * np.sqrt(squares))
    return won


@pytest.mark.parametrize("growth", [1.0, 1.25])
def test_who_stops_when_ahead_has_a_small_t_value(growth: float) -> None:
    won = stake_returns(growth, seed=2)
    common = won.sum(axis=1) / np.sqrt(np.sum(won * won, axis=1))
    assert np.mean(common > 1.645) > 0.3  # where 5 % are asked for
    found = t_value(won, [BARS // BLOCKS] * BLOCKS)
    assert np.mean(found > 1.645) < 0.05 + 5 * np.sqrt(0.05 * 0.95 / WALKS)
    steady = np.random.default_rng(3).normal(0.05 * SIGMA, SIGMA, (WALKS, BARS))
    weaker = t_value(steady, [BARS // BLOCKS] * BLOCKS).mean() / (0.05 * np.sqrt(BARS))
    assert 0.8 < weaker < 1.0  # what the caution costs whoever is steady


def test_moves_differ_and_leave_out_the_next_sixth() -> None:
    moves = draw_moves(600, 199, seed=3)
    assert len(set(moves.tolist())) == 199
    assert moves.min() >= LEFT_OUT * 600 and moves.max() < 600
    assert draw_moves(12, 50, 0).min() >= 2  # fewer bars than copies: some are alike
