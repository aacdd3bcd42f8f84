"""The harness finds what it shall find: a campaign of ten cases of which each is bad in another
way.
"""

import io
import json
import random
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from damage import harness, mutations
from damage.harness import Result, as_table, campaign_count, campaign_names, run_campaign

BAD = """
    import os, sys, time, warnings
    from pathlib import Path
    from damage.harness import SilentlyWrong
    from flatout.errors import RunError

    COUNT = 10

    def prepare(folder: Path) -> None:
        (folder / "honest").write_text("yes")

    def damage(number: int, originals: Path, folder: Path) -> str:
        (folder / "number").write_text(str(number))
        return f"number {number} of {(originals / 'honest').read_text()}"

    def attempt(folder: Path) -> str:
        number = int((folder / "number").read_text())
        if number == 1:
            raise RunError("refused")
        if number == 2:
            raise KeyError("no sentence")
        if number == 3:
            while True:
                pass
        if number == 4:
            bytearray(300_000_000)
        if number == 5:
            (folder.parent / "canary" / ".hidden").unlink()
        if number == 6:
            raise SilentlyWrong("two and two are five")
        if number == 7:
            warnings.warn("overflow", RuntimeWarning)
        if number == 8:
            os.kill(os.getpid(), 11)
        if number == 9:
            Path("left behind").touch()
        return "read"
"""


@pytest.fixture
def campaign(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """A module of the same package that lies elsewhere."""
    path = tmp_path / "damage" / "bad_for_a_test.py"
    path.parent.mkdir()
    path.write_text(textwrap.dedent(BAD))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(harness, "SECONDS", 3.0)
    monkeypatch.setattr(harness, "PEAK_BYTES", 200 << 20)
    return path.stem


@pytest.mark.long
def test_every_kind_of_failure_is_counted_and_the_campaign_goes_on(campaign: str) -> None:
    result = run_campaign(campaign)
    assert result.cases == 10
    kinds = {(one["kind"], one["number"]) for one in result.told}
    assert kinds == {
        ("traceback", 2), ("hang", 3), ("peak", 4), ("outside", 5), ("wrong", 6), ("noise", 7),
         ("traceback", 8),
        ("outside", 9),
    }  # fmt: skip
    assert result.words == {"read": 5, "refused": 1}
    assert "number 2 of yes" in result.story()
    assert "KeyError" in result.story()


def test_the_table_has_a_number_under_every_head() -> None:
    result = Result("some")
    result.take(0, {"outcome": "read", "seconds": 2.0, "peak": 3_000_000, "bytes": 5})
    result.take(1, {"outcome": "refused", "text": "no"})
    assert (
        as_table([result]).splitlines()[-1]
        == "| some | 2 | 1 | 1 | 0 | 0 | 0 | 0 | 0 | 0 | 2.0 | 3 |"
    )


def test_a_peak_counts_above_a_gigabyte_and_the_size_of_the_input() -> None:
    result = Result("some")
    for size in (0, 1 << 20):
        result.take(0, {"outcome": "read", "peak": harness.PEAK_BYTES + 1000, "bytes": size})
    assert result.bad == {"peak": 1}


def zipped() -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("a.json", "{}")
    return made.getvalue()


ORIGINALS = {
    "x.json": json.dumps({"a": [1, 2.5, None], "b": {"c": "text"}}).encode(),
    "x.journal": b'{"a": 1}\n{"b": 2}\n',
    "x.safetensors": safetensors.numpy.save(
        {"w": np.ones((2, 3), np.float32)}, {"note": '{"k": 1}'}
    ),
    "x.zip": zipped(),
    "x.csv": b"time,close\n1,2\n",
}


@pytest.mark.parametrize("name", ORIGINALS)
def test_a_mutation_depends_on_its_seed_alone_and_nearly_always_changes_something(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mutations, "BOMB_BYTES", 1 << 16)

    def damaged(seed: int) -> bytes:
        path = tmp_path / name
        path.write_bytes(ORIGINALS[name])
        assert mutations.damage_file(path, random.Random(seed))
        return path.read_bytes()

    first, second = ([damaged(seed) for seed in range(30)] for _ in range(2))
    assert first == second
    assert sum(one != ORIGINALS[name] for one in first) > 0.8 * len(first)


def test_files_become_pipes_links_folders_and_holes(tmp_path: Path) -> None:
    found = set()
    for seed in range(200):
        case = tmp_path / str(seed) / "case"
        case.mkdir(parents=True)
        (case.parent / "canary").mkdir()
        (case.parent / "canary" / "file").touch()
        (case / "a").write_text("a")
        found.add(mutations.replace_file(case / "a", random.Random(seed), case).partition(": ")[2])
    assert found >= {"gone", "folder", "pipe", "link", "loop", "device", "hole"}


def test_a_case_can_be_repeated_by_its_number(campaign: str) -> None:
    line = [sys.executable, harness.__file__, campaign, "2"]
    ended = subprocess.run(line, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "number 2 of yes" in ended.stdout
    assert "KeyError: 'no sentence'" in ended.stderr


def test_the_docs_tell_of_every_campaign_at_its_full_count() -> None:
    told = (Path(harness.__file__).parents[2] / "docs" / "security.md").read_text()
    for name in campaign_names():
        assert f"| {name} | {campaign_count(name):,} |" in told
