"""What flatout is compared with: the other trainers' environments are the same market, and they do what is counted."""

from functools import cache
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from flatout.evaluation.scalar_account import scalar_bars
from flatout.evaluation.speed import bench_market
from flatout.market.gymnasium_env import MarketEnv
from flatout.market.market import Market

peers = pytest.importorskip("flatout.evaluation.peers", reason="needs stable-baselines3")


@cache
def market() -> Market:
    return bench_market()


@pytest.mark.parametrize("lists", [False, True], ids=["arrays", "lists"])
def test_the_scalar_environment_is_the_market(lists: bool) -> None:
    """One episode by the same actions in both: rewards, observations and ends agree; only arithmetic is another."""
    ours: gym.Env[Any, Any] = MarketEnv(market())
    theirs = peers.LoopEnv(market(), scalar_bars(market(), lists))
    seen, info = ours.reset(seed=3)
    first = int(info["bar"])
    np.testing.assert_allclose(theirs.start(first, first + theirs.length), seen, rtol=0, atol=1e-4)
    ends = 0
    for action in np.random.default_rng(1).uniform(-1, 1, (theirs.length, market().action_size)).astype(np.float32):
        seen, reward, terminated, truncated, _ = ours.step(action)
        found, earned, ruined, ended, _ = theirs.step(action)
        np.testing.assert_allclose(found, seen, rtol=0, atol=2e-3)  # the environment of ours is in float32
        assert earned == pytest.approx(float(reward), rel=1e-2, abs=2e-3)
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


def test_an_update_is_a_whole_rollout() -> None:
    run = peers.updates(peers.loop_model(market(), scalar_bars(market(), lists=False), 8, 120, 60, 1))
    assert run() == 120


def test_a_trial_learns_and_then_judges_every_bar_of_its_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[int] = []
    started: list[tuple[int, int]] = []
    start, step = peers.LoopEnv.start, peers.LoopEnv.step
    monkeypatch.setattr(
        peers.LoopEnv, "start", lambda self, first, last: (started.append((first, last)), start(self, first, last))[1]
    )
    monkeypatch.setattr(
        peers.LoopEnv, "step", lambda self, action: (judged.append(self.account.t), step(self, action))[1]
    )
    blocks = [(100, 130), (200, 260)]
    assert peers.sb3_trial(market(), 8, 120, 60, 1, 240, blocks) == 240
    assert started[-2:] == blocks
    assert sorted(judged[240:]) == [*range(100, 130), *range(200, 260)]
