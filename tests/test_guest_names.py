"""A guest uses public names only: those in the `__all__` of the flatout module that it imports.

flatout may change everything else from one day to the next; what stands in an `__all__` is kept.
"""

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from public_modules import public_modules, public_names

GUEST = Path(__file__).parents[1] / "packages/flatout-crawl/src/flatout_crawl"


def refused_imports(path: Path) -> Iterator[str]:
    """What a source file imports from flatout without being allowed to, each as a sentence."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if is_of_flatout(alias.name):
                    yield f"line {node.lineno}: import {alias.name}: import names, not a module"
        elif isinstance(node, ast.ImportFrom) and not node.level and is_of_flatout(node.module):
            assert node.module is not None
            for alias in node.names:
                if alias.name not in public_names(node.module):
                    yield f"line {node.lineno}: {node.module}.{alias.name} is not in its __all__"


def is_of_flatout(module: str | None) -> bool:
    """Whether a module is flatout or one within it; a guest's own name may begin the same."""
    return module is not None and module.split(".")[0] == "flatout"


def test_there_is_a_guest() -> None:
    assert len(list(GUEST.rglob("*.py"))) > 50


@pytest.mark.parametrize(
    "path", sorted(GUEST.rglob("*.py")), ids=lambda path: str(path.relative_to(GUEST))
)
def test_the_crawler_imports_public_names_only(path: Path) -> None:
    assert list(refused_imports(path)) == []


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("import flatout.errors", "import flatout.errors: import names, not a module"),
        ("import flatout", "import flatout: import names, not a module"),
        ("import numpy, flatout.runs as runs", "import flatout.runs: import names"),
        ("from flatout import slow_envs", "flatout.slow_envs is not in its __all__"),
        ("from flatout.foreign import adapter", "flatout.foreign.adapter is not in its __all__"),
        ("from flatout.foreign import read_json, adapter", "flatout.foreign.adapter is not in"),
        ("from flatout.foreign import adapter as read_json", "flatout.foreign.adapter is not in"),
        ("from flatout.foreign import *", "flatout.foreign.* is not in its __all__"),
        ("from flatout.market.tape import Tape", "flatout.market.tape.Tape is not in its __all__"),
        (
            "def later():\n    from flatout.foreign import adapter",
            "line 2: flatout.foreign.adapter",
        ),
        ("if True:\n    import flatout.cli.main", "line 2: import flatout.cli.main"),
    ],
)
def test_an_inner_name_would_be_found(tmp_path: Path, statement: str, why: str) -> None:
    file = tmp_path / "guest.py"
    file.write_text(f"{statement}\n")
    (refused,) = refused_imports(file)
    assert why in refused


@pytest.mark.parametrize(
    "statement",
    [
        "from flatout import PPO, read_bars",
        "from flatout.errors import RunError, SettingsError",
        "from flatout.foreign import read_json as read",
        "import flatout_crawl.net.scope",
        "from flatout_crawl.net import scope",
        "from . import scope",
        "from .flatout import inner",
        "import numpy",
    ],
)
def test_what_is_public_or_not_of_flatout_is_left_alone(tmp_path: Path, statement: str) -> None:
    file = tmp_path / "guest.py"
    file.write_text(f"{statement}\n")
    assert list(refused_imports(file)) == []


@pytest.mark.parametrize("module", public_modules())
def test_every_public_name_exists_once(module: str) -> None:
    names = import_module(module).__all__
    assert names and len(set(names)) == len(names)
    assert [name for name in names if not hasattr(import_module(module), name)] == []
