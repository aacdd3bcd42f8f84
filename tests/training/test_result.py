"""Results of trainings: what they are called, and in how many words."""

from pathlib import Path

from flatout.training.result import AgentResult, TrainingResult

METRICS = {
    "one": {"total_return": 0.0125},
    "two": {"total_return": None},
    "cash": {"total_return": 0.0},
    "momentum": {"total_return": -0.5},
    "equal_weight": {"total_return": 0.1},
}
AGENT = AgentResult(
    "AAA", ("AAA",), "2024-01-01T00:00:00", "2024-02-01T00:00:00", 1200, ("one", "two"), METRICS, ""
)


def test_results_are_one_line() -> None:
    assert repr(AGENT) == (
        "AgentResult('AAA': returns on 1,200 held-out bars, 2024-01-01T00:00 to 2024-02-01T00:00 "
        "UTC: one +1.2%, two, cash +0.0%, momentum -50.0% and 1 more)"
    )
    result = TrainingResult(Path("runs/x"), {"AAA": AGENT}, {})
    assert repr(result) == "TrainingResult('runs/x': returns on held-out bars one +1.2%, two)"
