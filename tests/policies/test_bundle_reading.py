"""Policies from strangers and bad disks: refused with a sentence, before anything large is read."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from saved_policies import (
    OLD,
    OTHER_RECIPE,
    PANEL,
    content,
    observations,
    rewrite,
    saved,
    write_tensors,
)

from flatout.errors import BundleError
from flatout.policies import bundle_files
from flatout.policies.bundle import Bundle
from flatout.policies.network import Sizes, new_network
from small_bundles import bundle_of, network_of


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(
            BundleError,
            match=r"policy\.json: there is no such file; give a folder that a training saved",
        ):
            Bundle.load(folder)
    _, tensors, recipe = saved(tmp_path)
    (recipe / "recipe.json").rename(tmp_path / "away")
    with pytest.raises(
        BundleError, match=r"the policy's recipe cannot be used: .*recipe\.json: there is no such"
    ):
        Bundle.load(tmp_path)
    tensors.unlink()
    with pytest.raises(BundleError, match=r"policy-.*safetensors: there is no such file"):
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
    for given, other in (
        ('"next_open"', '"same_close"'),
        ('"tanh"', '"relu"'),
        ("1000000.0", "2000000.0"),
    ):
        assert given in text
        description.write_text(text.replace(given, other))
        with pytest.raises(
            BundleError,
            match=r"policy\.json is damaged or was changed: its content_sha256 does not",
        ):
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
        ({"version": 2}, "version: Input should be 1, given 2; .*use the flatout that saved it"),
        ({"version": None}, "version: Input should be 1, given None"),
        (
            {"format": "flatout.recipe"},
            "format: Input should be 'flatout.policy', given 'flatout.recipe'",
        ),
        (
            {"activation": "gelu"},
            "activation: Input should be 'tanh', 'relu' or 'silu', given 'gelu'",
        ),
        (
            {"distribution": "beta"},
            "distribution: Input should be 'gaussian', 'squashed_gaussian' or 'softmax'",
        ),
        ({"activation": "REMOVED"}, "activation is missing"),
        ({"notes": "REMOVED"}, "notes is missing"),
        ({"notes": [1]}, r"notes: Input should be a valid dictionary, given \[1\]"),
        (
            {"market": {"actoin": "trade"}},
            "market settings cannot be used: market.actoin .*did you mean market.action",
        ),
        ({"market": 3}, "a table of settings is wanted"),
        (
            {"market": {"action": "trade"}},
            r"actor.head.weight has shape \(4, 8\), .* ask for \(3, 8\)",
        ),
        ({"schema_hash": "0" * 64}, "whose observations or actions mean something else"),
        ({"tensors_sha256": "0" * 64}, r"policy-0{12}\.safetensors: there is no such file"),
        ({"recipe_sha256": None}, "recipe_sha256: Input should be a valid string"),
        ({"recipe_sha256": "0" * 64}, "recipe cannot be used: .*there is no such file"),
        ({"tensors_sha256": "../../../canary"}, "tensors_sha256: String should match pattern"),
        ({"recipe_sha256": "/etc/passwd/x"}, "recipe_sha256: String should match pattern"),
        ({"hidden": [16]}, r"holds 'actor.hidden.1.bias', which is no part of this network"),
        ({"hidden": [16, 8, 8]}, r"lacks 'actor.hidden.2.weight', which is \(8, 8\)"),
        ({"hidden": [16, 9]}, r"actor.hidden.1.weight is float32 \(16, 8\), not float32 \(16, 9\)"),
        ({"hidden": []}, "hidden: List should have at least 1 item"),
        ({"hidden": [10**9, 10**9]}, "weights; 100,000,000 are allowed"),
        ({"observation_size": 10**9}, "weights; 100,000,000 are allowed"),
        (
            {"observation_size": 30},
            r"actor.hidden.0.weight is float32 \(31, 16\), not float32 \(30, 16\)",
        ),
        ({"colour": 1}, "colour: Extra inputs are not permitted"),
        ({"market": {"capital": "x" * 10**6}}, "market settings cannot be used"),
    ],
)
def test_a_strangers_description_is_refused(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    path, _, _ = saved(tmp_path)
    rewrite(path, change)
    with pytest.raises(BundleError, match=message):
        Bundle.load(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"actor.hidden.1.weight": None}, r"lacks 'actor.hidden.1.weight', which is \(16, 8\)"),
        (
            {"critic.hidden.1.weight": None, "critic.hidden.1.bias": None},
            "lacks 'critic.hidden.1.weight'",
        ),
        (
            {"actor.hidden.2.weight": np.ones((8, 8), np.float32)},
            "holds 'actor.hidden.2.weight', which is no part",
        ),
        ({"actor.hidden.0.weight": np.ones((31, 16))}, r"is float64 \(31, 16\), not float32"),
        (
            {"actor.hidden.0.weight": np.ones((16, 31), np.float32)},
            r"is float32 \(16, 31\), not float32 \(31, 16\)",
        ),
        (
            {"actor.head.bias": np.full(4, np.nan, np.float32)},
            "actor.head.bias holds NaN or infinite values",
        ),
        ({"log_std": np.full(4, np.inf, np.float32)}, "log_std holds NaN or infinite values"),
        ({"gates": np.full(2, np.nan, np.float32)}, "gates holds NaN or infinite values"),
        ({"gates": np.ones(3, np.float32)}, r"gates is float32 \(3,\), not float32 \(2,\)"),
    ],
)
def test_arrays_that_were_not_promised_are_refused(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    saved(tmp_path)
    arrays = bundle_files.flatten(OLD.network) | change
    given = {name: array for name, array in arrays.items() if array is not None}
    write_tensors(tmp_path, safetensors.numpy.save(given))
    with pytest.raises(BundleError, match=message):
        Bundle.load(tmp_path)


@pytest.mark.parametrize("kind", [b"BF16", b"F8_E4M3"])
def test_kinds_that_numpy_does_not_know_are_refused(tmp_path: Path, kind: bytes) -> None:
    _, tensors, _ = saved(tmp_path)
    content = tensors.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = content[8 : 8 + length].replace(b'"F32"', b'"%s"' % kind, 1)
    write_tensors(tmp_path, len(header).to_bytes(8, "little") + header + content[8 + length :])
    with pytest.raises(BundleError, match=f"is of kind '{kind.decode()}'"):
        Bundle.load(tmp_path)


def test_a_network_of_units_that_do_not_exist_is_refused() -> None:
    hollow = network_of(31, 4)._replace(actor=new_network(Sizes(31, (1, 1), 4, 4), 0).actor)
    with pytest.raises(
        BundleError, match=r"the critic's layers are \(16, 8\) wide, the actor's \(1, 1\)"
    ):
        bundle_of(PANEL, network=hollow)
    arrays = {
        name: np.zeros([n if n != 8 else 0 for n in a.shape])
        for name, a in bundle_files.flatten(OLD.network).items()
    }
    with pytest.raises(BundleError, match=r"actor.hidden.1 has no units"):
        bundle_of(PANEL, network=bundle_files.assemble(arrays))


def test_weights_that_are_far_too_large_are_told_when_acting() -> None:
    arrays = {name: np.full_like(a, 3e38) for name, a in bundle_files.flatten(OLD.network).items()}
    bundle = bundle_of(PANEL, network=bundle_files.assemble(arrays), activation="silu")
    with pytest.raises(
        BundleError, match="the action is not a number: the policy's weights are far too large"
    ):
        bundle.act(observations(bundle, 5))


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"a":' * 5_000, "9" * 5_000, "NaN", "", '"\\ud800"', "\0"]
)
def test_json_that_no_parser_likes_is_refused(tmp_path: Path, text: str) -> None:
    path, _, _ = saved(tmp_path)
    path.write_text(path.read_text().replace('"tanh"', text))
    with pytest.raises(BundleError, match=r"policy\.json: is not JSON: .*get an undamaged copy"):
        Bundle.load(tmp_path)


def test_a_pipe_is_not_waited_for_and_huge_files_are_not_read(tmp_path: Path) -> None:
    path, tensors, _ = saved(tmp_path)
    with tensors.open("r+b") as file:
        file.truncate(20 << 30)
    with pytest.raises(
        BundleError, match=r"has 21,474,836,480 bytes, and at most [\d,]{6} are read"
    ):
        Bundle.load(tmp_path)
    with path.open("r+b") as file:
        file.truncate(20 << 30)
    with pytest.raises(BundleError, match=r"and at most 8,388,608 are read"):
        Bundle.load(tmp_path)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(BundleError, match="is a pipe, a socket or a device"):
        Bundle.load(tmp_path)


@pytest.mark.parametrize(
    ("tensors", "message"),
    [(b"no tensors", "is not a whole safetensors file"), (None, "lacks 'log_std'")],
)
def test_a_strangers_tensors_are_refused(
    tmp_path: Path, tensors: bytes | None, message: str
) -> None:
    arrays = bundle_files.flatten(OLD.network)
    del arrays["log_std"]
    given = safetensors.numpy.save(arrays) if tensors is None else tensors
    saved(tmp_path)
    write_tensors(tmp_path, given)
    with pytest.raises(BundleError, match=message):
        Bundle.load(tmp_path)


def test_json_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "policy.json").write_text("[]")
    with pytest.raises(
        BundleError, match=r"policy\.json: it: Input should be an object, given \[\]"
    ):
        Bundle.load(tmp_path)


def test_an_observation_of_another_flatout_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many numbers, in another order."""
    OLD.save(tmp_path)
    from flatout.policies import bundle

    monkeypatch.setattr(bundle, "POSITION_FEATURES", ("from_best", "weight", "held", "cooldown"))
    with pytest.raises(BundleError, match="mean something else; train it anew"):
        Bundle.load(tmp_path)
