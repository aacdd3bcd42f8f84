"""Mutation campaigns: thousands of damaged inputs, each of which must be read or refused with a
sentence.

A campaign is a module of this folder:

    COUNT                                   cases in a full campaign
    prepare(folder)                         writes honest originals; called once in each process
    damage(number, originals, folder)       writes damaged input `number` into the empty folder;
                                            says what it did
    attempt(folder)                         does what a user does with it; says "read", or another
                                            word

A FlatoutError is a refusal. Anything else that is raised is a traceback, SilentlyWrong a wrong
answer. Cases run in processes of their own, which are killed when a case takes longer than SECONDS
or more memory than MOST_BYTES. Beside a case's folder lies `canary`, at which links may point and
which must not change. The current folder is empty and must stay so.

    python tests/damage/harness.py study_folders                  all of it
    python tests/damage/harness.py study_folders --count 200      a quick look
    python tests/damage/harness.py study_folders 17               one case again, with its traceback
"""

import argparse
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])
    sys.path.insert(1, str(Path(__file__).parents[2] / "packages/flatout-crawl/tests"))

from damage.one_case import SilentlyWrong, memory

__all__ = ["SilentlyWrong", "run_campaign"]
HERE = Path(__file__).parent
SECONDS = 10.0  # of one attempt
READY_SECONDS = 900.0  # to prepare, and to damage
PEAK_BYTES = 1 << 30  # above the size of the input
MOST_BYTES = 6 << 30  # of a whole process: it is killed before the machine suffers
POLL_SECONDS = 0.2
KEPT = 20  # cases of each kind that are told in full
HEAD = (
    "campaign", "cases", "read", "refused", "tracebacks", "hangs", "peaks", "outside", "wrong",
    "noise", "longest s",
    "largest MB",
)  # fmt: skip


@dataclass
class Result:
    """What a campaign found."""

    name: str
    cases: int = 0
    words: Counter[str] = field(default_factory=Counter)  # what attempts said, "refused" among them
    bad: Counter[str] = field(
        default_factory=Counter
    )  # traceback, hang, peak, outside, wrong, noise
    seconds: float = 0.0  # of the longest case
    megabytes: float = 0.0  # of the largest
    told: list[dict[str, Any]] = field(default_factory=list)  # the first bad cases of each kind

    def take(self, number: int, found: dict[str, Any]) -> None:
        """Count one case."""
        self.cases += 1
        self.seconds = max(self.seconds, found.get("seconds", 0.0))
        self.megabytes = max(self.megabytes, found.get("peak", 0) / 1e6)
        kinds = [kind for kind in ("noise", "outside") if kind in found]
        if found["outcome"] in ("traceback", "hang", "peak", "wrong"):
            kinds.append(found["outcome"])
        else:
            self.words[found["outcome"]] += 1
        if found["outcome"] != "peak" and found.get("peak", 0) > PEAK_BYTES + found.get("bytes", 0):
            kinds.append("peak")
        for kind in kinds:
            self.bad[kind] += 1
            if self.bad[kind] <= KEPT:
                self.told.append({"kind": kind, "number": number, **found})

    def row(self) -> tuple[str, ...]:
        """The numbers under HEAD."""
        read = sum(self.words.values()) - self.words["refused"]
        bad = (
            self.bad[kind] for kind in ("traceback", "hang", "peak", "outside", "wrong", "noise")
        )
        counts = (self.cases, read, self.words["refused"], *bad)
        return (
            self.name,
            *(f"{n:,}" for n in counts),
            f"{self.seconds:.1f}",
            f"{self.megabytes:,.0f}",
        )

    def story(self) -> str:
        """The bad cases, each so that it can be repeated."""
        return "\n".join(
            f"--- {one['kind']}: harness.py {self.name} {one['number']}: {one.get('damage')}\n"
            f"{one.get(one['kind']) or one.get('text', '')}"
            for one in self.told
        )


class Worker:
    """A process that does cases."""

    def __init__(self, name: str, room: Path) -> None:
        command = [sys.executable, str(HERE / "one_case.py"), name, str(room)]
        self.room = room
        room.mkdir(parents=True, exist_ok=True)
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            bufsize=0,
        )
        self.rest = b""
        if "ready" not in (said := self.hear(READY_SECONDS)):
            raise RuntimeError(f"the campaign {name} cannot be prepared: {said}")

    def do(self, number: int) -> dict[str, Any]:
        """One case. A process that took too long is killed, whatever it is doing."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{number}\n".encode())
        begun = self.hear(READY_SECONDS)
        if "begun" not in begun:
            raise RuntimeError(f"case {number} cannot be made: {begun}")
        return {**begun, **self.hear(SECONDS)}

    def hear(self, seconds: float) -> dict[str, Any]:
        """The next line, or why there is none."""
        assert self.process.stdout is not None
        highest = 0
        for _ in range(int(seconds / POLL_SECONDS)):
            while (
                b"\n" not in self.rest
                and select.select([self.process.stdout], [], [], POLL_SECONDS)[0]
            ):
                more = os.read(self.process.stdout.fileno(), 1 << 16)
                if not more:
                    return self.ended()
                self.rest += more
            if b"\n" in self.rest:
                line, _, self.rest = self.rest.partition(b"\n")
                return dict(json.loads(line))
            highest = max(highest, memory("VmRSS", self.process.pid))
            if highest > MOST_BYTES:
                self.kill()
                return {
                    "outcome": "peak",
                    "text": f"{highest:,} bytes and growing",
                    "peak": highest,
                }
        self.kill()
        return {
            "outcome": "hang",
            "text": f"more than {seconds:.0f} s",
            "seconds": seconds,
            "peak": highest,
        }

    def ended(self) -> dict[str, Any]:
        """How the process came to its end without an answer."""
        code, printed = self.process.wait(), self.room / "printed"
        text = printed.read_bytes()[-5000:].decode(errors="replace") if printed.exists() else ""
        return {"outcome": "traceback", "text": f"the process ended with {code}: {text}"}

    def kill(self) -> None:
        """End it and all that it has started."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None and not pipe.closed:
                pipe.close()

    @property
    def lives(self) -> bool:
        return self.process.poll() is None


def run_campaign(name: str, count: int | None = None, jobs: int = 2, first: int = 0) -> Result:
    """All cases of a campaign, or the first of them."""
    numbers = iter(range(first, first + (campaign_count(name) if count is None else count)))
    result, lock = Result(name), threading.Lock()
    failures: list[BaseException] = []
    with tempfile.TemporaryDirectory(prefix="flatout-damage-", ignore_cleanup_errors=True) as place:

        def work(room: Path) -> None:
            try:
                for number, found in cases(name, room, numbers, lock):
                    with lock:
                        result.take(number, found)
            except BaseException as error:
                failures.append(error)

        threads = [
            threading.Thread(target=work, args=(Path(place, f"room-{k}"),)) for k in range(jobs)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]
    return result


def cases(
    name: str, room: Path, numbers: Iterator[int], lock: threading.Lock
) -> Iterator[tuple[int, dict[str, Any]]]:
    """One process after another, as long as there are cases. A case that took too long is tried
    once more, by a fresh process: a busy machine is no hang.
    """
    worker = Worker(name, room)
    try:
        while True:
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            found = worker.do(number)
            if found["outcome"] == "hang":
                worker = Worker(name, room)
                found = worker.do(number)
            yield number, found
            if not worker.lives:
                worker.kill()
                worker = Worker(name, room)
    finally:
        worker.kill()


def campaign_count(name: str) -> int:
    """The cases of a full campaign."""
    import importlib

    return int(importlib.import_module(f"damage.{name}").COUNT)


def campaign_names() -> list[str]:
    """All campaigns of this folder."""
    return sorted(
        path.stem for path in HERE.glob("*.py") if "\ndef attempt(folder: Path)" in path.read_text()
    )


def as_table(results: list[Result]) -> str:
    """Markdown, as docs/security.md has it."""
    rows = [
        HEAD,
        tuple("---" if k == 0 else "---:" for k in range(len(HEAD))),
        *(result.row() for result in results),
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def repeat(name: str, number: int) -> None:
    """One case in this process, with whatever it raises; its folder stays."""
    import importlib

    from damage.one_case import fresh, prepare

    room = Path(tempfile.mkdtemp(prefix="flatout-damage-"))
    campaign = importlib.import_module(f"damage.{name}")
    prepare(campaign, room)
    print(
        f"case {number}, in {room}/case:",
        campaign.damage(number, room / "originals", fresh(room / "case")),
    )
    print(campaign.attempt(room / "case"))
    shutil.rmtree(room)


def run() -> None:
    """The command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", help=f"all, or one of {', '.join(campaign_names())}")
    parser.add_argument("number", type=int, nargs="?", help="repeat this case alone")
    parser.add_argument("--count", type=int, help="fewer cases")
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if given.number is not None:
        return repeat(given.name, given.number)
    names = campaign_names() if given.name == "all" else [given.name]
    results = [run_campaign(name, given.count, given.jobs, given.first) for name in names]
    if given.json:
        print(json.dumps([asdict(result) for result in results], indent=2))
    else:
        print("\n".join(result.story() for result in results if result.told))
        print(as_table(results))
    return None


if __name__ == "__main__":
    run()
