"""Ways to damage files, each drawn by a random generator: bytes, JSON trees, safetensors, zips, and
whole folders.

All return what they did in words. A generator that was seeded with a case's number makes the same
damage again.
"""

import base64
import io
import json
import os
import pickle
import random
import shutil
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from damage.one_case import CANARY

Damaged = tuple[bytes, str]


class Trap:
    """Writes to the canary if it is ever unpickled; the current folder of an attempt lies beside
    it.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return (exec, (f"open('../{CANARY}/file.txt', 'a').write('a pickle was read')",))


PICKLE = pickle.dumps(Trap())
TOKENS = (
    b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b"NaN", b"-Infinity", b"1e999", b"9" * 5000, b'"', b"{",
    b"[" * 300, b"\n",
    b"\\ud800", b"../../up", b"\x1b[31m", b"[red]",
)  # fmt: skip
# What JSON's own writer cannot say; the text goes in for the mark after writing.
RAW = {
    "deep "
    "lists": "[" * 100_000 + "]" * 100_000, ("deep "
                                            "tables"): '{"a":' * 5_000 + "1" + "}" * 5_000,
                                            "NaN": "NaN",
    "an infinite "
    "number": "-Infinity", "1e999": "1e999", ("5,000 "
                                             "digits"): "9" * 5_000, "lone surrogate": '"\\ud800"',
}  # fmt: skip
HUGE = (-1, 0, 2**31, 2**53 + 1, 2**63, -(2**63), 2**64, 10**20, 10**300, 1.5, -0.0, 1e308, 5e-324)
TYPES: tuple[Any, ...] = (
    None, True, "text", "", 7, 0.5, [], {}, [[]], [None], {"a": None}, [1, "two"], "../../up",
    "off",
    PICKLE.hex(), base64.b64encode(PICKLE).decode(),
)  # fmt: skip
LARGE_BYTES = 64 << 20
BOMB_BYTES = 200 << 20  # of zeros, in a member of a zip
KINDS = ("BF16", "F8_E4M3", "F64", "F32", "F16", "I64", "U8", "BOOL", "C64", "X", None, 3)


def damage_bytes(content: bytes, rng: random.Random) -> Damaged:
    """Flipped, cut, inserted, repeated or spliced bytes, without a thought for what they mean."""
    where = rng.randrange(len(content) + 1)
    until = min(len(content), where + rng.choice((1, 4, 64, 1024, len(content))))
    kind = rng.choice(
        (
            "flip",
            "cut",
            "remove",
            "insert",
            "token",
            "repeat",
            "splice",
            "empty",
            "garbage",
            "pickle",
        )
    )
    if kind == "pickle":
        return PICKLE + content[where:], "a pickle"
    if kind == "flip":
        changed = bytearray(content)
        for _ in range(rng.choice((1, 3, 30))):
            if changed:
                changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
        return bytes(changed), "some bits flipped"
    if kind == "cut":
        return content[:where], f"cut after {where} bytes"
    if kind == "remove":
        return content[:where] + content[until:], f"bytes {where} to {until} removed"
    if kind == "insert":
        return content[:where] + rng.randbytes(rng.choice((1, 8, 500))) + content[
            where:
        ], f"bytes put in at {where}"
    if kind == "token":
        token = rng.choice(TOKENS)
        return content[:where] + token + content[where:], f"{token[:20]!r} put in at {where}"
    if kind == "repeat":
        times = rng.choice((2, 10, 100))
        return content[:until] + content[where:until] * times + content[
            until:
        ], f"{where} to {until} {times} times more"
    if kind == "splice":
        other = rng.randrange(len(content) + 1)
        return content[:where] + content[other:], f"goes on at {other} after {where}"
    return (
        (b"", "nothing in it")
        if kind == "empty"
        else (rng.randbytes(rng.choice((1, 100, 10_000))), "random bytes")
    )


def places_in(tree: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all values in a tree, the root's own first."""
    keys: Sequence[Any] = (
        list(tree) if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ()
    )
    return [path, *(place for key in keys for place in places_in(tree[key], (*path, key)))]


def damage_tree(tree: Any, rng: random.Random, under: tuple[Any, ...] = ()) -> Damaged:
    """JSON in which one value is gone, of another type, much too large, or in a wrong place.
    `under` names a value that alone is damaged.
    """
    tree = json.loads(json.dumps(tree))
    path = rng.choice([place for place in places_in(tree) if place[: len(under)] == under])
    said = ".".join(map(str, path)) or "all"
    if not path:
        return raw_or_type(rng, said)
    parent = tree
    for key in path[:-1]:
        parent = parent[key]
    last = path[-1]
    kind = rng.choice(
        ("drop", "type", "type", "number", "raw", "long", "twice", "rename", "swap", "nudge")
    )
    if kind == "drop":
        del parent[last]
    elif kind == "type":
        parent[last] = rng.choice(TYPES)
    elif kind == "number":
        parent[last] = rng.choice(HUGE)
    elif kind == "long":
        parent[last] = rng.choice(
            ("x" * 3_000_000, ["y"] * 100_000, {f"k{k}": k for k in range(50_000)})
        )
    elif kind == "twice":
        parent[last] = [parent[last], parent[last]]
    elif kind == "rename" and isinstance(parent, dict):
        parent[f"{last}2"] = parent.pop(last)
    elif kind == "swap":
        other = rng.choice(list(parent) if isinstance(parent, dict) else range(len(parent)))
        parent[last], parent[other] = parent[other], parent[last]
        return json.dumps(tree).encode(), f"{said} swapped with {other}"
    elif (
        kind == "nudge"
        and isinstance(parent[last], int | float)
        and not isinstance(parent[last], bool)
    ):
        parent[last] = parent[last] + rng.choice((-1, 1))
    else:
        name = rng.choice(list(RAW))
        parent[last] = "@raw@"
        return json.dumps(tree).replace('"@raw@"', RAW[name]).encode(), f"{said} became {name}"
    given = str(parent[last])[:40] if kind not in ("drop", "rename") else ""
    return json.dumps(tree).encode(), f"{said}: {kind} {given}".strip()


def raw_or_type(rng: random.Random, said: str) -> Damaged:
    """Something else in the place of a whole tree."""
    name = rng.choice([*RAW, *map(repr, TYPES)])
    content = RAW[name] if name in RAW else json.dumps(next(t for t in TYPES if repr(t) == name))
    return content.encode(), f"{said} became {name[:40]}"


def damage_json(content: bytes, rng: random.Random) -> Damaged:
    """A JSON file: mostly its values, now and then its bytes."""
    return (
        damage_bytes(content, rng) if rng.random() < 0.3 else damage_tree(json.loads(content), rng)
    )


def damage_json_lines(content: bytes, rng: random.Random) -> Damaged:
    """A file of JSON lines: a value of one line, a line gone, twice or moved, or bytes."""
    lines = content.splitlines(keepends=True)
    at, kind = (
        rng.randrange(len(lines)),
        rng.choice(("value", "value", "value", "drop", "twice", "move", "bytes")),
    )
    if kind == "bytes":
        return damage_bytes(content, rng)
    said = f"line {at + 1}: {kind}"
    if kind == "value":
        changed, words = damage_tree(json.loads(lines[at]), rng)
        lines[at], said = changed + b"\n", f"line {at + 1}: {words}"
    elif kind == "drop":
        del lines[at]
    elif kind == "twice":
        lines.insert(at, lines[at])
    else:
        lines.insert(rng.randrange(len(lines)), lines.pop(at))
    return b"".join(lines), said


def damage_tensors(content: bytes, rng: random.Random) -> Damaged:
    """A safetensors file: its header's tree, kinds, shapes and offsets, its numbers, or its
    bytes.
    """
    if rng.random() < 0.25 or len(content) < 8:
        return damage_bytes(content, rng)
    length = int.from_bytes(content[:8], "little")
    header, body = json.loads(content[8 : 8 + length]), content[8 + length :]
    names = [name for name in header if name != "__metadata__"]
    kind = rng.choice(("tree", "kind", "shape", "numbers", "length", "notes", "drop"))
    if kind == "numbers" or not names:
        filler = rng.choice((b"\xff", b"\0", b"\x7f", b"\x7f\x80\0\0"[::-1]))
        where = rng.randrange(len(body) + 1) & ~3
        filled = (filler * len(body))[: rng.choice((4, 64, len(body)))]
        return content[: 8 + length] + (body[:where] + filled + body[where:])[
            : len(body)
        ], f"numbers became {filler!r}"
    if kind == "length":
        wrong = rng.choice((0, 1, length - 1, length + 1, 2**31, 2**63, 2**64 - 1))
        return wrong.to_bytes(8, "little") + content[8:], f"header length {wrong}"
    name = rng.choice(names)
    if kind == "kind":
        header[name]["dtype"] = rng.choice(KINDS)
        said = f"{name} is of kind {header[name]['dtype']}"
    elif kind == "shape":
        shape = header[name]["shape"]
        shape = rng.choice(
            (shape[::-1], [*shape, 1], [1, *shape], [2**40], [-1], [0], [], shape[:-1])
        )
        header[name]["shape"], said = shape, f"{name} has shape {shape}"
    elif kind == "drop":
        return rejoined(
            {key: value for key, value in header.items() if key != name}, body
        ), f"{name} is gone"
    else:
        under = ("__metadata__",) if kind == "notes" and "__metadata__" in header else ()
        return damage_notes(header, body, rng) if under else tree_of_header(header, body, rng)
    return rejoined(header, body), said


def damage_notes(header: dict[str, Any], body: bytes, rng: random.Random) -> Damaged:
    """A note of a safetensors file that holds JSON, or any note."""
    key = rng.choice(list(header["__metadata__"]) or [""])
    try:
        text, said = damage_tree(json.loads(header["__metadata__"][key]), rng)
    except (KeyError, ValueError):
        return tree_of_header(header, body, rng)
    header["__metadata__"][key] = text.decode()
    return rejoined(header, body), f"note {key}: {said}"


def tree_of_header(header: dict[str, Any], body: bytes, rng: random.Random) -> Damaged:
    """Any value of the header."""
    text, said = damage_tree(header, rng)
    return len(text).to_bytes(8, "little") + text + body, f"header: {said}"


def rejoined(header: dict[str, Any], body: bytes) -> bytes:
    """A safetensors file from its parts."""
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + body


def damage_zip(
    content: bytes,
    rng: random.Random,
    inner: Callable[[bytes, random.Random], Damaged] | None = None,
) -> Damaged:
    """A zip: one member damaged, gone, twice, renamed to a path outside, blown up, or the archive's
    bytes.
    """
    kind = rng.choice(("bytes", "bytes", "inside", "inside", "drop", "rename", "bomb"))
    if kind == "bytes":
        return damage_bytes(content, rng)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name, said = rng.choice(list(members)), ""
    if kind == "inside":
        members[name], said = (inner or damage_bytes)(members[name], rng)
    elif kind == "drop":
        del members[name]
    elif kind == "rename":
        members[rng.choice(("../../up", "/abs", "a\0b", "x" * 300, ""))] = members.pop(name)
    else:
        members[name] = bytes(BOMB_BYTES)
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for member, data in members.items():
            about = zipfile.ZipInfo(member or "empty")  # of a fixed date
            archive.writestr(about, data, zipfile.ZIP_DEFLATED)
    return made.getvalue(), f"{name}: {kind} {said}".strip()


BY_SUFFIX: dict[str, Callable[[bytes, random.Random], Damaged]] = {
    ".json": damage_json, ".jsonl": damage_json_lines, ".journal": damage_json_lines,
    ".safetensors": damage_tensors,
    ".zip": damage_zip, ".npz": damage_zip,
}  # fmt: skip


def damage_file(path: Path, rng: random.Random) -> str:
    """A file, as its name says what it holds."""
    content = path.read_bytes()
    try:
        changed, said = BY_SUFFIX.get(path.suffix, damage_bytes)(content, rng)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError, zipfile.BadZipFile):
        changed, said = damage_bytes(content, rng)  # it was damaged before
    path.write_bytes(changed)
    return f"{path.name}: {said}"


def plain_files(folder: Path) -> list[Path]:
    """The ordinary files in a folder, but for those that an earlier damage has blown up."""
    found = (path for path in folder.rglob("*") if not path.is_symlink() and path.is_file())
    return sorted(path for path in found if path.stat().st_size < LARGE_BYTES)


def damage_folder(folder: Path, rng: random.Random, case: Path, files: Sequence[Path] = ()) -> str:
    """A folder: what is in a file, or the file itself, which becomes something else. `case` is the
    case's folder.
    """
    path = rng.choice(files or plain_files(folder))
    return damage_file(path, rng) if rng.random() < 0.75 else replace_file(path, rng, case, folder)


def replace_file(path: Path, rng: random.Random, case: Path, top: Path | None = None) -> str:
    """Something else in a file's place: nothing, a folder, a pipe, a link outside, a device, a
    hole, another file; or a link in the place of its folder, unless that is `top`: where a user's
    own path leads is his choice.
    """
    neighbour = rng.choice(plain_files(path.parent))
    other = neighbour.read_bytes()
    kind = rng.choice(
        ("gone", "folder", "pipe", "link", "loop", "device", "hole", "other", "parent")
    )
    path.unlink()
    canary = case.parent / CANARY
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "link":
        path.symlink_to(canary / rng.choice(sorted(os.listdir(canary))))  # noqa: PTH208
    elif kind == "loop":
        path.symlink_to(path.name)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "hole":
        with path.open("wb") as file:
            file.truncate(rng.choice((1 << 20, 20 << 30)))
    elif kind == "other":
        path.write_bytes(other)
        return f"{path.name} became {neighbour.name}"
    elif kind == "parent" and path.parent not in (case, top):
        shutil.rmtree(path.parent)
        path.parent.symlink_to(canary)
    return f"{path.name}: {kind}"
