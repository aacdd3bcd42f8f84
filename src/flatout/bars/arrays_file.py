"""Arrays on disk: `.npy` files, and `.npz` archives of several; numbers and times only.

Pickled arrays are refused: reading a pickle runs what it contains. This file knows nothing about
bars.
"""

import io
import math
import zipfile
from pathlib import Path

import numpy as np

from flatout.arrays import NumpyArray
from flatout.bars.files import read_content
from flatout.bars.panel import FloatArray, TimeArray
from flatout.bars.probing import CHECK
from flatout.bars.refusal import list_names, refusal
from flatout.bars.times import FIRST, LAST, YEARS
from flatout.errors import BarsError
from flatout.foreign import shorten

FREE_BYTES, TIMES_SIZE = (
    32 << 20,
    20,
)  # what an archive may unpack to, and how many times its own size beside
UNITS = {
    "W": 6.048e11,
    "D": 8.64e10,
    "h": 3.6e9,
    "m": 6e7,
    "s": 1e6,
    "ms": 1e3,
    "us": 1.0,
    "ns": 1e-3,
}  # microseconds
ZIP, PICKLE = b"PK", b"\x80"
UNPICKLE = (
    "flatout reads no pickles, because reading one runs what it contains. Where you trust the "
    "file, convert it once in Python: numpy.save('{name}.npy', "
    "numpy.asarray(pickle.load(open('FILE', 'rb')), {kind}))."
)


class PickledError(ValueError):
    """The file holds objects, or is a pickle as a whole."""


def load_array(path: Path, name: str, kind: str = "float") -> NumpyArray:
    """The array of an .npy file, or of an .npz archive the one of that name, or its only one."""
    content = read_content(path)
    unpickle = UNPICKLE.format(name=name, kind="'datetime64[us]'" if kind == "time" else kind)
    if path.suffix.lower() not in (".npy", ".npz"):
        if content[:1] == PICKLE:
            raise refusal(path, "it is a pickle", unpickle)
        reason = f"the extension {shorten(path.suffix)!r} is not supported"
        raise refusal(path, reason, "Arrays are read from .npy and .npz.")
    try:
        if content.startswith(ZIP):
            return parse_array(read_member(path, content, name), len(content))
        return parse_array(content, len(content))
    except PickledError:
        raise refusal(path, "it holds pickled objects", unpickle) from None
    except BarsError:
        raise
    # what zipfile and NumPy's reader of headers raise for damaged files is not documented
    except Exception as error:
        reason = (
            "the file cannot be read: "
            f"{shorten(next(iter(str(error).splitlines()), type(error).__name__))}"
        )
        raise refusal(path, reason, CHECK) from error


def read_member(path: Path, content: bytes, name: str) -> bytes:
    """The bytes of the array of that name, or of the only one there is."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        names = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
        if name not in names and len(names) != 1:
            reason = f"there is no array {name!r} among {list_names(names) or 'none'}"
            raise refusal(path, reason, f"Call it {name}, or keep one array per file.")
        info = names.get(name) or next(iter(names.values()))
        most = FREE_BYTES + TIMES_SIZE * len(content)
        with archive.open(info) as file:
            unpacked = file.read(most + 1)
    if max(info.file_size, len(unpacked)) > most:
        reason = (
            f"its {len(content):,} bytes unpack to {max(info.file_size, len(unpacked)):,}, "
            f"and {most:,} are allowed"
        )
        raise refusal(path, reason, "Save it without compression if it is what you want.")
    return unpacked


def parse_array(content: bytes, size: int) -> NumpyArray:
    """The array in the bytes of an .npy file. Nothing is allocated for what a header only
    promises.
    """
    file = io.BytesIO(content)
    try:
        version = np.lib.format.read_magic(file)
    except ValueError:
        if content:  # as NumPy says: whatever lacks its mark may be a pickle
            raise PickledError from None
        raise ValueError("it is empty") from None
    if version not in ((1, 0), (2, 0), (3, 0)):
        raise ValueError(f"its version {version} is unknown")
    read_header = (
        np.lib.format.read_array_header_1_0
        if version == (1, 0)
        else np.lib.format.read_array_header_2_0
    )
    shape, by_columns, dtype = read_header(file)
    if dtype.hasobject:
        raise PickledError
    count = math.prod(shape)
    if min(shape, default=0) < 0 or count * dtype.itemsize != len(content) - file.tell():
        raise ValueError(
            f"{len(content) - file.tell():,} bytes follow a header of {shorten(shape)} "
            f"{shorten(dtype)}"
        )
    if count * 8 > FREE_BYTES + TIMES_SIZE * size:
        raise ValueError(f"{count:,} values in {size:,} bytes would fill the memory")
    flat = (
        np.frombuffer(content, dtype, count, file.tell())
        if count and dtype.itemsize
        else np.zeros(0, dtype)
    )
    return flat.reshape(shape, order="F" if by_columns else "C")


def as_numbers(path: Path, array: NumpyArray) -> FloatArray:
    """The array in double precision; text, times and complex numbers are refused."""
    if array.dtype.kind not in "fiu":
        raise refusal(
            path, f"it holds {shorten(array.dtype)}, not numbers", "Save it as float64 or float32."
        )
    with np.errstate(over="ignore"):  # numbers beyond double become infinite, and those are refused
        return np.asarray(array, np.float64)


def load_numbers(path: Path, name: str) -> FloatArray:
    """The array of that name in double precision."""
    return as_numbers(path, load_array(path, name))


def load_times(path: Path, name: str) -> NumpyArray:
    """One time per row: epoch numbers, ISO text or datetime64, which becomes microseconds."""
    times = load_array(path, name, "time")
    if times.ndim != 1 or times.dtype.kind not in "fiuUM":
        reason = (
            f"it holds {shorten(times.dtype)} of shape {shorten(times.shape)}, not one time per bar"
        )
        raise refusal(path, reason, "Save (time,) epoch numbers, ISO 8601 text or datetime64.")
    if times.dtype.kind == "M":
        return in_microseconds(path, times)
    return (
        as_numbers(path, times)
        if times.dtype.kind == "f"
        else times.astype(times.dtype.newbyteorder("="))
    )


def in_microseconds(path: Path, times: TimeArray) -> TimeArray:
    """Times of any usual unit; those that microseconds cannot hold are refused."""
    unit, step = np.datetime_data(times.dtype)
    advice = "Save (time,) epoch numbers, ISO 8601 text or datetime64[us]."
    if unit not in UNITS:
        raise refusal(path, f"it holds {shorten(times.dtype)}, whose unit no bar has", advice)
    micro = times.astype(np.int64) * (step * UNITS[unit])
    far = ~np.isnat(times) & ~((micro >= FIRST) & (micro < LAST))
    if far.any():
        row = int(np.argmax(far))
        reason = (
            f"the time {shorten(times.astype(np.int64)[row])} in {times.dtype} is outside {YEARS}"
        )
        raise refusal(path, reason, advice, row=row, count=int(far.sum()))
    return times.astype("datetime64[us]")
