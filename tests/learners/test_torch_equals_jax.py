"""From equal weights, equal noise and equal minibatch order, PyTorch and JAX roll out and learn alike."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from flatout.arrays import leaves_of, map_leaves, to_numpy  # noqa: E402
from flatout.learners import jax_population, shuffle  # noqa: E402
from flatout.learners.jax_agent import noise_key, normal  # noqa: E402
from flatout.learners.jax_market_environment import JaxMarketEnvironment  # noqa: E402
from flatout.learners.jax_rollout import rollout  # noqa: E402
from flatout.learners.rates import metric_names, program_of, rates_of  # noqa: E402
from flatout.learners.torch_market_environment import TorchMarketEnvironment  # noqa: E402
from flatout.learners.torch_ppo import Noise, TorchLearner  # noqa: E402
from flatout.learners.trajectory import Lanes  # noqa: E402
from flatout.policies.network import Network, new_network  # noqa: E402
from flatout.settings import TrainSettings  # noqa: E402
from market.small_markets import biting_market  # noqa: E402

SEED, UPDATES = 3, 10
TRAIN = {"n_envs": 12, "n_steps": 16, "minibatches": 4, "epochs": 2, "hidden": (16, 16), "learning_rate": 3e-3}
CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "squashed": {"distribution": "squashed_gaussian", "activation": "silu"},
    "everything": {
        "normalise_reward": True, "target_kl": 1e-4, "value_clip": 0.2, "entropy": 0.01, "final_rate_share": 0.1,
        "activation": "relu", "max_grad_norm": 0.3,
    },
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
    lanes = jax_population.init(programs[0], data, jax.tree.map(lambda x: x[None], rates), [network], [SEED])
    state = jax_population.lane(lanes, 0)
    dtype = getattr(torch, precision)
    other = TorchLearner(programs[1], map_leaves(torch.as_tensor, tape), rates, network, SEED, dtype=dtype)
    other.load(jax.tree.map(np.array, state))
    return Pair(programs[0], data, jax.tree.map(jnp.asarray, rates), state, other)


def noise_of(both: Pair, update: int) -> Noise:
    """What JAX draws in this update, for PyTorch."""
    program = both.program
    size = (program.n_steps, program.n_envs, program.environment.actions.size)
    action = normal(noise_key(SEED, update, 0), size)
    luck = program.environment.draw(noise_key(SEED, update, 1), program.n_steps, program.n_envs)
    key = noise_key(SEED, update, 2)
    cells = [
        jax.random.uniform(jax.random.fold_in(key, k), shuffle.noise_shape(program.rollout))
        for k in range(int(both.rates.epochs))
    ]
    return Noise(*(torch.as_tensor(np.array(x), dtype=both.other.dtype) for x in (action, luck, jnp.stack(cells))))


@pytest.fixture
def precision(request: pytest.FixtureRequest) -> Any:
    with jax.enable_x64(request.param == "float64"):
        yield request.param


SINGLE, DOUBLE = "float32", "float64"
SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("precision", "case"),
    [(SINGLE, "plain"), pytest.param(DOUBLE, "squashed", marks=SLOW), pytest.param(SINGLE, "index only", marks=SLOW)],
    indirect=["precision"],
)
def test_the_same_rollout(precision: str, case: str) -> None:
    both = pair(precision, **CASES[case])
    state, expected, means = jax.jit(partial(rollout, both.program))(both.data, both.rates, both.state)
    with torch.no_grad():
        found, terms = both.other.rollout(noise_of(both, 0))
    tolerance = 1e-5 if precision == "float32" else 1e-12
    truncated = np.asarray(expected.truncated)
    assert truncated.any()
    for name in ("seen", "raw", "head", "reward", "terminated", "truncated"):
        for a, b in zip(jax.tree.leaves(getattr(expected, name)), leaves_of(getattr(found, name)), strict=True):
            np.testing.assert_allclose(to_numpy(b), np.asarray(a), atol=tolerance, rtol=tolerance, err_msg=name)
    finals = [to_numpy(x)[truncated] for x in (found.final, expected.final)]
    np.testing.assert_allclose(*finals, atol=tolerance, rtol=tolerance)
    np.testing.assert_allclose(to_numpy(terms), np.asarray(means), atol=tolerance, rtol=tolerance)
    for a, b in zip(jax.tree.leaves(state.episodes), both.other.episodes, strict=True):
        np.testing.assert_allclose(to_numpy(b), np.asarray(a), atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize(
    ("precision", "case"),
    [
        (SINGLE, "plain"),
        (DOUBLE, "everything"),
        *(pytest.param(*rest, marks=SLOW) for rest in ((SINGLE, "everything"), (DOUBLE, "squashed"))),
        pytest.param(SINGLE, "index only", marks=SLOW),
    ],
    indirect=["precision"],
)
def test_the_same_weights_after_ten_updates(precision: str, case: str) -> None:
    both = pair(precision, **CASES[case])
    advance = jax.jit(partial(jax_population._update, both.program))
    state, tolerance = both.state, 1e-3 if precision == "float32" else 1e-9
    before = [np.asarray(leaf) for leaf in jax.tree.leaves(state.network)]
    stopped = 0
    for update in range(UPDATES):
        state, expected = advance(both.data, both.rates, state)
        found = both.other.update(noise_of(both, update))
        scale = 1 + np.abs(np.asarray(expected))
        np.testing.assert_allclose(to_numpy(found) / scale, np.asarray(expected) / scale, atol=tolerance)
        stopped += int(found[metric_names(both.program).index("epochs")] < TRAIN["epochs"])
    after = jax.tree.map(np.asarray, state)
    found = map_leaves(to_numpy, both.other.state)
    for a, b in zip(jax.tree.leaves(after), leaves_of(found), strict=True):
        np.testing.assert_allclose(b, a, atol=tolerance, rtol=tolerance)
    moved = [np.abs(a - b).max() for a, b in zip(before, jax.tree.leaves(after.network), strict=True)]
    assert max(moved) > 10 * tolerance
    assert stopped > 0 if case == "everything" else stopped == 0
