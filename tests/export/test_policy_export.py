"""Exports as files: names, what is reported of them, whole or absent, and what is refused."""

import hashlib
import io
import json
import sys
from dataclasses import replace
from pathlib import Path

import joblib
import onnxruntime
import pytest
from policies_to_export import (
    PANEL,
    assert_same_actions,
    assert_same_view,
    follow,
    policy_of,
    random_observations,
)
from stable_baselines3 import PPO

from flatout.errors import BundleError
from flatout.export.policy_export import TARGETS, export_policy
from flatout.policies.bundle import Bundle

BUNDLE = policy_of()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    BUNDLE.save(tmp_path / "runs" / "best")
    return tmp_path / "runs" / "best"


def test_the_folder_of_a_run_is_answered_with_the_policy_below(folder: Path) -> None:
    with pytest.raises(BundleError, match=f"give one of those below: {folder}$"):
        export_policy(folder.parent, "onnx")


@pytest.mark.parametrize("to", TARGETS)
def test_the_report_tells_what_was_written(to: str, folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "new" / f"file{TARGETS[to].suffix}"
    report = export_policy(folder, to, path).facts()
    content = path.read_bytes()
    assert json.loads(json.dumps(report)) == report
    assert (report["file"], report["to"]) == (str(path), to)
    assert (report["bytes"], report["sha256"]) == (
        len(content),
        hashlib.sha256(content).hexdigest(),
    )
    assert [file.name for file in path.parent.iterdir()] == [path.name]  # no temporary file stays


@pytest.mark.parametrize(
    ("to", "name"), [("sb3", "best.zip"), ("onnx", "best.onnx"), ("joblib", "best.joblib")]
)
def test_without_a_name_it_is_the_folders(
    to: str, name: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert export_policy(folder, to).file == Path(name)
    assert (tmp_path / name).is_file()
    monkeypatch.chdir(folder)
    assert export_policy(Path(), to).file == Path(name)


def test_a_saved_policy_acts_the_same_in_all_of_them(folder: Path, tmp_path: Path) -> None:
    for to, target in TARGETS.items():
        export_policy(folder, to, tmp_path / f"policy{target.suffix}")
    bundle, seen = Bundle.load(folder), follow(BUNDLE, bars=20)
    there = PPO.load(tmp_path / "policy.zip", device="cpu").predict(
        seen.observation, deterministic=True
    )[0]
    session = onnxruntime.InferenceSession(
        tmp_path / "policy.onnx", providers=["CPUExecutionProvider"]
    )
    elsewhere = session.run(["action"], {"indicators": seen.indicators, "account": seen.account})[0]
    for actions in (there, elsewhere):
        assert_same_actions(actions, bundle.act(seen.observation))
    rows = seen.indicators[:, 0].reshape(len(seen.indicators), -1)
    scaled = joblib.load(tmp_path / "policy.joblib").transform(rows)
    assert_same_view(scaled, seen.observation[:, : rows.shape[1]])


def test_an_older_file_is_replaced(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "policy.zip"
    path.write_bytes(b"old")
    export_policy(folder, "sb3", path)
    seen = random_observations(BUNDLE, 3)
    actions = PPO.load(io.BytesIO(path.read_bytes()), device="cpu").predict(
        seen, deterministic=True
    )[0]
    assert_same_actions(actions, BUNDLE.act(seen))


# --- refusals -------------------------------------------------------------------------------------


def test_an_unknown_format_is_refused_with_the_known_ones(folder: Path) -> None:
    with pytest.raises(
        BundleError, match="no export to 'onx': choose one of sb3, onnx, joblib; did you mean onnx"
    ):
        export_policy(folder, "onx")


def test_another_extension_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(
        BundleError,
        match=r"policy\.pkl: an export to joblib is a \.joblib file; give it such a name",
    ):
        export_policy(folder, "joblib", tmp_path / "policy.pkl")
    assert not (tmp_path / "policy.pkl").exists()


def test_a_missing_policy_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        BundleError,
        match=r"nowhere.policy\.json: there is no such file; give a folder that a training",
    ):
        export_policy(tmp_path / "nowhere", "onnx", tmp_path / "policy.onnx")


@pytest.mark.parametrize(("to", "package", "extra"), [
    ("sb3", "stable_baselines3", "sb3"), ("sb3", "torch", "sb3"), ("onnx", "onnx", "export"),
    ("joblib", "sklearn", "export"), ("joblib", "joblib", "export"),
])  # fmt: skip
def test_a_missing_package_is_named_with_its_extra(
    to: str, package: str, extra: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(
        sys.modules, package, None
    )  # what Python itself writes there for "not to be found"
    with pytest.raises(
        BundleError, match=rf"an export to {to} needs {package}: pip install 'flatout\[{extra}\]'"
    ):
        export_policy(folder, to)


def test_a_file_in_place_of_a_folder_is_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(
        BundleError, match=r"cannot write .*policy\.onnx: .*; give `out` another file"
    ):
        export_policy(folder, "onnx", tmp_path / "file" / "policy.onnx")


def test_a_folder_in_place_of_a_file_is_refused_and_left(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "policy.onnx").mkdir()
    with pytest.raises(BundleError, match="cannot write"):
        export_policy(folder, "onnx", tmp_path / "policy.onnx")
    assert not list((tmp_path / "policy.onnx").iterdir())
    assert {path.name for path in tmp_path.iterdir()} == {"runs", "policy.onnx"}


@pytest.mark.parametrize("to", TARGETS)
def test_names_that_mean_something_elsewhere_are_only_names(
    tmp_path: Path, to: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    symbols = ("../../up", "=cmd|'/C calc'!A0", "[red]\x1b[31m\n\0ü")
    bundle = policy_of(
        "zscore", replace(PANEL, symbols=symbols), notes={"../../up": "\x00[bold]" * 100}
    )
    bundle.save(tmp_path / "policy")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    report = export_policy(tmp_path / "policy", to).facts()
    assert [path.name for path in tmp_path.rglob("*") if path.parent != tmp_path / "policy"].count(
        "up"
    ) == 0
    assert [path.name for path in (tmp_path / "here").iterdir()] == [f"policy{TARGETS[to].suffix}"]
    assert json.loads(json.dumps(report)) == report
    if to == "onnx":
        assert tuple(json.loads(report["properties"]["symbols"])) == symbols
