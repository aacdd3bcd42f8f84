"""From bars to lanes: held-out bars teach nobody, symbols keep to themselves, and the judge is the
backtest.
"""

import resource
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flatout.arrays import map_leaves
from flatout.bars.panel import Panel
from flatout.bars.synthetic import RandomWalk
from flatout.errors import RulesError, SettingsError
from flatout.evaluation.backtest import backtest
from flatout.evaluation.saved_policy import SavedPolicy
from flatout.learners.jax_engine.evaluate import make_evaluator
from flatout.market.rewards import RewardTerms
from flatout.policies.bundle import Bundle
from flatout.settings.tables import Settings
from flatout.training.market_training import (
    MarketTraining,
    make_agent,
    make_training,
)
from flatout.training.training import make_jobs, shared_files, write_array
from rounding import assert_close
from small_bundles import network_of

N_BARS, HELD_OUT, CUT = 260, 0.25, 195
SETTINGS = Settings.model_validate(
    {
        "features": {"indicators": ["return_1", "roc"], "lookback": 2},
        "train": {"hidden": [8], "n_steps": 8},
    }
)
STEPS, ENVS = 400, 64


def panel_of(symbol: str, seed: int, n_bars: int = N_BARS) -> Panel:
    return RandomWalk(n_bars=n_bars, symbols=(symbol,), seed=seed).panel()


@pytest.fixture(scope="module")
def made() -> MarketTraining:
    """Two symbols of different length, two seeds each."""
    agents = [
        make_agent(symbol, panel_of(symbol, seed, n_bars), SETTINGS, HELD_OUT)
        for symbol, seed, n_bars in (("AAA", 1, N_BARS), ("BBB", 2, N_BARS + 40))
    ]
    return make_training(agents, SETTINGS, (3, 4), timesteps=10_000)


def test_the_scaler_never_sees_held_out_bars() -> None:
    panel = panel_of("AAA", 1)
    after = np.arange(N_BARS)[:, None] >= CUT
    changed = {
        name: np.where(after, 7 * getattr(panel, name) ** 2, getattr(panel, name))
        for name in ("open", "high", "low", "close", "volume")
    }
    plain, poisoned = (
        make_agent("AAA", bars, SETTINGS, HELD_OUT) for bars in (panel, replace(panel, **changed))
    )
    assert plain.cut == poisoned.cut == CUT
    np.testing.assert_array_equal(
        plain.market.fitted.scaler.statistics, poisoned.market.fitted.scaler.statistics
    )
    before, later = plain.market.tape.features, poisoned.market.tape.features
    np.testing.assert_array_equal(before[:CUT], later[:CUT])
    assert not np.array_equal(before[CUT:], later[CUT:])


def test_there_is_a_lane_for_each_agent_and_seed(made: MarketTraining) -> None:
    assert [(lane.name, lane.seed) for lane in made.training.lanes] == [
        ("AAA-seed3", 3), ("AAA-seed4", 4), ("BBB-seed3", 3), ("BBB-seed4", 4),
    ]  # fmt: skip
    assert {name: agent.name for name, agent in made.agent_of.items()} == {
        lane.name: lane.name[:3] for lane in made.training.lanes
    }
    assert made.training.updates == -(-10_000 // made.training.program.rollout)
    assert len(made.training.data.features) == 2 * N_BARS + 40


def bars_visited(made: MarketTraining) -> Any:
    """`visit(rules)`: (step, env) bars that accounts with these rules arrive at, and (env,) bars
    they start at.
    """
    env, tape = made.training.program.environment, map_leaves(jnp.asarray, made.training.data)

    @jax.jit
    def visit(rules: Any) -> Any:
        keys = jax.random.split(jax.random.key(0), 3)
        start = env.reset(env.draw(keys[0], 1, ENVS)[0], tape, rules)
        actions = jax.random.uniform(keys[1], (STEPS, ENVS, env.actions.size), minval=-1.0)

        def body(state: Any, inputs: Any) -> Any:
            state, step = env.step(state, inputs[0], inputs[1], tape, rules)
            return state, (step.arrived.t, state.t)

        _, (arrived, after) = jax.lax.scan(body, start, (actions, env.draw(keys[2], STEPS, ENVS)))
        return start.t, arrived, after

    return visit


@pytest.mark.long
def test_lanes_stay_on_their_own_bars(made: MarketTraining) -> None:
    visit = bars_visited(made)
    offset = 0
    for agent, lane in zip(made.agents, made.training.lanes[::2], strict=True):
        warm, n_bars = int(agent.market.rules.segments.first[0]), agent.market.panel.n_bars
        start, arrived, after = (np.asarray(t) - offset for t in visit(lane.rates.environment))
        taught = np.concatenate([start, arrived.ravel(), after.ravel()])
        assert (taught.min(), taught.max()) == (warm, agent.cut - 1), (
            agent.name
        )  # all of them, and no other
        assert len(set(after[after != arrived])) > 20  # episodes start in many places
        start, arrived, _ = (np.asarray(t) - offset for t in visit(lane.judged))
        assert set(start) == {agent.cut}
        assert (arrived.min(), arrived.max()) == (agent.cut + 1, n_bars - 1)
        offset += n_bars


@pytest.mark.long
def test_the_evaluation_is_the_backtest_of_the_bundle(made: MarketTraining) -> None:
    training, program = made.training, made.training.program
    networks = [
        network_of(program.sizes.observation, program.sizes.head, k, (8,))
        for k in range(len(training.lanes))
    ]
    stack = jax.tree.map(lambda *leaves: jnp.stack(leaves), *networks)
    rates = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(
        lane.rates._replace(environment=lane.judged) for lane in training.lanes
    ))  # fmt: skip
    data = map_leaves(jnp.asarray, training.data)
    found = make_evaluator(program, training.eval_envs, training.eval_steps)(data, rates, stack, 0)
    earned = np.asarray(found.terms)[:, 0, RewardTerms._fields.index("log_return")]
    for k, lane in enumerate(training.lanes):
        agent = made.agent_of[lane.name]
        market = agent.market
        bundle = Bundle(
            networks[k],
            program.activation,
            program.distribution,
            market.fitted,
            SETTINGS.market,
            kind=program.network,
        )
        history = backtest(market, SavedPolicy(bundle), 1, agent.cut)
        assert float(found.length[k, 0]) == len(history.bars) == market.panel.n_bars - agent.cut - 1
        assert abs(earned[k]) > 1e-3
        roundings = 20 * len(history.bars)  # of an equity of size 1, on every bar
        assert_close(
            earned[k], np.log(history.equity[-1, 0]), roundings=roundings, size=1.0, name=lane.name
        )


def test_workers_get_their_lanes_and_the_shared_tape(made: MarketTraining, tmp_path: Any) -> None:
    jobs = make_jobs(made.training, tmp_path, 2)
    assert [job.names for job in jobs] == [["AAA-seed3", "AAA-seed4"], ["BBB-seed3", "BBB-seed4"]]
    assert jobs[0].data == jobs[1].data
    np.testing.assert_array_equal(np.load(jobs[0].data.features), made.training.data.features)


def test_a_shortened_training_is_judged_after_each_update(made: MarketTraining) -> None:
    short = made.with_updates(2).training
    assert (short.updates, short.chunk, short.lanes) == (2, 1, made.training.lanes)


@pytest.mark.parametrize(("n_bars", "held_out"), [(12, 0.2), (100, 0.01), (100, 0.89)])
def test_too_few_bars_are_refused(n_bars: int, held_out: float) -> None:
    with pytest.raises(RulesError, match=f"AAA: {n_bars} bars are too few"):
        make_agent("AAA", panel_of("AAA", 1, n_bars), SETTINGS, held_out)


def test_agents_of_different_shapes_are_refused() -> None:
    pair = RandomWalk(n_bars=N_BARS, symbols=("AAA", "BBB")).panel()
    agents = [
        make_agent("one", panel_of("AAA", 1), SETTINGS, HELD_OUT),
        make_agent("two", pair, SETTINGS, HELD_OUT),
    ]
    with pytest.raises(RulesError, match="cannot share one program"):
        make_training(agents, SETTINGS, (0,), 1000)


def test_minibatches_that_do_not_divide_are_refused() -> None:
    settings = Settings.model_validate(
        {"features": SETTINGS.features, "train": {"n_envs": 3, "n_steps": 5, "minibatches": 4}}
    )
    with pytest.raises(
        SettingsError, match=r"3 x n_steps 5 = 15 transitions cannot be split into 4"
    ):
        make_training(
            [make_agent("AAA", panel_of("AAA", 1), settings, HELD_OUT)], settings, (0,), 1000
        )


def test_arrays_for_workers_are_new_files_and_a_full_disk_is_named(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "scratch").mkdir()
    (tmp_path / "scratch" / "data-0.npy").hardlink_to(tmp_path / "precious")
    arrays = (
        np.float64(3.0),
        np.arange(6).reshape(2, 3).T,
        np.zeros((0, 2)),
        np.array(["2024"], "datetime64[s]"),
    )
    for path, array in zip(shared_files(tmp_path / "scratch", arrays), arrays, strict=True):
        found = np.load(path)
        assert found.shape == np.shape(array)
        assert found.dtype == np.asarray(array).dtype
        assert np.array_equal(found, array)
    assert (tmp_path / "precious").read_text() == "precious"
    usual, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, most))  # as good as a full disk
    try:
        with pytest.raises(OSError, match=r"File too large: '.*large\.npy'"):
            write_array(tmp_path / "large.npy", np.zeros(100_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (usual, most))
