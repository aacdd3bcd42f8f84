"""Checkpoints: every bit comes back, whole files or none, and sentences for what cannot be read."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import safetensors.numpy

from flatout.errors import RunError
from flatout.learners import checkpoint
from flatout.learners.checkpoint import (
    check_arrays,
    read_checkpoint,
    rebuild_tree,
    write_checkpoint,
)
from flatout.learners.jax_engine.lane_batch import array_names
from flatout.policies.network import Network, Sizes, new_network

NETWORK = new_network(Sizes(3, (4, 4), 2, 2), 0)


class Inner(NamedTuple):
    a: Any
    b: Any


class Outer(NamedTuple):
    first: Inner
    several: tuple[Any, ...]
    empty: tuple[Any, ...]
    last: Any


TREE = Outer(Inner(1, 2), (3, (4, Inner(5, 6))), (), 7)
ODD = {
    "scalar": np.asarray(1.5, np.float32),
    "flag": np.asarray(True),
    "flags": np.array([True, False, True]),
    "count": np.array([-1, 2**31 - 1], np.int32),
    "seed": np.array([0, 2**32 - 1], np.uint32),
    "double": np.array([np.pi, -0.0, np.inf, np.nan]),
    "tiny": np.array([1e-45, np.nan, -np.inf], np.float32),
    "none": np.zeros((0, 3), np.float32),
    "turned": np.arange(6, dtype=np.float32).reshape(2, 3).T,
    "strided": np.arange(10, dtype=np.int32)[::3],
}


def named(tree: Any, prefix: str) -> list[tuple[str, Any]]:
    """Leaves as a worker names them, below a prefix."""
    return [(f"{prefix}/{name}" if name else prefix, leaf) for name, leaf in array_names(tree)]


def test_leaves_are_named_by_their_place() -> None:
    assert dict(named(TREE, "x")) == {
        "x/first/a": 1, "x/first/b": 2, "x/several/0": 3, "x/several/1/0": 4, "x/several/1/1/a": 5,
        "x/several/1/1/b": 6, "x/last": 7,
    }  # fmt: skip
    assert dict(named(5, "alone")) == {"alone": 5}


@pytest.mark.parametrize("tree", [TREE, (), (1,), 3, ((), Inner((), 1))])
def test_a_tree_is_rebuilt_from_its_names(tree: Any) -> None:
    again = rebuild_tree(tree, dict(named(tree, "x")), "x")
    assert again == tree
    assert type(again) is type(tree)


def test_a_network_comes_back_as_a_network(tmp_path: Path) -> None:
    path = tmp_path / "network.safetensors"
    write_checkpoint(path, dict(named(NETWORK, "lanes/network")), {})
    arrays, _ = read_checkpoint(path)
    assert "lanes/network/actor/hidden/0/weight" in arrays
    again = rebuild_tree(NETWORK, arrays, "lanes/network")
    assert isinstance(again, Network)
    for (name, one), (other, two) in zip(named(NETWORK, ""), named(again, ""), strict=True):
        assert name == other
        np.testing.assert_array_equal(one, two)


def test_every_bit_comes_back(tmp_path: Path) -> None:
    path, facts = (
        tmp_path / "state.safetensors",
        {"lanes": ["a", "ä b"], "nested": {"x": [1, None]}},
    )
    write_checkpoint(path, ODD, facts)
    arrays, read = read_checkpoint(path)
    assert read == facts
    assert set(arrays) == set(ODD)
    for name, array in ODD.items():
        found = arrays[name]
        assert (found.dtype, found.shape) == (array.dtype, array.shape), name
        assert found.tobytes() == array.tobytes(), name


def test_equal_states_are_equal_files(tmp_path: Path) -> None:
    """Else nobody could tell whether a resumed training is the uninterrupted one."""
    contents = set()
    for k in range(20):
        write_checkpoint(
            tmp_path / str(k), dict(reversed(ODD.items())) if k % 2 else ODD, {"b": 1, "a": 2}
        )
        contents.add((tmp_path / str(k)).read_bytes())
    assert len(contents) == 1


def test_an_absent_checkpoint_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"worker-0\.safetensors: there is no such file"):
        read_checkpoint(tmp_path / "worker-0.safetensors")


@pytest.mark.parametrize("kept", [0, 4, 40, -1])
def test_a_cut_file_is_refused(tmp_path: Path, kept: int) -> None:
    path = tmp_path / "state.safetensors"
    write_checkpoint(path, ODD, {})
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(RunError, match=r"state\.safetensors: is not a whole safetensors file"):
        read_checkpoint(path)


@pytest.mark.parametrize("metadata", [None, {"format": "pt"}, {checkpoint.FORMAT: "{}"}])
def test_what_others_wrote_is_refused(tmp_path: Path, metadata: dict[str, str] | None) -> None:
    path = tmp_path / "foreign.safetensors"
    safetensors.numpy.save_file({"x": np.zeros(2)}, path, metadata=metadata)
    with pytest.raises(
        RunError, match=r"foreign\.safetensors is no checkpoint that this flatout reads"
    ):
        read_checkpoint(path)


def test_another_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "state.safetensors"
    monkeypatch.setattr(checkpoint, "VERSION", checkpoint.VERSION + 1)
    write_checkpoint(path, ODD, {})
    monkeypatch.undo()
    with pytest.raises(RunError, match="version: Input should be 1, given 2"):
        read_checkpoint(path)


def test_other_shapes_are_refused_by_name() -> None:
    arrays, path = (
        {"a": np.zeros((2, 3)), "b": np.zeros(4), "more": np.zeros(1)},
        Path("state.safetensors"),
    )
    check_arrays(path, arrays, {"a": (2, 3), "b": (4,)})
    with pytest.raises(
        RunError, match=r"belongs to another training: b is \(4,\), this one has \(5,\)"
    ):
        check_arrays(path, arrays, {"a": (2, 3), "b": (5,)})
    with pytest.raises(RunError, match=r"c is missing, this one has \(\)"):
        check_arrays(path, arrays, {"a": (2, 3), "c": ()})


@pytest.mark.parametrize("where", ["os.fsync", "pathlib.Path.replace"])
@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_a_crash_leaves_the_old_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, error: BaseException
) -> None:
    path = tmp_path / "state.safetensors"
    write_checkpoint(path, ODD, {"number": 1})

    def crash(*_: Any) -> None:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(where, crash)
        with pytest.raises(type(error)):
            write_checkpoint(path, {"x": np.zeros(3)}, {"number": 2})
    assert read_checkpoint(path)[1] == {"number": 1}
    assert [found.name for found in tmp_path.iterdir()] == [path.name]


def test_a_flipped_bit_is_found_anywhere(tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    write_checkpoint(path, ODD, {"lanes": ["a"]})
    whole = path.read_bytes()
    body = 8 + int.from_bytes(whole[:8], "little")
    for place in range(body, len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(
            RunError, match=r"state\.safetensors is damaged: its arrays are not those"
        ):
            read_checkpoint(path)
    assert len(whole) > body + 50


def test_a_checkpoint_of_before_hashes_is_read(tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    about = json.dumps({"version": 1, "facts": {"lanes": ["a"]}})
    safetensors.numpy.save_file({"x": np.arange(3.0)}, path, metadata={checkpoint.FORMAT: about})
    arrays, facts = read_checkpoint(path)
    assert arrays["x"].tolist() == [0, 1, 2]
    assert facts == {"lanes": ["a"]}


@pytest.mark.parametrize(
    "about", ["[" * 100_000, "null", "[]", "3", '{"version":1}', '{"version":1,"facts":[]}', "NaN"]
)
def test_notes_of_another_shape_are_refused(tmp_path: Path, about: str) -> None:
    path = tmp_path / "state.safetensors"
    safetensors.numpy.save_file({"x": np.zeros(2)}, path, metadata={checkpoint.FORMAT: about})
    with pytest.raises(
        RunError,
        match=r"state\.safetensors is no checkpoint that this flatout reads: .*restore the run",
    ):
        read_checkpoint(path)


def test_an_array_that_is_missing_is_named() -> None:
    with pytest.raises(RunError, match="the checkpoint lacks x/first/b; restore the run"):
        rebuild_tree(TREE, {"x/first/a": np.zeros(1)}, "x")
