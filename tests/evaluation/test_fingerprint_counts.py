"""Counts of trials that earlier versions noted: still read, never taken for none."""

import json
from pathlib import Path

import pytest

from flatout.errors import RunError
from flatout.evaluation.fingerprint_counts import count_noted_before

BARS, OTHER = "0f3a" * 16, "beef" * 16


def write(registry: Path, content: object) -> Path:
    path = registry / f"{BARS}.json"
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return path


def test_studies_add_up(tmp_path: Path) -> None:
    assert count_noted_before(BARS, tmp_path) == 0
    write(tmp_path, {"fingerprint": BARS, "studies": {"/runs/first": 100, "/runs/second": 7}})
    assert count_noted_before(BARS, tmp_path) == 107
    assert count_noted_before(BARS.upper(), tmp_path) == 107
    assert count_noted_before(OTHER, tmp_path) == 0
    assert count_noted_before(BARS, tmp_path, {"/runs/second", "/runs/third"}) == 100


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b'{"fingerprint": "',
        b"\xff\xfe",
        [],
        {},
        {"fingerprint": BARS, "studies": [1]},
        {"fingerprint": BARS, "studies": {"a": -1}},
        {"fingerprint": BARS, "studies": {"a": 1.5}},
        {"fingerprint": BARS, "studies": {"a": True}},
        {"fingerprint": OTHER, "studies": {"a": 1}},
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, content: object) -> None:
    path = write(tmp_path, content)
    with pytest.raises(RunError, match=f"{path}: .* damaged"):
        count_noted_before(BARS, tmp_path)


@pytest.mark.parametrize("fingerprint", ["", "../../etc/passwd", "xyz", "12 34", "ab\n"])
def test_only_hexadecimal_fingerprints(tmp_path: Path, fingerprint: str) -> None:
    with pytest.raises(RunError, match="hexadecimal"):
        count_noted_before(fingerprint, tmp_path)
