"""Learning along the path on PyTorch: the updates of JAX within rounding, a signal that is learned,
gradients that are skipped, and a kill that changes no bit.
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
from flatout.learners.jax_engine import pathwise, population  # noqa: E402
from flatout.learners.jax_engine.market_environment import JaxMarketEnvironment  # noqa: E402
from flatout.learners.metrics import metric_names  # noqa: E402
from flatout.learners.pathwise_math import WindowNoise  # noqa: E402
from flatout.learners.rates import program_of, rates_of  # noqa: E402
from flatout.learners.torch_engine.market_environment import TorchMarketEnvironment  # noqa: E402
from flatout.learners.torch_engine.pathwise import PathwiseLearner  # noqa: E402
from flatout.learners.trajectory import Lanes  # noqa: E402
from flatout.market.market import Market  # noqa: E402
from flatout.market.torch_market import HostSyncs  # noqa: E402
from flatout.policies.network import Network, new_network  # noqa: E402
from flatout.settings.train import TrainSettings  # noqa: E402
from market.small_markets import LIMITS, biting_market  # noqa: E402

SEED, UPDATES = 3, 4
TRAIN: dict[str, Any] = {
    "algorithm": "pathwise", "n_envs": 10, "n_steps": 8, "hidden": (16, 16), "value": 0.5,
    "max_grad_norm": 30.0, "final_rate_share": 0.2, "weight_decay": 0.5,
}  # fmt: skip
LONG_ONLY = {"action": "weights", "limits": {**LIMITS, "max_short_weight": 0.0}}
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {  # of learning, and of the market
    "shares of assets": ({"network": "per_asset", "distribution": "softmax"}, LONG_ONLY),
    "without critic": (
        {"network": "per_asset", "distribution": "softmax", "value": 0.0},
        LONG_ONLY,
    ),
    "shares": ({"distribution": "softmax", "value": 0.0}, LONG_ONLY),
    "trades": ({}, {"action": "trade"}),
    "weights of assets": ({"network": "per_asset"}, {"action": "weights"}),
    "amounts": ({"distribution": "squashed_gaussian"}, {"action": "direction_amount"}),
}


def exact(leaf: Any, precision: str) -> Any:
    """In this precision, where it is a number with a fraction."""
    return leaf.astype(precision) if np.issubdtype(leaf.dtype, np.floating) else leaf


def learner(
    market: Market | None = None, precision: str = "float32", seed: int = SEED, **changes: Any
) -> PathwiseLearner:
    """One agent in a small market with every rule on."""
    market = market or biting_market(80, episode_bars=7, **LONG_ONLY)
    settings = TrainSettings(**{**TRAIN, **changes})
    tape, rules = market.arrays(precision)
    program = program_of(settings, TorchMarketEnvironment(market.shape), settings.n_envs or 0)
    rates, network = map_leaves(
        partial(exact, precision=precision),
        (
            rates_of(settings, UPDATES, map_leaves(np.asarray, rules)),
            new_network(program.sizes, SEED, settings.log_std),
        ),
    )
    data = map_leaves(torch.as_tensor, tape)
    dtype = getattr(torch, precision)
    return PathwiseLearner(program, data, rates, network, seed, dtype=dtype)


class Pair(NamedTuple):
    """The same agent in both engines, as a JAX state and a PyTorch learner."""

    program: Any
    data: Any
    rates: Any
    state: Lanes  # one lane, without the lane axis
    other: PathwiseLearner


def pair(market: Market, **changes: Any) -> Pair:
    other = learner(market, "float64", **changes)
    program = other.program._replace(environment=JaxMarketEnvironment(market.shape))
    data, rates = (
        map_leaves(lambda x: jnp.asarray(to_numpy(x)), tree) for tree in (other.data, other.rates)
    )
    network: Network = map_leaves(to_numpy, other.network)
    first = jax.tree.map(lambda x: x[None], rates)
    lanes = population.init_lanes(program, data, first, [network], [SEED])
    state = population.take_lane(lanes, 0)
    other.load(jax.tree.map(np.array, state))
    return Pair(program, data, rates, state, other)


def noise_of(program: Any, state: Lanes) -> WindowNoise:
    """What JAX draws for the next window, for PyTorch."""
    noise = pathwise.draw_noise(program, state)
    shaken = [pathwise.draw_feature_noise(program, key) for key in noise.feature]
    noise = noise._replace(feature=jnp.stack(shaken))
    return map_leaves(lambda x: torch.as_tensor(np.array(x)), noise)


@cache
def compiled(program: Any) -> Any:
    return jax.jit(partial(pathwise.update_lane, program), compiler_options=QUICK)


@pytest.fixture
def doubles() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Several would wait for each other for most of the time on a busy machine."""
    usual = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(usual)


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
@pytest.mark.usefixtures("doubles")
def test_the_same_weights_after_some_updates(case: str) -> None:
    """With every rule of the market on, ends of episodes amid windows among them."""
    changes, market = CASES[case]
    both = pair(biting_market(80, episode_bars=7, **market), **changes)
    state, before = both.state, both.state.network
    names, norms = metric_names(both.program), []
    for update in range(UPDATES):
        noise = noise_of(both.program, state)
        state, expected = compiled(both.program)(both.data, both.rates, state)
        found = to_numpy(both.other.update(noise))
        assert found.dtype == np.float64
        expected, found = (dict(zip(names, np.asarray(x), strict=True)) for x in (expected, found))
        assert_learned_alike(found, expected, 1 + update, both.rates.learning_rate)
        assert found["episodes"] > 0 and found["skipped"] == 0
        assert (found["value_loss"] > 0) == (TRAIN | changes)["value"] > 0
        norms.append(found["grad_norm"])
    after, found = jax.tree.map(np.asarray, state), map_leaves(to_numpy, both.other.state)
    assert_learned_alike(
        leaves_of(found), jax.tree.leaves(after), UPDATES, both.rates.learning_rate
    )
    assert difference(before, after.network) > 5e-3
    print(case, norms)
