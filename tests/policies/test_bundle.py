"""Bundles: they act like PyTorch and refuse what is not theirs; their files are the business of
others here.
"""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from saved_policies import NEW, OLD, OTHER_RECIPE, PANEL, content, observations
from torch import nn

from flatout.bars.panel import Panel
from flatout.errors import BundleError, RecipeError
from flatout.features.recipe import Recipe, fit
from flatout.learners.agent import actor_of, bound_action
from flatout.learners.engines import market_environment
from flatout.learners.rates import program_of, rates_of
from flatout.market.market import build_market
from flatout.policies import bundle_files
from flatout.policies.bundle import Bundle
from flatout.policies.network import Sizes, actor, gates_of, new_network
from flatout.settings.tables import FeatureSettings, Settings
from flatout.settings.train import TrainSettings
from market.small_markets import INDICATORS, LIMITS
from rounding import assert_close
from small_bundles import bundle_of, market_settings, network_of, panel_of

SUMS = 256  # roundings of 31, 16 and 8 products in three layers


# --- acting ---------------------------------------------------------------------------------------


def sequential(bundle: Bundle) -> nn.Sequential:
    """The same actor, made of PyTorch's own modules."""
    function = {"tanh": nn.Tanh, "relu": nn.ReLU, "silu": nn.SiLU}[bundle.activation]
    parts: list[nn.Module] = []
    head = bundle.network.actor.head
    layers = [(layer.weight.T, layer.bias) for layer in bundle.network.actor.hidden] + [
        (head.weight, head.bias)
    ]
    for weight, bias in layers:
        linear = nn.Linear(weight.shape[1], weight.shape[0])
        linear.weight.data, linear.bias.data = torch.tensor(weight.copy()), torch.tensor(bias)
        parts += [linear, function()]
    return nn.Sequential(*parts[:-1])


@pytest.mark.parametrize("distribution", ["gaussian", "squashed_gaussian", "softmax"])
@pytest.mark.parametrize("activation", ["tanh", "relu", "silu"])
def test_it_acts_like_pytorch(activation: str, distribution: str) -> None:
    bundle = bundle_of(PANEL, activation=activation, distribution=distribution)
    seen = observations(bundle, 500)
    raw = sequential(bundle)(torch.tensor(seen)).detach().numpy()
    expected = {
        "gaussian": np.clip(raw, -1, 1),
        "squashed_gaussian": np.tanh(raw),
        "softmax": 2 * torch.softmax(torch.tensor(raw), -1).numpy() - 1,
    }[distribution]
    acted = bundle.act(seen)
    assert acted.dtype == np.float32
    assert_close(acted, expected, roundings=SUMS, size=np.abs(raw).max())
    assert (np.abs(acted) <= 1).all()
    assert (np.abs(raw) > 1).mean() > 0.05  # the bounds are met
    assert np.std(acted) > 0.1


def test_leading_axes_are_free() -> None:
    seen = observations(OLD, 2, 3)
    acted = OLD.act(seen)
    assert acted.shape == (2, 3, 4)
    assert_close(OLD.act(seen[1, 2]), acted[1, 2], roundings=SUMS, size=1.0)


def test_a_shallow_network_skips_its_last_layer() -> None:
    """Of equal widths: its head reads the first layer."""
    gates = gates_of(Sizes(31, (8, 8), 4, 4), (8,))
    network = network_of(31, 4, hidden=(8, 8))
    bundle = bundle_of(PANEL, network=network, gates=gates)
    small = network.actor._replace(hidden=network.actor.hidden[:1])
    seen = observations(bundle, 20)
    expected = np.clip(actor(network._replace(actor=small), seen, "tanh", np), -1, 1)
    assert_close(bundle.act(seen), expected, roundings=SUMS, size=1.0)
    assert not np.allclose(replace(bundle, gates=None).act(seen), expected, atol=0.01)


def test_gates_that_skip_nothing_are_none() -> None:
    """Learners have gates even where no lane is shallow."""
    assert bundle_of(PANEL, gates=np.ones(2)).gates is None


def test_doubles_are_read_as_singles() -> None:
    seen = observations(OLD, 5)
    acted = OLD.act(seen.astype(np.float64))
    assert acted.dtype == np.float32
    assert acted.tobytes() == OLD.act(seen).tobytes()


@pytest.mark.parametrize("shape", [(), (30,), (32,), (31, 1)])
def test_an_observation_of_another_size_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(
        BundleError, match=r"has shape \(.*\), this policy reads \(\.\.\., 31\): make it with"
    ):
        OLD.act(np.zeros(shape))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_an_observation_without_meaning_is_refused(value: float) -> None:
    with pytest.raises(BundleError, match="observation holds NaN or infinite"):
        OLD.act(np.full(31, value))


def test_loading_and_acting_import_neither_jax_nor_torch(tmp_path: Path) -> None:
    OLD.save(tmp_path)
    code = (
        "import sys, numpy as np; from flatout.policies.bundle import Bundle\n"
        "from flatout.evaluation.saved_policy import *\n"
        "b = Bundle.load(sys.argv[1]); b.act(np.zeros((2, 31))); b.save(sys.argv[1] + '/copy'); "
        "print(*sys.modules)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert "flatout.policies.bundle" in run.stdout.split()
    assert {"jax", "jaxlib", "torch", "optax"}.isdisjoint(run.stdout.split())


# --- what it is made of ---------------------------------------------------------------------------


def test_a_bundle_keeps_its_own_copy() -> None:
    network = network_of(31, 4)
    bundle = bundle_of(PANEL, network=network)
    network.actor.head.weight[:] = 0
    assert bundle.network.actor.head.weight.any()


def test_networks_of_pytorch_and_doubles_become_single_precision() -> None:
    arrays = bundle_files.flatten(network_of(31, 4))
    tensors = {
        name: torch.tensor(array, dtype=torch.float64, requires_grad=True)
        for name, array in arrays.items()
    }
    assert content(bundle_of(PANEL, network=bundle_files.assemble(tensors))) == content(
        bundle_of(PANEL)
    )


def test_schema_hash_is_what_goes_in_and_out_and_not_what_was_learnt() -> None:
    assert OLD.schema_hash == NEW.schema_hash == bundle_of(PANEL, recipe=OTHER_RECIPE).schema_hash
    more_lags = fit(Recipe(INDICATORS, 3, "zscore"), PANEL, np.arange(100))
    others = [
        bundle_of(PANEL, action="trade"),
        bundle_of(PANEL, action="direction_amount"),
        bundle_of(PANEL, action="discrete"),
        bundle_of(PANEL, action="discrete", order_sizes=[0.5]),
        bundle_of(PANEL, recipe=more_lags, network=network_of(37, 4)),
        bundle_of(panel_of(assets=2)),
        bundle_of(replace(PANEL, symbols=("S01", "S00", "S02"))),
    ]
    assert len({bundle.schema_hash for bundle in (OLD, *others)}) == 1 + len(others)


def lanes(network: Any) -> Any:
    return bundle_files.assemble(
        {name: np.stack([a, a]) for name, a in bundle_files.flatten(network).items()}
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"network": network_of(30, 4)},
            r"actor.hidden.0.weight has shape \(30, 16\), .* ask for \(31, 16\)$",
        ),
        (
            {"network": network_of(31, 3)},
            r"actor.head.weight has shape \(3, 8\), .* ask for \(4, 8\)",
        ),
        (
            {"network": lanes(network_of(31, 4))},
            "give the network of one lane, not of a population",
        ),
        (
            {"network": OLD.network._replace(log_std=np.zeros(0))},
            r"log_std has shape \(0,\), .* ask for \(4,\)",
        ),
        (
            {"network": OLD.network._replace(critic=OLD.network.actor)},
            r"critic.head.weight .* ask for \(1, 8\)",
        ),
        (
            {"network": OLD.network._replace(actor=OLD.network.actor._replace(hidden=()))},
            "the actor has no hidden layer",
        ),
        (
            {"network": OLD.network._replace(log_std=np.full(4, np.nan))},
            "log_std holds NaN .*training has diverged",
        ),
        ({"gates": np.array([1.0, np.nan])}, "gates are shares from 0 to 1"),
        (
            {"notes": {"long": "x" * (1 << 20)}},
            "the notes have 1,048,588 letters; 1,048,576 are allowed",
        ),
        ({"gates": np.zeros(3)}, r"gates has shape \(3,\), .* ask for \(2,\)"),
        (
            {"gates": np.array([1.0, 0.0])},
            r"gates skip layers of one width; the actor's are 16, 8 wide",
        ),
        ({"activation": "gelu"}, "no activation 'gelu'"),
        ({"distribution": "beta"}, "no distribution 'beta'"),
        ({"notes": {"sharpe": float("nan")}}, "plain JSON values, None for what is not finite"),
        ({"notes": {"weights": np.ones(3)}}, "plain JSON values"),
        ({"notes": "good"}, "given 'good'; notes must be a dict of names and plain JSON values"),
    ],
)
def test_parts_that_do_not_fit_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(BundleError, match=message):
        bundle_of(PANEL, **change)


def test_a_network_padded_with_zeros_is_the_small_one() -> None:
    sizes = Sizes(31, (16, 16), 4, 4)
    bundle = bundle_of(PANEL, network=new_network(sizes, 0, hidden=(4, 4)))
    assert bundle.hidden == (16, 16)
    assert np.isfinite(bundle.act(observations(bundle, 3))).all()


# --- its market -----------------------------------------------------------------------------------


def test_its_market_has_its_features_rules_and_shape() -> None:
    later = panel_of(7)
    market, expected = (
        OLD.market(later),
        build_market(later, Settings(market=OLD.settings), OLD.recipe),
    )
    assert market.fitted is OLD.recipe
    assert market.shape == OLD.shape == expected.shape
    assert (market.observation_size, market.action_size) == (OLD.observation_size, OLD.action_size)
    np.testing.assert_array_equal(market.tape.features, expected.tape.features)
    assert market.rules.limits.trade_size == LIMITS["trade_size"]


@pytest.mark.parametrize(
    ("panel", "message"),
    [
        (replace(PANEL, symbols=("S00", "S01", "BTC")), "missing S02; unknown BTC"),
        (
            replace(PANEL, symbols=("S01", "S00", "S02")),
            "another order: fitted on S00, S01, S02; given S01, S00, S02",
        ),
        (panel_of(assets=2), "missing S02; unknown none"),
        (
            panel_of(assets=4),
            "missing none; unknown S03; choose its own by `symbols`: S00, S01, S02",
        ),
        (
            replace(PANEL, bar_seconds=60),
            "fitted on bars of 1h, given bars of 1m; give `bar` as 1h",
        ),
    ],
)
def test_other_bars_are_refused_by_name(panel: Panel, message: str) -> None:
    for method in (OLD.check, OLD.market):
        with pytest.raises(RecipeError, match=message):
            method(panel)


def test_bars_that_lack_a_column_are_refused_by_name() -> None:
    rich = replace(
        PANEL, extras={"funding": np.random.default_rng(0).normal(size=PANEL.close.shape)}
    )
    recipe = fit(Recipe(("return_1", "extra:funding"), 2, "zscore"), rich, np.arange(100))
    bundle = bundle_of(PANEL, recipe=recipe)
    bundle.market(rich)
    with pytest.raises(RecipeError, match="funding"):
        bundle.market(PANEL)


def test_a_policy_that_reads_larger_bars_comes_back_and_acts_the_same_live(tmp_path: Path) -> None:
    """On hours it reads days; whoever trades keeps as many hours as the features look back."""
    panel = panel_of(3, 900)
    recipe = fit(Recipe(("return_1", "1d:volatility"), 2, "zscore"), panel, np.arange(700))
    bundle = bundle_of(panel, recipe=recipe)
    bundle.save(tmp_path)
    loaded = Bundle.load(tmp_path)
    assert content(loaded) == content(bundle)
    reach = loaded.recipe.recipe.count_warmup(panel)
    assert reach == 22 * 24 - 2 + 1
    seen = bundle.market(panel)
    for now in (800, 811, 823, 899):
        kept = loaded.market(panel.rows(now - reach - 1, now + 1))
        features = seen.tape.features[now - 1 : now + 1]
        assert_close(kept.tape.features[-2:], features, roundings=1024, size=1.0)
        assert np.ptp(features)
    with pytest.raises(BundleError, match=r"features.indicators is \('return_1', '4h:volatility'"):
        own = {"indicators": ["return_1", "4h:volatility"], "lookback": 2, "scaler": "zscore"}
        loaded.check(panel, None, FeatureSettings.model_validate(own))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"action": "trade"},
            "market.action is 'trade', this policy was trained with 'weights': leave it so, or",
        ),
        (
            {"fill": "same_close"},
            "market.fill is 'same_close', this policy was trained with 'next_open'",
        ),
        (
            {"limits": LIMITS | {"max_short_weight": 0.0}},
            "market.limits.max_short_weight is 0.0, .* with 0.3",
        ),
    ],
)
def test_other_rules_of_action_and_fill_are_refused_by_name(
    change: dict[str, Any], message: str
) -> None:
    for method in (OLD.check, OLD.market):
        with pytest.raises(BundleError, match=message):
            method(PANEL, market_settings(**change))


def test_the_trade_action_means_the_same_with_and_without_shorts() -> None:
    bundle = bundle_of(PANEL, action="trade")
    bundle.check(PANEL, market_settings(action="trade", limits=LIMITS | {"max_short_weight": 0.0}))


def test_other_costs_limits_and_capital_are_an_experiment() -> None:
    dear = market_settings(
        costs={"half_spread_bps": 50}, capital=5e5, limits=LIMITS | {"trailing_stop": 0.1}
    )
    market = OLD.market(PANEL, dear)
    assert market.rules.costs.half_spread.max() == pytest.approx(50e-4)
    assert market.fitted is OLD.recipe


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ({"lookback": 3}, "features.lookback is 3, this policy was trained with 2"),
        ({"indicators": ["roc", "return_1"]}, r"features.indicators is \('roc', 'return_1'\)"),
        ({"scaler": "robust"}, "features.scaler is 'robust', .* 'zscore'"),
    ],
)
def test_other_features_are_refused_by_name(features: dict[str, Any], message: str) -> None:
    own = {"indicators": list(INDICATORS), "lookback": 2, "scaler": "zscore"}
    OLD.check(PANEL, None, FeatureSettings.model_validate(own))
    with pytest.raises(BundleError, match=message):
        OLD.check(PANEL, None, FeatureSettings.model_validate(own | features))


def test_what_it_brings_along_are_valid_settings() -> None:
    assert Settings.model_validate(OLD.as_settings()).market == OLD.settings
    OLD.check(PANEL, None, Settings.model_validate(OLD.as_settings()).features)


@pytest.mark.parametrize("kind", ["weights", "discrete"])
def test_a_network_of_assets_acts_like_the_agent_that_learned(kind: str) -> None:
    """`Bundle.act` and the learners' own actor are one."""
    bundle = bundle_of(PANEL, kind="per_asset", action=kind)
    train = TrainSettings(network="per_asset", hidden=bundle.hidden)
    program = program_of(train, market_environment(bundle.shape, "torch"), n_envs=8)
    rates = rates_of(train, updates=1, environment=None)
    assert program.sizes == bundle.sizes
    seen = observations(bundle, 100)
    policy = actor_of(program, rates, bundle.network, seen, xp=np)
    expected = bound_action(program, policy, policy.mode(np), np)
    np.testing.assert_array_equal(bundle.act(seen), expected)
    assert np.ptp(bundle.act(seen)) > 0.1


def test_a_network_of_assets_of_another_size_is_refused() -> None:
    flat = bundle_of(PANEL)
    with pytest.raises(BundleError, match=r"actor\.hidden\.0\.weight has shape"):
        replace(flat, kind="per_asset")
    with pytest.raises(BundleError, match="there is no kind of network 'round'"):
        replace(flat, kind="round")
