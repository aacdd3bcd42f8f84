"""`flatout export`: what it prints, and its refusals as sentences."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from typer.testing import CliRunner

from flatout.cli.main import app, main
from small_bundles import bundle_of

runner = CliRunner()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    bundle_of().save(tmp_path / "best")
    return tmp_path / "best"


@pytest.fixture
def call(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """The command in this process: exit code, output and errors."""

    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["flatout", "export", *words])
        with pytest.raises(SystemExit) as exit_:
            app()
        return int(exit_.value.code or 0), *capsys.readouterr()

    return run


def test_people_are_told_what_goes_in_and_out(folder: Path, tmp_path: Path) -> None:
    result = runner.invoke(
        main, ["export", str(folder), "--to", "onnx", "--out", str(tmp_path / "p.onnx")]
    )
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert lines[0].startswith(f"{tmp_path / 'p.onnx'}: policy with its scaling as ONNX, ")
    assert lines[1:5] == [
        "  input indicators (batch, 2, 3, 2)",
        "  input account (batch, 19)",
        "  output action (batch, 4)",
        "  output observation (batch, 31)",
    ]
    session = onnxruntime.InferenceSession(tmp_path / "p.onnx", providers=["CPUExecutionProvider"])
    given = {"indicators": np.zeros((1, 2, 3, 2)), "account": np.zeros((1, 19), np.float32)}
    assert session.run(["action"], given)[0].shape == (1, 4)


def test_json_alone(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "scaler.joblib"
    result = runner.invoke(
        main, ["export", str(folder), "--to", "joblib", "--out", str(out), "--json"]
    )
    said = json.loads(result.output)
    assert (said["file"], said["to"], said["scaler"]) == (str(out), "joblib", "zscore")
    assert said["columns"][:3] == ["S00 return_1", "S00 roc", "S01 return_1"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["best", "--to", "onx"],
            "there is no export to 'onx': choose one of sb3, onnx, joblib; did you mean onnx?",
        ),
        (["nowhere", "--to", "onnx"], "give a folder that a training saved a policy in"),
        (["best", "--to", "onnx", "--out", "policy.zip"], "an export to onnx is a .onnx file"),
        (
            ["squashed", "--to", "sb3"],
            "the distribution 'squashed_gaussian' has no equal in Stable-Baselines3",
        ),
        (
            ["best", "--to", "joblib", "--out", "best/policy.json/x.joblib"],
            "give --out another file",
        ),
    ],
)
def test_refusals_are_one_sentence_and_exit_code_2(
    words: list[str],
    said: str,
    folder: Path,
    call: Callable[..., tuple[int, str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bundle_of(distribution="squashed_gaussian").save(folder.parent / "squashed")
    monkeypatch.chdir(folder.parent)
    code, out, err = call(*words)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert said in err


def test_help_loads_none_of_the_packages() -> None:
    code = "import sys, flatout.cli.main; print(*sys.modules)"
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert {"onnx", "onnxruntime", "sklearn", "joblib", "torch", "stable_baselines3"}.isdisjoint(
        found
    )
