"""Runs the tests as other machines would: other instruction sets, one core, other threads, places,
orders, and busy.

`python tests/portable.py [words]` runs the rows whose name contains one of the words, all without
words, and prints a table in Markdown. What a row cannot do on this machine (no such CPU, no
`taskset`) it says.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
TESTS = (
    "tests/market",
    "tests/policies",
    "tests/learners",
    "tests/workers",
    "tests/training",
    "tests/search",
    "tests/features",
    "tests/sb3",
    "tests/export",
)
ARRAYS = (
    *TESTS,
    *sorted(str(path.relative_to(ROOT)) for path in Path(__file__).parent.glob("test_*.py")),
)
ALL = ()  # what pyproject.toml says: the tests of both distributions
SPIN = "while True: pass"
CORES = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
CPU = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
OLDER = (
    "Sandybridge",
    "SSE4_2",
    "default",
    "COMPATIBLE",
)  # settings that every x86-64 CPU of the last decade can do


@dataclass(frozen=True)
class Row:
    """One way to run the tests; `missing` says why this machine cannot."""

    name: str
    paths: tuple[str, ...] = ARRAYS
    environment: Mapping[str, str] = field(default_factory=dict)
    before: tuple[str, ...] = ()  # words before the command
    options: tuple[str, ...] = ("-n", "2", "--dist", "loadfile")
    spinning: int = 0  # other processes that never rest
    missing: str = ""


def instruction_sets() -> Iterator[Row]:
    """XLA, OpenBLAS, PyTorch, its MKL and oneDNN, and NumPy without what this CPU has more than
    others.
    """
    sets = {
        "XLA": [{"XLA_FLAGS": f"--xla_cpu_max_isa={isa}"} for isa in ("AVX2", "SSE4_2")],
        "OpenBLAS": [{"OPENBLAS_CORETYPE": core} for core in ("Haswell", "Sandybridge")],
        "PyTorch": [{"ATEN_CPU_CAPABILITY": capability} for capability in ("default", "avx2")],
        "MKL": [
            {"MKL_CBWR": "COMPATIBLE", "ONEDNN_MAX_CPU_ISA": "SSE41"},
            {"MKL_CBWR": "AVX2", "ONEDNN_MAX_CPU_ISA": "AVX2"},
        ],
        "NumPy": [{"NPY_DISABLE_CPU_FEATURES": numpy_features()}],
    }
    for name, environments in sets.items():
        for environment in environments:
            yield Row(name, environment=environment, missing=missing_for(environment))


def missing_for(environment: Mapping[str, str]) -> str:
    """What this CPU lacks for these settings."""
    if os.uname().machine != "x86_64":
        return "needs an x86-64 CPU"
    is_older = (
        any(value.endswith(OLDER) for value in environment.values())
        or "NPY_DISABLE_CPU_FEATURES" in environment
    )
    return "" if is_older or " avx2 " in CPU else "needs a CPU with AVX2"


def numpy_features() -> str:
    """All instructions that NumPy would choose while it runs."""
    from numpy._core import _multiarray_umath as built

    return " ".join(name for name in built.__cpu_dispatch__ if built.__cpu_features__[name])


def locale_found() -> str:
    """German where it is installed, for its decimal commas; else C, in which only ASCII is
    certain.
    """
    found = subprocess.run(
        ["locale", "-a"], capture_output=True, text=True, check=False
    ).stdout.split()
    return "de_DE.UTF-8" if {"de_DE.utf8", "de_DE.UTF-8"} & set(found) else "C"


def rows() -> list[Row]:
    """Everything that differs from machine to machine and may be set here."""
    no_taskset = "" if shutil.which("taskset") and CORES else "needs taskset"
    one_core = ("taskset", "-c", str(CORES[0] if CORES else 0))
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "3")
    seed = str(time.time_ns() % 10**6)
    return [
        *instruction_sets(),
        Row("one core", before=one_core, options=(), missing=no_taskset),
        Row("three threads", environment=threads),
        Row("elsewhere", ALL, {"TZ": "Asia/Kolkata", "LC_ALL": locale_found()}),
        Row(
            "random order",
            ALL,
            options=("-n", "2", "--random-order", f"--random-order-seed={seed}"),
        ),
        Row("busy machine", ALL, spinning=len(CORES) or 2),
    ]


@contextmanager
def spinning_process() -> Iterator[None]:
    """Another process that uses all of a core."""
    process = subprocess.Popen([sys.executable, "-c", SPIN])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def run_tests(row: Row) -> tuple[bool, str, float]:
    """Whether all passed, pytest's last line, and the seconds it took; what failed is printed."""
    line = [*row.before, sys.executable, "-m", "pytest", "-q", *row.options, *row.paths]
    began = time.monotonic()
    with ExitStack() as stack:
        for _ in range(row.spinning):
            stack.enter_context(spinning_process())
        done = subprocess.run(
            line,
            cwd=ROOT,
            env={**os.environ, **row.environment},
            capture_output=True,
            text=True,
            check=False,
        )
    last = (done.stdout.strip().splitlines() or [done.stderr.strip()])[-1].strip("= ")
    if done.returncode:
        print(done.stdout[-20_000:], done.stderr[-5_000:], file=sys.stderr)
    return done.returncode == 0, re.sub(r" in [\d.]+s.*", "", last), time.monotonic() - began


def description(row: Row) -> str:
    """What was set, as one would type it."""
    words = [
        *(
            f"{key}={value!r}" if " " in value else f"{key}={value}"
            for key, value in row.environment.items()
        )
    ]
    words += [*row.before, *(option for option in row.options if "random" in option)]
    words += [f"{row.spinning} processes spinning"] * bool(row.spinning)
    return " ".join(words)


def main(words: Sequence[str]) -> int:
    """Run the rows and print the table."""
    chosen = [
        row
        for row in rows()
        if not words or any(word.lower() in row.name.lower() for word in words)
    ]
    failed = 0
    print("| machine | set | tests | result | seconds |\n|---|---|---|---|---:|", flush=True)
    for row in chosen:
        which = "whole fast suite" if row.paths == ALL else "arrays, learners, search"
        if row.missing:
            print(
                f"| {row.name} | `{description(row)}` | {which} | not here: {row.missing} | |",
                flush=True,
            )
            continue
        passed, last, seconds = run_tests(row)
        failed += not passed
        mark = "" if passed else "**FAILED** "
        print(
            f"| {row.name} | `{description(row)}` | {which} | {mark}{last} | {seconds:.0f} |",
            flush=True,
        )
    return 1 if failed or not chosen else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
