"""The scripts in `examples/` run as they stand, in an empty folder, and say what they promise."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
PROMISED = {
    "export_policy": ["policy.onnx", "'action': (1, 6)", "policy.zip"],
    "gym_loop": ["one account:", "256 accounts, equal weights"],
    "own_reward_and_environment": ["reward ", "at 10 degrees it heats with +"],
    "slow_environment": ["s of waiting in ", "price 1"],
    "study_with_verdict": ["NOT PROMOTABLE", "gates refuse it", "report.html"],
    "train_one_agent": ["on the bars that were held out", "the last is cash", "p = 0.0"],
}
LONGEST = 60  # lines


def test_every_example_is_run_here() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(PROMISED)


@pytest.mark.parametrize("name", PROMISED)
def test_an_example_is_short(name: str) -> None:
    assert len((EXAMPLES / f"{name}.py").read_text().splitlines()) <= LONGEST


@pytest.mark.long
@pytest.mark.parametrize("name", PROMISED)
def test_an_example_runs(name: str, tmp_path: Path) -> None:
    if name == "slow_environment":
        pytest.importorskip("torch")
    if name == "export_policy":
        pytest.importorskip("stable_baselines3")
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    run = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py")],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    for words in PROMISED[name]:
        assert words in run.stdout
