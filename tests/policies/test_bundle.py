"""Bundles: they come back bit for bit, survive a kill at any moment, act like PyTorch and refuse what is not theirs."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import torch
from torch import nn

from flatout.bars.panel import Panel
from flatout.errors import BundleError, RecipeError
from flatout.features.recipe import Recipe, fit
from flatout.market.market import build_market
from flatout.policies import bundle_files
from flatout.policies.bundle import Bundle
from flatout.policies.network import Sizes, actor, gates_of, new_network
from flatout.settings import FeatureSettings, MarketSettings, Settings
from market.small_markets import INDICATORS, LIMITS
from rounding import assert_close
from small_bundles import bundle_of, market_settings, network_of, panel_of

PANEL = panel_of()
OLD, NEW = bundle_of(PANEL, 1), bundle_of(PANEL, 2)
SUMS = 256  # roundings of 31, 16 and 8 products in three layers
OTHER_RECIPE = fit(Recipe(INDICATORS, 2, "zscore"), PANEL, np.arange(50, 150))


def content(bundle: Bundle) -> dict[str, Any]:
    """All that a bundle holds, in comparable form."""
    return {
        "tensors": {name: array.tobytes() for name, array in bundle_files.flatten(bundle.network).items()},
        "gates": None if bundle.gates is None else bundle.gates.tobytes(),
        "names": (bundle.activation, bundle.distribution, bundle.settings, bundle.notes, bundle.schema_hash),
        "recipe": bundle_files.recipe_hash(bundle.recipe),
    }


def observations(bundle: Bundle, *leading: int) -> np.ndarray:
    return np.random.default_rng(0).normal(0, 1, (*leading, bundle.observation_size)).astype(np.float32)


# --- files ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bundle",
    [
        OLD,
        bundle_of(PANEL, 3, action="trade", distribution="squashed_gaussian", activation="silu"),
        bundle_of(PANEL, 4, action="direction_amount", activation="relu"),
        bundle_of(PANEL, network=network_of(31, 4, hidden=(8, 8)), gates=np.array([1.0, 0.0])),
        bundle_of(PANEL, settings=MarketSettings(), notes={}),
        bundle_of(PANEL, limits={"lot_step": {"S00": 0.5}}, notes={"figures": {"sharpe": 1 / 3, "sortino": None}}),
    ],
)
def test_a_saved_policy_comes_back_bit_for_bit(bundle: Bundle, tmp_path: Path) -> None:
    bundle.save(tmp_path / "runs" / "best")
    loaded = Bundle.load(str(tmp_path / "runs" / "best"))
    assert content(loaded) == content(bundle)
    seen = observations(bundle, 50)
    assert loaded.act(seen).tobytes() == bundle.act(seen).tobytes()


def test_the_files_are_json_safetensors_and_the_recipes_own(tmp_path: Path) -> None:
    OLD.save(tmp_path)
    facts = json.loads((tmp_path / "policy.json").read_text())
    tensors, recipe = facts["tensors_sha256"][:12], facts["recipe_sha256"][:12]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"policy-{tensors}.safetensors", "policy.json", f"recipe-{recipe}",
    ]  # fmt: skip
    stored = safetensors.numpy.load_file(tmp_path / f"policy-{tensors}.safetensors")
    assert {"actor.hidden.0.weight", "actor.head.bias", "critic.hidden.1.bias", "log_std"} < set(stored)
    assert (facts["hidden"], facts["observation_size"], facts["action_size"]) == ([16, 8], 31, 4)
    assert facts["market"]["limits"]["trailing_stop"] == 0.03


def test_a_new_policy_takes_the_old_ones_place_and_leaves_strangers_alone(tmp_path: Path) -> None:
    OLD.save(tmp_path)
    (tmp_path / "recipe-of-my-grandmother").mkdir()
    (tmp_path / "policy-notes.safetensors").touch()
    bundle_of(PANEL, 2, recipe=OTHER_RECIPE).save(tmp_path)
    assert Bundle.load(tmp_path).notes == {"seed": 2}
    assert len(list(tmp_path.iterdir())) == 5
    assert (tmp_path / "recipe-of-my-grandmother").is_dir()


def test_saving_twice_writes_the_same_bytes(tmp_path: Path) -> None:
    for _ in range(2):
        OLD.save(tmp_path / "a")
        NEW.save(tmp_path / "b")
        OLD.save(tmp_path / "b")
    found = [
        {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
        for folder in (tmp_path / "a", tmp_path / "b")
    ]
    assert found[0] == found[1]


class KilledError(BaseException):
    """Nothing catches it, as nothing catches a kill."""


OPERATIONS = ("mkdir", "open", "fsync", "replace", "unlink", "rmdir")  # all by which a save changes the disk


def save_and_die(bundle: Bundle, folder: Path, before: int, patch: pytest.MonkeyPatch) -> int:
    """Save, killed before the operation of this number; from then on the process does nothing more. Returns how many
    operations were done.
    """
    done = 0

    def counted(real: Callable[..., Any], *args: Any, **options: Any) -> Any:
        nonlocal done
        if done >= before:
            raise KilledError
        done += 1
        return real(*args, **options)

    with patch.context() as patched:
        for name in OPERATIONS:
            patched.setattr(os, name, partial(counted, getattr(os, name)))
        with suppress(KilledError):
            bundle.save(folder)
    return done


@pytest.mark.parametrize("new", [NEW, bundle_of(PANEL, 2, recipe=OTHER_RECIPE)], ids=["same recipe", "other recipe"])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_killed_at_any_moment_the_folder_holds_the_old_policy_or_the_new_one(
    new: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, wanted = content(OLD), content(new)
    found = []
    for before in range(100):
        folder = tmp_path / str(before)
        OLD.save(folder)
        done = save_and_die(new, folder, before, monkeypatch)
        found.append(content(Bundle.load(folder)))
        assert found[-1] in (old, wanted)
        new.save(folder)  # and the next save finds its way
        assert content(Bundle.load(folder)) == wanted
        assert len(list(folder.glob("[!.]*"))) == 3
        if done < before:
            break
    else:
        pytest.fail("a save never came to its end")
    assert len(found) > 10
    assert found == sorted(found, key=lambda one: one == wanted)  # once new, it stays new
    assert found[0] == old
    assert found[-1] == wanted


def test_killed_in_an_empty_folder_there_is_no_policy_or_a_whole_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for before in (0, 3, 6, 9):
        save_and_die(NEW, tmp_path / str(before), before, monkeypatch)
        with pytest.raises(BundleError, match=r"cannot read .*policy\.json"):
            Bundle.load(tmp_path / str(before))


def test_a_full_disk_is_told_and_leaves_the_old_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    OLD.save(tmp_path)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(BundleError, match=r"cannot save a policy in .*: No space left on device; give a folder"):
        NEW.save(tmp_path)
    assert content(Bundle.load(tmp_path)) == content(OLD)


def test_a_file_is_no_folder_to_save_in(tmp_path: Path) -> None:
    (tmp_path / "taken").touch()
    with pytest.raises(BundleError, match=r"cannot save a policy in .*taken"):
        OLD.save(tmp_path / "taken")


def saved(folder: Path) -> tuple[Path, Path, Path]:
    """The old policy in a folder: its JSON, its tensors, its recipe's folder."""
    OLD.save(folder)
    (tensors,), (recipe,) = folder.glob("policy-*"), folder.glob("recipe-*")
    return folder / "policy.json", tensors, recipe


def rewrite(path: Path, change: dict[str, Any]) -> None:
    """A description with other facts, and a content hash that fits them: from a stranger's hand."""
    facts = json.loads(path.read_text()) | change
    facts = {name: value for name, value in facts.items() if value != "REMOVED"}
    path.write_text(json.dumps(facts | {"content_sha256": bundle_files.content_hash(facts)}))


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(BundleError, match=r"cannot read .*policy\.json: No such file .*a training saved a policy"):
            Bundle.load(folder)
    _, tensors, recipe = saved(tmp_path)
    (recipe / "recipe.json").rename(tmp_path / "away")
    with pytest.raises(BundleError, match=r"the policy's recipe cannot be used: cannot read .*recipe\.json"):
        Bundle.load(tmp_path)
    tensors.unlink()
    with pytest.raises(BundleError, match=r"cannot read .*policy-.*safetensors: No such file"):
        Bundle.load(tmp_path)


@pytest.mark.parametrize("which", [0, 1])
def test_every_truncation_is_refused(tmp_path: Path, which: int) -> None:
    path = saved(tmp_path)[which]
    whole = path.read_bytes()
    for keep in np.unique(np.linspace(0, len(whole) - 2, 60, dtype=int)):
        path.write_bytes(whole[:keep])
        with pytest.raises(BundleError, match=r"is not JSON|is damaged"):
            Bundle.load(tmp_path)


def test_a_flipped_byte_is_found_in_every_file(tmp_path: Path) -> None:
    description, tensors, recipe = saved(tmp_path)
    for path in (tensors, *recipe.iterdir()):
        whole = bytearray(path.read_bytes())
        damaged = whole.copy()
        damaged[-20] ^= 1
        path.write_bytes(damaged)
        with pytest.raises(BundleError, match=r"damaged|recipe"):
            Bundle.load(tmp_path)
        path.write_bytes(whole)
    text = description.read_text()
    for given, other in (('"next_open"', '"same_close"'), ('"tanh"', '"relu"'), ("1000000.0", "2000000.0")):
        assert given in text
        description.write_text(text.replace(given, other))
        with pytest.raises(BundleError, match=r"policy\.json is damaged or was changed: its content_sha256 does not"):
            Bundle.load(tmp_path)
    description.write_text(text)
    assert content(Bundle.load(tmp_path)) == content(OLD)


def test_files_of_another_policy_are_refused(tmp_path: Path) -> None:
    _, tensors, recipe = saved(tmp_path / "one")
    bundle_of(PANEL, 2, recipe=OTHER_RECIPE).save(tmp_path / "two")
    (foreign,) = (tmp_path / "two").glob("policy-*")
    own = tensors.read_bytes()
    tensors.write_bytes(foreign.read_bytes())
    with pytest.raises(BundleError, match=r"is damaged or belongs to another policy\.json"):
        Bundle.load(tmp_path / "one")
    tensors.write_bytes(own)
    OTHER_RECIPE.save(recipe)
    with pytest.raises(BundleError, match=r"holds another recipe than policy\.json names"):
        Bundle.load(tmp_path / "one")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "has version 2; this flatout reads version 1: use the flatout that saved it"),
        ({"version": None}, "version None"),
        ({"format": "flatout.recipe"}, r"is not a policy \(format 'flatout.policy'\)"),
        ({"activation": "gelu"}, "no activation 'gelu': choose one of tanh, relu, silu"),
        ({"distribution": "beta"}, "no distribution 'beta': choose one of gaussian, squashed_gaussian"),
        ({"activation": "REMOVED"}, "lack 'activation'"),
        ({"notes": "REMOVED"}, "lack 'notes'"),
        ({"notes": [1]}, "notes must be a dict"),
        ({"market": {"actoin": "trade"}}, "market settings cannot be used: market.actoin .*did you mean market.action"),
        ({"market": 3}, "a table of settings is wanted"),
        ({"market": {"action": "trade"}}, r"actor.head.weight has shape \(4, 8\), .* ask for \(3, 8\)"),
        ({"schema_hash": "0" * 64}, "whose observations or actions mean something else"),
        ({"tensors_sha256": "0" * 64}, "cannot read .*policy-000000000000"),
        ({"recipe_sha256": None}, "recipe cannot be used"),
    ],
)
def test_a_strangers_description_is_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    path, _, _ = saved(tmp_path)
    rewrite(path, change)
    with pytest.raises(BundleError, match=message):
        Bundle.load(tmp_path)


@pytest.mark.parametrize(
    ("tensors", "message"), [(b"no tensors", "is not a safetensors file"), (None, "lack 'log_std'")]
)
def test_a_strangers_tensors_are_refused(tmp_path: Path, tensors: bytes | None, message: str) -> None:
    arrays = bundle_files.flatten(OLD.network)
    del arrays["log_std"]
    given = safetensors.numpy.save(arrays) if tensors is None else tensors
    path, _, _ = saved(tmp_path)
    rewrite(path, {"tensors_sha256": hashlib.sha256(given).hexdigest()})
    bundle_files.tensor_path(tmp_path, json.loads(path.read_text())).write_bytes(given)
    with pytest.raises(BundleError, match=message):
        Bundle.load(tmp_path)


def test_json_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "policy.json").write_text("[]")
    with pytest.raises(BundleError, match="is not a policy"):
        Bundle.load(tmp_path)


def test_an_observation_of_another_flatout_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many numbers, in another order."""
    OLD.save(tmp_path)
    from flatout.policies import bundle

    monkeypatch.setattr(bundle, "POSITION_FEATURES", ("from_best", "weight", "held", "cooldown"))
    with pytest.raises(BundleError, match="mean something else; train it anew"):
        Bundle.load(tmp_path)


# --- acting -----------------------------------------------------------------------------------------


def sequential(bundle: Bundle) -> nn.Sequential:
    """The same actor, made of PyTorch's own modules."""
    function = {"tanh": nn.Tanh, "relu": nn.ReLU, "silu": nn.SiLU}[bundle.activation]
    parts: list[nn.Module] = []
    head = bundle.network.actor.head
    layers = [(layer.weight.T, layer.bias) for layer in bundle.network.actor.hidden] + [(head.weight, head.bias)]
    for weight, bias in layers:
        linear = nn.Linear(weight.shape[1], weight.shape[0])
        linear.weight.data, linear.bias.data = torch.tensor(weight.copy()), torch.tensor(bias)
        parts += [linear, function()]
    return nn.Sequential(*parts[:-1])


@pytest.mark.parametrize("distribution", ["gaussian", "squashed_gaussian"])
@pytest.mark.parametrize("activation", ["tanh", "relu", "silu"])
def test_it_acts_like_pytorch(activation: str, distribution: str) -> None:
    bundle = bundle_of(PANEL, activation=activation, distribution=distribution)
    seen = observations(bundle, 500)
    raw = sequential(bundle)(torch.tensor(seen)).detach().numpy()
    expected = np.clip(raw, -1, 1) if distribution == "gaussian" else np.tanh(raw)
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
    with pytest.raises(BundleError, match=r"has shape \(.*\), this policy reads \(\.\.\., 31\): make it with"):
        OLD.act(np.zeros(shape))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_an_observation_without_meaning_is_refused(value: float) -> None:
    with pytest.raises(BundleError, match="observation holds NaN or infinite"):
        OLD.act(np.full(31, value))


def test_loading_and_acting_import_neither_jax_nor_torch(tmp_path: Path) -> None:
    OLD.save(tmp_path)
    code = (
        "import sys, numpy as np; from flatout.policies.bundle import Bundle; from flatout.evaluation.learned import *;"
        "b = Bundle.load(sys.argv[1]); b.act(np.zeros((2, 31))); b.save(sys.argv[1] + '/copy'); print(*sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert "flatout.policies.bundle" in run.stdout.split()
    assert {"jax", "jaxlib", "torch", "optax"}.isdisjoint(run.stdout.split())


# --- what it is made of -----------------------------------------------------------------------------


def test_a_bundle_keeps_its_own_copy() -> None:
    network = network_of(31, 4)
    bundle = bundle_of(PANEL, network=network)
    network.actor.head.weight[:] = 0
    assert bundle.network.actor.head.weight.any()


def test_networks_of_pytorch_and_doubles_become_single_precision() -> None:
    arrays = bundle_files.flatten(network_of(31, 4))
    tensors = {name: torch.tensor(array, dtype=torch.float64, requires_grad=True) for name, array in arrays.items()}
    assert content(bundle_of(PANEL, network=bundle_files.assemble(tensors))) == content(bundle_of(PANEL))


def test_schema_hash_is_what_goes_in_and_out_and_not_what_was_learnt() -> None:
    assert OLD.schema_hash == NEW.schema_hash == bundle_of(PANEL, recipe=OTHER_RECIPE).schema_hash
    more_lags = fit(Recipe(INDICATORS, 3, "zscore"), PANEL, np.arange(100))
    others = [
        bundle_of(PANEL, action="trade"),
        bundle_of(PANEL, action="direction_amount"),
        bundle_of(PANEL, recipe=more_lags, network=network_of(37, 4)),
        bundle_of(panel_of(assets=2)),
        bundle_of(replace(PANEL, symbols=("S01", "S00", "S02"))),
    ]
    assert len({bundle.schema_hash for bundle in (OLD, *others)}) == 1 + len(others)


def lanes(network: Any) -> Any:
    return bundle_files.assemble({name: np.stack([a, a]) for name, a in bundle_files.flatten(network).items()})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"network": network_of(30, 4)}, r"actor.hidden.0.weight has shape \(30, 16\), .* ask for \(31, 16\)$"),
        ({"network": network_of(31, 3)}, r"actor.head.weight has shape \(3, 8\), .* ask for \(4, 8\)"),
        ({"network": lanes(network_of(31, 4))}, "give the network of one lane, not of a population"),
        ({"network": OLD.network._replace(log_std=np.zeros(0))}, r"log_std has shape \(0,\), .* ask for \(4,\)"),
        ({"network": OLD.network._replace(critic=OLD.network.actor)}, r"critic.head.weight .* ask for \(1, 8\)"),
        (
            {"network": OLD.network._replace(actor=OLD.network.actor._replace(hidden=()))},
            "the actor has no hidden layer",
        ),
        ({"network": OLD.network._replace(log_std=np.full(4, np.nan))}, "log_std holds NaN .*training has diverged"),
        ({"gates": np.zeros(3)}, r"gates has shape \(3,\), .* ask for \(2,\)"),
        ({"gates": np.array([1.0, 0.0])}, r"gates skip layers of one width; the actor's are 16, 8 wide"),
        ({"activation": "gelu"}, "no activation 'gelu'"),
        ({"distribution": "beta"}, "no distribution 'beta'"),
        ({"notes": {"sharpe": float("nan")}}, "plain JSON values, None for what is not finite"),
        ({"notes": {"weights": np.ones(3)}}, "plain JSON values"),
        ({"notes": "good"}, "notes must be a dict of names and values, got 'good'"),
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


# --- its market -------------------------------------------------------------------------------------


def test_its_market_has_its_features_rules_and_shape() -> None:
    later = panel_of(7)
    market, expected = OLD.market(later), build_market(later, Settings(market=OLD.settings), OLD.recipe)
    assert market.fitted is OLD.recipe
    assert market.shape == OLD.shape == expected.shape
    assert (market.observation_size, market.action_size) == (OLD.observation_size, OLD.action_size)
    np.testing.assert_array_equal(market.tape.features, expected.tape.features)
    assert market.rules.limits.trade_size == LIMITS["trade_size"]


@pytest.mark.parametrize(
    ("panel", "message"),
    [
        (replace(PANEL, symbols=("S00", "S01", "BTC")), "missing S02; unknown BTC"),
        (replace(PANEL, symbols=("S01", "S00", "S02")), "another order: fitted on S00, S01, S02; given S01, S00, S02"),
        (panel_of(assets=2), "missing S02; unknown none"),
        (panel_of(assets=4), "missing none; unknown S03"),
        (replace(PANEL, bar_seconds=60), "fitted on bars of 3600 s, given bars of 60 s"),
    ],
)
def test_other_bars_are_refused_by_name(panel: Panel, message: str) -> None:
    for method in (OLD.check, OLD.market):
        with pytest.raises(RecipeError, match=message):
            method(panel)


def test_bars_that_lack_a_column_are_refused_by_name() -> None:
    rich = replace(PANEL, extras={"funding": np.random.default_rng(0).normal(size=PANEL.close.shape)})
    recipe = fit(Recipe(("return_1", "extra:funding"), 2, "zscore"), rich, np.arange(100))
    bundle = bundle_of(PANEL, recipe=recipe)
    bundle.market(rich)
    with pytest.raises(RecipeError, match="funding"):
        bundle.market(PANEL)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"action": "trade"}, "market.action is 'trade', this policy was trained with 'weights': leave it so, or"),
        ({"fill": "same_close"}, "market.fill is 'same_close', this policy was trained with 'next_open'"),
        ({"limits": LIMITS | {"max_short_weight": 0.0}}, "market.limits.max_short_weight is 0.0, .* with 0.3"),
    ],
)
def test_other_rules_of_action_and_fill_are_refused_by_name(change: dict[str, Any], message: str) -> None:
    for method in (OLD.check, OLD.market):
        with pytest.raises(BundleError, match=message):
            method(PANEL, market_settings(**change))


def test_the_trade_action_means_the_same_with_and_without_shorts() -> None:
    bundle = bundle_of(PANEL, action="trade")
    bundle.check(PANEL, market_settings(action="trade", limits=LIMITS | {"max_short_weight": 0.0}))


def test_other_costs_limits_and_capital_are_an_experiment() -> None:
    dear = market_settings(costs={"half_spread_bps": 50}, capital=5e5, limits=LIMITS | {"trailing_stop": 0.1})
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
