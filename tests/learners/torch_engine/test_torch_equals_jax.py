"""From equal weights, equal noise and equal minibatch order, PyTorch and JAX roll out and learn
alike.

In float64. In float32 an order may fall on the other side of a lot or of a limit: accounts go ways
of their own then, and all but a few of them are compared.
"""

from collections.abc import Iterator
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from small_learners import QUICK, assert_learned_alike, difference

torch = pytest.importorskip("torch")

from flatout.arrays import leaves_of, map_leaves, to_numpy  # noqa: E402
from flatout.learners import shuffle  # noqa: E402
from flatout.learners.jax_engine import population  # noqa: E402
from flatout.learners.jax_engine.market_environment import JaxMarketEnvironment  # noqa: E402
from flatout.learners.jax_engine.noise import draw_normal, noise_key  # noqa: E402
from flatout.learners.jax_engine.rollout import run_rollout  # noqa: E402
from flatout.learners.metrics import metric_names  # noqa: E402
from flatout.learners.rates import program_of, rates_of  # noqa: E402
from flatout.learners.torch_engine.market_environment import TorchMarketEnvironment  # noqa: E402
from flatout.learners.torch_engine.ppo import TorchLearner  # noqa: E402
from flatout.learners.torch_engine.rollout import Noise  # noqa: E402
from flatout.learners.trajectory import Lanes  # noqa: E402
from flatout.policies.network import Network, new_network  # noqa: E402
from flatout.settings.train import TrainSettings  # noqa: E402
from market.small_markets import biting_market  # noqa: E402
from rounding import assert_close, tolerance  # noqa: E402

SEED, UPDATES = 3, 4
TRAIN = {
    "n_envs": 12, "n_steps": 16, "minibatches": 4, "epochs": 2, "hidden": (16, 16),
    "learning_rate": 3e-3,
    "activation": "relu",
}  # fmt: skip
CASES: dict[str, dict[str, Any]] = {  # the first two are one program in JAX
    "plain": {},
    "everything": {
        "normalise_reward": True, "target_kl": 1e-4, "value_clip": 0.2, "entropy": 0.01,
        "final_rate_share": 0.1,
        "max_grad_norm": 0.3,
    },
    "squashed": {"distribution": "squashed_gaussian", "activation": "silu"},
    "shares": {"distribution": "softmax"},
    "per asset": {"network": "per_asset"},
    "index only": {"index_only": True},
}  # fmt: skip


class Pair(NamedTuple):
    """The same agent in both engines, as a JAX state and a PyTorch learner."""

    program: Any
    data: Any
    rates: Any
    state: Lanes  # one lane, without the lane axis
    other: TorchLearner


def pair(precision: str, index_only: bool = False, **changes: Any) -> Pair:
    settings = TrainSettings(**{**TRAIN, **changes})
    market = biting_market(80, episode_bars=11)
    tape, rules = market.arrays(precision)
    rates = rates_of(settings, UPDATES, map_leaves(np.asarray, rules))

    def exact(leaf: Any) -> Any:
        return leaf.astype(precision) if np.issubdtype(leaf.dtype, np.floating) else leaf

    rates = map_leaves(exact, rates)
    programs = [
        program_of(settings, kind(market.shape), settings.n_envs or 0, index_only=index_only)
        for kind in (JaxMarketEnvironment, TorchMarketEnvironment)
    ]
    network: Network = map_leaves(exact, new_network(programs[0].sizes, SEED, settings.log_std))
    data = map_leaves(jnp.asarray, tape)
    lanes = population.init_lanes(
        programs[0], data, jax.tree.map(lambda x: x[None], rates), [network], [SEED]
    )
    state = population.take_lane(lanes, 0)
    dtype = getattr(torch, precision)
    other = TorchLearner(
        programs[1], map_leaves(torch.as_tensor, tape), rates, network, SEED, dtype=dtype
    )
    other.load(jax.tree.map(np.array, state))
    return Pair(programs[0], data, jax.tree.map(jnp.asarray, rates), state, other)


def noise_of(both: Pair, update: int) -> Noise:
    """What JAX draws in this update, for PyTorch."""
    program = both.program
    size = (program.n_steps, program.n_envs, program.environment.actions.size)
    action = draw_normal(noise_key(SEED, update, 0), size)
    luck = program.environment.draw(noise_key(SEED, update, 1), program.n_steps, program.n_envs)
    key = noise_key(SEED, update, 2)
    cells = [
        jax.random.uniform(jax.random.fold_in(key, k), shuffle.noise_shape(program.rollout))
        for k in range(int(both.rates.epochs))
    ]
    return Noise(
        *(
            torch.as_tensor(np.array(x), dtype=both.other.dtype)
            for x in (action, luck, jnp.stack(cells))
        )
    )


@cache
def compiled(function: Any, program: Any) -> Any:
    return jax.jit(partial(function, program), compiler_options=QUICK)


@pytest.fixture
def doubles() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def rolled_out(both: Pair) -> tuple[tuple[Any, Any, Any], tuple[Any, Any, Any]]:
    """Steps, means of the terms and episodes, by JAX and by PyTorch, as NumPy arrays."""
    state, expected, means = compiled(run_rollout, both.program)(both.data, both.rates, both.state)
    with torch.no_grad():
        found, terms = both.other.run_rollout(noise_of(both, 0))
    theirs = jax.tree.map(np.asarray, (expected, means, state.episodes))
    return theirs, map_leaves(to_numpy, (found, terms, both.other.episodes))


SEEN = ("seen", "raw", "head", "reward", "terminated", "truncated")


@pytest.mark.slow
@pytest.mark.parametrize("case", ["plain", "squashed", "index only"])
@pytest.mark.usefixtures("doubles")
def test_the_same_rollout(case: str) -> None:
    """Which the weights below tell too, but not where it went wrong."""
    (expected, means, counts), (found, terms, episodes) = rolled_out(pair("float64", **CASES[case]))
    assert expected.truncated.any()
    steps = [
        (x._asdict() | {"final": np.where(expected.truncated, x.final, 0)})
        for x in (found, expected)
    ]
    for name in (*SEEN, "final"):
        for a, b in zip(leaves_of(steps[0][name]), leaves_of(steps[1][name]), strict=True):
            assert_close(a, b, roundings=1e5, name=name)  # 16 bars of a market and a network
    assert_close(terms, means, roundings=1e5)
    for a, b in zip(episodes, counts, strict=True):
        assert_close(a, b, roundings=1e5)


@pytest.mark.slow
@pytest.mark.parametrize("case", ["plain", "index only"])
def test_the_same_rollout_in_single_precision(case: str) -> None:
    """Of ten accounts of twelve at least: see above."""
    (expected, *_), (found, *_) = rolled_out(pair("float32", **CASES[case]))
    alike = np.ones(TRAIN["n_envs"], bool)
    for name in ("raw", "head", "reward", "terminated", "truncated"):
        a, b = (
            np.moveaxis(getattr(x, name), 1, 0).reshape(len(alike), -1) for x in (found, expected)
        )
        assert a.dtype == b.dtype == (bool if b.dtype == bool else np.float32)
        alike &= (np.abs(a.astype(float) - b) <= tolerance(5000, 1 + np.abs(b), np.float32)).all(
            axis=1
        )
    assert alike.sum() >= 10


@pytest.mark.long
@pytest.mark.parametrize(
    "case",
    [
        "plain",
        "everything",
        "shares",
        "per asset",
        *(pytest.param(x, marks=pytest.mark.slow) for x in ("squashed", "index only")),
    ],
)
@pytest.mark.usefixtures("doubles")
def test_the_same_weights_after_some_updates(case: str) -> None:
    both = pair("float64", **CASES[case])
    state, before = both.state, both.state.network
    stopped, steps = 0, TRAIN["minibatches"] * TRAIN["epochs"]
    for update in range(UPDATES):
        state, expected = compiled(population._update, both.program)(both.data, both.rates, state)
        found = to_numpy(both.other.update(noise_of(both, update)))
        names = metric_names(both.program)
        expected, found = (dict(zip(names, np.asarray(x), strict=True)) for x in (expected, found))
        assert_learned_alike(found, expected, steps * (1 + update), TRAIN["learning_rate"])
        stopped += found["epochs"] < TRAIN["epochs"]
    after, found = jax.tree.map(np.asarray, state), map_leaves(to_numpy, both.other.state)
    assert_learned_alike(
        leaves_of(found), jax.tree.leaves(after), steps * UPDATES, TRAIN["learning_rate"]
    )
    assert difference(before, after.network) > 1e-2
    assert stopped > 0 if case == "everything" else stopped == 0


@pytest.mark.slow
def test_about_the_same_weights_in_single_precision() -> None:
    """An account that went its own way has changed gradients by its share."""
    both = pair("float32")
    state, _ = compiled(population._update, both.program)(both.data, both.rates, both.state)
    both.other.update(noise_of(both, 0))
    before, after = (
        np.concatenate([np.ravel(x) for x in jax.tree.leaves(y.network)])
        for y in (both.state, state)
    )
    found = np.concatenate([to_numpy(x).ravel() for x in both.other.weights])
    assert found.dtype == after.dtype == np.float32
    assert np.abs(found - after).mean() < 0.25 * np.abs(after - before).mean()
