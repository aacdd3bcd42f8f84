"""The benches' yardstick: the same market as the kernel's, in other words."""

import numpy as np
import pytest

from flatout.bench.market_speed import bench_market
from flatout.bench.scalar_account import ScalarAccount, scalar_bars
from flatout.market import episode
from flatout.market.episode import OBSERVATION_LIMIT
from rounding import assert_close, close_to


@pytest.mark.parametrize("lists", [False, True], ids=["arrays", "lists"])
def test_it_earns_and_sees_what_the_kernel_says(lists: bool) -> None:
    """The same actions through both: after every bar rewards, observations and ends agree, with
    every rule on.
    """
    market = bench_market()
    tape, rules = market.arrays(np.float64)
    first = int(rules.segments.first[0])
    state = episode.reset(np.zeros(1), market.shape, rules, np)
    account = ScalarAccount(scalar_bars(market, lists), first)
    seen, terms = [], []
    for action in np.random.default_rng(0).uniform(-1, 1, (500, market.action_size)):
        reward = account.step(action.tolist() if lists else action)
        state, outcome = episode.step(state, action[:, None], tape, market.shape, rules, np)
        seen.append(episode.observe(state, tape, market.shape, rules, np)[0])
        terms.append([term.item() for term in outcome.terms])
        assert reward == close_to(outcome.reward.item(), roundings=500 * 1000, size=10.0)
        assert account.ruined == outcome.terminated.item()
        assert account.t == state.t.item()
        assert_close(
            account.observation(), seen[-1], roundings=8, size=OBSERVATION_LIMIT, dtype=np.float32
        )
    own = np.array(seen)[:, market.shape.n_assets * market.shape.n_features :]
    assert (
        np.ptp(own, axis=0) > 0
    ).all()  # fee tier, stops, cooldowns and holding times all took effect
    assert (np.ptp(np.array(terms), axis=0) > 0).all()  # and so did every term of the reward


def test_a_ruined_account_says_so() -> None:
    account = ScalarAccount(scalar_bars(bench_market(), lists=True), 100)
    ruin = account.bars.rules["ruin"]
    assert not account.ruined
    account.equity = ruin
    assert account.ruined
