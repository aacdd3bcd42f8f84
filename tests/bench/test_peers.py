"""What flatout is compared with: the other trainers' environments are the same market, and they do
what is counted.
"""

from functools import cache

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from flatout.bench.market_speed import bench_market
from flatout.bench.scalar_account import scalar_bars
from flatout.bench.workload import LearnerShape
from flatout.market.episode import OBSERVATION_LIMIT
from flatout.market.gymnasium_env import MarketEnv
from flatout.market.market import Market
from rounding import assert_close, close_to
from scenarios import cast

peers = pytest.importorskip("flatout.bench.peers", reason="needs stable-baselines3")
SMALL = LearnerShape(width=8, rollout=120, minibatch=60, epochs=1)


@cache
def market() -> Market:
    return bench_market()


@pytest.mark.parametrize("lists", [False, True], ids=["arrays", "lists"])
def test_the_scalar_environment_is_the_market(lists: bool) -> None:
    """One episode by the same actions in both: rewards, observations and ends agree; only
    arithmetic is another.

    Both in float64: in float32 a lot more or less would send the rest of the episode elsewhere.
    """
    ours = MarketEnv(market())
    ours.tape, ours.rules = market().arrays(np.float64)
    theirs = peers.LoopEnv(market(), scalar_bars(market(), lists))
    _, info = ours.reset(seed=3)
    first = int(info["bar"])
    ours.state = cast(ours.state, np.float64)
    bound = {
        "roundings": 8,
        "size": OBSERVATION_LIMIT,
        "dtype": np.float32,
    }  # theirs are float32
    assert_close(theirs.start(first, first + theirs.length), ours._observe(ours.state), **bound)
    ends = 0
    for action in (
        np.random.default_rng(1)
        .uniform(-1, 1, (theirs.length, market().action_size))
        .astype(np.float32)
    ):
        seen, reward, terminated, truncated, _ = ours.step(action)
        found, earned, ruined, ended, _ = theirs.step(action)
        assert_close(found, seen, **bound)
        assert earned == close_to(float(reward), roundings=theirs.length * 1000, size=10.0)
        assert (ruined, ended) == (bool(terminated), bool(truncated))
        ends += ended
    assert ends == 1


def test_gymnasium_accepts_it() -> None:
    check_env(peers.LoopEnv(market(), scalar_bars(market(), lists=False)), skip_render_check=True)


def test_episodes_begin_anywhere_and_end_on_the_tape() -> None:
    env = peers.LoopEnv(market(), scalar_bars(market(), lists=False))
    firsts, lasts = [], []
    for seed in range(300):
        env.reset(seed=seed)
        firsts.append(env.account.t)
        lasts.append(env.last)
    assert min(firsts) >= env.first and max(lasts) < env.stop
    assert len(set(firsts)) > 200
    assert {last - first for first, last in zip(firsts, lasts, strict=True)} == {env.length}


@pytest.mark.long
def test_an_update_is_a_whole_rollout() -> None:
    run = peers.repeat_updates(
        peers.loop_model(market(), scalar_bars(market(), lists=False), SMALL)
    )
    assert run() == 120


@pytest.mark.long
def test_a_trial_learns_and_then_judges_every_bar_of_its_blocks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    judged: list[int] = []
    started: list[tuple[int, int]] = []
    start, step = peers.LoopEnv.start, peers.LoopEnv.step
    monkeypatch.setattr(
        peers.LoopEnv,
        "start",
        lambda self, first, last: (started.append((first, last)), start(self, first, last))[1],
    )
    monkeypatch.setattr(
        peers.LoopEnv,
        "step",
        lambda self, action: (judged.append(self.account.t), step(self, action))[1],
    )
    blocks = [(100, 130), (200, 260)]
    assert peers.sb3_trial(market(), SMALL, 240, blocks) == 240
    assert started[-2:] == blocks
    assert sorted(judged[240:]) == [*range(100, 130), *range(200, 260)]
