"""Files of JSON lines: whole rows of one shape, cut where a kill left half of one, and never
written elsewhere.
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from flatout.errors import RunError
from flatout_crawl.runs.visits import JsonLines


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@dataclass(frozen=True)
class Line:
    word: str
    number: float = 0.0


def test_half_a_line_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    with JsonLines(path, Line) as lines:
        lines.add(Line("a"))
        lines.add(Line("ü\n"), sync=True)
    path.write_bytes(path.read_bytes() + b'{"word": ')
    with JsonLines(path, Line) as lines:
        assert lines.rows == [Line("a"), Line("ü\n")]
        lines.add(Line("d", 0.1))
        lines.cut(1)
        lines.add(Line("e"))
        with pytest.raises(RunError, match="another crawl is using this run directory"):
            JsonLines(path, Line)
    assert [row["word"] for row in rows(path)] == ["a", "e"]


def test_lines_are_cut_where_they_end_however_they_are_spaced(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    first = '{  "word":"ü",   "more": 1 }\n'.encode()
    path.write_bytes(first + b'{"word": "b"}\n')
    with JsonLines(path, Line) as lines:
        lines.cut(1)
    assert path.read_bytes() == first


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("nonsense", "line 2: is not JSON"),
        ("[1]", "line 2: it: Input should be an object"),
        ('{"number": 1}', "line 2: word is missing"),
        ('{"word": 7}', "line 2: word: Input should be a valid string, given 7"),
        ('{"word": "a", "number": NaN}', "line 2: is not JSON"),
        ("[" * 100_000, "line 2: is not JSON"),
    ],
)
def test_a_damaged_line_is_named_and_nothing_is_cut(
    tmp_path: Path, line: str, message: str
) -> None:
    path = tmp_path / "lines.jsonl"
    content = f'{{"word": "a"}}\n{line}\nhalf'
    path.write_text(content)
    with pytest.raises(RunError, match=message):
        JsonLines(path, Line)
    assert path.read_text() == content


def test_lines_are_not_written_through_links_nor_into_pipes(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("mine")
    (tmp_path / "link.jsonl").symlink_to(outside)
    os.mkfifo(tmp_path / "pipe.jsonl")
    for name, message in (("link.jsonl", "symbolic link"), ("pipe.jsonl", "is no file")):
        with pytest.raises(RunError, match=message):
            JsonLines(tmp_path / name, Line)
    assert outside.read_text() == "mine"
