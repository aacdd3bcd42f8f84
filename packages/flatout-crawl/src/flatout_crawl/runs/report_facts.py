"""What a crawl's report is made of: the files of its folder, read as one mapping of plain values.

All text in them came from pages and servers, and files may come from others: each has a shape that
it must have, and control characters are stripped here again. What the values mean is not known
here, nor how they are shown.
"""

import os
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

from flatout.errors import RunError
from flatout.foreign import check_file, parse_json, read_json, shorten_repr
from flatout_crawl.net.ledger import AUDIT_FILE, LONGEST_LINE, bounded_lines, printable
from flatout_crawl.net.scope import canonical, origin_of
from flatout_crawl.runs.order import RUN, RUN_BYTES
from flatout_crawl.runs.report_shapes import (
    AuditRow,
    ShownEvaluation,
    ShownOutcome,
    ShownRobots,
    ShownTarget,
)

EVALUATION = "evaluation.json"
RESULT_BYTES = 128 << 20  # of an evaluation or an outcome
MOST_LINE_FILE = 1 << 40  # bytes of a file that is read line by line
MOST_TARGETS = 2_000  # listed on the page; all are in the file
LARGEST = 1 << 63  # numbers beyond are shown as text
FILES = (
    "targets.jsonl",
    "archive.sqlite",
    "graph.gexf",
    "audit.jsonl",
    "outcome.json",
    "run.json",
    "visits.jsonl",
)
ELSEWHERE = "run the crawl again in another folder"
T = TypeVar("T")


def gather(folder: Path) -> dict[str, Any]:
    """The facts of a run or an evaluation."""
    if os.path.lexists(folder / EVALUATION):
        return {
            "kind": "evaluation",
            **clean(
                asdict(
                    read_json(
                        folder / EVALUATION, ShownEvaluation, cure=ELSEWHERE, limit=RESULT_BYTES
                    )
                )
            ),
        }
    if not os.path.lexists(folder / RUN):
        raise RunError(
            f"{folder} holds neither a crawl ({RUN}) nor an evaluation ({EVALUATION}): give the "
            "--out folder of `flatout crawl run`, `record` or `eval`"
        )
    targets, count = first_targets(folder / "targets.jsonl")
    outcome: dict[str, Any] = {}
    if os.path.lexists(folder / "outcome.json"):
        outcome = asdict(
            read_json(folder / "outcome.json", ShownOutcome, cure=ELSEWHERE, limit=RESULT_BYTES)
        )
    facts = {
        "kind": "run",
        "run": read_json(folder / RUN, dict[str, Any], cure=ELSEWHERE, limit=RUN_BYTES),
        "outcome": outcome,
        "targets": targets,
        "targets_in_all": count,
        "audit": audit(folder),
        "robots": [robots_facts(row) for row in rows(folder / "robots.jsonl", ShownRobots)],
        "files": [name for name in FILES if (folder / name).exists()],
    }
    return dict(clean(facts))


def rows(path: Path, shape: type[T]) -> Iterator[T]:
    """The rows in a file of JSON lines; the half line that a kill left is passed over, as are lines
    cut by one.
    """
    if not os.path.lexists(path):
        return
    try:
        file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror}; {ELSEWHERE}") from None
    with file:
        check_file(path, os.fstat(file.fileno()), MOST_LINE_FILE, cure=ELSEWHERE)
        for number, line in enumerate(bounded_lines(file), 1):
            if len(line) == LONGEST_LINE:
                raise RunError(
                    f"{path}: line {number} has {LONGEST_LINE:,} bytes or more; {ELSEWHERE}"
                )
            if line.startswith(b"{") and line.endswith(b"}\n"):
                yield parse_json(line, shape, f"{path}: line {number}", cure=ELSEWHERE)


def first_targets(path: Path) -> tuple[list[dict[str, Any]], int]:
    """What was found, as far as it is listed, and how much there is in all."""
    listed, count = [], 0
    for count, row in enumerate(rows(path, ShownTarget), 1):
        if count <= MOST_TARGETS:
            listed.append(asdict(row))
    return listed, count


def clean(value: Any) -> Any:
    """The same without control characters in any text, and without numbers that cannot be computed
    with.
    """
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, int) and abs(value) >= LARGEST:
        return shorten_repr(value)
    if isinstance(value, Mapping):
        return {printable(str(key)): clean(part) for key, part in value.items()}
    return [clean(part) for part in value] if isinstance(value, list | tuple) else value


def audit(folder: Path) -> dict[str, Any]:
    """What the audit log tells: requests per host, how they ended, and how far apart they began."""
    hosts: dict[str, list[AuditRow]] = defaultdict(list)
    for row in rows(folder / AUDIT_FILE, AuditRow):
        known = canonical(row.url)
        hosts[f"{origin_of(known).host}:{origin_of(known).port}" if known else "unknown"].append(
            row
        )
    return {"hosts": {host: host_facts(some) for host, some in hosts.items()}}


def host_facts(some: list[AuditRow]) -> dict[str, Any]:
    """One host's requests in numbers."""
    begun = sorted(row.time.timestamp() - row.seconds for row in some)
    gaps = [later - earlier for earlier, later in pairwise(begun)]
    ends = Counter(row.failure or f"status {row.status}" for row in some)
    return {
        "requests": len(some),
        "ends": dict(ends.most_common()),
        "megabytes": sum(row.bytes for row in some) / 1e6,
        "median_seconds": statistics.median(row.seconds for row in some),
        "shortest_gap": max(0.0, min(gaps)) if gaps else None,
        "median_gap": statistics.median(gaps) if gaps else None,
        "robots": sum(row.url.endswith("/robots.txt") for row in some),
    }


def robots_facts(row: ShownRobots) -> dict[str, Any]:
    """What became of a robots.txt."""
    return {"url": row.asked, "status": row.status, "bytes": len(row.body)}
