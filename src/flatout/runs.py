"""One folder per run: what was asked, with which versions, and what came out.

Writes are atomic: a file is whole or absent. A run's folder may come from somebody else: it is held
by one process, and refused while there are links in it, through which something outside would be
written.
"""

import fcntl
import json
import os
import platform
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO, Any

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray

from flatout.errors import RunError
from flatout.file_names import file_name
from flatout.settings.loading import Resolved

__all__ = [
    "check_links",
    "hold_folder",
    "installed_version",
    "pack_arrays",
    "runs_folder",
    "write_arrays",
    "write_bytes",
    "write_json",
]

LOCK = "lock"
# letters of a run's name in that of its folder, so that it is never too long; `about.json` has the
# rest
SHOWN = 40
# What `write_bytes` calls a file that is not whole yet; other hidden files are not ours.
TEMPORARY = re.compile(r"\..+\.(json|jsonl|safetensors|csv|html)\.[a-z0-9_]{8}")
APPENDED = (".journal", ".jsonl", ".log")  # written in place, not replaced
PACKAGES = (
    "flatout",
    "numpy",
    "jax",
    "jaxlib",
    "torch",
    "polars",
    "TA-Lib",
    "gymnasium",
    "array-api-compat",
)


def create_run(root: Path, name: str, resolved: Resolved, about: dict[str, Any]) -> Path:
    """A new folder `root/<utc>-<name>` holding `settings.json` and `about.json`."""
    name = file_name(name[: SHOWN if name.isascii() else SHOWN // 4])
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
    runs_folder(root)
    for attempt in range(100):
        run = root / (f"{stamp}-{name}" + (f"-{attempt}" if attempt else ""))
        try:
            run.mkdir()
        except FileExistsError:
            continue
        write_json(
            run / "settings.json",
            {"settings": resolved.settings.model_dump(), "origin": resolved.origin},
        )
        write_json(
            run / "about.json",
            {
                **about,
                "started": stamp,
                "versions": versions(),
                "python": platform.python_version(),
            },
        )
        return run
    raise RunError(f"{root}: a hundred runs were started in one second; give `out` a fresh folder")


def runs_folder(root: Path) -> Path:
    """The folder for runs, made if need be, and tried by writing to it: asked for before long work,
    so that a bad path or a full disk does not cost its result.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     runs_folder(Path(folder, "runs", "crawls")).is_dir()
    True
    """
    try:
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=root) as trial:
            trial.write(bytes(1 << 16))
            trial.flush()
    except OSError as error:
        raise RunError(
            f"{root}: cannot be used for runs: {error.strerror}; give `out` another folder"
        ) from None
    return root


def versions() -> dict[str, str | None]:
    """Installed versions of what decides the numbers; None for what is absent."""
    return {name: installed_version(name) for name in PACKAGES}


def installed_version(name: str) -> str | None:
    """The version of a package, or None.

    >>> installed_version("numpy") is not None, installed_version("no-such-package")
    (True, None)
    """
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def write_json(path: Path, value: Any) -> None:
    """Write JSON atomically.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_json(Path(folder, "run.json"), {"seed": 7})
    ...     print(Path(folder, "run.json").read_text().split())
    ['{', '"seed":', '7', '}']
    """
    write_bytes(path, (json.dumps(value, indent=2, allow_nan=False) + "\n").encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Write to a temporary neighbour, flush it to disk, then move it into place.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_bytes(Path(folder, "page.html"), b"<p>3</p>")
    ...     Path(folder, "page.html").read_bytes()
    b'<p>3</p>'
    """
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


def pack_arrays(
    arrays: Mapping[str, NDArray[Any]], notes: Mapping[str, Any] | None = None
) -> bytes:
    """Arrays by name as the content of a safetensors file, the one form in which flatout keeps
    arrays. Each note is kept as JSON in its header; give one at most, as several have no order.

    >>> from flatout.foreign import parse_tensors
    >>> parse_tensors(pack_arrays({"bias": np.ones(2)}, {"made": {"by": 7}}), where="weights").notes
    {'made': '{"by": 7}'}
    """
    content = {name: np.require(array, requirements="C") for name, array in arrays.items()}
    header = {name: json.dumps(value, sort_keys=True) for name, value in (notes or {}).items()}
    return safetensors.numpy.save(content, metadata=header or None)


def write_arrays(
    path: Path, arrays: Mapping[str, NDArray[Any]], notes: Mapping[str, Any] | None = None
) -> None:
    """Write arrays and notes as a safetensors file, whole or not at all.

    >>> from flatout.foreign import read_tensors
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_arrays(Path(folder, "weights.safetensors"), {"bias": np.ones(2)})
    ...     read_tensors(Path(folder, "weights.safetensors")).arrays["bias"]
    array([1., 1.])
    """
    write_bytes(path, pack_arrays(arrays, notes))


def sweep(folder: Path, deep: bool = False) -> None:
    """Remove what writers killed in the middle of a file left in a folder that nobody writes to
    now; with `deep` also in the folders within.
    """
    for path in folder.rglob(".*") if deep else folder.glob(".*"):
        if TEMPORARY.fullmatch(path.name):
            path.unlink(missing_ok=True)


@contextmanager
def hold_folder(folder: Path) -> Iterator[None]:
    """Hold the folder: two drivers on one run would overwrite each other's checkpoints. Ends with
    the process.

    >>> with tempfile.TemporaryDirectory() as folder, hold_folder(Path(folder)):
    ...     is_held(Path(folder))
    True
    """
    check_links(folder)
    try:
        lock = open_lock(folder / LOCK)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise RunError(f"{folder} is used by another process: wait for it, or end it") from None
    except OSError as error:
        raise RunError(
            f"{folder / LOCK} cannot be held: {error.strerror}; give a folder that can be written"
        ) from None
    with lock:
        yield


def is_held(folder: Path) -> bool:
    """Whether a process holds the folder; it is asked without disturbing it."""
    try:
        with open_lock(folder / LOCK, create=False) as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False  # no file, or none that anybody can hold
    return False


def open_lock(path: Path, create: bool = True) -> IO[bytes]:
    """A file to be locked. Whatever lies there stays as it is, and a link is not followed: it may
    lead anywhere.
    """
    flags = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    handle = os.open(path, flags | (os.O_RDWR | os.O_CREAT if create else os.O_RDONLY), 0o644)
    return os.fdopen(handle, "rb")


def check_links(folder: Path) -> None:
    """Refuse a run's folder with a symbolic link in it, or with a file to be appended to that has
    another name elsewhere: flatout makes none, and writing would reach outside. The folder's own
    path may be a link.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Path(folder, "elsewhere").symlink_to("/etc")
    ...     check_links(Path(folder))
    Traceback (most recent call last):
    flatout.errors.RunError: ...elsewhere is a symbolic link to /etc: nothing is written ...
    """
    for place, folders, files in os.walk(folder, onerror=refuse_place):
        for name in (*folders, *files):
            path = Path(place, name)
            if path.is_symlink():
                raise RunError(
                    f"{path} is a symbolic link to {path.readlink()}: nothing is written to a "
                    "run's folder through links; put what it leads to in its place, or remove it"
                )
            if path.suffix in APPENDED and path.is_file() and path.stat().st_nlink > 1:
                raise RunError(
                    f"{path} is one file with another, elsewhere (a hard link): put a copy in "
                    f"its place"
                )


def refuse_place(error: OSError) -> None:
    """A folder that cannot be looked through may hold links."""
    raise RunError(
        f"{error.filename}: cannot be looked through: {error.strerror}; make it readable, or "
        f"remove it"
    )
