"""Files that others may have made: read with limits, into the shape that is wanted, or refused with
a sentence.

Every JSON, TOML and safetensors file that flatout reads comes through here. A refusal says which
file, where in it, what is wrong and what to do, as the error class of whoever asked. JSON deeper
than 200 levels and numbers of more than 4300 digits are refused by the parser. Nothing here writes,
and no pickle is read anywhere.
"""

import math
import os
import re
import reprlib
import stat
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import IO, Annotated, Any, NamedTuple, TypeVar, cast

import numpy as np
import pydantic_core
import safetensors
import safetensors.numpy
from pydantic import StringConstraints, TypeAdapter, ValidationError

from flatout.arrays import NumpyArray
from flatout.errors import FlatoutError, RunError

__all__ = [
    "JsonTable",
    "JsonValue",
    "Refuse",
    "Sha256",
    "Tensors",
    "check_file",
    "parse_json",
    "parse_tensors",
    "parse_toml",
    "read_file",
    "read_json",
    "read_json_if_there",
    "read_tensors",
    "read_toml",
    "shorten_repr",
    "to_path",
    "validate_shape",
]

T = TypeVar("T")
# What a JSON or TOML file holds or shall hold, as Python has it: who asks knows what stands where.
# A recursive type would have to be told apart again at every step into it.
JsonValue = Any
JsonTable = dict[str, JsonValue]
Refuse = Callable[[str], FlatoutError]  # an error class
Sha256 = Annotated[
    str, StringConstraints(pattern=r"^[0-9a-f]{64}$")
]  # nothing that could lead elsewhere as a name
JSON_BYTES = 256 << 20
TOML_BYTES = 1 << 20
HEADER_BYTES = 32 << 20  # of a safetensors file
SHOWN = 80  # characters of a wrong value in a message
DEPTH = 100  # of a TOML file's tables and lists
MAYBE_INFINITE = re.compile(rb"[eE]\+?[0-9]{3}|[0-9]{300}")
MANY_DOTS = re.compile(
    r"""(?<![\w-])(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){50}"""
)  # in one key
RESTORE = "restore it from a copy, or make it anew"
# What NumPy can hold; a file may have others, such as BF16.
KINDS = {"BOOL", "U8", "U16", "U32", "U64", "I8", "I16", "I32", "I64", "F16", "F32", "F64"}
BRIEF = reprlib.Repr()
BRIEF.maxstring = BRIEF.maxother = BRIEF.maxlong = SHOWN


class Tensors(NamedTuple):
    """The arrays of a safetensors file, and the notes in its header.

    >>> Tensors({"weights": np.zeros(3)}, {"format": "1"}).notes
    {'format': '1'}
    """

    arrays: dict[str, NumpyArray]
    notes: dict[str, str]


def to_path(given: object, name: str, refuse: Refuse = RunError) -> Path:
    """A path that a caller gives, or a refusal of what is none; `name` is the argument's.

    >>> to_path("runs", "`out`")
    PosixPath('runs')
    >>> to_path(3, "`out`")
    Traceback (most recent call last):
    flatout.errors.RunError: `out` is 3, which is no path; give that of a file or folder
    """
    if isinstance(given, str | os.PathLike):
        path = os.fspath(given)
        if isinstance(path, str) and path.strip() and "\0" not in path:
            return Path(path)
    raise refuse(
        f"{name} is {shorten_repr(given)}, which is no path; give that of a file or folder"
    )


def read_file(path: Path, limit: int, refuse: Refuse = RunError, cure: str = RESTORE) -> bytes:
    """The content of an ordinary file that is not larger than the limit. Pipes and devices, which
    may never end, are not even opened for waiting.

    >>> read_file(Path("nowhere"), limit=100, cure="give a file")
    Traceback (most recent call last):
    flatout.errors.RunError: nowhere: there is no such file; give a file
    """
    try:
        with open_file(path, limit, refuse, cure) as file:
            content = file.read(limit + 1)
    except FileNotFoundError:
        raise refuse(f"{path}: there is no such file; {cure}") from None
    except (OSError, ValueError) as error:  # ValueError: a null character in the path
        if isinstance(error, FlatoutError):
            raise
        raise refuse(
            f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}; {cure}"
        ) from None
    if len(content) > limit:
        raise refuse(f"{path}: grows while it is read; {cure}")
    return content


@contextmanager
def open_file(path: Path, limit: int, refuse: Refuse, cure: str) -> Iterator[IO[bytes]]:
    """An ordinary file that is not larger than the limit, open for reading."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        check_file(path, os.fstat(handle), limit=limit, refuse=refuse, cure=cure)
        with os.fdopen(handle, "rb", closefd=False) as file:
            yield file
    finally:
        os.close(handle)


def check_file(
    path: Path, status: os.stat_result, limit: int, refuse: Refuse = RunError, cure: str = RESTORE
) -> None:
    """Refuse folders, pipes, devices, and files that are too large.

    >>> check_file(Path("bars"), os.stat("."), limit=100)
    Traceback (most recent call last):
    flatout.errors.RunError: bars: is a folder, where a file is wanted; restore it from a copy, ...
    """
    if not stat.S_ISREG(status.st_mode):
        kind = "a folder" if stat.S_ISDIR(status.st_mode) else "a pipe, a socket or a device"
        raise refuse(f"{path}: is {kind}, where a file is wanted; {cure}")
    if status.st_size > limit:
        raise refuse(
            f"{path}: has {status.st_size:,} bytes, and at most {limit:,} are read; {cure}"
        )


def read_json(
    path: Path,
    shape: type[T],
    refuse: Refuse = RunError,
    cure: str = RESTORE,
    limit: int = JSON_BYTES,
) -> T:
    """A JSON file in the shape of a type: a pydantic model, a dataclass, `dict[str, int]` and the
    like.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "run.json").write_text('{"seed": 7}')
    ...     read_json(Path(folder, "run.json"), dict[str, int])
    {'seed': 7}
    """
    return parse_json(
        read_file(path, limit, refuse, cure), shape, where=str(path), refuse=refuse, cure=cure
    )


def read_json_if_there(
    path: Path, shape: type[T], refuse: Refuse = RunError, cure: str = RESTORE
) -> T | None:
    """A JSON file in the shape of a type; None where there is no such file.

    >>> print(read_json_if_there(Path("nowhere.json"), dict[str, int]))
    None
    """
    return read_json(path, shape, refuse, cure) if os.path.lexists(path) else None


def parse_json(
    content: bytes | str, shape: type[T], where: str, refuse: Refuse = RunError, cure: str = RESTORE
) -> T:
    """JSON text in the shape of a type; `where` names it in a refusal.

    >>> parse_json('{"pages": 3}', dict[str, int], where="answer")
    {'pages': 3}
    >>> parse_json('{"pages": "3"}', dict[str, int], where="answer", cure="ask again")
    Traceback (most recent call last):
    flatout.errors.RunError: answer: pages: Input should be a valid integer, given '3'; ask again
    """
    try:
        tree = pydantic_core.from_json(content, allow_inf_nan=False)
        if MAYBE_INFINITE.search(
            content if isinstance(content, bytes) else content.encode(errors="replace")
        ):
            check_finite(tree)  # the parser makes infinity of 1e999
        return adapter(cast(Any, shape)).validate_json(content, strict=True)
    except ValidationError as error:
        raise refuse(f"{where}: {problem_of(error)}; {cure}") from None
    except ValueError as error:
        raise refuse(f"{where}: is not JSON: {error}; {cure}") from None


def check_finite(tree: object) -> None:
    """ValueError for a number in a tree that is larger than any."""
    rest = [tree]
    while rest:
        value = rest.pop()
        if isinstance(value, dict | list):
            rest.extend(value.values() if isinstance(value, dict) else value)
        elif isinstance(value, float) and not math.isfinite(value):
            raise ValueError("a number is larger than any that can be held")


def validate_shape(
    value: object, shape: type[T], where: str, refuse: Refuse = RunError, cure: str = RESTORE
) -> T:
    """A value that came out of a foreign file or database, checked to have the shape of a type.

    >>> validate_shape(("a.org", 3), tuple[str, int], where="row 1")
    ('a.org', 3)
    """
    try:
        return adapter(cast(Any, shape)).validate_python(value, strict=True)
    except ValidationError as error:
        raise refuse(f"{where}: {problem_of(error)}; {cure}") from None


@cache
def adapter(shape: Any) -> TypeAdapter[Any]:
    """What checks values against a type; building one takes longer than using it."""
    return TypeAdapter(shape)


def problem_of(error: ValidationError) -> str:
    """The first thing that is wrong, and where."""
    problem = error.errors(include_url=False)[0]
    place = ".".join(str(part)[:SHOWN] for part in problem["loc"][:20]) or "it"
    if problem["type"] == "missing":
        return f"{place} is missing"
    if problem["type"] == "json_invalid":
        return f"is not JSON: {problem['ctx']['error']}"
    return f"{place}: {problem['msg'][: 4 * SHOWN]}, given {shorten_repr(problem['input'])}"


def shorten(value: object, limit: int = SHOWN) -> str:
    """A text for a message, or how anything else reads, without its end if it is longer than so
    many characters: what stands in a foreign file may have megabytes.
    """
    text = str(value)
    return text if len(text) <= limit else f"{text[:limit]}…"


def shorten_repr(value: object) -> str:
    """A value for a message as Python writes it, texts in quotes, without its end if it is long.

    >>> shorten_repr("word"), len(shorten_repr("x" * 1000))
    ("'word'", 81)
    """
    try:
        text = repr(value[: SHOWN + 1]) if isinstance(value, str | bytes) else BRIEF.repr(value)
    except ValueError:  # a whole number of more digits than Python shows
        return "a number of thousands of digits"
    return shorten(text)


def read_toml(path: Path, refuse: Refuse, cure: str = "give a TOML file") -> JsonTable:
    """The table in a TOML file of at most 1 MB.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "flatout.toml").write_text("market.capital = 5000")
    ...     read_toml(Path(folder, "flatout.toml"), refuse=RunError)
    {'market': {'capital': 5000}}
    """
    return parse_toml(read_file(path, TOML_BYTES, refuse, cure), str(path), refuse, cure)


def parse_toml(
    content: bytes | str, where: str, refuse: Refuse, cure: str = "give a TOML file"
) -> JsonTable:
    """The table in TOML text; `where` names it in a refusal.

    >>> parse_toml("market.capital = 5000", where="settings", refuse=RunError)
    {'market': {'capital': 5000}}
    """
    if len(content) > TOML_BYTES:
        raise refuse(
            f"{where}: has {len(content):,} bytes, and at most {TOML_BYTES:,} are read; {cure}"
        )
    try:
        text = content if isinstance(content, str) else content.decode()
        if MANY_DOTS.search(text):  # the parser's time grows with their square
            raise RecursionError
        table = tomllib.loads(text)
        check_depth(table)
    except RecursionError:
        raise refuse(f"{where}: not valid TOML: nested too deeply; {cure}") from None
    except ValueError as error:  # also a number of more digits than Python reads
        raise refuse(f"{where}: not valid TOML: {error}; {cure}") from None
    return table


def check_depth(tree: object) -> None:
    """RecursionError for a tree that is deeper than any that is meant."""
    level = [tree]
    for _ in range(DEPTH):
        level = [
            below
            for value in level
            if isinstance(value, dict | list)
            for below in (value.values() if isinstance(value, dict) else value)
        ]
        if not level:
            return
    raise RecursionError


def read_tensors(path: Path, refuse: Refuse = RunError, cure: str = RESTORE) -> Tensors:
    """The arrays of a safetensors file and the notes in its header. It is mapped, not read at
    once.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     safetensors.numpy.save_file({"bias": np.ones(2)}, f"{folder}/weights.safetensors")
    ...     read_tensors(Path(folder, "weights.safetensors")).arrays["bias"]
    array([1., 1.])
    """
    try:
        with open_file(path, sys.maxsize, refuse, cure) as file:
            head = file.read(8)
            head += file.read(min(int.from_bytes(head, "little"), HEADER_BYTES))
        check_header(head, str(path), refuse, cure)
        with safetensors.safe_open(path, framework="numpy") as mapped:
            arrays = {name: mapped.get_tensor(name) for name in mapped.keys()}  # noqa: SIM118
            return Tensors(arrays, dict(mapped.metadata() or {}))
    except FileNotFoundError:
        raise refuse(f"{path}: there is no such file; {cure}") from None
    except (OSError, safetensors.SafetensorError) as error:
        raise refuse(
            f"{path}: is not a whole safetensors file: {str(error)[:SHOWN]}; {cure}"
        ) from None


def parse_tensors(
    content: bytes, where: str, refuse: Refuse = RunError, cure: str = RESTORE
) -> Tensors:
    """The arrays of a safetensors file's bytes and the notes in its header; `where` names it.

    >>> content = safetensors.numpy.save({"bias": np.ones(2)}, {"made": "by hand"})
    >>> parse_tensors(content, where="weights")
    Tensors(arrays={'bias': array([1., 1.])}, notes={'made': 'by hand'})
    """
    notes = check_header(content[: 8 + HEADER_BYTES], where, refuse, cure)
    try:
        return Tensors(safetensors.numpy.load(content), notes)
    except safetensors.SafetensorError as error:
        raise refuse(
            f"{where}: is not a whole safetensors file: {str(error)[:SHOWN]}; {cure}"
        ) from None


def check_header(head: bytes, where: str, refuse: Refuse, cure: str) -> dict[str, str]:
    """Refuse a header that no safetensors file has, and arrays of a kind that NumPy does not know;
    the notes.
    """
    length = int.from_bytes(head[:8], "little")
    if len(head) < 8 or length > len(head) - 8:
        raise refuse(
            f"{where}: is not a whole safetensors file: its header is cut off or too long; {cure}"
        )
    header = parse_json(
        head[8 : 8 + length], dict[str, object], where=where, refuse=refuse, cure=cure
    )
    notes = validate_shape(
        header.pop("__metadata__", {}) or {},
        dict[str, str],
        where=f"{where}: __metadata__",
        refuse=refuse,
        cure=cure,
    )
    for name, entry in header.items():
        kind = entry.get("dtype") if isinstance(entry, dict) else None
        if not isinstance(kind, str) or kind not in KINDS:
            known = ", ".join(sorted(KINDS))
            raise refuse(
                f"{where}: {shorten_repr(name)} is of kind {shorten_repr(kind)}; NumPy knows "
                f"{known}; {cure}"
            )
    return notes


def finite(array: NumpyArray) -> bool:
    """Whether all of an array are numbers: neither NaN nor infinite."""
    return bool(np.isfinite(array).all())
