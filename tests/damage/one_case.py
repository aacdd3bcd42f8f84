"""The process in which a campaign's cases run, one after another: what each did, how long it took,
and how much memory.

The harness says a case's number on standard input and is answered in lines of JSON: one when the
attempt begins, one when it has ended. Whatever the case itself prints goes elsewhere.
"""

import contextlib
import importlib
import json
import os
import resource
import shutil
import stat
import sys
import time
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

QUIET = (
    DeprecationWarning,
    PendingDeprecationWarning,
    ImportWarning,
    ResourceWarning,
)  # Python shows them to nobody
LONG = 5000  # characters: no sentence has so many
CANARY = "canary"  # the tree beside a case's folder, at which its links may point
COMPARED = (CANARY, "originals", "here")


class SilentlyWrong(Exception):  # noqa: N818
    """The damage matters, and the answer does not show it."""


def serve(name: str, room: Path) -> None:
    """Do all cases that are asked for; the room is a folder of this process alone."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    printed = open_printed(room)
    campaign = importlib.import_module(f"damage.{name}")
    prepare(campaign, room)
    print(json.dumps({"ready": os.getpid()}), file=answers)
    for line in sys.stdin:
        number = int(line)
        folder = fresh(room / "case")
        fresh(room / "tmp")
        words = campaign.damage(number, room / "originals", folder)
        allowed = size_of(folder)
        before = snapshot(room)
        print(json.dumps({"begun": number, "damage": words, "bytes": allowed}), file=answers)
        printed.truncate(0)
        found = attempt(campaign, folder)
        text = printed_text(printed)
        if text and found["outcome"] != "traceback":
            found["noise"] = text[-LONG:]
        if snapshot(room) != before:
            found["outside"] = difference(before, snapshot(room))
            make_canary(room)
        print(json.dumps(found), file=answers)


def prepare(campaign: Any, room: Path) -> None:
    """Honest originals, the canary, and an empty current folder."""
    for name in ("originals", "here", "tmp"):
        fresh(room / name)
    os.environ["TMPDIR"] = str(room / "tmp")
    campaign.prepare(room / "originals")
    make_canary(room)
    os.chdir(room / "here")


def attempt(campaign: Any, folder: Path) -> dict[str, Any]:
    """What a user does with the damaged input, and what came of it."""
    from flatout.errors import FlatoutError

    resident, children = clear_peak(), child_peak()
    found: dict[str, Any] = {"text": ""}
    began = time.perf_counter()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for kind in QUIET:
            warnings.simplefilter("ignore", kind)
        try:
            found["outcome"] = campaign.attempt(folder)
        except FlatoutError as error:
            found |= {"outcome": "refused", "text": str(error)[:LONG]}
            if len(str(error)) >= LONG:
                found["noise"] = f"a sentence of {len(str(error))} characters"
        except SilentlyWrong as error:
            found |= {"outcome": "wrong", "text": str(error)[:LONG]}
        except BaseException:  # also what C libraries raise beside Exception
            found |= {"outcome": "traceback", "text": traceback.format_exc()[-LONG:]}
    found["seconds"] = time.perf_counter() - began
    found["peak"] = max(
        memory("VmHWM") - resident, child_peak() - children if child_peak() > children else 0
    )
    if warned:
        found["noise"] = "; ".join(f"{one.category.__name__}: {one.message}" for one in warned)[
            :LONG
        ]
    return found


def clear_peak() -> int:
    """Forget the highest memory so far; the bytes in use, from which a peak is measured."""
    with contextlib.suppress(
        OSError
    ):  # where the system does not let us, peaks count from the highest so far
        Path("/proc/self/clear_refs").write_text("5")
    return memory("VmHWM")


def memory(name: str, process: int | str = "self") -> int:
    """A line of the system's account of a process, in bytes."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith(name)), 0)


def child_peak() -> int:
    """The highest memory of any process that was started here and has ended."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10


def open_printed(room: Path) -> Any:
    """From now on standard error is a file, and standard output nothing."""
    printed = (room / "printed").open("w+b", buffering=0)
    os.dup2(printed.fileno(), 2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return printed


def printed_text(printed: Any) -> str:
    """What was printed since it was last truncated."""
    sys.stderr.flush()
    return os.pread(printed.fileno(), 1 << 20, 0).decode(errors="replace").strip("\0\n ")


def fresh(folder: Path) -> Path:
    """An empty folder in the place of whatever is there."""
    if folder.exists():
        for place, names, _ in os.walk(folder):
            Path(place).chmod(0o700)
            for name in names:
                if not Path(place, name).is_symlink():
                    Path(place, name).chmod(0o700)
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    return folder


def make_canary(room: Path) -> None:
    """What lies outside of the case: files, hidden files, names that a run's folder has, and a
    folder.
    """
    canary = fresh(room / CANARY)
    for name in (
        "file.txt",
        ".hidden",
        ".settings.json.abcdefgh",
        "lock",
        "study.journal",
        "data-0.npy",
        "deep/file.txt",
    ):
        (canary / name).parent.mkdir(exist_ok=True)
        (canary / name).write_text(f"{name} is not yours\n")


def snapshot(room: Path) -> dict[str, tuple[Any, ...]]:
    """All that lies beside the case: names, sizes, times, and of the canary what is in it."""
    found: dict[str, tuple[Any, ...]] = dict.fromkeys(os.listdir(room), ())  # noqa: PTH208
    for top in COMPARED:
        for path in walk(room / top):
            status = path.lstat()
            content = path.read_bytes() if top == CANARY and stat.S_ISREG(status.st_mode) else b""
            moved = 0 if stat.S_ISDIR(status.st_mode) else status.st_mtime_ns
            found[str(path)] = (
                status.st_mode,
                0 if stat.S_ISDIR(status.st_mode) else status.st_size,
                moved,
                content,
            )
    return found


def walk(folder: Path) -> Iterator[Path]:
    """Everything in a folder; links are not followed."""
    for place, folders, files in os.walk(folder):
        yield from (Path(place, name) for name in (*folders, *files))


def difference(before: dict[str, Any], after: dict[str, Any]) -> str:
    """The names that came, went or changed."""
    return ", ".join(
        sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
    )[:LONG]


def size_of(folder: Path) -> int:
    """The bytes that a folder's files take on the disk: holes count as nothing."""
    return sum(path.lstat().st_blocks * 512 for path in walk(folder))


if __name__ == "__main__":
    sys.path[0] = str(
        Path(__file__).parents[1]
    )  # the tests' folder: modules are called damage.something
    sys.path.insert(1, str(Path(__file__).parents[2] / "packages/flatout-crawl/tests"))
    from damage.one_case import (
        serve as serve_cases,
    )  # so that SilentlyWrong is one class and not two

    serve_cases(sys.argv[1], Path(sys.argv[2]))
