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
from flatout.bars.synthetic import PlantedSignal  # noqa: E402
from flatout.features.recipe import fit  # noqa: E402
from flatout.learners.jax_engine import pathwise, population  # noqa: E402
from flatout.learners.jax_engine.market_environment import JaxMarketEnvironment  # noqa: E402
from flatout.learners.metrics import metric_names  # noqa: E402
from flatout.learners.pathwise_math import WindowNoise  # noqa: E402
from flatout.learners.rates import program_of, rates_of  # noqa: E402
from flatout.learners.torch_engine.compiled import FusedFunction  # noqa: E402
from flatout.learners.torch_engine.market_environment import TorchMarketEnvironment  # noqa: E402
from flatout.learners.torch_engine.pathwise import PLAIN, PathwiseLearner  # noqa: E402
from flatout.learners.trajectory import Lanes  # noqa: E402
from flatout.market.market import Market, build_market, recipe_of  # noqa: E402
from flatout.market.torch_market import HostSyncs  # noqa: E402
from flatout.policies.network import Network, new_network  # noqa: E402
from flatout.settings.tables import Settings  # noqa: E402
from flatout.settings.train import PPO_ONLY, TrainSettings  # noqa: E402
from market.small_markets import LIMITS, biting_market  # noqa: E402
from rounding import assert_close  # noqa: E402

SEED, UPDATES = 3, 4
TRAIN: dict[str, Any] = {
    "algorithm": "pathwise", "n_envs": 10, "n_steps": 8, "hidden": (16, 16), "value": 0.5,
    "max_grad_norm": 1.5, "final_rate_share": 0.2, "weight_decay": 0.5,
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
    "amounts": (  # which have a gradient where the noise asks for something
        {"distribution": "squashed_gaussian", "action_noise": 0.5},
        {"action": "direction_amount"},
    ),
}


def exact(leaf: Any, precision: str) -> Any:
    """In this precision, where it is a number with a fraction."""
    return leaf.astype(precision) if np.issubdtype(leaf.dtype, np.floating) else leaf


def learner(
    market: Market | None = None,
    precision: str = "float32",
    seed: int = SEED,
    kernels: Any = None,
    **changes: Any,
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
    return PathwiseLearner(program, data, rates, network, seed, dtype=dtype, kernels=kernels)


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
    names, clipped = metric_names(both.program), 0
    for update in range(UPDATES):
        noise = noise_of(both.program, state)
        state, expected = compiled(both.program)(both.data, both.rates, state)
        found = to_numpy(both.other.update(noise))
        assert found.dtype == np.float64
        expected, found = (dict(zip(names, np.asarray(x), strict=True)) for x in (expected, found))
        assert_learned_alike(found, expected, 1 + update, both.rates.learning_rate)
        assert found["episodes"] > 0 and found["skipped"] == 0
        assert (found["value_loss"] > 0) == both.other.valued
        assert found["grad_norm"] > 0
        clipped += found["grad_norm"] > TRAIN["max_grad_norm"]
    after, found = jax.tree.map(np.asarray, state), map_leaves(to_numpy, both.other.state)
    assert_learned_alike(
        leaves_of(found), jax.tree.leaves(after), UPDATES, both.rates.learning_rate
    )
    assert difference(before, after.network) > 5e-3
    assert clipped > 0


def test_a_gradient_that_is_not_finite_is_skipped_and_counted() -> None:
    """Which the device decides by itself; the next one is followed again."""
    one = learner()
    one.update()
    before = map_leaves(lambda x: to_numpy(x).copy(), one.state)
    noise = one.draw()
    noise.feature[2, 1, 0] = np.inf
    row = dict(zip(metric_names(one.program), one.update(noise).tolist(), strict=True))
    assert row["skipped"] == 1 and row["grad_norm"] == 0
    after = map_leaves(to_numpy, one.state)
    for name in ("network", "optimiser"):
        for a, b in zip(
            leaves_of(getattr(after, name)), leaves_of(getattr(before, name)), strict=True
        ):
            np.testing.assert_array_equal(a, b)
    assert one.updates == 2
    one.load(before)
    row = dict(zip(metric_names(one.program), one.update().tolist(), strict=True))
    assert row["skipped"] == 0 and row["grad_norm"] > 0
    assert difference(before.network, map_leaves(to_numpy, one.state.network)) > 1e-4


@pytest.mark.parametrize("value", [0.0, 0.5])
def test_a_window_never_waits_for_the_device(value: float) -> None:
    one = learner(value=value)
    one.may_ask = False  # as on a GPU
    one.update()  # Adam's moments are made at the first use
    noise = one.draw()
    with HostSyncs() as syncs:
        _, window, _ = one.follow_window(noise)
        one.judge_window(window)
    assert syncs.found == []
    assert float(window.episodes.ended.sum()) > 0


def test_asking_the_critic_after_every_bar_changes_nothing() -> None:
    one, other = learner(precision="float64"), learner(precision="float64")
    other.may_ask = False
    for _ in range(2):
        # the gradient of what is multiplied by 0 may be another zero
        assert_close(other.update(), one.update(), roundings=1e4)


def test_a_state_that_was_taken_out_goes_on_with_the_same_bits() -> None:
    one, other = learner(), learner(seed=5)
    one.update()
    other.load(map_leaves(lambda x: to_numpy(x).copy(), one.state))
    assert torch.equal(one.update(), other.update())
    assert all(map(torch.equal, one.weights, other.weights))


def test_equal_seeds_learn_alike_and_others_do_not() -> None:
    a, b, other = learner(), learner(), learner(seed=5)
    rows = [torch.stack([one.update() for _ in range(2)]) for one in (a, b, other)]
    assert torch.equal(rows[0], rows[1])
    assert not torch.allclose(rows[0], rows[2])


KNOBS: dict[str, Any] = {
    "learning_rate": 1e-2, "final_rate_share": 1.0, "gamma": 0.5, "gae_lambda": 0.2, "value": 0.0,
    "max_grad_norm": 0.01, "action_noise": 0.5, "feature_noise": 0.1, "weight_decay": 5.0,
    "n_envs": 4, "n_steps": 4, "hidden": (4,), "activation": "relu", "distribution": "softmax",
    "network": "per_asset",
}  # fmt: skip


def test_every_setting_is_a_knob_of_this_file() -> None:
    others = {"engine", "timesteps", "seeds", "algorithm"}
    assert {*KNOBS} | PPO_ONLY | others == set(TrainSettings.model_fields)


@pytest.fixture(scope="module")
def usual() -> PathwiseLearner:
    return advanced(learner())


def advanced(one: PathwiseLearner) -> PathwiseLearner:
    for _ in range(2):
        one.update()
    return one


@pytest.mark.parametrize("name", KNOBS)
def test_every_knob_is_live(usual: PathwiseLearner, name: str) -> None:
    other = advanced(learner(**{name: KNOBS[name]}))
    pairs = [(to_numpy(a), to_numpy(b)) for a, b in zip(usual.weights, other.weights, strict=False)]
    assert any(a.shape != b.shape or np.abs(a - b).max() > 1e-6 for a, b in pairs)


def signal_market() -> Market:
    """60 bps a bar, of which trades cost a part."""
    symbols = ("A0", "A1", "A2")
    panel = PlantedSignal(n_bars=3000, seed=5, symbols=symbols, strength_bps=60.0).panel()
    given = Settings.model_validate(
        {
            "features": {"indicators": ["return_1", "roc", "extra:signal"]},
            "market": {"episode_bars": 128},
        }
    )
    fitted = fit(recipe_of(given.features), panel, np.arange(2000))
    return build_market(panel, given, fitted).between(100, 2900, 128)


@pytest.mark.long
@pytest.mark.parametrize("network", ["flat", "per_asset"])
def test_it_learns_a_planted_signal(network: str) -> None:
    """From losing what trades cost to earning, in 40,000 samples."""
    one = learner(
        signal_market(), algorithm="pathwise", network=network, distribution="softmax", n_envs=16,
        n_steps=32, value=0.0, max_grad_norm=None, final_rate_share=1.0, weight_decay=0.1,
    )  # fmt: skip
    names = metric_names(one.program)
    rows = [dict(zip(names, one.update().tolist(), strict=True)) for _ in range(80)]
    early, late = (
        float(np.mean([row["terms/log_return"] for row in part])) for part in (rows[:5], rows[70:])
    )
    assert early < 5e-4 and late > 15e-4
    assert not any(row["skipped"] for row in rows)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")  # the compiler looks at it
def test_the_fused_bar_learns_alike() -> None:
    """In float64: in float32 an order may fall on the other side of a lot, and Adam enlarges what
    is rounded off.
    """
    kernels, plain = map_leaves(FusedFunction, PLAIN), learner(precision="float64")
    one = learner(precision="float64", kernels=kernels)
    one.warm_up()
    for k in range(3):
        found, expected = ({"row": to_numpy(x.update())} for x in (one, plain))
        assert_learned_alike(found, expected, 1 + k, 3e-3)
    assert kernels.bar.current is not kernels.bar.plain
