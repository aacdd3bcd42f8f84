"""The public modules of flatout: those that have an `__all__`, which is a promise to guests."""

import ast
from importlib import import_module
from pathlib import Path
from types import ModuleType

SOURCE = Path(__file__).parents[1] / "src"


def has_public_names(path: Path) -> bool:
    """Whether a source file sets `__all__`; told without importing it, which may take seconds."""
    assigned = [
        target
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.Assign)
        for target in node.targets
    ]
    return any(isinstance(name, ast.Name) and name.id == "__all__" for name in assigned)


def public_modules() -> list[str]:
    """Names of all modules of flatout that have an `__all__`."""
    return sorted(
        ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
        for path in (SOURCE / "flatout").rglob("*.py")
        if has_public_names(path)
    )


def public_names(module: str) -> frozenset[str]:
    """The names in a module's `__all__`; none where it has no such list."""
    found: ModuleType = import_module(module)
    return frozenset(getattr(found, "__all__", ()))
