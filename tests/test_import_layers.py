"""Imports go downward only, without cycles, and every module is wanted by somebody."""

import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import grimp
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


# Started by name: as a program of flatout's own, by the shell, by Gymnasium, or from Python.
STARTED = {
    "flatout.bench.finrl_program",
    "flatout.cli.main",
    "flatout.sb3.vec_env",
    "flatout_crawl.bench.slow_contestant",
    "flatout_crawl.bench.slow_sb3",
    "flatout_crawl.cli.bench",
    "flatout_crawl.cli.crawl",
}


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph("flatout", "flatout_crawl", cache_dir=None)


def find_cycles(graph: grimp.ImportGraph) -> list[set[str]]:
    """Modules that import each other, directly or over others; imports inside functions count."""
    cycles = []
    for module in graph.modules:
        below = graph.find_upstream_modules(module)
        around = {other for other in below if module in graph.find_upstream_modules(other)}
        if around:
            cycles.append(around | {module})
    return cycles


@pytest.mark.long
def test_no_modules_import_each_other(graph: grimp.ImportGraph) -> None:
    assert find_cycles(graph) == []


def test_a_cycle_would_be_found() -> None:
    made = grimp.ImportGraph()
    for importer, imported in (("a", "b"), ("b", "c"), ("c", "a"), ("d", "a")):
        made.add_import(importer=importer, imported=imported)
    assert {"a", "b", "c"} in find_cycles(made)
    assert not any("d" in cycle for cycle in find_cycles(made))


def test_every_module_is_wanted_by_somebody(graph: grimp.ImportGraph) -> None:
    sources = "\n".join(
        path.read_text()
        for folder in ("src", "packages/flatout-crawl/src")
        for path in (ROOT / folder).rglob("*.py")
    )
    orphans = {
        module
        for module in graph.modules
        if not graph.find_modules_that_directly_import(module)
        and not graph.find_children(module)
        and f'"{module}' not in sources
    }
    assert orphans <= STARTED


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
