"""One folder per run: what was asked, with which versions, and what came out.

Writes are atomic: a file is whole or absent.
"""

import json
import os
import platform
import tempfile
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from flatout.errors import RunError
from flatout.settings import Resolved

PACKAGES = ("flatout", "numpy", "jax", "jaxlib", "torch", "polars", "TA-Lib", "gymnasium", "array-api-compat")


def create_run(root: Path, name: str, resolved: Resolved, about: dict[str, Any]) -> Path:
    """A new folder `root/<utc>-<name>` holding `settings.json` and `about.json`."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
    runs_folder(root)
    for attempt in range(100):
        run = root / (f"{stamp}-{name}" + (f"-{attempt}" if attempt else ""))
        try:
            run.mkdir()
        except FileExistsError:
            continue
        write_json(run / "settings.json", {"settings": resolved.settings.model_dump(), "origin": resolved.origin})
        write_json(
            run / "about.json",
            {**about, "started": stamp, "versions": versions(), "python": platform.python_version()},
        )
        return run
    raise RunError(f"{root}: a hundred runs were started in one second; give --out a fresh folder")


def runs_folder(root: Path) -> Path:
    """The folder for runs, made if need be; asked for before long work, so that a bad path does not cost its result."""
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"{root}: cannot be used for runs: {error.strerror}; give --out another folder") from None
    return root


def versions() -> dict[str, str | None]:
    """Installed versions of what decides the numbers; None for what is absent."""
    return {name: installed(name) for name in PACKAGES}


def installed(name: str) -> str | None:
    """The version of a package, or None."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def write_json(path: Path, value: Any) -> None:
    """Write JSON atomically."""
    write_bytes(path, (json.dumps(value, indent=2, allow_nan=False) + "\n").encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Write to a temporary neighbour, flush it to disk, then move it into place."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    finally:
        Path(temporary).unlink(missing_ok=True)  # there only if it was not moved


def sweep(folder: Path) -> None:
    """Remove what writers killed in the middle of a file left in a folder that nobody writes to now."""
    for temporary in folder.glob(".*"):
        temporary.unlink(missing_ok=True)
