"""Processes that flatout starts import nothing that happens to lie in the current folder."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from flatout.children import own_program

TRAP = "import os, pathlib; pathlib.Path(os.environ['FLATOUT_CANARY']).touch()\n"
NAMES = ("numpy", "safetensors", "random", "json", "jax", "flatout", "polars")
OWN_ENVIRONMENT = """
import numpy as np
from flatout.slow_envs.process_env import InProcess
import mine, asyncio

async def main():
    env = InProcess(mine.Mine)
    observation, _ = await env.reset(seed=0)
    await env.close()
    print(observation.tolist())

if __name__ == "__main__":
    asyncio.run(main())
"""
MINE = """
import gymnasium, numpy as np

class Mine(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        return np.array([0.25, 0.5], np.float32), {}
"""


@pytest.fixture
def trapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which libraries' names lie; the file that any of them would make."""
    folder = tmp_path / "downloads"
    folder.mkdir()
    for name in NAMES:
        (folder / f"{name}.py").write_text(TRAP)
    monkeypatch.chdir(folder)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.setenv("FLATOUT_CANARY", str(tmp_path / "canary"))
    return tmp_path / "canary"


def test_the_trap_works(trapped: Path) -> None:
    subprocess.run([sys.executable, "-m", "flatout.children"], check=False, capture_output=True)
    assert trapped.exists()


def test_an_own_program_does_not_see_the_folder(trapped: Path) -> None:
    ended = subprocess.run(
        own_program("flatout.workers.device_probe", "jax"),
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(ended.stdout.splitlines()[-1])
    assert not trapped.exists()


@pytest.mark.long
def test_nobody_starts_python_in_another_way() -> None:
    """Every child of flatout is made by `own_program`."""
    source = Path(__file__).parents[1] / "src" / "flatout"
    found = [
        path.name
        for path in source.rglob("*.py")
        if "sys.executable" in path.read_text(encoding="utf-8")
    ]
    assert found == ["children.py"]


@pytest.mark.long
def test_a_training_does_not_see_the_folder(trapped: Path, tmp_path: Path) -> None:
    """A forecast has a worker train a little."""
    flatout = Path(sys.executable).with_name("flatout")
    words = ["train", "--plan", "--json", "--n-envs", "4", "--set", "train.n_steps=16"]
    ended = subprocess.run([flatout, *words], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["steps_per_s"] > 0  # a worker has trained
    assert not trapped.exists()


@pytest.mark.long
def test_a_users_own_environment_is_found_where_they_started(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "script.py").write_text(OWN_ENVIRONMENT)
    ended = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ended.stdout.strip() == "[0.25, 0.5]", ended.stderr


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the system does not tell")
def test_a_process_takes_no_more_memory_than_it_is_given() -> None:
    """64 MB more are allowed: 16 MB can be had, 256 MB cannot."""
    program = (
        "from flatout.children import limit_memory\n"
        "limit_memory(64 << 20)\n"
        "some = bytearray(16 << 20)\n"
        "try:\n    bytearray(256 << 20)\nexcept MemoryError:\n    print('refused')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.returncode) == ("refused\n", 0)
