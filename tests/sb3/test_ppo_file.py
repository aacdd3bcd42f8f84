"""Files of models from strangers and bad disks: refused with a sentence, before anything large is
made of them.
"""

import hashlib
import io
import json
import os
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import safetensors.numpy
from gymnasium import spaces

from flatout import PPO
from flatout.errors import BundleError, SettingsError
from flatout.sb3 import model_file
from flatout.sb3.flat_spaces import flatten_observations
from flatout.sb3.model_file import FACTS, TENSORS

BOX, CHOICE = spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(4)


class Still(gymnasium.Env[Any, Any]):
    """An environment for its spaces."""

    def __init__(self, observation: Any, action: Any) -> None:
        self.observation_space, self.action_space = observation, action


SPACES = {
    "boxes": (BOX, BOX),
    "box and choice": (BOX, CHOICE),
    "choices": (spaces.MultiDiscrete([2, 3]), CHOICE),
    "bits": (spaces.MultiBinary(5), CHOICE),
}


@cache
def saved(name: str = "boxes") -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Facts and arrays of an honest model."""
    file = io.BytesIO()
    model = PPO("MlpPolicy", Still(*SPACES[name]), n_steps=8, batch_size=8, seed=1)
    model.save(file)
    with zipfile.ZipFile(file) as archive:
        return json.loads(archive.read(FACTS)), safetensors.numpy.load(archive.read(TENSORS))


def zip_of(*members: tuple[str, bytes], method: int = zipfile.ZIP_STORED) -> io.BytesIO:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, content in members:
            archive.writestr(name, content)
    file.seek(0)
    return file


def signed(facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> io.BytesIO:
    """A model's file whose hash fits, whatever is in it."""
    tensors = safetensors.numpy.save(arrays)
    facts = facts | {"tensors_sha256": hashlib.sha256(tensors).hexdigest()}
    return zip_of((FACTS, json.dumps(facts).encode()), (TENSORS, tensors))


def test_an_honest_file_written_by_this_helper_is_read() -> None:
    assert PPO.load(signed(*saved())).predict(np.zeros(3, np.float32))[0].shape == (3,)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "version: Input should be 1, given 2"),
        ({"format": None}, "format: Input should be 'flatout.ppo'"),
        ({"arguments": {}}, "arguments.n_steps is missing"),
        ({"arguments": 3}, "arguments: Input should be an object"),
        ({"functions": ["os.system"]}, "functions.0: Input should be 'learning_rate'"),
        (
            {"policy": {"hidden": [], "activation": "tanh", "log_std": 0.0}},
            "policy.hidden: Tuple should have at least 1",
        ),
        (
            {"policy": {"hidden": [0], "activation": "tanh", "log_std": 0.0}},
            "policy.hidden.0: Input should be greater",
        ),
        (
            {"policy": {"hidden": [64], "activation": "tanh", "log_std": 0.0}},
            "which is no part of this network",
        ),
        (
            {"policy": {"hidden": [64, 63], "activation": "tanh", "log_std": 0.0}},
            r"not float32 \(64, 63\)",
        ),
        (
            {"policy": {"hidden": [64, 64], "activation": "eval", "log_std": 0.0}},
            "policy.activation: Input should be",
        ),
        (
            {"observation_space": {"kind": "Box", "dtype": "object"}},
            "observation_space.Box.dtype: Input should be",
        ),
        (
            {"observation_space": {"kind": "Box", "dtype": "float64"}},
            "bounds are no two arrays of float64",
        ),
        ({"observation_space": {"kind": "Dict"}}, "observation_space: Input tag 'Dict'"),
        (
            {"observation_space": {"kind": "Discrete", "n": 3}},
            "has bounds if it is a Box, and no other arrays",
        ),
        (
            {"action_space": {"kind": "Discrete", "n": 10**12}},
            "action_space.Discrete.n: Input should be less",
        ),
        ({"n_envs": 0}, "n_envs: Input should be greater"),
        ({"descents": "7"}, "descents: Input should be a valid integer"),
        ({"learner_seed": 2**40}, "learner_seed: Input should be less than 4294967296"),
        ({"colour": 1}, "colour: Extra inputs are not permitted"),
    ],
)
def test_a_strangers_facts_are_refused(change: dict[str, Any], message: str) -> None:
    facts, arrays = saved()
    with pytest.raises(BundleError, match=message):
        PPO.load(signed(facts | change, arrays))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"network.actor.hidden.1.weight": None}, "lacks 'actor.hidden.1.weight'"),
        (
            {"network.more": np.ones(1, np.float32)},
            "holds 'more', which is no part of this network",
        ),
        ({"more": np.ones(1, np.float32)}, "holds 'more', which is no part of a model"),
        (
            {"network.log_std": np.full(3, np.nan, np.float32)},
            "log_std holds NaN or infinite values",
        ),
        ({"network.log_std": np.zeros(3)}, r"log_std is float64 \(3,\), not float32"),
        ({"optimiser.first": None}, "lacks 'first'"),
        ({"optimiser.first": np.ones(7, np.float32)}, r"first is float32 \(7,\)"),
        ({"observation_space.low": None}, "has bounds if it is a Box"),
        ({"observation_space.low": np.full(3, np.nan, np.float32)}, "one lies below the other"),
        ({"observation_space.low": np.zeros(4, np.float32)}, "bounds are no two arrays of float32"),
        ({"action_space.high": np.full(3, -9, np.float32)}, "one lies below the other"),
    ],
)
def test_a_strangers_arrays_are_refused(change: dict[str, Any], message: str) -> None:
    facts, arrays = saved()
    given = {name: array for name, array in (arrays | change).items() if array is not None}
    with pytest.raises(BundleError, match=message):
        PPO.load(signed(facts, given))


def test_squares_below_zero_are_refused() -> None:
    facts, arrays = saved()
    with pytest.raises(BundleError, match=r"optimiser\.second holds squares below 0"):
        PPO.load(signed(facts, arrays | {"optimiser.second": arrays["optimiser.second"] - 1}))


@pytest.mark.parametrize(
    "nvec", [[[1, 2], [3]], [0], [], ["two"], [2**40], [1.5], [[[]]], [10**30]]
)
def test_choices_that_are_no_array_of_counts_are_refused(nvec: list[Any]) -> None:
    facts, arrays = saved("choices")
    with pytest.raises(BundleError, match="its choices are no array of whole numbers from 1 to"):
        PPO.load(
            signed(facts | {"observation_space": {"kind": "MultiDiscrete", "nvec": nvec}}, arrays)
        )


def test_a_product_beyond_64_bits_is_not_taken_for_a_small_one() -> None:
    facts, arrays = saved("bits")
    with pytest.raises(
        BundleError, match=r"actor.hidden.0.weight is float32 \(5, 64\), not float32 \(4951760"
    ):
        PPO.load(
            signed(
                facts | {"observation_space": {"kind": "MultiBinary", "n": [2**31] * 2 + [2**30]}},
                arrays,
            )
        )


def test_one_of_a_million_choices_is_one_row_and_no_square_of_them() -> None:
    rows = flatten_observations(spaces.Discrete(10**6), np.array([7, 999_999]))
    assert rows.shape == (2, 10**6)
    assert [row.argmax() for row in rows] == [7, 999_999]
    assert rows.sum() == 2


def test_members_that_are_missing_twice_more_or_hidden_are_refused() -> None:
    facts, tensors = (FACTS, b"{}"), (TENSORS, b"x")
    for members in (
        (facts,),
        (tensors,),
        (),
        (facts, tensors, ("notes.txt", b"hello")),
        (facts, ("../up", b"x")),
    ):
        with pytest.raises(
            BundleError, match=r"does not hold model\.json and tensors\.safetensors"
        ):
            PPO.load(zip_of(*members))
    with pytest.warns(UserWarning, match="Duplicate"):
        twice = zip_of(facts, tensors, tensors)
    with pytest.raises(BundleError, match=r"does not hold model\.json and tensors\.safetensors"):
        PPO.load(twice)


def test_a_bomb_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = zip_of((FACTS, b"{}"), (TENSORS, bytes(50 << 20)), method=zipfile.ZIP_DEFLATED)
    assert len(bomb.getvalue()) < 100_000
    monkeypatch.setattr(zipfile.ZipFile, "read", lambda *_: pytest.fail("it was unpacked"))
    with pytest.raises(BundleError, match=r"model\.json is encrypted or compressed"):
        PPO.load(bomb)


def test_an_encrypted_member_is_refused() -> None:
    content = bytearray(signed(*saved()).getvalue())
    for signature, flags in ((b"PK\1\2", 8), (b"PK\3\4", 6)):
        content[content.find(signature) + flags] |= 1
    with pytest.raises(BundleError, match=r"is encrypted or compressed"):
        PPO.load(io.BytesIO(bytes(content)))


def test_a_long_list_of_members_is_refused_before_it_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    many = zip_of(*((str(k), b"") for k in range(1000)))
    monkeypatch.setattr(zipfile, "ZipFile", lambda *_: pytest.fail("it was read"))
    with pytest.raises(BundleError, match="holds more than a model does"):
        PPO.load(many)


@pytest.mark.parametrize("text", ["[" * 100_000, "NaN", "9" * 5_000, '"\\ud800"', "", "[]", "null"])
def test_json_that_no_parser_likes_is_refused(text: str) -> None:
    with pytest.raises(BundleError, match=r"model\.json: "):
        PPO.load(zip_of((FACTS, text.encode()), (TENSORS, b"")))


def test_every_truncation_is_refused() -> None:
    content = signed(*saved()).getvalue()
    for keep in np.linspace(0, len(content) - 1, 60, dtype=int):
        with pytest.raises(BundleError, match="not a model, or was cut off"):
            PPO.load(io.BytesIO(content[:keep]))


def test_pipes_folders_and_huge_files_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.zip")
    with pytest.raises(BundleError, match="is a pipe, a socket or a device"):
        PPO.load(tmp_path / "pipe.zip")
    with pytest.raises(BundleError, match="is a folder"):
        PPO.load(tmp_path)
    with (tmp_path / "hole.zip").open("wb") as file:
        file.truncate(20 << 30)
    with pytest.raises(BundleError, match="and at most 268,435,456 are read"):
        PPO.load(tmp_path / "hole.zip")
    for name in ("", "x" * 5000, "a\0b"):
        with pytest.raises(BundleError, match="give a file that `save`"):
            PPO.load(name)
    with pytest.raises(BundleError, match="opened as 'rb'"):
        PPO.load(io.StringIO("text"))


def test_a_model_that_could_not_be_read_again_is_not_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(model_file, "MODEL_BYTES", 1000)
    with pytest.raises(BundleError, match="1,000 are allowed: take smaller layers"):
        PPO("MlpPolicy", Still(BOX, BOX), n_steps=8, batch_size=8).save(tmp_path / "model")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["boxes", "box and choice"])
def test_weights_that_are_far_too_large_are_told_when_acting(name: str) -> None:
    facts, arrays = saved(name)
    large = {
        name: np.full_like(array, 3e38)
        for name, array in arrays.items()
        if name.startswith("network.")
    }
    facts = facts | {"policy": facts["policy"] | {"activation": "silu"}}
    model = PPO.load(signed(facts, arrays | large))
    with pytest.raises(SettingsError, match="the answer is not a number"):
        model.predict(np.array([1, -1, 0.5], np.float32))
