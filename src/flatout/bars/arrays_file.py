"""Arrays on disk: `.npy` files, and `.npz` archives of several; numbers and times only.

Pickled arrays are refused: reading a pickle runs what it contains. This file knows nothing about bars.
"""

import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flatout.bars.panel import FloatArray
from flatout.bars.refusal import refusal

UNPICKLE = (
    "flatout reads no pickles, because reading one runs what it contains. Where you trust the file, convert it once in "
    "Python: numpy.save('{name}.npy', numpy.asarray(pickle.load(open('FILE', 'rb')), {kind}))."
)


def load_array(path: Path, name: str, kind: str = "float") -> NDArray[Any]:
    """The array of an .npy file, or of an .npz archive the one of that name, or its only one."""
    if not path.is_file():
        raise refusal(path, "there is no such file", "Check the path.")
    unpickle = UNPICKLE.format(name=name, kind="'datetime64[us]'" if kind == "time" else kind)
    if path.suffix.lower() not in (".npy", ".npz"):
        if is_pickle(path):
            raise refusal(path, "it is a pickle", unpickle)
        raise refusal(path, f"the extension {path.suffix!r} is not supported", "Arrays are read from .npy and .npz.")
    try:
        with path.open("rb") as file:
            found = np.load(file, allow_pickle=False)
            return found if isinstance(found, np.ndarray) else member(path, found, name)
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        if "allow_pickle" in str(error):
            raise refusal(path, "it holds pickled objects", unpickle) from None
        reason = f"the file cannot be read: {str(error).splitlines()[0]}"
        raise refusal(path, reason, "Check that it is complete and of the kind its extension says.") from error


def member(path: Path, archive: Any, name: str) -> NDArray[Any]:
    """The array of that name, or the only one there is."""
    with archive:
        names = list(archive.files)
        if name not in names and len(names) != 1:
            reason = f"there is no array {name!r} among {', '.join(names) or 'none'}"
            raise refusal(path, reason, f"Call it {name}, or keep one array per file.")
        found: NDArray[Any] = archive[name if name in names else names[0]]
    return found


def is_pickle(path: Path) -> bool:
    """Whether the file begins as pickles do since Python 2.3; it is not read any further."""
    with path.open("rb") as file:
        return file.read(1) == b"\x80"


def as_numbers(path: Path, array: NDArray[Any]) -> FloatArray:
    """The array in double precision; text, times and complex numbers are refused."""
    if array.dtype.kind not in "fiu":
        raise refusal(path, f"it holds {array.dtype}, not numbers", "Save it as float64 or float32.")
    return np.asarray(array, np.float64)


def load_numbers(path: Path, name: str) -> FloatArray:
    """The array of that name in double precision."""
    return as_numbers(path, load_array(path, name))


def load_times(path: Path, name: str) -> NDArray[Any]:
    """One time per row: epoch numbers, ISO text or datetime64, which becomes microseconds."""
    times = load_array(path, name, "time")
    if times.ndim != 1 or times.dtype.kind not in "fiuUM":
        reason = f"it holds {times.dtype} of shape {times.shape}, not one time per bar"
        raise refusal(path, reason, "Save (time,) epoch numbers, ISO 8601 text or datetime64.")
    return times.astype("datetime64[us]") if times.dtype.kind == "M" else times
