"""Breaks the code on purpose, one fault at a time, and sees that the tests named beside it fail in
their own assertion.

The tables beside this file say which: a tolerance that lets its fault pass is too wide. Each fault
is planted in a copy of the sources, so nothing here changes. `python tests/planted_faults/plant.py
[words]` plants those whose test has such a word in its name, all without words.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import xml.etree.ElementTree as Xml
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

TABLES = Path(__file__).parent
ROOT = TABLES.parents[1]
SOURCES = ("src", "packages/flatout-crawl/src")
LAST_LINE = re.compile(
    r"^(\S+:\d+): (\w+)$", re.MULTILINE
)  # of each frame; the last one tells the error
PATIENCE_S = 900  # a fault may make a test wait for ever: it is found then, but not by an assertion


@dataclass(frozen=True)
class Fault:
    """What is changed where, and the test that must not stand for it."""

    test: str  # pytest's name of it
    file: str  # of the source
    was: str  # this text, which stands there once,
    becomes: str
    why: str  # what is wrong then


def read_faults() -> list[Fault]:
    """All tables, in the order of their names."""
    tables = [tomllib.loads(path.read_text()) for path in sorted(TABLES.glob("*.toml"))]
    return [Fault(**row) for table in tables for row in table["fault"]]


def plant(fault: Fault, source: Path) -> None:
    """Write the fault into a copy of the source."""
    path = source / fault.file
    text = path.read_text()
    places = list(written_anyhow(fault.was).finditer(text))
    if len(places) != 1:
        raise ValueError(
            f"{fault.file} holds {fault.was!r} {len(places)} times: it must stand there once"
        )
    path.write_text(text[: places[0].start()] + fault.becomes + text[places[0].end() :])


def written_anyhow(code: str) -> re.Pattern[str]:
    """Code as a pattern that any formatting of it fits: line breaks, and commas before brackets."""
    words = re.findall(r"\w+|[^\w\s]", code)
    return re.compile(
        r"\s*".join(f",?\\s*{re.escape(w)}" if w in ")]}" else re.escape(w) for w in words)
    )


def is_found(fault: Fault) -> tuple[bool, str]:
    """Whether the test fails by an assertion; and what was seen."""
    with tempfile.TemporaryDirectory() as folder:
        copies, told = [Path(folder, name) for name in SOURCES], Path(folder) / "told.xml"
        for name, copy in zip(SOURCES, copies, strict=True):
            shutil.copytree(ROOT / name, copy, ignore=shutil.ignore_patterns("__pycache__"))
        try:
            plant(fault, Path(folder))
        except (OSError, ValueError) as error:
            return False, str(error)
        line = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-x",
            "-p",
            "no:cacheprovider",
            f"--junitxml={told}",
        ]
        paths = os.pathsep.join(
            [*map(str, copies), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        )
        environment = {**os.environ, "PYTHONPATH": paths.rstrip(os.pathsep)}
        try:
            subprocess.run(
                [*line, *fault.test.split()],
                cwd=ROOT,
                env=environment,
                capture_output=True,
                timeout=PATIENCE_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return False, f"not over after {PATIENCE_S} s"
        return judge(told)


def judge(told: Path) -> tuple[bool, str]:
    """What pytest's report says: the test failed, by an assertion that does not stand in the source
    itself.
    """
    if not told.exists():
        return False, "pytest did not begin"
    failures = list(Xml.parse(told).iter("failure"))
    if not failures:
        return False, "no test failed"
    path, error = LAST_LINE.findall(failures[0].text or "")[-1]
    return error in ("AssertionError", "Failed") and "/src/flatout" not in path, f"{path}: {error}"


def main(words: list[str]) -> int:
    """Plant them all and say which were missed."""
    faults = [
        fault for fault in read_faults() if not words or any(word in fault.test for word in words)
    ]
    missed = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for fault, (found, last) in zip(faults, pool.map(is_found, faults), strict=True):
            missed += not found
            print(
                json.dumps({"found": found, "test": fault.test, "fault": fault.why, "seen": last}),
                flush=True,
            )
    print(f"{len(faults) - missed} faults found, {missed} missed")
    return 1 if missed or not faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
