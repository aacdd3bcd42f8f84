"""Foreign files: limits, shapes, and refusals that say file, place, what is wrong and what to
do.
"""

import json
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st

from flatout.errors import BundleError, RunError, SettingsError
from flatout.foreign import (
    SHOWN,
    TOML_BYTES,
    parse_json,
    parse_tensors,
    parse_toml,
    read_file,
    read_json,
    read_json_if_there,
    read_tensors,
    read_toml,
    shorten,
    shorten_repr,
    validate_shape,
)

LIMIT = 1000


@dataclass(frozen=True)
class Wanted:
    """What the tests want of a file."""

    name: str
    counts: tuple[int, ...] = ()
    share: float = 0.0


# --- files
# ------------------------------------------------------------------------------------------


def test_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * LIMIT)
    assert read_file(tmp_path / "file", LIMIT) == b"x" * LIMIT


def test_what_is_no_ordinary_file_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").write_bytes(b"x" * (LIMIT + 1))
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    cases = {
        tmp_path / "pipe": ("is a pipe, a socket or a "
                           "device"), Path("/dev/zero"): "a device", tmp_path: "is a folder",
        tmp_path / "large": ("has 1,001 bytes, and at most 1,000 are "
                            "read"), tmp_path / "none": "there is no such file",
        tmp_path / "circle": ("cannot be read: Too many "
                             "levels"), tmp_path / ("x" * 300): "cannot be read: File name too",
        tmp_path / "a\0b": "embedded null",
    }  # fmt: skip
    for path, message in cases.items():
        with pytest.raises(BundleError) as caught:
            read_file(path, LIMIT, BundleError, "do this")
        assert str(caught.value).startswith(f"{path}: ")
        assert message in str(caught.value)
        assert str(caught.value).endswith("; do this")


# --- JSON
# -------------------------------------------------------------------------------------------


def test_json_takes_its_shape(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"name": "a", "counts": [1, 2], "share": 1}')
    assert read_json(tmp_path / "a.json", Wanted) == Wanted("a", (1, 2), 1.0)
    assert read_json_if_there(tmp_path / "b.json", Wanted) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not JSON: EOF"), ("{", ("is not "
                                        "JSON")), ("[" * 10**6, "recursion limit"), ("[]", "it: "),
        ('{"name": 5}', "name: Input should be a valid string, given 5"), ("{}", "name is missing"),
        (('{"name": "a", "share": '
         '1e999}'), "larger than any"), ('{"name": 1, "x": [-1E+400]}', "larger than any"),
        ('{"name": "a", "share": ' + "9" * 400 + '.0}', "larger than any"),
        (('{"name": "a", "counts": [1, '
         '"2"]}'), "counts.1: Input should be a valid integer, given '2'"),
        (('{"name": "a", "counts": '
         '[true]}'), "counts.0: "), ('{"name": "a", "counts": [1.0]}', "counts.0: "),
        (('{"name": "a", "share": '
         'NaN}'), "is not JSON"), ('{"name": "a", "share": Infinity}', "is not JSON"),
        (('{"name": "a", '
         '"share": ') + "9" * 10**5 + "}", ("number out of "
                                           "range")), ('{"name": "\ud800"}', "is not JSON"),
        ('{"name": ["' + "x" * 10**6 + '"]}', "name: "), ('{"name": "a"} {}', ("is not JSON: "
                                                                              "trailing")),
    ],
)  # fmt: skip
def test_json_of_another_shape_is_refused_in_a_short_sentence(
    tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(RunError) as caught:
        read_json(path, Wanted, cure="do this")
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)
    assert str(caught.value).endswith("; do this")
    assert len(str(caught.value)) < 600


@given(st.binary(max_size=30))
def test_any_bytes_are_json_of_the_shape_or_refused(content: bytes) -> None:
    for shape in (Wanted, dict[str, Any], list[int]):
        try:
            found = parse_json(content, shape, "here")
        except RunError:
            continue
        assert json.loads(content.decode()) is not None
        assert found == json.loads(content.decode())


def test_values_take_a_shape_too() -> None:
    assert validate_shape([1, 2], list[int], "here") == [1, 2]
    with pytest.raises(RunError, match=r"^here: 1: Input should be a valid integer, given 'x'; "):
        validate_shape([1, "x"], list[int], "here")


@pytest.mark.parametrize(
    "value",
    ["x" * 10**7, b"x" * 10**7, list(range(10**6)), 10**5000, {"a": "x" * 10**7}],
    ids=["text", "bytes", "list", "digits", "dict"],
)
def test_a_long_value_is_shown_shortened(value: Any) -> None:
    assert len(shorten_repr(value)) <= 100


def test_values_are_quoted_as_far_as_one_can_read() -> None:
    assert shorten("short") == "short"
    assert shorten("x" * SHOWN) == "x" * SHOWN
    assert shorten("x" * 10_000_000) == "x" * SHOWN + "…"
    assert shorten(("x" * 9,), limit=4) == "('xx…"


# --- TOML
# -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = ", ("not valid "
                 "TOML")), ("a = " + "[" * 5000, ("nested too "
                                                 "deeply")), ("a = " + "9" * 5000, ("not valid "
                                                                                   "TOML")),
        (".".join("a" * 5000) + " = 1", "nested too deeply"), ("\x00", "not valid TOML"),
        ("#" * (TOML_BYTES + 1), ("at "
                                 "most")), ("[" + ".".join("a" * 5000) + "]", "nested too deeply"),
    ],
)  # fmt: skip
def test_toml_that_is_broken_or_deep_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "a.toml"
    path.write_text(text)
    with pytest.raises(SettingsError, match=message):
        read_toml(path, SettingsError)


def test_toml_is_read() -> None:
    assert parse_toml(b"[a]\nb = 1", "here", SettingsError) == {"a": {"b": 1}}
    with pytest.raises(SettingsError, match=r"^here: not valid TOML"):
        parse_toml(b"\xff", "here", SettingsError)


# --- tensors
# ----------------------------------------------------------------------------------------


def packed(header: Any, data: bytes = b"") -> bytes:
    """A safetensors file with this header."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def test_tensors_are_read_with_their_notes(tmp_path: Path) -> None:
    arrays = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.array(True)}
    content = safetensors.numpy.save(arrays, metadata={"x": "y"})
    (tmp_path / "a.safetensors").write_bytes(content)
    for found in (read_tensors(tmp_path / "a.safetensors"), parse_tensors(content, "here")):
        assert found.notes == {"x": "y"}
        assert {name: array.tolist() for name, array in found.arrays.items()} == {
            name: array.tolist() for name, array in arrays.items()
        }


ENTRY = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"1234567",
        struct.pack("<Q", 2**63),
        struct.pack("<Q", 100) + b"{}",
        packed(b"["),
        packed(b"[" * 10**5),
        packed([]),
        packed({"a": 5}),
        packed({"a": ENTRY}),
        packed({"a": ENTRY | {"dtype": "BF16"}}, bytes(4)),
        packed({"a": ENTRY | {"dtype": "F8_E4M3"}}, bytes(4)),
        packed({"a": ENTRY | {"dtype": ["F32"]}}, bytes(4)),
        packed({"a": ENTRY | {"shape": [2**62, 2**62]}}, bytes(4)),
        packed({"a": ENTRY | {"shape": [-1]}}, bytes(4)),
        packed({"a": ENTRY, "__metadata__": {"x": 5}}, bytes(4)),
        packed({"a": ENTRY, "__metadata__": []}, bytes(5)),
        packed({"a": ENTRY | {"data_offsets": [4, 0]}}, bytes(4)),
        packed({"a": ENTRY}, bytes(8)),
    ],
)
def test_what_is_no_tensor_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(content)
    with pytest.raises(RunError, match=r"a\.safetensors: "):
        read_tensors(path)
    with pytest.raises(BundleError, match=r"^here: "):
        parse_tensors(content, "here", BundleError)


def test_a_pipe_is_no_tensor_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path, tmp_path / "none"):
        with pytest.raises(RunError):
            read_tensors(path)
