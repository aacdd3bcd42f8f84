"""Imports go downward only; the layers stand in pyproject.toml."""

import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

import flatout
import flatout_crawl

ROOT = Path(__file__).resolve().parents[1]


def contracts() -> list[dict[str, object]]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]


def lint(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache", *options]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_every_contract_is_kept() -> None:
    run = lint(ROOT)
    assert run.returncode == 0, run.stdout + run.stderr
    assert f"Contracts: {len(contracts())} kept, 0 broken." in run.stdout


def layers_of(package: str) -> set[str]:
    """The parts of a package that its contract of layers names."""
    every = [contract["layers"] for contract in contracts() if contract["type"] == "layers"]
    assert all(isinstance(layers, list) for layers in every)
    named = {
        part.strip()
        for layers in every
        for layer in layers  # type: ignore[attr-defined]
        for part in layer.replace(":", "|").split("|")
    }
    return {part.removeprefix(f"{package}.") for part in named if part.startswith(f"{package}.")}


@pytest.mark.parametrize("package", [flatout, flatout_crawl], ids=["flatout", "flatout_crawl"])
def test_every_part_of_a_package_has_a_layer(package: ModuleType) -> None:
    assert package.__file__ is not None
    folder = Path(package.__file__).parent
    folders = {path.parent.name for path in folder.glob("*/__init__.py")}
    files = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    assert layers_of(package.__name__) == folders | files


def test_an_import_upward_would_be_found(tmp_path: Path) -> None:
    """The linter looks at what it is given: two modules, the lower of which imports the upper."""
    package = tmp_path / "house"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "upper.py").write_text("")
    (package / "lower.py").write_text("import house.upper\n")
    rules = (
        "[importlinter]\nroot_package = house\n[importlinter:contract:1]\nname = down\ntype = "
        "layers\nlayers =\n"
    )
    (tmp_path / ".importlinter").write_text(f"{rules}  house.upper\n  house.lower\n")
    run = lint(tmp_path)
    assert run.returncode == 1
    assert "house.lower is not allowed to import house.upper" in run.stdout
