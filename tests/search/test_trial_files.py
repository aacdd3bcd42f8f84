"""Files of trials: what was earned comes back bit by bit; what is missing or damaged is named."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from flatout.errors import RunError
from flatout.search.trial_files import (
    FORMAT,
    TrialFile,
    read_trial,
    trial_numbers,
    trial_path,
    write_trial,
)


def trial(number: int = 3, seed: int = 0) -> TrialFile:
    rng = np.random.default_rng(seed)
    traces = rng.normal(size=(2, 3, 2, 50)).astype(np.float32)
    facts = {
        "number": number, "params": {"train.gamma": 0.97}, "state": "complete", "value": 0.1 + 0.2,
        "updates": 4,
        "scores": [[0.5, None, 0.1 + 0.2]] * 2,
    }  # fmt: skip
    return TrialFile(traces, np.abs(traces[:, :, ::-1]), facts)


def test_a_trial_comes_back_bit_by_bit(tmp_path: Path) -> None:
    write_trial(tmp_path, trial())
    found = read_trial(tmp_path, 3)
    assert found.facts == trial().facts
    for name in ("log_return", "turnover"):
        array = getattr(found, name)
        assert array.dtype == np.float32
        np.testing.assert_array_equal(array, getattr(trial(), name))


def test_equal_trials_have_equal_files(tmp_path: Path) -> None:
    """Whatever order their facts were written down in."""
    write_trial(tmp_path, trial())
    first = trial_path(tmp_path, 3).read_bytes()
    other = trial()
    write_trial(tmp_path, other._replace(facts=dict(reversed(other.facts.items()))))
    assert trial_path(tmp_path, 3).read_bytes() == first


def test_trials_are_listed_in_order(tmp_path: Path) -> None:
    assert trial_numbers(tmp_path) == []
    for number in (12, 3, 100_000):
        write_trial(tmp_path, trial(number))
    for name in (
        "0x.safetensors",
        "00001.safetensors.old",
        "1.safetensors",
        "9" * 40 + ".safetensors",
    ):
        (tmp_path / "trials" / name).write_bytes(b"")  # somebody else's
    (tmp_path / "trials" / ".00004.safetensors.abcdefgh").write_bytes(b"")  # not whole
    assert trial_numbers(tmp_path) == [3, 12, 100_000]


def test_a_trial_that_is_not_over_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"00007\.safetensors: trial 7 has no results yet"):
        read_trial(tmp_path, 7)


@pytest.mark.parametrize("content", [b"", b"nonsense", b"\x08\0\0\0\0\0\0\0{}      "])
def test_damage_is_named(tmp_path: Path, content: bytes) -> None:
    write_trial(tmp_path, trial())
    trial_path(tmp_path, 3).write_bytes(content)
    with pytest.raises(RunError, match=r"00003\.safetensors: .*; restore it"):
        read_trial(tmp_path, 3)


def test_a_file_cut_off_is_named(tmp_path: Path) -> None:
    write_trial(tmp_path, trial())
    path = trial_path(tmp_path, 3)
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(RunError, match="is not a whole safetensors file"):
        read_trial(tmp_path, 3)


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"log_return": np.zeros((2, 3, 2, 50))}, "log_return does not hold 32-bit numbers"),
        (
            {"turnover": np.zeros((2, 3, 2, 49), np.float32)},
            "turnover does not hold 32-bit numbers by split",
        ),
        (
            {"turnover": np.full((2, 3, 2, 50), np.nan, np.float32)},
            "turnover holds what is no number",
        ),
        (
            {"log_return": np.full((2, 3, 2, 50), -1e30, np.float32)},
            r"log_return holds 1e\+30, which no bar can bring",
        ),
        ({"other": np.zeros(3, np.float32)}, "instead of log_return, turnover, weight_sums"),
        ({"facts": {"scores": [[0.5]]}}, "scores are not 2 x 3, by split and seed"),
        ({"facts": {"number": 4}}, "is of trial 4"),
        ({"facts": {"updates": "many"}}, "flatout.trial: updates: Input should be a valid integer"),
        ({"facts": {"state": "lost"}}, "flatout.trial: state: Input should be"),
    ],
)
def test_what_cannot_be_is_named(tmp_path: Path, changed: dict[str, Any], problem: str) -> None:
    plain = trial()
    facts = plain.facts | changed.pop("facts", {})
    arrays = {
        "log_return": plain.log_return,
        "turnover": np.ascontiguousarray(plain.turnover),
    } | changed
    trial_path(tmp_path, 3).parent.mkdir()
    trial_path(tmp_path, 3).write_bytes(safetensors.numpy.save(arrays, {FORMAT: json.dumps(facts)}))
    with pytest.raises(RunError, match=rf"00003\.safetensors: .*{problem}"):
        read_trial(tmp_path, 3)
