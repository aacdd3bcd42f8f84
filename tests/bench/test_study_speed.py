"""The study bench: what it counts and that it does the work that it counts. No timing is judged
here.
"""

from types import SimpleNamespace
from typing import Any

import pytest

from flatout.bench import study_speed
from flatout.folds.blocks import Block

peers = pytest.importorskip("flatout.bench.peers", reason="needs stable-baselines3")


def test_stable_baselines_takes_one_split_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole trials until the time is up, each judged on its own test blocks."""
    judged: list[Any] = []
    monkeypatch.setattr(peers, "sb3_trial", lambda *given: (judged.append(given[-2:]), 1000)[1])
    monkeypatch.setattr(study_speed, "bench_market", lambda: None)
    monkeypatch.setattr(
        study_speed, "measure_rate", lambda trial, seconds: sum(trial() for _ in range(3)) / seconds
    )
    tests = [(Block(10, 20), Block(30, 40)), (Block(10, 20), Block(50, 60))]
    study: Any = SimpleNamespace(
        market=SimpleNamespace(
            folds=SimpleNamespace(splits=[SimpleNamespace(test=blocks) for blocks in tests])
        )
    )
    assert study_speed.sb3_slice(study, 2.0) == 1500
    first, second = [(10, 19), (30, 39)], [(10, 19), (50, 59)]
    assert judged == [
        (study_speed.STEPS, first),
        (study_speed.STEPS, second),
        (study_speed.STEPS, first),
    ]


@pytest.mark.slow
def test_a_slice_of_the_real_thing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short trials; the figures agree with each other."""
    monkeypatch.setattr(study_speed, "STEPS", 10_000)
    found = study_speed.measure_study(seconds=3.0)
    whole = study_speed.TRIALS * study_speed.SPLITS * study_speed.STEPS
    assert found["slice_trials"] > 0 and found["slice_seconds"] >= 3
    assert 0 < found["lane_occupancy"] <= 1
    assert found["study_minutes"] == pytest.approx(whole / found["steps_per_s"] / 60, abs=0.06)
    assert found["sb3_minutes"] == pytest.approx(whole / found["sb3_steps_per_s"] / 60, rel=0.01)
    assert found["ratio"] == pytest.approx(
        found["steps_per_s"] / found["sb3_steps_per_s"], rel=0.01
    )
    assert found["mfu_executed"] < found["mfu"] < 1
