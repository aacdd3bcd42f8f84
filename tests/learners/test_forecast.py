"""The forecast of memory against what XLA says of the compiled program, and against a worker's real
peak.
"""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flatout.bars.synthetic import RandomWalk
from flatout.learners import forecast as module
from flatout.learners.forecast import LEAST_ENVS, USUAL_ENVS, choose_program, forecast, free_bytes
from flatout.learners.jax_engine import population
from flatout.learners.jax_engine.market_environment import JaxMarketEnvironment
from flatout.learners.rates import Program, program_of, rates_of
from flatout.market.market import Market, build_market
from flatout.policies.network import new_network
from flatout.settings.tables import Settings
from flatout.settings.train import TrainSettings
from flatout.training.market_training import make_agent, make_training
from flatout.training.plan import Plan, make_plan
from flatout.workers.slots import ONE_THREAD, Slot

SYMBOLS = ("AAA", "BBB", "CCC", "DDD", "EEE")
MIB = 2**20
FAST = {"xla_backend_optimization_level": "0"}  # of the machine code; buffers are assigned before


@pytest.fixture(scope="module")
def market() -> Market:
    return build_market(RandomWalk(n_bars=300, symbols=SYMBOLS).panel())


def program_for(
    market: Market, n_envs: int = 64, index_only: bool = False, **settings: Any
) -> Program:
    return program_of(
        TrainSettings(**settings), JaxMarketEnvironment(market.shape), n_envs, index_only=index_only
    )


def working_memory(market: Market, program: Program, lanes: int = 2) -> int:
    """What XLA sets aside beside arguments and results; nothing is allocated to learn it."""
    tape, rules = market.arrays()
    rates = rates_of(TrainSettings(hidden=program.hidden), 10, rules)
    rates = jax.tree.map(lambda x: np.stack([x] * lanes), rates)
    network = jax.tree.map(lambda x: np.stack([x] * lanes), new_network(program.sizes, 0))
    state = jax.eval_shape(
        lambda *inputs: population._init_lanes(program, *inputs),
        tape,
        rates,
        network,
        jnp.zeros(lanes, jnp.uint32),
    )
    lowered = population.make_chunk_runner(program, True).lower(tape, rates, state)
    return lowered.compile(compiler_options=FAST).memory_analysis().temp_size_in_bytes


@pytest.mark.long
@pytest.mark.parametrize(
    ("n_envs", "width", "minibatches", "index_only"),
    [
        (512, 64, 4, True),
        (512, 64, 16, False),
        pytest.param(512, 64, 4, False, marks=pytest.mark.slow),
        pytest.param(512, 256, 2, False, marks=pytest.mark.slow),
    ],
)
def test_the_forecast_is_what_the_compiler_sets_aside(
    market: Market, n_envs: int, width: int, minibatches: int, index_only: bool
) -> None:
    """It errs by two per cent here, whatever the processor: buffers are laid out before there is
    code for one.
    """
    program = program_for(
        market, n_envs, index_only, hidden=(width, width), minibatches=minibatches
    )
    found, needed = working_memory(market, program), forecast(program, 2, 0)
    assert needed.rollout + needed.minibatch == pytest.approx(found, rel=0.1)


@pytest.mark.long
def test_the_entropy_of_squashed_actions_is_in_the_forecast(market: Market) -> None:
    program = program_for(market, 512, distribution="squashed_gaussian")
    found, needed = working_memory(market, program), forecast(program, 2, 0)
    assert needed.rollout + needed.minibatch == pytest.approx(found, rel=0.1)


@pytest.mark.long
@pytest.mark.parametrize(
    "changes",
    [
        {"network": "per_asset"},
        {"algorithm": "pathwise", "n_steps": 32},
        {"algorithm": "pathwise", "n_steps": 32, "network": "per_asset"},
        {"algorithm": "pathwise", "n_steps": 32, "activation": "silu"},
    ],
)
def test_windows_and_networks_of_assets_are_in_the_forecast(
    market: Market, changes: dict[str, Any]
) -> None:
    program = program_for(market, 512, **changes)
    found, needed = working_memory(market, program), forecast(program, 2, 0)
    assert needed.rollout + needed.minibatch == pytest.approx(found, rel=0.15)


@pytest.mark.slow
def test_the_forecast_is_what_a_worker_takes(tmp_path: Path) -> None:
    """With a compiler that has something to do: a program that was kept from another run takes
    less. What the compiler takes differs by a fifth of a GiB from run to run, so the arrays must
    outweigh it.
    """
    settings = Settings.model_validate({"train": {"n_envs": 8192, "n_steps": 128, "epochs": 1}})
    agent = make_agent("five", RandomWalk(n_bars=400, symbols=SYMBOLS).panel(), settings, 0.2)
    made = make_training([agent], settings, (0,), timesteps=1)
    environment = {
        "JAX_PLATFORMS": "cpu", "XLA_FLAGS": ONE_THREAD, "JAX_COMPILATION_CACHE_DIR": str(tmp_path),
    }  # fmt: skip
    slots = [Slot("cpu", (), environment)]
    plan = make_plan(made.training, slots).with_trial(slots)
    assert plan.measured_bytes is not None
    assert plan.memory.total == pytest.approx(plan.measured_bytes, rel=0.2)


@pytest.mark.long
@pytest.mark.parametrize(
    "changes",
    [
        {"network": "per_asset"},
        pytest.param({"network": "flat"}, marks=pytest.mark.slow),
        pytest.param({"network": "flat", "hidden": (64, 64)}, marks=pytest.mark.slow),
        pytest.param({"network": "per_asset", "activation": "silu"}, marks=pytest.mark.slow),
    ],
)
def test_windows_on_pytorch_are_in_the_forecast_of_a_worker(changes: dict[str, Any]) -> None:
    """What more accounts take: a worker without its compiler takes less than it may."""
    pytest.importorskip("torch")
    few, many = (pathwise_plan(n_envs, **changes) for n_envs in (64, 2048))
    assert few.measured_bytes is not None and many.measured_bytes is not None
    found = many.measured_bytes - few.measured_bytes
    assert many.memory.total - few.memory.total == pytest.approx(found, rel=0.25)
    assert few.memory.process > 0.8 * few.measured_bytes


def pathwise_plan(n_envs: int, **changes: Any) -> Plan:
    """What a worker on PyTorch takes for one window, as told before and as measured."""
    train = {"algorithm": "pathwise", "engine": "torch", "n_steps": 32, "value": 0.5}
    settings = Settings.model_validate({"train": train | {"n_envs": n_envs} | changes})
    agent = make_agent("five", RandomWalk(n_bars=400, symbols=SYMBOLS).panel(), settings, 0.2)
    slots = [Slot("cpu", (), {})]
    made = make_training([agent], settings, (0,), timesteps=1)
    return make_plan(made.training, slots).with_trial(slots)


def test_lanes_at_once_take_more_than_one_after_another(market: Market) -> None:
    program = program_for(market)
    one, four, at_once = (forecast(program, *x) for x in ((1, 10), (4, 10), (4, 10, False)))
    assert (four.rollout, four.minibatch) == (one.rollout, one.minibatch)
    assert (at_once.rollout, at_once.minibatch) == (4 * one.rollout, 4 * one.minibatch)
    assert four.state == at_once.state == 4 * one.state
    assert one.total == sum(one)
    assert one.data == 10


def test_free_memory_is_less_than_all() -> None:
    assert 0 < free_bytes() < 2**50


def needed(program: Program, lanes: int = 1) -> int:
    """Free memory with which it just fits."""
    return int(forecast(program, lanes, 0).total / module.BUDGET) + 1


def chosen(
    market: Market, monkeypatch: pytest.MonkeyPatch, free: int, n_envs: int | None, **settings: Any
) -> Program:
    monkeypatch.setattr(module, "free_bytes", lambda: free)
    return choose_program(program_for(market, n_envs or USUAL_ENVS, **settings), n_envs, 1, 1, 0)


def test_with_memory_enough_trajectories_are_whole(
    market: Market, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = chosen(market, monkeypatch, 2**40, None)
    assert (found.n_envs, found.index_only) == (USUAL_ENVS, False)
    found = chosen(market, monkeypatch, 2**40, 4096)
    assert (found.n_envs, found.index_only) == (4096, False)


def test_what_just_fits_is_chosen(market: Market, monkeypatch: pytest.MonkeyPatch) -> None:
    long = {"n_steps": 8192}
    whole, views = (program_for(market, USUAL_ENVS, only, **long) for only in (False, True))
    half = views._replace(n_envs=USUAL_ENVS // 2)
    assert needed(whole) > needed(views) > needed(half)
    assert chosen(market, monkeypatch, needed(whole), None, **long) == whole
    assert chosen(market, monkeypatch, needed(whole) - 10, None, **long) == views
    assert chosen(market, monkeypatch, needed(views), None, **long) == views
    fewer = chosen(market, monkeypatch, needed(views) - 10, None, **long)
    assert fewer.n_envs == USUAL_ENVS // 2
    least = chosen(market, monkeypatch, 0, None, **long)
    assert (least.n_envs, least.index_only) == (LEAST_ENVS, True)


def test_a_given_number_of_environments_stays(
    market: Market, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = chosen(market, monkeypatch, 0, 4096)
    assert (found.n_envs, found.index_only) == (4096, True)


def test_halving_stops_where_minibatches_would_no_longer_divide(
    market: Market, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = chosen(market, monkeypatch, 0, None, n_steps=1, minibatches=32)
    assert (found.n_envs, found.index_only) == (32, True)


def test_workers_share_the_memory(market: Market, monkeypatch: pytest.MonkeyPatch) -> None:
    program = program_for(market, USUAL_ENVS, n_steps=8192)
    monkeypatch.setattr(module, "free_bytes", lambda: 2 * needed(program))
    assert choose_program(program, None, 2, 2, 0) == program
    assert choose_program(program, None, 3, 3, 0).n_envs < USUAL_ENVS
