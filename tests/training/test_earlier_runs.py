"""Runs, policies and models that the version before the rooms were moved has written still open."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import flatout
from rounding import assert_close

pytestmark = pytest.mark.long  # workers that compile

BEFORE = Path(__file__).parents[1] / "fixtures" / "before_rooms"
EXPECTED = json.loads((BEFORE / "expected.json").read_text())


def test_a_policy_does_what_it_did() -> None:
    policy = flatout.load_policy(BEFORE / "training" / "portfolio-seed0" / "best")
    action = policy.predict(EXPECTED["observation"])
    size = max(map(abs, EXPECTED["observation"]))
    assert_close(action, np.array(EXPECTED["action"], np.float32), size=size, roundings=64)


def test_a_run_that_had_ended_is_judged_again_with_the_same_figures(tmp_path: Path) -> None:
    shutil.copytree(BEFORE / "training", tmp_path / "run")
    result = flatout.train(resume=tmp_path / "run", progress=False)
    [agent] = json.loads((BEFORE / "training" / "report.json").read_text())["agents"].values()
    found = result.agents["portfolio"]
    assert (found.bars, list(found.policies)) == (agent["bars"], agent["policies"])
    for name, figures in agent["metrics"].items():
        for key, value in figures.items():
            assert found.metrics[name][key] == pytest.approx(value, rel=1e-2, abs=1e-3), (name, key)


def test_a_model_of_ppo_does_what_it_did() -> None:
    pytest.importorskip("torch")
    model = flatout.PPO.load(BEFORE / "cartpole.zip", device="cpu")
    action, _ = model.predict(np.array([0.1, -0.2, 0.03, 0.4], np.float32), deterministic=True)
    assert int(action) == EXPECTED["ppo_action"]
