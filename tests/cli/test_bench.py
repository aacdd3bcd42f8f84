"""`flatout bench env` and `flatout bench verdict --known`: the tables and the JSON; the measuring
itself is tested in tests/bench.
"""

import json
from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner

from flatout.bench import known_rates
from flatout.bench.known_rates import StudyOutcome, summarise_rates
from flatout.bench.known_truths import LUCK, SKILL
from flatout.cli import bench
from flatout.cli.main import main

RESULT: dict[str, Any] = {
    "scalar": 10_000,
    "numpy": {"1": 5_000, "64": 200_000},
    "torch": {"1": 2_000, "64": 100_000},
    "jax": {"1": 90_000, "64": 1_234_567},
    "bound_steps_per_s": 5_000_000,
    "times_scalar": {
        "numpy": {"1": 0.5, "64": 20.0}, "torch": {"1": 0.2, "64": 10.0},
        "jax": {"1": 9.0, "64": 123.5},
    },
    "memory_bytes_per_s": 10_000_000_000,
    "bytes_per_step": 2_000,
    "workload": "7 assets",
}  # fmt: skip


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The rounds that were asked for; nothing is measured."""
    asked: list[int] = []

    def measure(rounds: int, compiled: bool, progress: Callable[[str], None]) -> dict[str, Any]:
        asked.append(rounds)
        progress("round 1")
        return RESULT

    monkeypatch.setattr(bench, "measure_market", measure)
    return asked


def test_json_is_what_was_measured(rounds: list[int]) -> None:
    result = CliRunner().invoke(main, ["bench", "env", "--json", "--rounds", "2"])
    assert json.loads(result.stdout) == RESULT
    assert rounds == [2]


def test_the_table_has_a_line_per_engine_and_size(rounds: list[int]) -> None:
    result = CliRunner().invoke(main, ["bench", "env"], env={"COLUMNS": "160"})
    cells = [
        [cell.strip() for cell in line.strip("│").split("│")] for line in result.stdout.splitlines()
    ]
    assert ["scalar ledger", "1", "10,000", "1.0", "0.20%"] in cells
    assert ["numpy", "64", "200,000", "20.0", "4.00%"] in cells
    assert ["torch", "1", "2,000", "0.2", "0.04%"] in cells
    assert ["jax", "64", "1,234,567", "123.5", "24.69%"] in cells
    assert "memory 10.0 GB/s over 2000 bytes a step = at most 5,000,000 steps/s" in result.stdout
    assert rounds == [5]


def test_at_least_one_round_is_run(rounds: list[int]) -> None:
    assert CliRunner().invoke(main, ["bench", "env", "--rounds", "0"]).exit_code == 2
    assert rounds == []


def test_the_best_test_stands_beside_the_verdict_with_its_own_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may err in 2 % of the cases, which the verdict does not: its power alone would flatter."""
    lucky = [StudyOutcome(truth, 0.0, ("PBO",), k == 0) for truth in LUCK for k in range(4)]
    skilled = [
        StudyOutcome(truth, strength, (), True)
        for truth in SKILL
        for strength in known_rates.STRENGTHS
    ]
    rates = summarise_rates([*lucky, *skilled])
    assert rates["best_test_size"] == dict.fromkeys(LUCK, 0.25)
    monkeypatch.setattr(known_rates, "measure_rates", lambda *_, **__: rates)
    result = CliRunner().invoke(main, ["bench", "verdict", "--known"], env={"COLUMNS": "160"})
    lines = [[c.strip() for c in line.strip("│┃").split("│")] for line in result.stdout.split("\n")]
    assert "best test (level 2%)" in result.stdout
    for truth in LUCK:
        assert [truth, "0.00%", "0.00% .. 48.99%", "25.00%"] in lines
