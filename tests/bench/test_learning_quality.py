"""Time to quality: the mark is a rule's, and the learner that follows the gradient reaches it."""

import json

import pytest
from typer.testing import CliRunner

from flatout.bench.learning_quality import LEARNERS, make_ground, make_student, measure_learning
from flatout.cli.main import main


@pytest.mark.long
def test_the_gradient_earns_most_of_what_the_rule_does() -> None:
    """Of 13 bps a bar, out of sample, within 100,000 samples; after 3,000 it has learned little."""
    seen: list[str] = []
    found = measure_learning(
        samples=100_000,
        learners=("pathwise per_asset",),
        on_point=lambda name, point: seen.append(name),
    )
    [(name, points)] = found["curves"].items()
    assert seen == [name] * len(points) == ["pathwise per_asset, seed 1"] * 11
    assert 10 < found["rule"]["growth_bps"] < 15
    assert points[0]["growth_bps"] < 0.5 * found["rule"]["growth_bps"]
    assert points[-1]["growth_bps"] > 0.8 * found["rule"]["growth_bps"]
    reached = found["samples_to"][name]
    assert reached["50%"] <= reached["80%"] <= 100_000
    assert [point["samples"] for point in points] == sorted(point["samples"] for point in points)


def test_every_learner_of_the_list_can_be_made() -> None:
    ground = make_ground(0.0, every_rule=True)
    for changes in LEARNERS.values():
        student = make_student(ground, changes, samples=66_000)
        assert 60_000 < student.updates * student.program.rollout <= 66_000


def test_an_unknown_learner_is_refused_by_name() -> None:
    result = CliRunner().invoke(main, ["bench", "learn", "--learner", "guess"])
    assert "there is no learner 'guess': choose ppo, " in str(result.exception)
    assert json.dumps(list(LEARNERS)).count("pathwise") == 2
