"""The Gymnasium drivers: the checkers of Gymnasium and Stable-Baselines3, seeds, restarts and
refusals.
"""

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import polars as pl
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from small_markets import WHOLE, biting_market, random_actions, walk

import flatout
from flatout.bars.panel import Panel
from flatout.bars.synthetic import RandomWalk, built_in_market
from flatout.bars.write import write_bars
from flatout.errors import BarsError, RulesError
from flatout.evaluation.baselines import BuyAndHold
from flatout.market import episode
from flatout.market.gymnasium_env import MarketEnv, MarketVectorEnv
from flatout.market.market import Market
from flatout.settings.loading import resolve_settings
from flatout.settings.tables import Settings
from rounding import assert_close, close_to
from scenarios import BAR_ROUNDINGS
from session_panels import panel_at, session_times

# Of a reward only logarithms of the equity's change, at most 0.1, may be rounded otherwise;
# `reward_size` is up to 6.
REWARD = {"roundings": 16, "size": 0.1 * 6, "dtype": np.float32}
KINDS = ["trade", "weights", "direction_amount", "discrete"]


@pytest.mark.parametrize("action", KINDS)
def test_gymnasium_checks_the_environment(action: str) -> None:
    """Warnings are errors here. The spec lets the checker make a second environment."""
    env = gymnasium.make("flatout/Market-v0", bars=biting_market(action=action, episode_bars=30))
    check_env(env.unwrapped, skip_render_check=True)


def test_the_calendar_of_the_settings_is_followed(tmp_path: Path) -> None:
    panel = panel_at(session_times("XLON", 3600, "2023-01-02", "2023-06-30"), 3600)
    write_bars(panel, tmp_path / "bars.parquet")
    settings = Settings.model_validate({"data": {"calendar": "XLON"}})
    for bars in (panel, tmp_path / "bars.parquet"):
        assert MarketEnv(bars, settings=settings).market.panel.trading_year.calendar == "XLON"
        assert MarketEnv(bars).market.panel.trading_year.calendar is None


@pytest.mark.parametrize("action", KINDS)
def test_stable_baselines_checks_the_environment(action: str) -> None:
    checker = pytest.importorskip("stable_baselines3.common.env_checker")
    checker.check_env(MarketEnv(biting_market(action=action, episode_bars=30)), warn=True)


def test_make_by_name() -> None:
    """After `import flatout`; without bars it is the built-in random walk."""
    assert flatout.MarketEnv is MarketEnv
    env = gymnasium.make("flatout/Market-v0")
    observation, info = env.reset(seed=0)
    assert observation in env.observation_space
    assert info["equity"] == 1
    assert env.step(env.action_space.sample())[0] in env.observation_space


def test_make_vec_by_name() -> None:
    envs = gymnasium.make_vec("flatout/Market-v0", num_envs=3, bars=biting_market())
    assert isinstance(envs.unwrapped, MarketVectorEnv)
    assert envs.metadata["autoreset_mode"] == AutoresetMode.SAME_STEP
    assert envs.reset(seed=0)[0].shape == (3, envs.single_observation_space.shape[0])
    assert envs.step(envs.action_space.sample())[0] in envs.observation_space


def test_vector_equals_single_environments() -> None:
    """Every account starts where its single environment starts; compared until its episode ends.

    No comparison falls the other way: what decides is added, multiplied and divided, which NumPy
    rounds alike in arrays of every shape. Logarithms it may not.
    """
    market = biting_market(episode_bars=60)
    noise, actions = np.random.default_rng(4).random(5, np.float32), random_actions(market, 60, 5)
    many, ones = MarketVectorEnv(market, 5), [MarketEnv(market) for _ in range(5)]
    many.reset(seed=0)
    many.state = episode.reset(noise, market.shape, many.rules, np)
    for i, one in enumerate(ones):
        one.state = episode.reset(noise[i : i + 1], market.shape, one.rules, np)
    alive, compared = np.ones(5, bool), 0
    for action in actions:
        seen, rewards, terminated, truncated, infos = many.step(action)
        for i in np.flatnonzero(alive):
            obs, reward, *ends, info = ones[i].step(action[i])
            alive[i] = not any(ends)
            assert ends == [terminated[i], truncated[i]]
            assert_close(
                obs,
                seen[i] if alive[i] else infos["final_obs"][i],
                roundings=BAR_ROUNDINGS,
                size=1.0,
            )
            assert reward == close_to(rewards[i], **REWARD)
            equity = infos["equity"] if alive[i] else infos["final_info"]["equity"]
            assert info["equity"] == close_to(
                equity[i], roundings=BAR_ROUNDINGS, size=1.0, dtype=np.float32
            )
            compared += 1
    assert not alive.any()
    assert compared > 100


def ending_vector(num_envs: int = 4) -> tuple[MarketVectorEnv, np.ndarray]:
    """Episodes of 6 bars, the accounts at different ages, and actions."""
    market = biting_market(episode_bars=6)
    envs = MarketVectorEnv(market, num_envs)
    envs.reset(seed=0)
    assert envs.state is not None
    envs.state = envs.state._replace(last=envs.state.t + 3 + np.arange(num_envs))
    return envs, random_actions(market, 12, num_envs)


def test_restart_within_the_same_step() -> None:
    """Where an account ended: the final observation in the info, the first one of the next episode
    returned.
    """
    envs, actions = ending_vector()
    ended_at: dict[int, int] = {}
    for k, action in enumerate(actions):
        before = envs.state
        seen, _, terminated, truncated, info = envs.step(action)
        ended = terminated | truncated
        arrived, _ = episode.step(before, action.T, envs.tape, envs.market.shape, envs.rules, np)
        last = episode.observe(arrived, envs.tape, envs.market.shape, envs.rules, np)
        np.testing.assert_array_equal(seen, envs._observe(envs.state))
        np.testing.assert_array_equal(seen[~ended], last[~ended])
        assert ("final_obs" in info) == ended.any()
        for i in np.flatnonzero(ended):
            ended_at.setdefault(int(i), k)
            np.testing.assert_array_equal(info["final_obs"][i], last[i])
            assert info["final_info"]["bar"][i] == arrived.t[i]
            assert envs.state.account.cash[i] == 1
        if ended.any():
            np.testing.assert_array_equal(info["_final_obs"], ended)
            np.testing.assert_array_equal(info["_final_info"], ended)
            np.testing.assert_array_equal(info["final_info"]["_equity"], ended)
            assert all(info["final_obs"][i] is None for i in np.flatnonzero(~ended))
    assert ended_at == {0: 2, 1: 3, 2: 4, 3: 5}


def test_infos_are_those_of_gymnasiums_own_vector() -> None:
    """Beside the first observation of a new episode, `bar` and `equity` are the new episode's too.

    Gymnasium's same-step vector puts the reset's info there and the step's into `final_info`.
    """
    market = biting_market().between(20, 27, episode_bars=7)  # every episode starts at bar 20
    theirs = SyncVectorEnv([lambda: MarketEnv(market)] * 2, autoreset_mode=AutoresetMode.SAME_STEP)
    ours = MarketVectorEnv(market, 2)
    theirs.reset(seed=0), ours.reset(seed=0)
    for action in random_actions(market, 6, 2):
        expected, found = theirs.step(action), ours.step(action)
        np.testing.assert_array_equal(found[4]["bar"], expected[4]["bar"])
        near_one = {"roundings": BAR_ROUNDINGS, "size": 1.0, "dtype": np.float32}
        assert_close(found[0], expected[0], **near_one)
        assert_close(found[1], expected[1], **REWARD)
        assert_close(found[4]["equity"], expected[4]["equity"], **near_one)
    assert found[3].all()
    assert_close(found[4]["final_info"]["equity"], expected[4]["final_info"]["equity"], **near_one)
    for i in range(2):
        assert_close(found[4]["final_obs"][i], expected[4]["final_obs"][i], **near_one)


def test_equal_seeds_give_equal_trajectories() -> None:
    market = biting_market(episode_bars=6)

    def trajectory(seed: int | None) -> np.ndarray:
        envs = MarketVectorEnv(market, 4)
        first = envs.reset(seed=seed)[0]
        return np.stack(
            [first, *(envs.step(action)[0] for action in random_actions(market, 20, 4))]
        )

    np.testing.assert_array_equal(trajectory(7), trajectory(7))
    assert not np.array_equal(trajectory(7), trajectory(8))
    env = MarketEnv(market)
    starts = [env.reset(seed=s)[1]["bar"] for s in (3, 3, 4, None)]
    assert starts[0] == starts[1]
    assert len(set(starts)) > 1


def test_reset_mask_restarts_some_accounts() -> None:
    envs = MarketVectorEnv(biting_market(episode_bars=50), 4)
    envs.reset(seed=1)
    for action in random_actions(envs.market, 5, 4):
        before = envs.step(action)[0]
    bars, mask = envs.state.t.copy(), np.array([True, False, True, False])
    after, info = envs.reset(options={"reset_mask": mask})
    np.testing.assert_array_equal(after[~mask], before[~mask])
    np.testing.assert_array_equal(info["bar"][~mask], bars[~mask])
    assert (info["equity"][mask] == 1).all()
    assert (info["equity"][~mask] != 1).all()


@pytest.mark.parametrize(
    "make", [MarketEnv, lambda m: MarketVectorEnv(m, 2)], ids=["single", "vector"]
)
def test_refusals(make: Any) -> None:
    env = make(biting_market())
    good = np.zeros(env.action_space.shape, np.float32)
    with pytest.raises(RulesError, match=r"call reset\(\) before step\(\)"):
        env.step(good)
    env.reset(seed=0)
    with pytest.raises(RulesError, match="the action has shape"):
        env.step(good[..., :-1])
    for value in (np.nan, np.inf):
        bad = good.copy()
        bad[..., 0] = value
        with pytest.raises(RulesError, match="NaN or infinite"):
            env.step(bad)
    env.step(good)


def test_refuses_settings_beside_a_market_and_rendering() -> None:
    with pytest.raises(RulesError, match="a Market is complete"):
        MarketEnv(biting_market(), settings=Settings())
    with pytest.raises(RulesError, match="render_mode 'human' is not offered"):
        MarketEnv(biting_market(), render_mode="human")


def test_info_tells_equity_bar_and_every_reward_term() -> None:
    """The reward is the scaled, weighted sum of what the info holds."""
    env = MarketEnv(biting_market())
    _, start = env.reset(seed=0, options={"start": 11})
    _, reward, *_, info = env.step(np.full(3, 0.7, np.float32))
    assert info["bar"] == start["bar"] + 1
    assert info["equity"] < 1  # and so not its peak
    few = {"roundings": 32, "dtype": np.float32}
    assert np.log(info["equity"]) == close_to(info["reward/log_return"], size=1.0, **few)
    weights = env.rules.reward
    terms = {name.removeprefix("reward/"): value for name, value in info.items() if "/" in name}
    parts = [float(weights.scale * getattr(weights, name)) * value for name, value in terms.items()]
    assert reward == close_to(sum(parts), size=float(np.sum(np.abs(parts))), **few)
    assert max(map(abs, parts)) > 1e-3  # rounding hides none of it


def test_whole_episode_is_that_of_the_kernel() -> None:
    market: Market = biting_market(episode_bars=WHOLE)
    actions = random_actions(market, 40, 1)
    expected = walk(market, actions, np.zeros((41, 1)), np.float32)
    env = MarketEnv(market)
    env.reset(seed=0)
    for k, action in enumerate(actions):
        observation, reward, terminated, truncated, _ = env.step(action[0])
        np.testing.assert_array_equal(observation, expected.observations[k, 0])
        assert (reward, terminated, truncated) == (expected.rewards[k, 0], False, False)


@pytest.mark.slow
def test_learns_with_stable_baselines() -> None:
    sb3 = pytest.importorskip("stable_baselines3")
    from stable_baselines3.common.vec_env import DummyVecEnv

    envs = DummyVecEnv([lambda: MarketEnv(biting_market(episode_bars=10)) for _ in range(2)])
    agent = sb3.PPO("MlpPolicy", envs, n_steps=16, batch_size=16, n_epochs=1, seed=0, device="cpu")
    agent.learn(64)
    assert agent.num_timesteps == 64
    assert len(agent.ep_info_buffer or []) == 0  # no Monitor was asked for
    assert agent.predict(envs.reset(), deterministic=True)[0].shape == (2, 3)


@pytest.mark.parametrize("given", [[3, 0, 0], [0.5, 1, 1], [-1, 0, 0]])
def test_what_is_no_choice_is_refused(given: list[float]) -> None:
    env = MarketEnv(biting_market(action="discrete"))
    env.reset(seed=0)
    with pytest.raises(RulesError, match="whole numbers from 0 to 2, of which 1 holds"):
        env.step(np.array(given))


def test_holding_trades_nothing() -> None:
    envs = MarketVectorEnv(biting_market(action="discrete"), 4)
    envs.reset(seed=0)
    for _ in range(5):
        info = envs.step(np.ones((4, 3), np.int64))[-1]
    np.testing.assert_array_equal(info["equity"], 1.0)


def test_bars_and_symbols_of_the_settings_are_taken(tmp_path: Path) -> None:
    """Once a file that named bars got the built-in walk in its place."""
    bars = RandomWalk(n_bars=500, seed=3, symbols=("AAA", "BBB")).panel()
    write_bars(bars, tmp_path / "bars.parquet")
    path = tmp_path / "flatout.toml"
    path.write_text('[data]\nbars = "bars.parquet"\nsymbols = ["BBB"]\nbar = "2h"\n')
    for settings in (path, flatout.load_settings(path)):
        panel = MarketEnv(settings=settings).market.panel
        assert panel.symbols == ("BBB",) and panel.bar_seconds == 7200
    tables = {"data": {"symbols": ["AAA"]}}
    for given in (bars, tmp_path / "bars.parquet", bars_frame(bars)):
        assert MarketEnv(given, settings=tables).market.panel.symbols == ("AAA",)


def test_without_bars_it_is_the_market_of_trainings() -> None:
    assert MarketEnv().market.panel.fingerprint == built_in_market().fingerprint


@pytest.mark.parametrize("bars", [3, b"x"])
def test_what_names_no_bars_is_refused_in_a_sentence(bars: Any) -> None:
    with pytest.raises(BarsError, match="give a path, a Panel, or a frame"):
        MarketEnv(bars)


def test_a_market_is_made_of_a_panel_and_settings_of_any_form() -> None:
    panel = RandomWalk(n_bars=300).panel()
    tables = {"market": {"action": "trade"}}
    for settings in (tables, Settings.model_validate(tables), resolve_settings(tables)):
        assert flatout.build_market(panel, settings).shape.action == "trade"
    with pytest.raises(RulesError, match="give a Panel, as"):
        flatout.build_market(bars_frame(panel))
    with pytest.raises(RulesError, match="give what flatout"):
        flatout.backtest(panel, BuyAndHold())


def bars_frame(panel: Panel) -> Any:
    """The panel in the long form."""
    rows = [
        {"date": when, "symbol": name, "volume": float(panel.volume[t, k])}
        | {price: float(getattr(panel, price)[t, k]) for price in ("open", "high", "low", "close")}
        for t, when in enumerate(panel.time.tolist())
        for k, name in enumerate(panel.symbols)
    ]
    return pl.DataFrame(rows)
