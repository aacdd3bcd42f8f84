"""Lanes on PyTorch behind the same orders, answers and checkpoints as on JAX."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import array_api_compat
import jax
import jax.numpy as jnp
import numpy as np
import pytest

torch = pytest.importorskip("torch")

import array_api_compat.torch  # noqa: E402

from flatout.arrays import map_leaves, to_numpy  # noqa: E402
from flatout.bars.synthetic import RandomWalk  # noqa: E402
from flatout.learners.batch_state import save_state  # noqa: E402
from flatout.learners.checkpoint import read_checkpoint  # noqa: E402
from flatout.learners.jax_engine import lane_batch as jax_batch  # noqa: E402
from flatout.learners.jobs import EvaluationPlan, Job, NewLanes, WorkOrder  # noqa: E402
from flatout.learners.torch_engine import lane_batch as torch_batch  # noqa: E402
from flatout.learners.torch_engine.lane_batch import TorchLaneBatch  # noqa: E402
from flatout.market.gymnasium_env import MarketVectorEnv  # noqa: E402
from flatout.market.market import segments  # noqa: E402
from flatout.policies.actions import Gaussian  # noqa: E402
from flatout.policies.bundle import Bundle  # noqa: E402
from flatout.policies.network import actor  # noqa: E402
from flatout.settings.tables import Settings  # noqa: E402
from flatout.training.market_training import MarketTraining, make_agent, make_training  # noqa: E402
from flatout.training.training import TrainedLane, finished_lanes, make_jobs, train_lanes  # noqa: E402
from flatout.workers.slots import cpu_slots  # noqa: E402
from rounding import assert_close  # noqa: E402

PANEL = RandomWalk(n_bars=300, seed=1, symbols=("AAA", "BBB")).panel()
TRAIN = {
    "n_envs": 8,
    "n_steps": 16,
    "minibatches": 2,
    "epochs": 2,
    "hidden": [8, 8],
    "learning_rate": 3e-3,
}
PATHWISE: dict[str, Any] = {"algorithm": "pathwise", "value": 0.5, "minibatches": 1, "epochs": 1}
ALGORITHMS = ("ppo", "pathwise")


def made(engine: str = "torch", seeds: int = 2, **train_lanes: Any) -> MarketTraining:
    settings = Settings.model_validate(
        {
            "train": {**TRAIN, "engine": engine, **train_lanes},
            "features": {"indicators": ["return_1", "roc"]},
        }
    )
    agent = make_agent("both", PANEL, settings, 0.2)
    return make_training([agent], settings, range(seeds), 8 * 16 * 6, evaluations=3)


def job_in(folder: Path, training: MarketTraining | None = None, **changes: Any) -> Job:
    folder.mkdir(exist_ok=True)
    [job] = make_jobs((training or made()).training, folder, 1)
    return replace(job, **changes)


def batch_in(folder: Path, **changes: Any) -> TorchLaneBatch:
    job = job_in(folder, **changes)
    return TorchLaneBatch(job, torch_batch.load_data(job))


class Run(NamedTuple):
    """A training in processes of its own."""

    training: MarketTraining
    folder: Path
    results: list[TrainedLane]
    rows: list[Any]


@pytest.fixture(scope="module")
def run_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Run]:
    """Of either engine, made once: PyTorch has a worker for each lane, which never load JAX."""

    @cache
    def run(engine: str) -> Run:
        training, folder, rows = made(engine), tmp_path_factory.mktemp(engine), list[Any]()
        workers = 2 if engine == "torch" else 1
        return Run(
            training,
            folder,
            train_lanes(training.training, folder, cpu_slots(workers, workers), rows.extend),
            rows,
        )

    return run


@pytest.mark.long
def test_checkpoints_have_the_names_and_shapes_of_those_of_jax(
    tmp_path: Path, run_of: Callable[[str], Run]
) -> None:
    ours = batch_in(tmp_path)
    ours.advance(WorkOrder((1, 1), round=7))
    [theirs] = (run_of("jax").folder / "checkpoints").iterdir()
    found, expected = (read_checkpoint(path)[0] for path in (ours.job.checkpoint, theirs))
    assert {name: (x.shape, x.dtype) for name, x in found.items()} == {
        name: (x.shape, x.dtype) for name, x in expected.items()
    }


@pytest.mark.long
def test_checkpoints_of_windows_have_the_names_and_shapes_of_those_of_jax(tmp_path: Path) -> None:
    """Those of a fresh lane; nothing has to be compiled to learn them."""
    ours = batch_in(tmp_path / "torch", training=made(**PATHWISE))
    ours.advance(WorkOrder((1, 1), round=7))
    job = job_in(tmp_path / "jax", made("jax", **PATHWISE))
    rates = jax.tree.map(jnp.asarray, job.rates)
    fresh = jax_batch.load_or_start(job, jax_batch.load_data(job), rates)
    save_state(job, jax_batch.array_names(fresh))
    found, expected = (read_checkpoint(x.checkpoint)[0] for x in (ours.job, job))
    assert {name: (x.shape, x.dtype) for name, x in found.items()} == {
        name: (x.shape, x.dtype) for name, x in expected.items()
    }


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{}, PATHWISE], ids=ALGORITHMS)
@pytest.mark.parametrize("engine", ["torch", "jax"])
def test_either_engine_goes_on_from_the_others_checkpoint(
    tmp_path: Path, engine: str, changes: dict[str, Any]
) -> None:
    engines = {
        "torch": (TorchLaneBatch, torch_batch.load_data),
        "jax": (jax_batch.JaxLaneBatch, jax_batch.load_data),
    }
    job = job_in(tmp_path, made(engine, **changes))
    make, load = engines.pop(engine)
    first = make(job, load(job)).advance(WorkOrder((2, 2)))
    [(other, (make, load))] = engines.items()
    job = job_in(tmp_path, made(other, **changes))
    batch = make(job, load(job))
    assert list(batch.state.last.updates) == [2, 2]
    np.testing.assert_array_equal(batch.state.last.scores, first.scores)
    chunk = batch.advance(WorkOrder((3, 3)))
    assert list(chunk.updates) == [3, 3]
    assert np.isfinite(chunk.metrics).all()


@pytest.mark.parametrize("changes", [{}, PATHWISE], ids=ALGORITHMS)
def test_a_resumed_training_ends_with_the_same_bytes(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    training = made(**changes)
    whole = batch_in(tmp_path / "whole", training=training)
    for until in (2, 4):
        whole.advance(WorkOrder((until, until), round=until))
    batch_in(tmp_path / "parts", training=training).advance(WorkOrder((2, 2), round=2))
    again = batch_in(tmp_path / "parts", training=training)
    again.advance(WorkOrder((4, 4), round=4))
    assert again.job.checkpoint.read_bytes() == whole.job.checkpoint.read_bytes()


@pytest.mark.parametrize("changes", [{}, PATHWISE], ids=ALGORITHMS)
def test_lanes_do_not_notice_each_other(tmp_path: Path, changes: dict[str, Any]) -> None:
    """Nor does it matter in which order or how far the others go."""
    both, alone = (
        batch_in(tmp_path / str(seeds), training=made(seeds=seeds, **changes)) for seeds in (2, 1)
    )
    both.advance(WorkOrder((3, 1)))
    alone.advance(WorkOrder((3,)))
    for name, leaf in torch_batch.array_names(alone.state.lanes):
        np.testing.assert_array_equal(
            dict(torch_batch.array_names(both.state.lanes))[name][:1], leaf
        )
    assert list(both.state.last.updates) == [3, 1]


@pytest.mark.parametrize("changes", [{}, PATHWISE], ids=ALGORITHMS)
def test_new_agents_take_over_their_lanes_only(tmp_path: Path, changes: dict[str, Any]) -> None:
    training = made(**changes)
    batch = batch_in(tmp_path / "a", training=training)
    other = batch_in(tmp_path / "b", training=training, seeds=[0, 9])
    batch.advance(WorkOrder((2, 2)))
    rates, judged = batch.job.rates, batch.job.evaluation.environment  # type: ignore[union-attr]
    new = NewLanes(rates, judged, (1,), (9,), (batch.job.log_std[1],), (batch.job.hidden[1],))
    batch.advance(WorkOrder((2, 1), new_lanes=new))
    other.advance(WorkOrder((2, 1)))
    for (name, ours), (_, theirs) in zip(
        torch_batch.array_names(batch.state.lanes),
        torch_batch.array_names(other.state.lanes),
        strict=True,
    ):
        np.testing.assert_array_equal(ours, theirs, err_msg=name)


def traced_job(folder: Path, engine: str) -> Job:
    """Two stretches of bars that judge, on every bar. Any order counts there, however small: next
    to a smallest one, a rounding would decide whether it is carried out.
    """
    job = job_in(folder, made(engine))
    rules = job.evaluation.environment  # type: ignore[union-attr]
    bounds = segments([(60, 90), (120, 140)], None, PANEL.n_bars)
    bounds = map_leaves(lambda x: np.stack([np.asarray(x)] * 2), bounds)
    limits = rules.limits._replace(min_notional=np.zeros_like(rules.limits.min_notional))
    assert not limits.lot_step.any()
    judged = rules._replace(segments=bounds, limits=limits)
    return replace(job, evaluation=EvaluationPlan(judged, 2, 29, traced=True))


def check_same_traces(found: Any, expected: Any) -> None:
    """Bar by bar, and summed up to each bar: what is wrong by little on every bar shows there. A
    bar's changes of an equity of size 1 have some thirty roundings, their sums ten for each bar, as
    in test_tracer.py.
    """
    assert_close(found, expected, roundings=200, size=1.0, dtype=np.float32)
    sums = [np.cumsum(traces, axis=-1, dtype=float) for traces in (found, expected)]
    assert_close(*sums, roundings=10 * found.shape[-1], size=1.0, dtype=np.float32)


@pytest.mark.slow
def test_traces_equal_those_of_jax(tmp_path: Path) -> None:
    job = traced_job(tmp_path / "torch", "torch")
    batch = TorchLaneBatch(job, torch_batch.load_data(job))
    job = traced_job(tmp_path / "jax", "jax")
    other = jax_batch.JaxLaneBatch(job, jax_batch.load_data(job))
    for delay in (0, 1, 2):
        found = batch.advance(WorkOrder((2, 2), delay=delay)).traces
        networks = map_leaves(jnp.asarray, batch.state.lanes.network)
        _, expected, _ = other.judge(networks, np.asarray([2, 2]), delay)
        assert found.shape == expected.shape
        check_same_traces(found, expected)
        assert (found[:, :, 1, 20:] == 0).all()  # after its end
        assert np.abs(found[:, 0, :, :19]).max() > 0


def test_pytorch_traces_as_numpy_does(tmp_path: Path) -> None:
    """On a GPU the arrays stay where they are."""
    job = traced_job(tmp_path, "torch")
    batch = TorchLaneBatch(job, torch_batch.load_data(job))
    expected = batch.advance(WorkOrder((2, 2), delay=1)).traces
    batch.on_host = False
    plan = job.evaluation
    assert plan is not None
    found = np.stack([batch.judge_lane(plan, k, 1) for k in range(2)])
    check_same_traces(found, expected)


@pytest.mark.long
@pytest.mark.parametrize("engine", ["torch", "jax"])
def test_a_saved_policy_gives_the_same_orders_in_every_library(
    tmp_path: Path, run_of: Callable[[str], Run], engine: str
) -> None:
    """Whoever trained it; along the path that its own orders lead to."""
    training, _, [result, _], _ = run_of(engine)
    market = training.agents[0].market
    Bundle(result.last, "tanh", "gaussian", market.fitted, Settings().market).save(
        tmp_path / "bundle"
    )
    bundle = Bundle.load(tmp_path / "bundle")
    env = MarketVectorEnv(market, 3)
    observation, _ = env.reset(seed=0)
    seen, orders = [], []
    for _ in range(150):
        seen.append(observation)
        orders.append(bundle.act(observation))
        observation, *_ = env.step(orders[-1])
    seen, orders = np.stack(seen), np.stack(orders)
    for xp, up in ((jnp, jnp.asarray), (array_api_compat.torch, torch.as_tensor)):
        network = map_leaves(up, bundle.network)
        found = Gaussian.bounded(
            actor(network, up(seen), "tanh", xp), up(np.float32(-1)), up(np.float32(1)), xp
        )
        # three sums of at most a few dozen products each, of size 1 but for what is seen
        assert_close(to_numpy(found), orders, roundings=128, size=1 + np.abs(seen).max())
    assert np.ptp(orders, axis=0).max() > 1e-3


def test_the_best_network_is_kept(tmp_path: Path) -> None:
    batch = batch_in(tmp_path)
    best = np.full(2, -np.inf)
    for until in range(1, 6):
        chunk = batch.advance(WorkOrder((until, until)))
        won = chunk.scores[:, 0] > best
        best = np.maximum(best, chunk.scores[:, 0])
        np.testing.assert_array_equal(batch.state.best.score, best.astype(np.float32))
        for new, kept in zip(
            jax.tree.leaves(batch.state.lanes.network),
            jax.tree.leaves(batch.state.best.network),
            strict=True,
        ):
            np.testing.assert_array_equal(kept[won], new[won])


@pytest.mark.long
def test_workers_train_on_pytorch(run_of: Callable[[str], Run]) -> None:
    training, folder, results, rows = run_of("torch")
    assert [result.updates for result in results] == [6, 6]
    assert {row.lane for row in rows} == {"both-seed0", "both-seed1"}
    again = finished_lanes(training.training, folder, 2)
    assert [result.best_score for result in again] == [result.best_score for result in results]
